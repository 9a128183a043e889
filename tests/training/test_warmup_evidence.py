"""Warm-up in the dialect with evidence: every quotation is copied from a text that was shown, and bears it out."""

import asyncio
import json
from collections import Counter

import pytest
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.chat.spans import check_evidence, find_evidence, shown_passages
from quaere.dialects.tool_call import CITED_BRIEF_SOLVER_SYSTEM, CITED_SOLVER_SYSTEM
from quaere.errors import BadInput
from quaere.policies.sampler import ChatReply
from quaere.recipes.registry import RECIPES
from quaere.records import Answer, Hit, Passage, Proposal, ProposeTask, Question, SearchResult, SolveTask
from quaere.rewards.guards import OURS, Triple, refusals
from quaere.rollout.episode import Limits
from quaere.rollout.policy import ChatPolicy
from quaere.warmup.dialects import DIALECTS, cites
from quaere.warmup.lessons import Lessons, LessonSettings, Portion, build_world, plan_lessons
from quaere.warmup.oracle import play_oracle
from quaere.warmup.scripted_episodes import Attempt, demonstrate, find_misquote, open_protocol
from quaere.warmup.teacher import play_teacher
from quaere.worlds.prose import write_article

# The tiny tokenizer takes three times as many tokens as a real one.
LIMITS = Limits(turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000)
RENDERER = Renderer(tiny.tokenizer())
WORLD_SEED = 1


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A world, its index and a renderer."""
    return *build_world(WORLD_SEED, 300, tmp_path_factory.mktemp("warmup")), RENDERER


def play(place, **changes):
    settings = {"num_episodes": 40, "limits": LIMITS, "seed": 5, "dialects": ("eve",)} | changes
    return asyncio.run(play_oracle(*place, LessonSettings(**settings)))


@pytest.fixture(scope="module", params=["full", "brief"])
def played(place, request):
    return play(place, num_episodes=40, style=request.param)


@pytest.fixture(scope="module")
def documents(place):
    """The whole text of every article, as the world wrote it."""
    world = place[0]
    return {entity.id: write_article(world.graph, WORLD_SEED, entity.index).text for entity in world.entities}


# ------------------------------------------------------------------------------------------------------- the oracle


def test_every_span_stands_in_a_text_that_was_shown_and_holds_the_answer(played, documents):
    """All of them, without exception; questions whose sentence does not name the answer are not demonstrated at all."""
    assert len(played.episodes) == 40
    for episode in played.episodes:
        answer = episode.outcome.text if isinstance(episode.outcome, Answer) else episode.outcome.answer
        located = find_evidence(episode.outcome.span, shown_passages(episode))
        assert located is not None and located.text == episode.outcome.span
        check_evidence(located, documents[located.doc_id])
        read = [RENDERER.decode(part.token_ids) for part in episode.segments if part.origin != "model"]
        assert any(located.text in text for text in read)
        assert answer.lower() in located.text.lower()
        assert find_misquote(episode) == ""


def test_a_solver_quotes_the_last_hop_from_its_last_search(played):
    for episode in played.episodes:
        if isinstance(episode.task, SolveTask):
            gold = episode.task.question.evidence[-1]
            last = [hit.passage for result in episode.turns[-2].results for hit in result.hits]
            assert find_evidence(episode.outcome.span, last) == gold


def test_a_solver_quotes_in_tags_as_it_does_in_calls(place):
    """`warmup eve-search-r1`: a solver alone, in Search-R1's tags, with the prompt that asks for a quotation."""
    played = play(place, dialects=("eve-search-r1", "search-r1"), num_episodes=24)
    quoting, plain = ([one for one in played.episodes if bool(one.outcome.span) == cites] for cites in (True, False))
    assert len(quoting) == len(plain) == 12
    assert {one.protocol for one in played.episodes} == {"search-r1-solver"}
    for episode in quoting:
        gold = episode.task.question.evidence[-1]
        assert find_evidence(episode.outcome.span, shown_passages(episode)) == gold and find_misquote(episode) == ""
    prompts = [{RENDERER.decode(one.segments[0].token_ids[:400]) for one in part} for part in (quoting, plain)]
    assert all("<evidence>" in text for text in prompts[0]) and not any("<evidence>" in text for text in prompts[1])


def test_a_proposer_quotes_its_document_or_what_it_found(played):
    homes = Counter()
    for episode in played.episodes:
        if isinstance(episode.task, ProposeTask):
            own = episode.outcome.span in episode.task.document.text
            assert own == (episode.task.hops == 1)
            homes[own] += 1
    assert min(homes[True], homes[False]) >= 7


