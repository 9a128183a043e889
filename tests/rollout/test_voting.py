"""Several attempts at a question: which of them is returned, with which agreement, and when it is told of."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Episode, Failure, Question, Search, SolveTask, Turn
from quaere.rollout.episode import Job, Limits
from quaere.rollout.policy import TokenPolicy
from quaere.rollout.voting import run_voted, vote
from scripted import ScriptedSampler

ABSTAINED, NOTHING = "-", None
LIMITS = Limits(max_turns=3, turn_tokens=200, sequence_tokens=4000)
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>'


def attempt(number, text):
    task = SolveTask(Question("q", "Who?"))
    outcome = None if text is NOTHING else Answer(text, abstained=text == ABSTAINED)
    return Episode(f"q-a{number}", task, "p", "m", 0, (), (), outcome, "answered" if outcome else "max_turns")


def voted(*texts):
    found = vote([attempt(number, text) for number, text in enumerate(texts)])
    return found.id, found.agreement


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("Venn", "Brod", "Venn", "Oss"), ("q-a0", 0.5)),
        (("Brod", "the VENN", "Venn.", "Oss"), ("q-a1", 0.5)),  # compared as answers are
        (("Brod", "Venn"), ("q-a0", 0.5)),  # the first of equals
        ((ABSTAINED, ABSTAINED, ABSTAINED, "Venn"), ("q-a3", 0.25)),
        ((NOTHING, NOTHING, ABSTAINED), ("q-a2", 1 / 3)),
        ((NOTHING, NOTHING), ("q-a0", 1.0)),
        ((NOTHING, "the", ABSTAINED), ("q-a2", 1 / 3)),  # an answer without a word is none
    ],
)
def test_answers_win_over_abstentions_and_these_over_nothing(texts, expected):
    assert voted(*texts) == expected


@given(st.lists(st.sampled_from(["Venn", "Brod", "Oss", ABSTAINED, NOTHING]), min_size=1, max_size=9))
def test_the_winner_is_a_most_frequent_answer_if_there_is_any(texts):
    name, agreement = voted(*texts)
    chosen = texts[int(name.removeprefix("q-a"))]
    answers = Counter(text for text in texts if text not in (ABSTAINED, NOTHING))
    rivals = answers or Counter(text for text in texts if text is not NOTHING) or Counter(texts)
    assert chosen in rivals and rivals[chosen] == max(rivals.values())
    assert agreement == texts.count(chosen) / len(texts) and texts.index(chosen) == int(name.removeprefix("q-a"))


def test_an_attempt_without_what_it_searched_for_has_no_vote():
    """Its answer would be scored as wrong, whoever agrees with it."""
    lost = Turn(0, "", Search(("Halm",)), "stop_string", failure=Failure("search", "timeout", "no reply"))
    first, *others = (attempt(number, text) for number, text in enumerate(["Venn", "Venn", "Brod", "Brod"]))
    found = vote([structs.replace(first, turns=(lost,)), *others])
    assert (found.id, found.agreement) == ("q-a2", 0.5)
    assert vote([structs.replace(one, turns=(lost,)) for one in (first, *others)]).id == "q-a0"


def test_confidence_is_the_agreement_of_several_attempts():
    found = vote([attempt(0, "Venn"), attempt(1, "Brod"), attempt(2, "Brod"), attempt(3, ABSTAINED)])
    assert found.confidence == 0.5 and not found.abstains(0.5) and found.abstains(0.51)
    assert vote([attempt(0, NOTHING)]).confidence is None


def policy(scripts):
    tokenizer = tiny.tokenizer()
    return TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))


def answer(text):
    return f"<answer>{text}</answer>"


SCRIPTS = {
    "slow-a0": [CALL, CALL, answer("Oss")],
    "slow-a1": [answer("Venn")],
    "slow-a2": [CALL, CALL, answer("Venn")],
    "quick-a0": [answer("Brod")],
    "quick-a1": [answer("Brod")],
    "quick-a2": [answer("Oss")],
}


def jobs(*names):
    return [Job(ToolCallSolver(), SolveTask(Question(name, "Who?"))) for name in names]


async def test_questions_come_in_order_and_are_told_of_with_their_last_attempt():
    told = []
    how = {"params": SamplingParams(temperature=0.0), "on_episode": lambda episode: told.append(episode.id)}
    played = run_voted(policy(SCRIPTS), jobs("slow", "quick"), tiny.ListSearcher(), LIMITS, attempts=3, **how)
    found = [(one.id, one.outcome.text, round(one.agreement, 2)) async for one in played]
    assert found == [("slow", "Venn", 0.67), ("quick", "Brod", 0.67)]
    assert told == ["quick", "slow"]


async def test_attempts_are_sampled_apart_and_at_a_temperature():
    taught = policy(SCRIPTS)
    seen = []
    sample = taught.sampler.sample

    async def note(session, token_ids, params):
        seen.append((params.temperature, params.seed))
        return await sample(session, token_ids, params)

    taught.sampler.sample = note
    params = SamplingParams(temperature=0.0)
    async for _ in run_voted(taught, jobs("quick"), tiny.ListSearcher(), LIMITS, attempts=3, params=params):
        pass
    assert {temperature for temperature, _ in seen} == {1.0} and len({seed for _, seed in seen}) == 3


async def test_a_single_attempt_is_an_episode_as_ever():
    played = run_voted(
        policy({"quick": [answer("Brod")]}),
        jobs("quick"),
        tiny.ListSearcher(),
        LIMITS,
        params=SamplingParams(temperature=0.0),
    )
    (found,) = [one async for one in played]
    assert found.id == "quick" and found.agreement is None


async def test_who_stops_early_leaves_no_attempt_running():
    async def never():
        await asyncio.Event().wait()

    taught, how = policy(SCRIPTS), {"params": SamplingParams(temperature=0.0), "attempts": 2}
    played = run_voted(taught, jobs("quick", "slow"), tiny.ListSearcher(pause=never), LIMITS, **how)
    assert (await anext(played)).id == "quick"
    await played.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not taught.sampler.sessions
