"""A proposer's episodes out of checked questions: each starts where it should and finds what it asks for."""

import json

import pytest
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.chat.spans import shown_passages
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Evidence, Proposal, Search
from quaere.rewards.answers import contains
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.search.index_build import build_index
from quaere.search.searcher import LocalSearcher
from quaere.training.proposals import read_proposal
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.document_lessons import THOUGHTS, plan_proposals, play_own, play_proposals
from quaere.warmup.documents.hardening_lessons import find_difference, plan_hardenings
from quaere.warmup.documents.page_names import Pages
from quaere.warmup.scripted_episodes import judge
from scripted import ScriptedSampler

PAGES = {
    "Halm Bridge": "Halm Bridge crosses the River Oss near the mill. It was built by Orsolya Venn for the whole town.",
    "Orsolya Venn": "Orsolya Venn was a mason of the coast. She was born in Korrin Vale in the year of the flood.",
    "Sall": "The road to Sall runs over Halm Bridge and through the old woods. Sall is a port of three quays.",
    "Ropers Guild": "The guild kept its books in Sall. It once paid Orsolya Venn for Halm Bridge with nine horses.",
    "Korrin Vale": "Korrin Vale is a valley of mills. Its mason Orsolya Venn left it early and did not come back.",
}
# The tiny tokenizer takes three times as many tokens as a real one.
LIMITS = Limits(turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000, topk=2)
RENDERER = Renderer(tiny.tokenizer())


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rows = [{"id": title, "title": title, "text": text} for title, text in PAGES.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build_index(folder / "corpus.jsonl", folder / "index")


def sentence(page, words):
    """The sentence of a page that holds these words, as evidence."""
    for text in PAGES[page].split(". "):
        text = text if text.endswith(".") else f"{text}."
        if words in text:
            start = PAGES[page].index(text)
            return Evidence(page, start, start + len(text), text)
    raise AssertionError(f"{page} does not say {words}")


def checked(id, question, answer, *evidence, kind="single", searches=1):
    return CheckedQuestion(id, question, (answer,), kind, len(evidence), searches, len(evidence), evidence)


BUILT = checked("built", "Who built Halm Bridge?", "Orsolya Venn", sentence("Halm Bridge", "Venn"))
BORN = checked("born", "Where was Orsolya Venn born?", "Korrin Vale", sentence("Orsolya Venn", "Korrin Vale"))
QUAYS = checked("quays", "How many quays has the port of Sall?", "three", sentence("Sall", "three"))
CHAIN = checked(
    "chain",
    "Where was the builder of Halm Bridge born?",
    "Korrin Vale",
    sentence("Halm Bridge", "Venn"),
    sentence("Orsolya Venn", "Korrin Vale"),
    kind="chain",
    searches=2,
)
AGREED = checked("agreed", "Is it so?", "yes", sentence("Sall", "three"), sentence("Sall", "three"), kind="agreement")
CHOICE = checked("choice", "How many has it, three or six?", "three", sentence("Sall", "three"), kind="choice")
YES_NO = checked("yes-no", "Has Sall three quays?", "yes", sentence("Sall", "three"), kind="yes-no")
ALL = [BUILT, BORN, QUAYS, CHAIN, AGREED, CHOICE, YES_NO]


def plan(index, questions=ALL, ratio=(1, 1, 1)):
    return plan_proposals(Pages(index), questions, ratio)


async def play(index, planned, dialect="drzero", limits=LIMITS, **settings):
    searcher = LocalSearcher(index)
    return await play_proposals(planned, searcher, RENDERER, dialect, limits, style="brief", **settings)


# ------------------------------------------------------------------------------------------------------------ planning


def test_each_kind_of_question_is_arrived_at_from_a_document_that_gives_nothing_away(index):
    planned = {(item.question.id, item.hops): item for item in plan(index)}
    assert set(planned) == {
        ("built", 1),
        ("built", 2),
        ("born", 1),
        ("born", 2),
        ("quays", 1),
        ("quays", 2),
        ("chain", 3),
    }
    assert planned["built", 1].document.doc_id == "Halm Bridge"
    # The guild names the bridge too, but also who built it.
    assert planned["built", 2].document.doc_id == planned["chain", 3].document.doc_id == "Sall"
    # Korrin Vale names her and is the answer.
    assert planned["born", 2].document.doc_id in ("Halm Bridge", "Ropers Guild")
    assert planned["chain", 3].names == ("Halm Bridge", "Orsolya Venn")
    for item in planned.values():
        if item.hops > 1:
            assert contains(item.document.titled_text, item.names[0])
            assert not any(
                contains(item.document.titled_text, text) for text in (item.question.answers[0], *item.names[1:])
            )


def test_hops_are_mixed_by_their_weights_from_the_beginning(index):
    singles = [
        checked(f"b{number}", f"Who built Halm Bridge {number}?", "Orsolya Venn", sentence("Halm Bridge", "Venn"))
        for number in range(12)
    ]
    hops = [item.hops for item in plan(index, singles, (2, 1))]
    assert all(abs(hops[:cut].count(1) - 2 * cut / 3) < 1.5 for cut in range(18))
    assert hops[18:] == [2] * 6  # of one hop there are no more
    assert {item.hops for item in plan(index, singles, (0, 1))} == {2}


def test_pages_without_a_name_are_left_out(tmp_path):
    """There is nothing to search for, and a thought could not name where it starts."""
    rows = [{"id": page, "title": "" if page == "Orsolya Venn" else page, "text": text} for page, text in PAGES.items()]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    planned = plan(build_index(tmp_path / "corpus.jsonl", tmp_path / "index"))
    assert {item.question.id for item in planned} == {"built", "quays"}  # neither where she was born, nor the chain


def test_questions_of_other_documents_are_left_out(index):
    moved = Evidence("Halm Bridge", 3, 3 + len(BUILT.evidence[0].text), BUILT.evidence[0].text)
    gone = Evidence("Nowhere", 0, 4, "Venn")
    found = plan(index, [checked("a", "Who?", "Venn", moved), checked("b", "Who?", "Venn", gone), BORN])
    assert {item.question.id for item in found} == {"born"}


# ------------------------------------------------------------------------------------------------------------- playing


@pytest.mark.parametrize("dialect", ["drzero", "eve"])
async def test_episodes_search_for_each_page_and_end_with_the_checked_question(index, dialect):
    planned = sorted(plan(index), key=lambda item: -item.hops)  # so that two hops are played before one
    played = await play(index, planned, dialect)
    episodes = {episode.id: episode for episode in played.episodes}
    assert set(episodes) == {"proposer-3-chain", "proposer-2-built", "proposer-2-born", "proposer-2-quays"}
    assert not played.dropped
    queries = {
        id: [turn.action.queries for turn in episode.turns if isinstance(turn.action, Search)]
        for id, episode in episodes.items()
    }
    assert queries["proposer-3-chain"] == [("Halm Bridge",), ("Orsolya Venn",)]
    assert queries["proposer-2-quays"] == [("Sall",)]
    questions = {f"proposer-{item.hops}-{item.question.id}": item.question for item in planned}
    for id, episode in episodes.items():
        question, spans = questions[id], [evidence.text for evidence in questions[id].evidence]
        span = spans[-1] if dialect == "eve" else ""
        assert episode.outcome == Proposal(question.question, question.answers[0], span)
        shown = [passage.text for passage in shown_passages(episode)[1:]]
        assert all(any(text in passage for passage in shown) for text in spans)
        assert judge(episode, "proposer", dialect) == "" and read_proposal(episode).score.total == 1.0


async def test_a_thought_fits_the_step_it_stands_before(index):
    planned = {(item.question.id, item.hops): item for item in plan(index)}
    for key, steps in (
        (("quays", 1), [("own", "Sall")]),
        (("chain", 3), [("first", "Halm Bridge"), ("next", "Orsolya Venn"), ("found", "Halm Bridge")]),
    ):
        (episode,) = (await play(index, [planned[key]])).episodes
        for turn, (kind, name) in zip(episode.turns, steps, strict=True):
            said = [form.format(name=name, answer=planned[key].question.answers[0]) for form in THOUGHTS[kind]]
            assert any(f"<think>{thought}</think>" in turn.text for thought in said)


async def test_each_question_is_shown_once_and_no_more_than_wanted(index):
    played = await play(index, plan(index))
    assert sorted(episode.id.split("-")[-1] for episode in played.episodes) == ["born", "built", "chain", "quays"]
    assert len((await play(index, plan(index), num=2)).episodes) == 2
    assert (await play(index, plan(index), num=0)).episodes == []


async def test_a_page_that_the_search_does_not_show_is_not_asked_about(index):
    planned = [item for item in plan(index) if item.hops == 3]
    played = await play(index, planned, limits=Limits(turn_tokens=1024, tool_response_tokens=12))
    assert played.episodes == [] and played.dropped == {"a page was not found": 1}


async def test_a_question_that_would_be_read_otherwise_is_dropped(index):
    tagged = checked("t", "Who built</question> Halm Bridge?", "Orsolya Venn", sentence("Halm Bridge", "Venn"))
    played = await play(index, [item for item in plan(index, [tagged]) if item.hops == 1])
    assert played.episodes == [] and sum(played.dropped.values()) == 1


async def test_the_same_seed_gives_the_same_words(index):
    texts = [
        [turn.text for episode in (await play(index, plan(index), seed=seed)).episodes for turn in episode.turns]
        for seed in (3, 3, 4)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_every_thought_says_something_of_its_own():
    forms = [form for kind in THOUGHTS.values() for form in kind]
    assert len(set(forms)) == len(forms)
    for form in forms:
        said = form.format(name="Sall", answer="three")
        assert "{" not in said and len(set(said.split())) >= 5


# ---------------------------------------------------------------------------------------------------- the solver's own


QUAYS_SPAN = QUAYS.evidence[0].text
SEARCH = '<think>I look.</think><tool_call>{"name": "search", "arguments": {"query_list": ["Sall"]}}</tool_call>'


@pytest.mark.parametrize(
    ("dialect", "quoted", "kept", "dropped"),
    [
        (
            "eve",
            ["", "Sall has three.", QUAYS_SPAN],
            ["own-quays-a2"],
            {"there is no evidence": 1, "the evidence was not shown": 1},
        ),
        ("drzero", ["", "", ""], ["own-quays-a0"], {}),
    ],
)
async def test_a_solver_that_should_quote_is_only_imitated_where_it_did(index, dialect, quoted, kept, dropped):
    scripts = {}
    for number, span in enumerate(quoted):
        evidence = f"<evidence>{span}</evidence>" if span else ""
        scripts[f"own-quays-a{number}"] = [SEARCH, f"<think>Three it is.</think>{evidence}<answer>three</answer>"]
    policy = TokenPolicy(ScriptedSampler(RENDERER.tokenizer, scripts), RENDERER)
    protocol = ToolCallSolver(style="brief", evidence=dialect == "eve")
    played = (await play_own(policy, LocalSearcher(index), [QUAYS], dialect, protocol, LIMITS, attempts=3)).lessons
    assert [episode.id for episode in played.episodes] == kept and played.dropped == dropped


# ----------------------------------------------------------------------------------------------------------- hardenings


def chained(queries_first="born"):
    """The chain under the id that the writer gives it: its last fact is that of the single question."""
    return structs.replace(CHAIN, id=f"built:9>{queries_first}")


def test_a_chain_is_arrived_at_from_the_question_it_ends_with(index):
    (planned,) = plan_hardenings(Pages(index), [*ALL, chained(), chained("unknown")])
    assert (planned.name, planned.description) == ("Orsolya Venn", "the builder of Halm Bridge")
    assert planned.names == ("builder Orsolya Venn", "Orsolya Venn")
    assert planned.given.text == BORN.question and planned.document.title == "Orsolya Venn"


async def test_the_page_that_describes_is_searched_for_until_it_is_shown(index):
    planned = plan_hardenings(Pages(index), [*ALL, chained()])
    (episode,) = (await play(index, planned, limits=structs.replace(LIMITS, topk=3))).episodes
    assert episode.outcome == Proposal(CHAIN.question, "Korrin Vale")
    assert episode.task.given.text == BORN.question
    queries = [query for turn in episode.turns if isinstance(turn.action, Search) for query in turn.action.queries]
    assert queries == list(planned[0].names[: len(queries)]) and queries
    last = [hit.passage.title for hit in episode.turns[-2].results[0].hits]
    assert "Halm Bridge" in last
    nowhere = structs.replace(planned[0], names=("Ropers", "Ropers Guild"))
    played = await play(index, [nowhere], limits=structs.replace(LIMITS, topk=1))
    assert not played.episodes and played.dropped == {"a page was not found": 1}


async def test_with_the_page_that_describes_given_it_is_reworded_at_once(index):
    planned = plan_hardenings(Pages(index), [*ALL, chained()], is_given=True)
    (episode,) = (await play(index, planned)).episodes
    assert episode.task.beside.title == "Halm Bridge"
    assert len(episode.turns) == 1 and episode.outcome == Proposal(CHAIN.question, "Korrin Vale")


@pytest.mark.parametrize(
    ("given", "reworded", "difference"),
    [
        ("When was Venn born?", "When was the builder of Halm born?", ("Venn", "the builder of Halm")),
        ("Who is Venn's heir?", "Who is the builder of Halm's heir?", ("Venn", "the builder of Halm")),
        ("Venn built what?", "The mason built what?", ("Venn", "The mason")),
        ("Who was it?", "Who was it?", ("", "")),
    ],
)
def test_what_two_questions_do_not_share(given, reworded, difference):
    assert find_difference(given, reworded) == difference