def test_a_proposal_passes_every_guard(played):
    for episode in played.episodes:
        if isinstance(episode.task, ProposeTask):
            outcome, searches = episode.outcome, [turn for turn in episode.turns if turn.results]
            triple = Triple(
                outcome.question,
                outcome.answer,
                outcome.span,
                len(outcome.span) // 4,  # about what a real tokenizer would make of it
                episode.task.document.text,
                episode.task.hops,
                tuple(hit.passage.text for turn in searches for result in turn.results for hit in result.hits),
                queries=tuple(query for turn in searches for query in turn.action.queries),
            )
            assert refusals(triple, OURS) == ()


def test_the_turn_is_written_in_the_dialect(played):
    for episode in played.episodes:
        last, outcome = episode.turns[-1].text, episode.outcome
        if isinstance(outcome, Answer):
            assert episode.protocol == "eve-solver"
            ending = f"\n<evidence>{outcome.span}</evidence><answer>{outcome.text}</answer>"
        else:
            assert episode.protocol == "eve-proposer"
            ending = (
                f"\n<question>{outcome.question}</question><evidence>{outcome.span}</evidence>"
                f"<answer>{outcome.answer}</answer>"
            )
        assert last.endswith("</think>" + ending)
        assert not any("<evidence>" in turn.text for turn in episode.turns[:-1])


def test_the_prompts_ask_for_it(place, played):
    solver = next(episode for episode in played.episodes if isinstance(episode.task, SolveTask))
    prompt = RENDERER.decode(solver.segments[0].token_ids)
    assert (CITED_SOLVER_SYSTEM in prompt) != (CITED_BRIEF_SOLVER_SYSTEM in prompt)


def test_a_sentence_that_does_not_name_the_answer_is_not_demonstrated(place):
    """Against the arrow the proof stands in the answer's own article, which calls it "it": 1 question in 40."""
    world, index, _ = place
    lessons = Lessons(world, index)
    golds = [lessons.draw("solver", facts=1).gold for _ in range(120)]
    unnamed = [gold.id for gold in golds if gold.chain[-1].inverse]
    assert unnamed
    played = play(place, roles=("solver",), num_episodes=100, fact_ratio=(1,), style="brief")
    kept = {episode.task.question.id for episode in played.episodes}
    assert not kept & set(unnamed)
    assert set(played.dropped) <= {"a fact was not found", "limit: turns", "the evidence does not hold the answer"}
    assert 1 <= played.dropped["the evidence does not hold the answer"] <= len(unnamed)


def test_what_was_cut_off_is_not_quoted(place):
    limits = structs.replace(LIMITS, tool_response_tokens=250)
    played = play(place, roles=("solver",), num_episodes=6, fact_ratio=(1,), limits=limits)
    assert played.dropped["a fact was not found"] > 0
    for episode in played.episodes:
        replies = [RENDERER.decode(part.token_ids) for part in episode.segments if part.origin == "environment"]
        assert any(episode.outcome.span in reply for reply in replies)


# ------------------------------------------------------------------------------------------------- several dialects


def test_two_dialects_share_the_episodes_and_no_question(place):
    ratios = {"fact_ratio": (1, 1), "hop_ratio": (1, 1)}
    played = play(place, num_episodes=24, dialects=("eve", "drzero"), style="brief", **ratios)
    counts = Counter(episode.protocol for episode in played.episodes)
    assert counts == {"eve-solver": 6, "eve-proposer": 6, "drzero-solver": 6, "drzero-proposer": 6}
    for episode in played.episodes:
        quotes, read = episode.protocol.startswith("eve"), RENDERER.decode(episode.token_ids)
        assert bool(episode.outcome.span) == ("<evidence>" in read) == ("evidence" in read.partition("?")[0]) == quotes
    asked = [
        episode.task.question.text if isinstance(episode.task, SolveTask) else episode.outcome.question
        for episode in played.episodes
    ]
    assert len(set(asked)) == len({episode.id for episode in played.episodes}) == 24


