"""Warm-up in the dialects that judge what they found: honest scores, notes that hold the fact, the gate always kept."""

import asyncio
import re
from collections import Counter
from itertools import pairwise

import pytest
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import format_fault
from quaere.dialects.evalact_reward import find_pairs, judge_searches
from quaere.dialects.registry import open_solver
from quaere.dialects.tag_dialects import read_note
from quaere.errors import BadInput
from quaere.records import Answer, Evaluate, Evidence, Hit, Passage, Question, Search, SearchResult, SolveTask, Turn
from quaere.rewards.answers import contains, exact_match_score
from quaere.rewards.self_evaluation import auroc
from quaere.rollout.episode import Limits
from quaere.warmup.dialects import DIALECTS, needed_turns, roles_of, solver_turns
from quaere.warmup.lessons import LessonSettings, Portion, build_world, plan_lessons
from quaere.warmup.oracle import Verdict, allow_turns, play_oracle, refuse_few_turns, weigh_search
from quaere.warmup.scripted_episodes import Attempt, demonstrate, judge, open_protocol
from quaere.worlds import Hop

# The tiny tokenizer takes three times as many tokens as a real one.
LIMITS = Limits(turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000)
RENDERER = Renderer(tiny.tokenizer())
NOTED = ("evalrar", "autorefine")
TAGGED = (*NOTED, "search-r1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A world, its index and a renderer."""
    return *build_world(1, 300, tmp_path_factory.mktemp("warmup")), RENDERER


def play(place, **changes):
    settings = {"limits": LIMITS, "seed": 5, "style": "brief", "turn_limits": {"evalact": 12}} | changes
    return asyncio.run(play_oracle(*place, LessonSettings(**settings))).episodes


@pytest.fixture(scope="module")
def evaluated(place):
    return play(place, num_episodes=40, dialects=("evalact",))


@pytest.fixture(scope="module")
def tagged(place):
    episodes = play(place, num_episodes=36, dialects=TAGGED)
    return {name: [episode for episode in episodes if episode.protocol == f"{name}-solver"] for name in TAGGED}


# --------------------------------------------------------------------------------------------------- each one by hand

HALM = Passage("halm#0", "halm", "Halm", "Halm is a town. Orsolya Venn built its bridge in 1702.", 0, 53)

THINK = "<think>I look it up.</think>\n"
THERE = "<think>There.</think>\n"
BY_HAND = {
    "drzero": [
        THINK + '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>',
        THERE + "<answer>Orsolya Venn</answer>",
    ],
    "evalact": [
        THINK + '<tool_call>{"name": "search", "arguments": {"query": "Halm bridge"}}</tool_call>',
        '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "Passage 1: Venn.", "score": 9}}</tool_call>',
        THERE + "<answer>Orsolya Venn</answer>",
    ],
    "evalrar": [
        THINK + "<search>Halm bridge</search>",
        "<evaluate>Passage 1: Venn.</evaluate>\n" + THERE + "<answer>Orsolya Venn</answer>",
    ],
    "autorefine": [
        THINK + "<search>Halm bridge</search>",
        "<refine>Passage 1: Venn.</refine>\n" + THERE + "<answer>Orsolya Venn</answer>",
    ],
    "search-r1": [
        THINK + "<search>Halm bridge</search>",
        THERE + "<answer>Orsolya Venn</answer>",
    ],
}


class Shelf:
    """A searcher that has one passage for every query."""

    async def search(self, queries, topk):
        return [[Hit(HALM, 1.0)] for _ in queries]


def enact(dialect, texts):
    task = SolveTask(Question("q1", "Who built the bridge of Halm?", ("Orsolya Venn",)))
    protocol = open_protocol("solver", "brief", dialect)
    attempt = Attempt("hand-1", task, lambda turns, news: texts[len(turns)], protocol)
    return asyncio.run(demonstrate(attempt, Shelf(), RENDERER, LIMITS, name="hand"))


@pytest.mark.parametrize("dialect", BY_HAND)
def test_an_episode_by_hand(dialect):
    note = "Passage 1: Venn."
    turns = solver_turns(dialect)
    written = [turns.search("I look it up.", "Halm bridge")]
    written += [turns.evaluation("", note, 9)] if turns.remarks == "turn" else []
    written += [turns.answer("There.", "Orsolya Venn", note=note)]
    assert written == BY_HAND[dialect]
    episode = enact(dialect, written)
    actions = [Search(("Halm bridge",)), Answer("Orsolya Venn", note=note if dialect in NOTED else "")]
    if dialect == "evalact":
        actions.insert(1, Evaluate(note, 9.0))
    assert [turn.action for turn in episode.turns] == actions
    assert (episode.id, episode.task.id, episode.model) == ("hand-1", "q1", "hand")
    assert judge(episode, "solver", dialect) == ""


def test_a_note_opens_a_search_too():
    text = solver_turns("evalrar").search("Then the year.", "Halm year", note="No year is given.")
    assert text == ("<evaluate>No year is given.</evaluate>\n<think>Then the year.</think>\n<search>Halm year</search>")


def test_what_breaks_the_gate_is_dropped_with_its_reason():
    def fault(dialect, texts):
        return judge(enact(dialect, texts), "solver", dialect)

    search, evaluation, answer = BY_HAND["evalact"]
    assert fault("evalact", [search, evaluation, "Well. " + answer]) == (
        "there is text outside of the thought and the action"
    )
    assert fault("evalact", [search, answer, evaluation, answer]) == "protocol: malformed"
    assert fault("evalact", [search, evaluation, evaluation, answer]) == "protocol: malformed"
    assert fault("evalact", [search, evaluation.replace("9", "11"), evaluation, answer]) == "protocol: malformed"
    assert fault("evalact", [search, evaluation, answer.replace("Venn", "Vann")]) == "wrong answer"
    for dialect in NOTED:
        assert fault(dialect, BY_HAND["search-r1"]) == "what a search found was not noted"
    assert fault("search-r1", BY_HAND["search-r1"]) == ""


# ----------------------------------------------------------------------------------------------- what a search is worth

VENN = Passage("venn#0", "venn", "Orsolya Venn", "Orsolya Venn was born in Teel in 1660.", 0, 38)
HALM_REST = Passage("halm#1", "halm", "Halm", "Its market is held on Fridays, in the rain.", 54, 97)
FERRIES = Passage("ferry#0", "ferry", "Ferries", "A ferry ran to Halm before there was a bridge.", 0, 46)
MOONS = Passage("moon#0", "moon", "Moons", "Some moons have weather of their own.", 0, 37)
BUILT = Evidence("halm", 16, 53, "Orsolya Venn built its bridge in 1702.")
BORN = Evidence("venn", 0, 38, VENN.text)
CHAIN = (
    Hop("e1", "Halm", "builder", False, "Orsolya Venn", "e2", "Orsolya Venn", BUILT),
    Hop("e2", "Orsolya Venn", "birthplace", False, "Teel", "e3", "Teel", BORN),
)


def weigh(at, *passages, shown=None):
    """The verdict on a search that returned these passages, of which `shown` is what could be read (at first: all)."""
    text = '<tool_call>{"name": "search", "arguments": {"query": "Halm, Orsolya Venn"}}</tool_call>'
    results = (SearchResult("Halm", tuple(Hit(passage, 1.0) for passage in passages)),)
    read = "\n\n".join(passage.titled_text for passage in passages) if shown is None else shown
    turn = Turn(0, text, Search(("Halm",)), "stop_string", results=results)
    return weigh_search(CHAIN, at, turn, f"{text}\n<tool_response>\n{read}")


def test_a_verdict_by_hand():
    assert weigh(0, MOONS, HALM) == Verdict("found", 2)
    assert weigh(0, HALM_REST, HALM) == Verdict("found", 2)  # the passage with the sentence, not just its article
    assert weigh(0, MOONS, HALM_REST) == Verdict("article", 2)
    assert weigh(0, MOONS, VENN) == Verdict("related", 2)
    assert weigh(0, FERRIES, MOONS) == Verdict("named", 1)
    assert weigh(0, MOONS) == weigh(0) == Verdict("missing")  # that the query names Halm is no find
    assert weigh(1, MOONS, HALM) == Verdict("related", 2)
    assert weigh(1, VENN) == Verdict("found", 1)


def test_what_was_cut_off_counts_for_nothing():
    whole = f"Moons\n{MOONS.text}\n\nHalm\n{HALM.text}"
    assert weigh(0, MOONS, HALM, shown=whole) == Verdict("found", 2)
    assert weigh(0, MOONS, HALM, shown=f"Moons\n{MOONS.text}") == Verdict("missing")
    long = structs.replace(HALM, text=f"Halm is a town {'by the sea ' * 9}. {BUILT.text}")
    assert weigh(0, long, shown=f"Halm\n{long.text[:80]}") == Verdict("article", 1)


def test_each_tier_has_one_score():
    scores = {kind: Verdict(kind).score for kind in ("found", "article", "related", "named", "missing")}
    assert scores == {"found": 10, "article": 5, "related": 5, "named": 5, "missing": 1}


# ---------------------------------------------------------------------------------------------------------- evalact


def test_the_gate_holds_and_every_answer_is_right(evaluated):
    assert len(evaluated) == 40
    pay = open_solver("evalact").pay
    for episode in evaluated:
        assert episode.protocol == "evalact-solver"
        assert format_fault(episode.turns, episode.end) == ""
        kinds = [type(turn.action) for turn in episode.turns]
        assert kinds == [Search, Evaluate] * (len(kinds) // 2) + [Answer]
        assert len(kinds) <= 12
        assert pay(episode)["reward/total"] == 1.0


def test_scores_are_honest(evaluated):
    """Held against the labels that training measures calibration with."""
    said, good = [], []
    for episode in evaluated:
        verdicts = judge_searches(episode)
        for pair in find_pairs(episode):
            said.append(pair.score)
            good.append(verdicts[pair.turn])
    assert len(said) > 90
    assert auroc(said, good) > 0.95
    tiers = Counter("low" if score <= 3 else "mid" if score <= 7 else "high" for score in said)
    assert min(tiers["low"], tiers["mid"]) >= 3 and tiers["high"] >= 60
    assert set(said) == {1, 5, 10}


def test_after_a_poor_search_it_searches_again_in_other_words(evaluated):
    again = [episode for episode in evaluated if episode.num_searches > episode.task.question.hops]
    assert 0.1 < len(again) / len(evaluated) < 0.6
    followed = set()
    for episode in evaluated:
        for before, evaluation, after in zip(episode.turns, episode.turns[1:], episode.turns[2:], strict=False):
            if isinstance(evaluation.action, Evaluate) and evaluation.action.score <= 7:
                assert isinstance(after.action, Search) and after.action.queries != before.action.queries
                followed.add(evaluation.action.score <= 3)
    assert followed == {True, False}


def test_an_evaluation_says_what_was_found_and_never_what_was_not(evaluated):
    num_quoted = num_found = 0
    for episode in evaluated:
        question, missing = episode.task.question, list(episode.task.question.evidence)
        for turn in episode.turns:
            if not isinstance(turn.action, Evaluate):
                continue
            text = turn.action.text
            for evidence in question.evidence:  # what is quoted is quoted letter for letter
                assert (evidence.text in text) == (evidence.text.lower() in text.lower())
            if turn.action.score <= 7:
                assert not any(contains(text, answer) for answer in question.answers)
                continue
            num_found += 1
            num_quoted += missing.pop(0).text in text
            if not missing:
                assert any(contains(text, answer) for answer in question.answers)
        assert not missing
    assert 0.2 < num_quoted / num_found < 0.9


def test_an_evaluation_comes_with_a_thought_or_without(evaluated):
    thought = [
        "<think>" in turn.text for episode in evaluated for turn in episode.turns if isinstance(turn.action, Evaluate)
    ]
    assert 0.3 < sum(thought) / len(thought) < 0.7


def forms(texts):
    """Without names, numbers and what stands after a colon, what is left is the form."""
    name = r"(the )?[A-Z][\w']+( (of the|of|the|and|in|at|[A-Z][\w']+))*|\d+"
    return {re.sub(name, "_", text.partition(":")[0]) for text in texts}


def test_words_of_evaluations_are_varied(evaluated, tagged):
    texts = [turn.action.text for one in evaluated for turn in one.turns if isinstance(turn.action, Evaluate)]
    assert len(set(texts)) > 0.95 * len(texts)
    assert len(forms(texts)) > 0.3 * len(texts)
    assert not any(re.search(r'[{}\[\]|"]|  |^[a-z]', text) for text in texts)
    notes = [read_note(turn) for name in NOTED for one in tagged[name] for turn in one.turns if read_note(turn)]
    assert not any(re.search(r'[{}\[\]|"<>]|  |^[a-z]', note) for note in notes)


def test_evaluations_are_model_tokens_and_cues_are_not(evaluated):
    for episode in evaluated[:10]:
        for segment in episode.segments:
            assert set(segment.loss_mask) == {segment.origin == "model"}
        read = [RENDERER.decode(part.token_ids) for part in episode.segments if part.origin == "environment"]
        assert sum("/10, " in text for text in read) == episode.num_searches


# ------------------------------------------------------------------------------------------------------------- tags


@pytest.mark.parametrize("dialect", NOTED)
def test_every_result_is_noted_and_the_last_note_holds_the_answer(tagged, dialect):
    tag = {"evalrar": "evaluate", "autorefine": "refine"}[dialect]
    assert len(tagged[dialect]) == 12
    for episode in tagged[dialect]:
        assert all(map(read_note, episode.turns[1:]))
        for before, turn in pairwise(episode.turns):
            assert turn.text.startswith(f"<{tag}>") and isinstance(before.action, Search)
        assert not read_note(episode.turns[0])
        assert any(contains(read_note(episode.turns[-1]), answer) for answer in episode.task.question.answers)
        assert open_solver(dialect).pay(episode)["reward/note"] == 0.1


def test_evaluating_and_refining_differ_in_words(tagged):
    quoted = {
        dialect: [
            read_note(episode.turns[-1]) == episode.task.question.evidence[-1].text for episode in tagged[dialect]
        ]
        for dialect in NOTED
    }
    assert any(quoted["autorefine"]) and not any(quoted["evalrar"])  # what was refined may be the sentence alone


def test_retries_are_shown_in_every_dialect(tagged):
    for episodes in tagged.values():
        assert any(episode.num_searches > episode.task.question.hops for episode in episodes)
        for episode in episodes:
            assert exact_match_score(episode.outcome.text, episode.task.question.answers) == 1.0


def test_search_r1_notes_nothing(tagged):
    for episode in tagged["search-r1"]:
        assert all(turn.text.startswith("<think>") and not read_note(turn) for turn in episode.turns)


# ---------------------------------------------------------------------------------------------------------- planning


def test_roles_are_those_a_dialect_has():
    assert [roles_of(dialect) for dialect in DIALECTS[:2]] == [("solver", "proposer")] * 2
    assert {roles_of(dialect) for dialect in DIALECTS[2:-1]} == {("solver",)}
    assert roles_of(DIALECTS[-1]) == ("solver", "evaluator")
    mixed = [
        Portion("evalact", "solver", 1, 4),
        Portion("drzero", "solver", 1, 2),
        Portion("drzero", "proposer", 1, 2, hops=1),
    ]
    assert plan_lessons(None, 8, (1,), ("evalact", "drzero"), hop_ratio=(1,)) == mixed
    assert plan_lessons(("solver", "proposer"), 8, (1,), ("evalact", "drzero"), hop_ratio=(1,)) == mixed
    for dialect in DIALECTS[2:]:
        with pytest.raises(BadInput, match=f"{dialect} has no proposer to teach"):
            plan_lessons(("proposer",), 8, (1,), ("drzero", dialect))
        with pytest.raises(BadInput, match=f"{dialect} has no proposer to teach"):
            plan_lessons(("solver", "proposer"), 8, (1,), (dialect,))
        with pytest.raises(BadInput, match=f"{dialect} has no proposer"):
            open_protocol("proposer", "full", dialect)


def test_turns_are_counted_by_dialect():
    assert {dialect: needed_turns(dialect, 2) for dialect in DIALECTS} == dict.fromkeys(DIALECTS, 3) | {"evalact": 5}
    assert [needed_turns("drzero", searches) for searches in (0, 1, 2)] == [1, 2, 3]
    plan = plan_lessons(("solver",), 4, (1, 1), ("search-r1", "evalact"))
    with pytest.raises(BadInput, match="a solver of evalact needs 5 turns for 2 facts, and 4 are allowed"):
        refuse_few_turns(plan, Limits(max_turns=4))
    refuse_few_turns(plan, Limits(max_turns=4), {"evalact": 5})
    with pytest.raises(BadInput, match="a solver of search-r1 needs 3 turns for 2 facts"):
        refuse_few_turns(plan, Limits(max_turns=2), {"evalact": 5})
    with pytest.raises(BadInput, match="needs 3 turns for 2 facts") as raised:  # not the 2 turns that 1 fact needs
        refuse_few_turns(plan_lessons(("solver",), 2, (1, 1)), Limits(max_turns=1))
    assert raised.value.hint == "--max-turns 3, or fewer facts such as --facts 1"
    with pytest.raises(BadInput, match="needs 2 turns for 1 fact,") as raised:
        refuse_few_turns(plan_lessons(("solver",), 2, (1,)), Limits(max_turns=1))
    assert raised.value.hint == "--max-turns 2"
    assert allow_turns(Limits(max_turns=4), {"evalact": 5}, "evalact").max_turns == 5
    assert allow_turns(Limits(max_turns=4), {"evalact": 5}, "drzero").max_turns == 4


def test_one_start_for_many_dialects(place):
    ratios = {"fact_ratio": (1,), "hop_ratio": (1,)}
    episodes = play(place, num_episodes=12, dialects=("evalact", "evalrar", "search-r1", "drzero"), **ratios)
    counts = Counter(episode.protocol for episode in episodes)
    solvers = {f"{name}-solver": 3 for name in ("evalact", "evalrar", "search-r1")}
    assert counts == solvers | {"drzero-solver": 2, "drzero-proposer": 1}
    assert len({episode.id for episode in episodes}) == 12
