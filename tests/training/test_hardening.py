"""Hardening: checked questions are reworded, and only those that pass the writer's own checks are rewarded."""

import json
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, strategies
from msgspec import structs
from reading_endpoint import ANSWERS, PAGES, Reader

import tiny
from dictating import dictating
from quaere.dialects.tool_call import BRIEF_HARDENING_SYSTEM, ToolCallProposer
from quaere.errors import BadInput, ModelMissing
from quaere.recipes import hardening
from quaere.recipes.drzero import check, judge_proposal
from quaere.recipes.eve import check_config as check_eve
from quaere.recipes.hardening import (
    GATES,
    HOPS,
    Gate,
    choose_pool,
    find_hardenable,
    judge_search,
    measure_gates,
    order_facts,
    read_rewording,
    split_facts,
)
from quaere.records import (
    Answer,
    Episode,
    Evidence,
    Failure,
    Hit,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    SolveTask,
    Turn,
)
from quaere.rewards.proposer import FormatScore, difficulty_reward
from quaere.rollout.policy import ChatPolicy
from quaere.search.index_build import build_index
from quaere.training.proposals import Proposed, ProposerConfig, RewardConfig
from quaere.training.rollouts import rights
from quaere.training.self_play import check_self_play, count_steps, plan_self_play
from quaere.training.settings import HardeningConfig
from quaere.warmup.documents.askable_facts import find_facts
from quaere.warmup.documents.chains import Bridge, cut_description
from quaere.warmup.documents.hardening_lessons import plan_hardenings
from quaere.warmup.documents.page_names import Pages
from village_runs import make_config, make_eve, run_drzero