def test_shares_by_hand():
    both = plan_lessons(("solver", "proposer"), 9, (1, 1), ("eve", "drzero"), hop_ratio=(1, 1))
    assert both == [
        Portion("eve", "solver", 1, 2),
        Portion("eve", "solver", 2, 1),
        Portion("eve", "proposer", 1, 1, hops=1),
        Portion("eve", "proposer", 1, 1, hops=2),
        Portion("drzero", "solver", 1, 1),
        Portion("drzero", "solver", 2, 1),
        Portion("drzero", "proposer", 1, 1, hops=1),
        Portion("drzero", "proposer", 1, 1, hops=2),
    ]
    assert sum(portion.num for portion in both) == 9
    for dialects in ((), ("eve", "eve"), ("evil",), ("eve", "evil")):
        with pytest.raises(BadInput, match="dialects must be some of drzero, eve, eve-search-r1, search-r1, "):
            plan_lessons(("solver",), 4, (1,), dialects)
    with pytest.raises(BadInput, match="at least 1 episode of each dialect, not 1"):
        plan_lessons(("solver",), 1, (1,), ("eve", "drzero"))


def test_every_recipe_can_be_warmed_up_for():
    speak_as_score, only_answer = {"report-grpo", "report-dpo"}, {"r1", "sft"}  # an answer alone needs no lessons
    assert {*RECIPES, "eve-search-r1"} - speak_as_score - only_answer == set(DIALECTS)
    assert [dialect for dialect in DIALECTS if cites(dialect)] == ["eve", "eve-search-r1"]


# --------------------------------------------------------------------------------------------- quotations, by hand

SENTENCE = "Orsolya Venn built Halm’s bridge in 1702 for the Ferry Guild."
FILLER = " ".join(f"Its arch number {number} leans a little to the north." for number in range(60))
HALM = Passage(
    "halm#0", "halm", "Halm", f"Halm is a town. {SENTENCE} {FILLER}", 0, 16 + len(SENTENCE) + 1 + len(FILLER)
)
VENN = Passage("venn#0", "venn", "Orsolya Venn", "Orsolya Venn was born in Teel in 1660.", 0, 38)


class Shelf:
    """A searcher that has one passage for every query."""

    async def search(self, queries, topk):
        return [[Hit(HALM, 1.0)] for _ in queries]

    async def close(self):
        pass


def solve(span, answer="Orsolya Venn", limits=LIMITS):
    texts = [
        '<think>I search.</think>\n<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>',
        f"<think>There.</think>\n<evidence>{span}</evidence><answer>{answer}</answer>",
    ]
    task = SolveTask(Question("q1", "Who built the bridge of Halm?", ("Orsolya Venn",)))
    protocol = open_protocol("solver", "brief", "eve")
    attempt = Attempt("q1", task, lambda turns, news: texts[len(turns)], protocol)
    return asyncio.run(demonstrate(attempt, Shelf(), RENDERER, limits, name="hand"))


@pytest.mark.parametrize(
    ("span", "fault"),
    [
        (SENTENCE, ""),
        ("Orsolya Venn built Halm’s bridge", ""),
        ("", "there is no evidence"),
        (SENTENCE.replace("1702", "1703"), "the evidence was not shown"),
        (SENTENCE.replace("built Halm", "built  Halm"), "the evidence is not letter for letter"),
        (SENTENCE.replace("’", "'"), "the evidence is not letter for letter"),
        (SENTENCE.replace("’", "‘"), "the evidence is not letter for letter"),
        ("bridge Halm’s built Venn Orsolya", "the evidence was not shown"),
        (VENN.text, "the evidence was not shown"),  # true, and never returned
        ("Halm is a town.", "the evidence does not hold the answer"),
        ("Orsolya Venn", "the evidence says no more than the answer"),
        ("Orsolya Venn built Halm", "the evidence says no more than the answer"),
        (f"{SENTENCE} {FILLER[:400]}".strip(), "the evidence is long"),
    ],
)
def test_a_misquote_is_named(span, fault):
    assert find_misquote(solve(span)) == fault


def test_a_solver_may_call_the_answer_by_another_name():
    episode = solve(SENTENCE, answer="Venn the Elder")
    assert find_misquote(episode) == ""  # the sentence has the other name the question accepts
    question = structs.replace(episode.task.question, answers=("Venn the Elder",))
    alone = structs.replace(episode, task=SolveTask(question))
    assert find_misquote(alone) == "the evidence does not hold the answer"


def test_what_was_found_but_cut_off_before_it_was_read(place):
    ending = FILLER[-40:].split(" ", 1)[1]  # in whole words
    assert find_misquote(solve(ending, answer="north")) == ""
    short = structs.replace(LIMITS, tool_response_tokens=200)
    assert find_misquote(solve(SENTENCE, limits=short)) == ""
    assert find_misquote(solve(ending, answer="north", limits=short)) == "the evidence was not shown"


def test_a_proposer_beyond_one_hop_quotes_what_it_searched_for():
    solved = solve(SENTENCE)

    def proposed(hops, document, span):
        outcome = Proposal("Who built the bridge of Halm?", "Orsolya Venn", span)
        return structs.replace(solved, task=ProposeTask("p1", document, hops), outcome=outcome)

    assert find_misquote(proposed(2, VENN, SENTENCE)) == ""
    in_document = structs.replace(proposed(1, HALM, SENTENCE), turns=solved.turns[-1:])
    assert find_misquote(in_document) == ""
    assert find_misquote(proposed(2, HALM, SENTENCE)) == "the evidence is not the last hop's"


# ------------------------------------------------------------------------------------------------------- a teacher


class Teacher:
    """A chat endpoint that knows the world's one-hop facts and quotes them; `spoil` changes what it quotes."""

    name = "teacher"

    def __init__(self, world, spoil):
        self.golds = [gold for gold in world.questions(300, (1,)) if not gold.chain[0].inverse]
        self.spoil = spoil

    async def reply(self, messages, params):
        await asyncio.sleep(0)
        return ChatReply(self.write(messages), "end_of_turn", 7)

    def write(self, messages):
        system, task = messages[0]["content"], messages[1]["content"]
        quoting = "<evidence>" in system
        if task.startswith("Question:\n"):
            gold = next((gold for gold in self.golds if gold.text in task), None)
            if gold is None:
                return "I give up."
            if len(messages) == 2:
                call = json.dumps({"name": "search", "arguments": {"query_list": [gold.chain[0].mention]}})
                return f"<think>I search.</think>\n<tool_call>{call}</tool_call>"
            question = ""
        else:
            gold = next((gold for gold in self.golds if gold.chain[0].evidence.text in task), None)
            if gold is None:
                return "I give up."
            question = f"<question>{gold.text}</question>"
        span = f"<evidence>{self.spoil(gold.chain[0].evidence.text)}</evidence>" if quoting else ""
        answer = gold.chain[0].said if question else gold.answers[0]
        return f"<think>A fact.</think>{question}{span}<answer>{answer}</answer>"

    async def stop(self):
        pass


def learn(place, spoil=lambda span: span, **changes):
    ratios = {"fact_ratio": (1,), "hop_ratio": (1,)}
    settings = {"num_episodes": 12, **ratios, "limits": LIMITS, "seed": 3, "dialects": ("eve",)} | changes
    return asyncio.run(play_teacher(ChatPolicy(Teacher(place[0], spoil)), *place, LessonSettings(**settings)))


@pytest.mark.parametrize("style", ["full", "brief"])
def test_a_teacher_that_quotes_is_kept(place, style):
    played = learn(place, style=style)
    assert len(played.episodes) >= 10
    for episode in played.episodes:
        assert episode.protocol in ("eve-solver", "eve-proposer")
        located = find_evidence(episode.outcome.span, shown_passages(episode))
        assert located is not None and located.text == episode.outcome.span
        assert find_misquote(episode) == ""
        prompt = RENDERER.decode(episode.segments[0].token_ids)
        assert ("letter for letter" in prompt) == (style == "full")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda span: "", "there is no evidence"),
        (lambda span: span[:-1] + " indeed.", "the evidence was not shown"),
        (lambda span: span.replace(" ", "  ", 1), "the evidence is not letter for letter"),
        (lambda span: " ".join(reversed(span.split())), "the evidence was not shown"),
    ],
)
def test_a_teacher_that_misquotes_is_not(place, spoil, reason):
    good, bad = learn(place), learn(place, spoil)
    assert bad.episodes == []
    assert bad.dropped[reason] == len(good.episodes) > 0
    # The same teacher is right in the dialect without evidence, where nobody asks for a quotation.
    assert len(learn(place, spoil, dialects=("drzero",)).episodes) >= len(good.episodes)


def test_a_teacher_shows_both_dialects(place):
    played = learn(place, dialects=("eve", "drzero"))
    counts = Counter(episode.protocol.partition("-")[0] for episode in played.episodes)
    assert counts["eve"] >= 4 and counts["drzero"] >= 4
    for episode in played.episodes:
        assert bool(episode.outcome.span) == episode.protocol.startswith("eve")


def test_results_of_a_search_are_those_the_index_gives(place):
    """The quotations above are worth something only because the searches were really made."""
    _, index, _ = place
    for episode in play(place, num_episodes=8, roles=("solver",), fact_ratio=(1, 1), style="brief").episodes:
        for turn in episode.turns[:-1]:
            again = index.search(list(turn.action.queries), LIMITS.topk)
            assert turn.results == tuple(
                SearchResult(query, tuple(hits)) for query, hits in zip(turn.action.queries, again, strict=True)
            )