# A search for who was born when finds these pages first if it names nobody.
LISTED = PAGES | {
    "Register": "Whoever was born here is in it, and each trade. The register lists those born and those of a trade.",
    "Rolls": "When one was born, it was when the rolls were written. Whoever was born was born of a trade.",
}
HARD = {
    "When was Orsolya Venn born?": "When was the builder of Halm Bridge born?",
    "When was Marta Oleen born?": "When was the painter of the ceiling of Ferrin Hall born?",
    "Where was Orsolya Venn born?": "Where was the builder of Halm Bridge born?",
    "Where was Marta Oleen born?": "Where was the painter of the ceiling of Ferrin Hall born?",
}
NAMED = {
    f"Who or what is {description}?": "Orsolya Venn"
    for description in ("the builder of Halm Bridge", "the mason who built Halm Bridge", "the person by trade")
}
KNOWS = ANSWERS | NAMED | {HARD["When was Marta Oleen born?"]: "12 June 1690"}
TOPK = 2


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rows = [{"id": title, "title": title, "text": text} for title, text in LISTED.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build_index(folder / "corpus.jsonl", folder / "index")


def checked(index, title, answer, text):
    """A checked question, as the writer numbers and proves it."""
    (passage,) = (passage for passage in index.passages() if passage.title == title)
    fact = next(fact for fact in find_facts(passage) if fact.answer == answer)
    return Question(fact.id, text, (answer,), 1, (fact.evidence,), facts=1, searches=1)


@pytest.fixture(scope="module")
def questions(index):
    return [
        checked(index, "Orsolya Venn", "4 May 1671", "When was Orsolya Venn born?"),
        checked(index, "Marta Oleen", "12 June 1690", "When was Marta Oleen born?"),
        checked(index, "Orsolya Venn", "Korrin Vale", "Where was Orsolya Venn born?"),
        checked(index, "Marta Oleen", "Korrin Vale", "Where was Marta Oleen born?"),
        checked(index, "Ada Brandt", "3 March 1702", "When was Ada Brandt born?"),  # no other page speaks of her
        Question("other", "Who is it?", ("Venn",), 1, (Evidence("Orsolya Venn", 0, 12, "Orsolya Venn"),)),
    ]


@pytest.fixture(scope="module")
def facts(index, questions):
    return find_hardenable(questions, index, TOPK)


# --------------------------------------------------------------------------------------------------------------- facts


@pytest.mark.parametrize(("held", "left"), [("Orsolya Venn", "Marta Oleen"), ("Ferrin Hall", "Orsolya Venn")])
def test_documents_held_back_give_no_facts_and_no_descriptions(index, questions, held, left):
    found = find_hardenable(questions, index, TOPK, {held})
    assert [fact.question.text for fact in found] == [text for text in HARD if left in text]


def test_only_facts_of_which_another_page_names_something_can_be_reworded(facts):
    assert [fact.question.text for fact in facts] == list(HARD)
    assert [fact.worded.fact.answer for fact in facts] == ["4 May 1671", "12 June 1690"] + ["Korrin Vale"] * 2


def test_no_fact_comes_again_before_every_fact_was_asked_about_and_pages_take_turns(facts):
    def on_page(number, page):
        passage = structs.replace(facts[0].worded.fact.passage, doc_id=page)
        fact = structs.replace(facts[0].worded.fact, passage=passage)
        worded = structs.replace(facts[0].worded, draft=structs.replace(facts[0].worded.draft, facts=(fact,)))
        return structs.replace(facts[0], question=structs.replace(facts[0].question, id=f"q{number}"), worded=worded)

    many = [on_page(number, f"page {number % 5}") for number in range(15)]
    order = order_facts(many, seed=3)
    assert sorted(fact.question.id for fact in order) == sorted(fact.question.id for fact in many)
    pages = [fact.worded.fact.passage.doc_id for fact in order]
    assert all(len(set(pages[first : first + 5])) == 5 for first in (0, 5, 10))
    assert order != order_facts(many, seed=4)
    drawn = [fact.question.id for iteration in range(3) for fact in choose_pool(order, iteration, 5, 2)]
    assert len(set(drawn)) == 15 and choose_pool(order, 3, 5, 2) == choose_pool(order, 0, 5, 2)
    # If all are needed in every iteration, the solver's questions are about new ones as long as there are any.
    written = [split_facts(choose_pool(order, iteration, 40, 5), 5)[1] for iteration in range(3)]
    assert len({fact.question.id for some in written for fact in some}) == 15
    # More are wanted than the half that is written about: the next iteration's begin after that half. By hand: of 15,
    # 7 are written about; first 8 to 14, then 15 = 0 to 6, and only then those of the first time.
    held = [split_facts(choose_pool(order, iteration, 40, 12), 12)[1] for iteration in range(3)]
    assert held[0] == order[8:] and held[1] == order[:7] and held[2] == [order[7], *order[8:14]]
    learned, held = split_facts(order, 5)
    assert [*learned, *held] == order and len(held) == 5
    assert [len(part) for part in split_facts(order, 40)] == [8, 7]
    assert split_facts(order[:1], 3) == (order[:1], order[:1]) and split_facts(order, 0) == (order, order)


# ------------------------------------------------------------------------------------------------------------ the gate


def propose(index, fact, question, answer, found=("Halm Bridge",), failed=False):
    """A proposal after a search that showed these pages."""
    pages = {passage.title: passage for passage in index.passages()}
    hits = tuple(Hit(pages[title], 1.0) for title in found)
    task = ProposeTask("p", fact.worded.fact.passage, HOPS, given=fact.question)
    turn = Turn(0, "", Search(("who",)), "end_of_turn", (SearchResult("who", hits),))
    if failed:
        turn = structs.replace(turn, results=(), failure=Failure("search", "failed", "gone"))
    outcome = Proposal(question, answer) if question else None
    episode = Episode(f"p-{question}", task, "drzero-proposer", "m", 0, (), (turn,), outcome, "answered")
    return Proposed(episode, FormatScore(1.0, 1.0, 1.0, True, 1.0), None)


async def gate(index, proposed, fact, **tables):
    reader = Reader(answers=KNOWS, **tables)
    found = Gate(index, HardeningConfig(topk=TOPK), lambda: ChatPolicy(reader), 4)
    (settled,) = await found.check([proposed], [fact], seed=1)
    return settled, reader


async def test_a_rewording_that_needs_two_searches_and_keeps_its_answer_passes(index, facts):
    proposed = propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671")
    settled, reader = await gate(index, proposed, facts[0])
    assert settled.refusals == () and settled.score.valid
    asked = settled.question
    assert (asked.text, asked.answers) == (HARD["When was Orsolya Venn born?"], ("4 May 1671",))
    assert [one.doc_id for one in asked.evidence] == ["Halm Bridge", "Orsolya Venn"]
    assert (asked.hops, asked.facts, asked.searches) == (3, 2, 2)
    # Who is it? Then the question: three right with both pages are enough, and five without them are asked for.
    assert reader.count("You answer questions") == 3 + 3 + 5 and reader.count("You check questions") == 1


@pytest.mark.parametrize(
    ("refused", "question", "answer", "shown", "tables"),
    [
        ("proposal", "", "", ["Halm Bridge"], {}),
        ("answer", "When was the builder of Halm Bridge born?", "4 June 1671", ["Halm Bridge"], {}),
        ("pages", "When was the builder of Halm Bridge born?", "4 May 1671", ["Ferrin Hall"], {}),
        ("pages", "When was Orsolya Venn of Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {}),  # still named
        ("wording", "When was Venn, who built Halm Bridge, born?", "4 May 1671", ["Halm Bridge"], {}),
        ("wording", "When in 1671 was the builder of Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {}),
        ("wording", "When was the builder of Halm Bridge born", "4 May 1671", ["Halm Bridge"], {}),
        ("wording", "In which year was the builder of Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {}),  # not cut
        ("wording", "When was whoever built Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {}),  # no description
        ("description", "When was the person of the trade born?", "4 May 1671", ["Halm Bridge"], {}),  # not found
        ("description", "When was the destroyer of Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {}),  # not read
        (
            "description",
            "When was the builder of Halm Bridge born?",
            "4 May 1671",
            ["Halm Bridge"],
            {"unclear": ("Who or what is the builder of Halm Bridge?",)},
        ),
        ("leads", "When was the person by trade born?", "4 May 1671", ["Halm Bridge"], {}),
        ("far", "When was the mason who built Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {}),
        ("read", "When was the builder of Halm Bridge born?", "4 May 1671", ["Halm Bridge"], {"answers": NAMED}),
        (
            "unknown",
            "When was the builder of Halm Bridge born?",
            "4 May 1671",
            ["Halm Bridge"],
            {"known": {"When was the builder of Halm Bridge born?"}},
        ),
    ],
)
async def test_every_gate_refuses_what_it_is_for(index, facts, refused, question, answer, shown, tables):
    proposed = propose(index, facts[0], question, answer, shown)
    reader = Reader(**{"answers": KNOWS} | tables)
    (settled,) = await Gate(index, HardeningConfig(topk=TOPK), lambda: ChatPolicy(reader), 4).check(
        [proposed], [facts[0]], seed=1
    )
    assert settled.refusals == (refused,)
    assert settled.question is None and settled.score == proposed.score
    if GATES.index(refused) < GATES.index("description"):
        assert not reader.asked  # refused before the examiner is asked
    if refused in ("leads", "far"):
        assert all("Who or what is" in asked for _, asked in reader.asked)


async def test_a_proposal_whose_search_failed_is_neither_refused_nor_attempted(index, facts):
    proposed = propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671", failed=True)
    settled, reader = await gate(index, proposed, facts[0])
    assert settled.refusals == () and settled.question is None and not reader.asked


class Guesser(Reader):
    """Guesses right without pages, a set number of times."""

    left = 0

    def answer(self, shown, question):
        if shown or not self.left:
            return super().answer(shown, question)
        self.left -= 1
        return self.answers[question]


async def test_one_right_guess_of_five_is_allowed_two_are_not(index, facts):
    for num, refusals in [(1, ()), (2, ("unknown",))]:
        reader = Guesser(answers=KNOWS)
        reader.left = num
        proposed = propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671")
        found = Gate(index, HardeningConfig(topk=TOPK), lambda reader=reader: ChatPolicy(reader), 1)
        (settled,) = await found.check([proposed], [facts[0]], seed=1)
        assert settled.refusals == refusals


class Sampler(Reader):
    """Right with both pages when sampled, so often, and never greedily."""

    left = 0

    async def reply(self, messages, params):
        question = messages[-1]["content"].rpartition("Question: ")[2]
        if question not in HARD.values() or "Halm Bridge\n" not in messages[-1]["content"]:
            return await super().reply(messages, params)
        is_right = params.temperature > 0 and self.left > 0
        self.left -= is_right
        return structs.replace(await super().reply(messages, params), text="4 May 1671" if is_right else "nobody")


async def test_three_right_of_five_are_enough_whichever_they_are(index, facts):
    for num, refusals in [(3, ()), (2, ("read",))]:
        reader = Sampler(answers=KNOWS)
        reader.left = num
        proposed = propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671")
        found = Gate(index, HardeningConfig(topk=TOPK), lambda reader=reader: ChatPolicy(reader), 1)
        (settled,) = await found.check([proposed], [facts[0]], seed=1)
        assert settled.refusals == refusals


async def test_the_limits_of_the_gate_are_settings(index, facts):
    async def refuse(num_right=0, **changes):
        """The refusal of a good rewording, and how often the examiner was asked; it guesses right so often."""
        reader = Guesser(answers=KNOWS)
        reader.left = num_right
        proposed = propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671")
        config = HardeningConfig(**{"topk": TOPK} | changes)
        (settled,) = await Gate(index, config, lambda: ChatPolicy(reader), 1).check([proposed], [facts[0]], seed=1)
        return settled.refusals, reader.count("You answer questions")

    assert await refuse() == ((), 3 + 3 + 5)
    assert await refuse(tries=10) == ((), 6 + 6 + 10)
    assert await refuse(min_read=1.0) == ((), 5 + 5 + 5)
    assert await refuse(1, max_known=0.0) == (("unknown",), 3 + 3 + 1)
    assert await refuse(topk=1) == ((), 3 + 3 + 5)
    assert await refuse(topk=20) == (("far",), 3)  # every page is found


def test_any_passage_with_the_answer_or_of_its_page_is_near(index, facts):
    worded = read_rewording(propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671"), facts[0]).chain
    halm, last = (fact.passage for fact in worded.draft.facts)
    part = structs.replace(last, id="Orsolya Venn#9", text="She had a dog.")
    other = structs.replace(halm, id="z#0", doc_id="z", title="Town", text="On 4 May 1671 someone was born.")
    year = structs.replace(other, text="In 1671 someone was born.")
    assert [judge_search(shown, worded) for shown in ([halm, year], [year], [])] == ["", "leads", "leads"]
    assert [judge_search([halm, near], worded) for near in (last, part, other)] == ["far"] * 3


def test_the_sentence_with_the_words_of_the_question_is_the_evidence(index, facts):
    shown = ["Ferrin Hall", "Halm Bridge"]
    worded = read_rewording(
        propose(index, facts[0], HARD["When was Orsolya Venn born?"], "4 May 1671", shown), facts[0]
    )
    assert worded.described.sentence == "It was built by Orsolya Venn for the town."
    assert worded.chain.draft.hidden == "Orsolya Venn" and worded.description == "the builder of Halm Bridge"


@pytest.mark.parametrize(
    ("given_text", "reworded", "description"),
    [
        ("When was Orsolya Venn born?", "when was The builder of Halm born?", "the builder of Halm"),
        ("What was the Orsolya Venn known for?", "What was the bridge at Halm known for?", "the bridge at Halm"),
        ("Orsolya Venn was born when?", "The builder of Halm was born when?", "the builder of Halm"),
        ("What was Orsolya Venn's trade?", "What was the builder of Halm's trade?", "the builder of Halm"),
        ("When was Orsolya Venn born?", "In which year was the builder of Halm born?", ""),
        ("When was Orsolya Venn born?", "When was born?", ""),  # beginning and end overlap
    ],
)
def test_the_description_is_what_stands_for_the_name(facts, given_text, reworded, description):
    (bridge,) = (Bridge(fact.worded.fact, fact.worded, "Orsolya Venn") for fact in facts[:1])
    second = structs.replace(bridge.second, question=given_text)
    assert cut_description(structs.replace(bridge, second=second), reworded) == description


def test_shares_of_the_gates_by_hand():
    measured = measure_gates([(), ("read",), ("proposal",), ()])
    assert measured["gate/proposal"] == measured["gate/far"] == 0.75
    assert measured["gate/read"] == measured["gate/unknown"] == 0.5
    assert measure_gates([]) == {}


@given(strategies.lists(strategies.sampled_from([(), *((name,) for name in GATES)]), min_size=1))
def test_each_gate_passes_at_most_as_many_as_the_one_before(refusals):
    measured = measure_gates(refusals)
    shares = [measured[f"gate/{name}"] for name in GATES]
    assert all(later <= earlier for earlier, later in pairwise(shares))
    assert shares[-1] == pytest.approx(sum(not refused for refused in refusals) / len(refusals))
    for number, name in enumerate(GATES):  # the same, counted plainly
        passed = [refused for refused in refusals if not refused or GATES.index(refused[0]) > number]
        assert measured[f"gate/{name}"] == len(passed) / len(refusals)


# -------------------------------------------------------------------------------------------------------------- prompt


@pytest.mark.parametrize("style", ["brief", "full"])
def test_the_proposer_that_is_given_a_page_sees_it_and_is_not_told_to_search(facts, style):
    (source,) = facts[0].sources
    task = ProposeTask("p", facts[0].worded.fact.passage, HOPS, given=facts[0].question, beside=source)
    system, user = (message.text for message in ToolCallProposer(style=style).opening(task))
    assert source.title == "Halm Bridge" and user.endswith(f"\nAnother document:\n{source.titled_text}")
    assert "Put what" in system + user and "Search for a name" not in system + user


@pytest.mark.parametrize("style", ["brief", "full"])
def test_the_proposer_sees_question_answer_and_page(facts, style):
    fact = facts[0]
    task = ProposeTask("p", fact.worded.fact.passage, HOPS, given=fact.question)
    system, user = (message.text for message in ToolCallProposer(style=style).opening(task))
    assert "Question: When was Orsolya Venn born?\nAnswer: 4 May 1671\nDocument:\nOrsolya Venn\nOrsolya Venn (4" in user
    assert (system == BRIEF_HARDENING_SYSTEM) == (style == "brief")
    assert "harder" in system + user and "search for" in (system + user).lower()
    written = ToolCallProposer(style=style).read("<question>Who?</question><answer>Venn</answer>")
    assert written == Proposal("Who?", "Venn")


# ----------------------------------------------------------------------------------------------------------------- runs

SEARCH = '<think>Look.</think><tool_call>{{"name": "search", "arguments": {{"query_list": ["{}"]}}}}</tool_call>'
LIMITS = {"max_turns": 3, "turn_tokens": 400, "sequence_tokens": 3800, "tool_response_tokens": 800, "topk": 2}
LIMITS["answer_turn"] = False


def dictate(job):
    """Facts are answered sometimes; one of two is reworded well; the first attempt searches twice and is right."""
    if isinstance(job.task, ProposeTask):
        text, answer = job.task.given.text, job.task.given.answers[0]
        rewording = HARD[text] if "Venn" in text else text
        about = "Halm Bridge" if "Venn" in text else "Ferrin Hall"
        written = f"<think>So.</think><question>{rewording}</question><answer>{answer}</answer>"
        return [written] if job.task.beside else [SEARCH.format(about), written]
    assert isinstance(job.task, SolveTask)
    (right,) = job.task.question.answers
    searches = [SEARCH.format("Halm Bridge"), SEARCH.format("Orsolya Venn")]
    number = int(job.episode_id[-1])
    if number == 0:
        return [*searches, f"<think>So.</think><answer>{right}</answer>"]
    if number == 1:  # right, but with one search less than the question needs
        return [*searches[:1], f"<think>So.</think><answer>{right}</answer>"]
    return [*searches, "<think>So.</think><answer>nobody</answer>"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory, index):
    folder = tmp_path_factory.mktemp("model")
    tiny.model(scale=1).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return index.path, folder


HARDENING = {"proposer.task": "harden", "proposer.hardening.examiner": "reader"}


def make(paths, tmp_path, questions, **changes):
    lines = [
        {"id": one.id, "question": one.text, "answers": one.answers, "facts": 1, "searches": 1, "hops": 1}
        | {"evidence": [structs.asdict(span) for span in one.evidence]}
        for one in questions
    ]
    (tmp_path / "checked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given_file = {"generation.given": str(tmp_path / "checked.jsonl")}
    hard = {"proposer.hardening.topk": TOPK, **HARDENING}
    sizes = {"proposer.batch": 2, "proposer.steps": 1, "generation.candidates": 2, "generation.batch": 2}
    limits = {"proposer.limits": LIMITS, "solver.limits": LIMITS, "solver.batch": 1, "solver.steps": 1}
    return make_config(paths, **{**given_file, **hard, **sizes, **limits, "validation.questions": 0, **changes})


def run(folder, config, monkeypatch):
    monkeypatch.setattr(hardening, "open_policy", lambda model, **engine: ChatPolicy(Reader(answers=KNOWS)))
    with dictating(dictate):
        return run_drzero(folder, config)


@pytest.mark.parametrize("task", ["harden", "reword"])
def test_a_run_rewards_what_passed_the_gate_and_was_hard(paths, tmp_path, questions, monkeypatch, task):
    """The proposer searches for a page, or is given one; an examiner answers in the gate. One of two is good."""
    config = make(paths, tmp_path, questions, **{"proposer.task": task})
    found, told = run(tmp_path / "run", config, monkeypatch)
    with found:
        assert "4 of 6 given questions can be reworded" in told.notes
        rows = {row.question: row.metrics for row in found.index(phase="proposer", protocol="drzero-proposer")}
        # Of three attempts one was right with both searches, one with a single search, one wrong: D = 1 / (3 - 1). The
        # other fact was not reworded: 0.
        assert {text: metrics["reward/total"] for text, metrics in rows.items()} == {
            text: 0.5 * ("Venn" in text) for text in rows
        }
        assert len(rows) == 2 and all(metrics["reward/format"] == 0 for metrics in rows.values())
        measured = found.metrics_at(1)
        assert measured["gate/answer"] == 1 and measured["gate/pages"] == measured["gate/unknown"] == 0.5
        assert measured["gate/yield"] == 0.5 and measured["proposer/searches_needed"] == 2
        assert measured["proposer/valid"] == 1  # what the gate refuses is no collapse
        kept, refused = sorted(found.candidates(), key=lambda item: item.reason)
        assert kept.kept and kept.num_searches == 2 and kept.question in HARD.values()
        assert [one.doc_id for one in kept.proof] == ["Halm Bridge", "Orsolya Venn"]
        assert (refused.reason, refused.refusals) == ("refused", ("pages",))
        assert found.metrics_at(2)["gate/yield"] == 0.5
        # Questions are written about other facts than those that the proposer learned on.
        asked = {found.episode(item.episode_id).task.given.text for item in (kept, refused)}
        assert asked.isdisjoint(rows) and len(asked) == 2
        episode = found.episode(kept.episode_id)
        assert episode.num_searches == (task == "harden")
        assert (episode.task.beside and episode.task.beside.title) == ("Halm Bridge" if task == "reword" else None)


def test_what_passed_becomes_a_lesson(paths, tmp_path, questions, index, monkeypatch):
    """`benchmarks/hardening_yield.py --lessons`: the rewording is shown as a proposer arrives at it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import hardening_yield

    found, _ = run(tmp_path / "run", make(paths, tmp_path, questions), monkeypatch)
    with found:
        made = [item for item in found.candidates() if not item.given]
        lessons = hardening_yield.make_lessons(found, made)
        (plan,) = plan_hardenings(Pages(index), lessons)
        (passed,) = (item for item in made if not item.refusals)
        assert HARD[plan.given.text] == passed.question == plan.question.question
        assert plan.name == "Orsolya Venn" and plan.description == "the builder of Halm Bridge"


def test_a_proposer_of_which_too_little_passes_is_not_trained(paths, tmp_path, questions, monkeypatch, capsys):
    """`benchmarks/hardening_yield.py --at-least`: one of two passes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import hardening_yield

    run(tmp_path / "run", make(paths, tmp_path, questions), monkeypatch)[0].close()
    monkeypatch.setattr("sys.argv", ["hardening_yield.py", str(tmp_path / "run"), "--at-least", "0.5"])
    hardening_yield.main()
    assert "| description | 1 (50.0%" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["hardening_yield.py", str(tmp_path / "run"), "--at-least", "0.6"])
    with pytest.raises(SystemExit, match=r"^1 of 2 rewordings pass the gate, below 60%: too few to train on"):
        hardening_yield.main()


def test_training_pays_once_it_has_spared_more_proposals_than_it_took(paths, tmp_path, questions, monkeypatch, capsys):
    """`benchmarks/hardening_yield.py --untrained`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import hardening_yield

    assert hardening_yield.find_break_even(600, 0.1, 0.4) == pytest.approx(80)
    assert hardening_yield.find_break_even(600, 0.0, 0.4) == 0 and hardening_yield.find_break_even(1, 0.2, 0.2) == inf
    config = make(paths, tmp_path, questions)
    run(tmp_path / "run", config, monkeypatch)[0].close()
    monkeypatch.setattr("sys.argv", ["hardening_yield.py", str(tmp_path / "run"), "--untrained", str(tmp_path / "run")])
    hardening_yield.main()
    num = config.proposer.steps * config.proposer.batch
    assert f"training took {num} proposals, yield" in (said := capsys.readouterr().out) and "it does not pay" in said


def test_an_untrained_proposer_rewords_every_fact_once(paths, tmp_path, questions, monkeypatch):
    changes = {"proposer.steps": 0, "generation.candidates": 4, "generation.attempts": 0, "solver.steps": 0}
    found, _ = run(tmp_path / "run", make(paths, tmp_path, questions, **changes), monkeypatch)
    with found:
        asked = [found.episode(item.episode_id).task.given.text for item in found.candidates()]
        assert sorted(asked) == sorted(HARD)


def test_facts_that_the_solver_answers_sometimes_are_reworded_and_practised(paths, tmp_path, questions, monkeypatch):
    config = make(paths, tmp_path, questions, **{"proposer.hardening.attempts": 3, "iterations": 2, "solver.steps": 0})

    def always(job):
        is_fact = isinstance(job.task, SolveTask) and "Marta Oleen" in job.task.question.text
        if not is_fact:
            return dictate(job)
        return [SEARCH.format("Marta Oleen"), f"<think>So.</think><answer>{job.task.question.answers[0]}</answer>"]

    monkeypatch.setattr(hardening, "open_policy", lambda model, **engine: ChatPolicy(Reader(answers=KNOWS)))
    with dictating(always):
        found, told = run_drzero(tmp_path / "run", config)
    with found:
        assert len(told.steps) == count_steps(config) == 2 * (1 + 1 + 1)
        for iteration in range(2):
            rated = [item for item in found.candidates(iteration=iteration) if item.given]
            assert {item.question: item.reason for item in rated} == {
                text: "" if "Venn" in text else "always solved" for text in HARD
            }
            written = [item for item in found.candidates(iteration=iteration) if not item.given]
            assert {item.question for item in written} < {HARD[text] for text in HARD if "Venn" in text}
        assert found.metrics_at(1)["facts/sometimes"] == 0.5


def test_what_was_reworded_in_an_earlier_iteration_is_not_kept_again(paths, tmp_path, questions, monkeypatch):
    """Both iterations reword all facts. The second finds other words, but they rest on the same two sentences."""
    changes = {"proposer.steps": 0, "generation.candidates": 4, "iterations": 2, "solver.steps": 0}
    other = {text: hard.replace("the builder of", "the maker of") for text, hard in HARD.items() if "Venn" in text}
    knows = KNOWS | {new: KNOWS[HARD[old]] for old, new in other.items()}
    knows["Who or what is the maker of Halm Bridge?"] = "Orsolya Venn"

    def dictate_anew(job):
        lines = dictate(job)
        if not (isinstance(job.task, ProposeTask) and job.episode_id.startswith("i1")):
            return lines
        return [line.replace("the builder of", "the maker of") for line in lines]

    monkeypatch.setattr(hardening, "open_policy", lambda model, **engine: ChatPolicy(Reader(answers=knows)))
    with dictating(dictate_anew):
        found, _ = run_drzero(tmp_path / "run", make(paths, tmp_path, questions, **changes))
    with found:
        reasons = [
            {one.question: one.reason for one in found.candidates(iteration=number) if "Bridge" in one.question}
            for number in range(2)
        ]
        assert reasons[0] == {hard: "" for text, hard in HARD.items() if "Venn" in text}
        assert reasons[1] == dict.fromkeys(other.values(), "duplicate")


def test_a_resumed_run_draws_the_same(paths, tmp_path, questions, monkeypatch):
    config = make(paths, tmp_path, questions)
    whole, _ = run(tmp_path / "whole", config, monkeypatch)
    cut = make(paths, tmp_path, questions, **{"solver.steps": 0})
    first, _ = run(tmp_path / "cut", cut, monkeypatch)
    first.close()
    again, _ = run(tmp_path / "cut", config, monkeypatch)
    with whole, again:
        assert whole.candidates() == again.candidates()
        assert [metric.value for metric in whole.metrics("reward/mean")] == [
            metric.value for metric in again.metrics("reward/mean")
        ]


@pytest.mark.parametrize("is_solver", [True, False])
def test_the_examiner_is_a_model_of_its_own_or_the_solver(paths, tmp_path, questions, is_solver):
    """An untaught model cannot read, so good rewordings fall at that gate; its engine runs beside that of the roles."""
    examiner = "" if is_solver else str(paths[1])
    changes = {"proposer.hardening.examiner": examiner, "solver.steps": 0, "proposer.hardening.tries": 2}
    with dictating(dictate):
        found, _ = run_drzero(tmp_path / "run", make(paths, tmp_path, questions, **changes))
    with found:
        measured = found.metrics_at(1)
        assert measured["gate/wording"] == 0.5 and measured["gate/description"] == measured["gate/unknown"] == 0
        assert all(
            row.metrics["reward/total"] == 0 for row in found.index(protocol="drzero-proposer", phase="proposer")
        )
        assert {item.refusals for item in found.candidates()} == {("pages",), ("description",)}


def test_attempts_with_fewer_searches_count_if_that_is_set(paths, tmp_path, questions, monkeypatch):
    """Two of three attempts are right, one of them with one search: D = (3 - 2) / (3 - 1)."""
    config = make(paths, tmp_path, questions, **{"proposer.reward.needed_searches": False, "solver.steps": 0})
    with run(tmp_path / "run", config, monkeypatch)[0] as found:
        rows = found.index(phase="proposer", protocol="drzero-proposer")
        assert sorted(row.metrics["reward/total"] for row in rows) == [0, 0.5]


def test_a_run_says_that_no_fact_is_answered_sometimes(paths, tmp_path, questions, monkeypatch):
    def never(job):
        return dictate(job) if isinstance(job.task, ProposeTask) else ["<think>So.</think><answer>nobody</answer>"]

    monkeypatch.setattr(hardening, "open_policy", lambda model, **engine: ChatPolicy(Reader(answers=KNOWS)))
    with dictating(never):
        config = make(paths, tmp_path, questions, **{"proposer.hardening.attempts": 3, "solver.steps": 0})
        found, told = run_drzero(tmp_path / "run", config)
    found.close()
    assert "iteration 1: the solver answers none of 4 facts sometimes, so all are reworded" in told.notes


def test_a_run_gives_and_shows_nothing_that_is_held_back(paths, tmp_path, questions, monkeypatch):
    """`proposer.held_back` is a file of questions about one page; the proposer's searches would otherwise show it."""
    asked = {"id": "h", "question": "When was Marta Oleen born?", "answers": ["12 June 1690"]}
    (tmp_path / "held.jsonl").write_text(json.dumps(asked | {"gold_ids": ["Marta Oleen"]}) + "\n")
    config = make(paths, tmp_path, questions, **{"proposer.held_back": str(tmp_path / "held.jsonl")})
    with run(tmp_path / "run", config, monkeypatch)[0] as found:
        told = [found.episode(row.id) for row in found.index(protocol="drzero-proposer")]
        shown = {hit.passage.doc_id for one in told for turn in one.turns for r in turn.results for hit in r.hits}
        assert {one.task.document.doc_id for one in told} == {"Orsolya Venn"}
        assert "Halm Bridge" in shown and "Marta Oleen" not in shown


def test_questions_of_other_documents_are_refused_in_one_line(paths, tmp_path, questions, monkeypatch):
    config = make(paths, tmp_path, questions[5:])
    with pytest.raises(BadInput, match=r"none of the 1 questions of .* can be reworded"):
        run(tmp_path / "run", config, monkeypatch)


# ----------------------------------------------------------------------------------------------------------- the reward


def test_a_question_is_kept_only_if_an_attempt_needed_its_searches(paths, tmp_path, questions, monkeypatch):
    """The yield of generation is that of learning: right with both searches, and wrong, sometimes."""

    def answer(job, *rights):
        if isinstance(job.task, ProposeTask) or not rights[int(job.episode_id[-1])]:
            return dictate(job)
        searches = [SEARCH.format(name) for name in ("Halm Bridge", "Orsolya Venn")][: rights[int(job.episode_id[-1])]]
        return [*searches, f"<think>So.</think><answer>{job.task.question.answers[0]}</answer>"]

    monkeypatch.setattr(hardening, "open_policy", lambda model, **engine: ChatPolicy(Reader(answers=KNOWS)))
    for number, (searches, reason) in enumerate([((1, 1, 0), "never solved"), ((2, 1, 1), "always solved")]):
        config = make(paths, tmp_path, questions, **{"solver.steps": 0})
        with dictating(lambda job, searches=searches: answer(job, *searches)):
            found, _ = run_drzero(tmp_path / f"run{number}", config)
        with found:
            assert {item.reason for item in found.candidates()} == {reason, "refused"}
            assert [found.metrics_at(step)["gate/yield"] for step in (1, 2)] == [0, 0]
            assert found.metrics_at(1)["reward/mean"] == 0


@given(strategies.integers(2, 8), strategies.data())
def test_the_reward_is_the_gate_times_the_difficulty_and_never_below_zero(num_attempts, data):
    right = data.draw(strategies.lists(strategies.booleans(), min_size=num_attempts, max_size=num_attempts))
    passed = data.draw(strategies.booleans())
    config = make_reward()
    proposed = Proposed(None, FormatScore(1.0, 1.0, 1.0, passed, 1.0), None, sum(right), num_attempts)
    reward = judge_proposal(proposed, config).reward
    assert reward.total == passed * difficulty_reward(sum(right), num_attempts) >= 0


def make_reward():
    """The proposer's config as the loop of this task has it."""
    return ProposerConfig(reward=RewardConfig(format_weight=0.0, needed_searches=True))


def test_an_attempt_counts_only_with_the_searches_needed():
    page = Passage("d#0", "d", "Halm", "Venn built it.", 0, 14)
    searched = Turn(0, "", Search(("a",)), "end_of_turn", (SearchResult("a", (Hit(page, 1.0),)),))
    task = SolveTask(Question("q", "Who?", ("Venn",)))
    made = {"protocol": "p", "model": "m", "seed": 0, "segments": (), "outcome": Answer("Venn"), "end": "answered"}
    attempts = [Episode(id=f"a{num}", task=task, turns=(searched,) * num, **made) for num in range(3)]
    assert rights(attempts, make_reward().reward.min_searches(HOPS)) == [0.0, 0.0, 0.0]  # the same query twice
    other = Turn(1, "", Search(("b",)), "end_of_turn", (SearchResult("b", (Hit(page, 1.0),)),))
    same = Turn(1, "", Search(("a", "The A!")), "end_of_turn", (SearchResult("The A!", (Hit(page, 1.0),)),))
    empty = Turn(1, "", Search(("b",)), "end_of_turn", (SearchResult("b", ()),))
    second = [Episode(id="a", task=task, turns=(searched, turn), **made) for turn in (other, same, empty)]
    assert rights(second, make_reward().reward.min_searches(HOPS)) == [1.0, 0.0, 0.0]


# ------------------------------------------------------------------------------------------------------------- settings


def test_settings_that_contradict_each_other_are_refused(paths, tmp_path, questions):
    with pytest.raises(BadInput, match=r"set generation.given=FILE"):
        check_self_play(make(paths, tmp_path, questions, **{"generation.given": ""}))
    with pytest.raises(BadInput, match=r"leave out generation.given_again"):
        check_self_play(make(paths, tmp_path, questions, **{"generation.given_again": True}))
    with pytest.raises(BadInput, match="attempts=1 is all or none"):
        check_self_play(make(paths, tmp_path, questions, **{"proposer.hardening.attempts": 1}))
    refused = {
        "shows the page of each question": {"proposer.document": False},
        "has no format reward": {"proposer.reward.format_weight": 0.25},
        "set generation.candidates=256": {"proposer.steps": 0, "generation.candidates": 0},
        "takes a search and a turn more": {"proposer.limits": {**LIMITS, "max_turns": 1}},
        "proposer.hardening has no effect": {"proposer.task": "propose", "proposer.hardening.tries": 2},
    }
    for said, changes in refused.items():
        with pytest.raises(BadInput, match=said):
            check_self_play(make(paths, tmp_path, questions, **changes))
    check_self_play(make(paths, tmp_path, questions, **{"proposer.reward.format_weight": 0}))
    # Rewordings do not use the ratio of hops, and so need no room for the most of them.
    for task, most in (("harden", 2), ("reword", 1)):
        room = {"proposer.task": task, "proposer.limits": {**LIMITS, "max_turns": most}}
        check_self_play(make(paths, tmp_path, questions, **room, **{"proposer.hop_ratio": (4, 3, 2, 1)}))
    for examiner in ("./no-such-model", "openai:reader"):
        with pytest.raises((BadInput, ModelMissing), match=r"no model directory|an endpoint must be"):
            check(make(paths, tmp_path, questions, **{"proposer.hardening.examiner": examiner}))
    with pytest.raises(BadInput, match="is a task of drzero, not of terse"):
        check(make(paths, tmp_path, questions), recipe="terse")
    with pytest.raises(BadInput, match="is a task of drzero, not of eve"):
        check_eve(make_eve(paths, **{"proposer.task": "harden", "generation.given": "x"}))
    plan = dict(plan_self_play(make(paths, tmp_path, questions, **{"proposer.hardening.attempts": 3})))
    assert plan["hardening"].endswith(
        "are reworded, after 3 attempts at each; at most 16 single turns of reader for each"
    )
