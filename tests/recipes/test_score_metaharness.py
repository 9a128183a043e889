"""What becomes of a harness; every transition here is worked out by hand from the table in the module's docstring."""

import asyncio
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from judging import spoil
from loopback import serve_chat
from quaere.chat.dimensions import POOL
from quaere.errors import SamplingFailed
from quaere.policies.openai import Endpoint, OpenAISampler
from quaere.policies.sampler import ChatReply
from quaere.recipes.score import train
from quaere.recipes.score.config import HarnessSettings
from quaere.recipes.score.harness import HarnessLimits, Statistics, compare, default_harness, encode_harness, find_fault
from quaere.recipes.score.metaharness import LlmHarness, MetaHarness, Regenerated, RuleSettings, RulesHarness
from quaere.records import DimensionRules, ProcessRules

DEFAULT = default_harness()
# As a harness becomes in the course of a run: version 3, more of everything.
PREVIOUS = structs.replace(
    DEFAULT,
    version=3,
    dimensions=DimensionRules(5, "factuality", 0.1, 0.5),
    process=ProcessRules(require_verification=False, require_gap_analysis=False, min_tool_calls=2),
)
HEALTHY = Statistics(step=5, num_scored=16, mean_reward=0.6, score_spread=0.1, share_at_ceiling=0.1, mean_searches=2.0)


def regenerate(previous=PREVIOUS, default=DEFAULT, rules=None, **changes):
    statistics = structs.replace(HEALTHY, **changes)
    return asyncio.run((rules or RulesHarness()).regenerate(statistics, previous, default))


def numbers(harness):
    rules = harness.dimensions
    return rules.k, rules.must_include, rules.weight_min, rules.weight_max, harness.process.min_tool_calls


@pytest.mark.parametrize(
    ("changes", "expected", "why"),
    [
        ({}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        ({"share_invalid_rubrics": 0.3}, (4, "factuality", 0.1, 0.5, 2), "rubrics"),
        ({"share_invalid_assessments": 0.3}, (4, "factuality", 0.1, 0.5, 1), "assessments"),
        ({"share_under_verified": 0.6}, (5, "factuality", 0.1, 0.5, 1), "unverified"),
        ({"share_at_ceiling": 0.6}, (6, "factuality", 0.1, 0.5, 3), "saturated"),
        ({"score_spread": 0.02}, (6, "factuality", 0.1, 0.5, 3), "saturated"),
        # One report is enough to be at the ceiling, though not to have a spread.
        (
            {"num_scored": 1, "share_at_ceiling": 1.0, "score_spread": None},
            (6, "factuality", 0.1, 0.5, 3),
            "saturated",
        ),
        ({"citation_change": -0.06, "reward_change": 0.01}, (5, "citation", 0.1, 0.5, 2), "citations"),
        ({"entropy": 0.7, "entropy_change": -0.3}, (5, "factuality", 0.05, 0.55, 2), "entropy"),
        # At the very bounds, and half of a reason, no rule fits.
        ({"share_invalid_rubrics": 0.25, "share_under_verified": 0.5}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        ({"share_at_ceiling": 0.5, "score_spread": 0.03}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        ({"citation_change": -0.5, "reward_change": 0.0}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        ({"citation_change": 0.5, "reward_change": 0.5}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        ({"entropy": 0.9, "entropy_change": -0.1}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        ({"num_scored": 0, "score_spread": 0.0}, (4, "factuality", 0.1, 0.5, 1), "calm"),
        # Together: 5 - 1 - 1; and an evaluator that is overloaded is not asked for more.
        (
            {"share_invalid_rubrics": 0.3, "share_invalid_assessments": 0.3, "score_spread": 0.0},
            (3, "factuality", 0.1, 0.5, 1),
            "rubrics, assessments",
        ),
        (
            {"share_at_ceiling": 0.9, "citation_change": -0.1, "reward_change": 0.1},
            (6, "citation", 0.1, 0.5, 3),
            "citations, saturated",
        ),
    ],
)
def test_one_transition(changes, expected, why):
    regenerated = regenerate(**changes)
    assert numbers(regenerated.harness) == expected
    assert (regenerated.why, regenerated.fault, regenerated.harness.version) == (why, "", 4)


def test_what_a_rule_switches_on():
    saturated = regenerate(score_spread=0.0).harness
    assert saturated.process.require_verification and saturated.process.require_gap_analysis
    assert saturated.notes == "Scores lie close together: look deeper, and use the whole scale."
    unchecked = structs.replace(PREVIOUS, process=ProcessRules(citation_cross_check=False))
    assert regenerate(unchecked, citation_change=-0.1, reward_change=0.1).harness.process.citation_cross_check
    assert not regenerate(unchecked).harness.process.citation_cross_check


def test_dimensions_that_were_dropped_come_back():
    few = structs.replace(PREVIOUS, pool=tuple(item for item in POOL if item.name not in ("citation", "depth")))
    guarded = regenerate(few, citation_change=-0.1, reward_change=0.1).harness
    assert guarded.pool == (*few.pool, POOL[1]) and guarded.dimensions.must_include == "citation"
    assert regenerate(few, entropy=0.5, entropy_change=-0.5).harness.pool == (*few.pool, POOL[1], POOL[3])
    # Where nobody knows of the dimension, or there is no room for it, the primary one stays.
    default = structs.replace(DEFAULT, pool=few.pool)
    assert (
        regenerate(few, default, citation_change=-0.1, reward_change=0.1).harness.dimensions.must_include
        == "factuality"
    )
    full = RulesHarness(limits=HarnessLimits(max_pool=8))
    cramped = regenerate(few, rules=full, citation_change=-0.1, reward_change=0.1, entropy=0.5, entropy_change=-0.5)
    assert cramped.harness.pool == few.pool and cramped.fault == ""


def test_bounds_are_not_crossed():
    least = structs.replace(PREVIOUS, dimensions=DimensionRules(k=2), process=ProcessRules(min_tool_calls=1))
    assert numbers(regenerate(least, share_invalid_assessments=1.0).harness)[::4] == (2, 1)
    free = structs.replace(least, process=ProcessRules(require_search=False, min_tool_calls=1))
    assert numbers(regenerate(free, share_invalid_assessments=1.0).harness)[::4] == (2, 0)
    most = structs.replace(
        PREVIOUS, dimensions=DimensionRules(6, "factuality", 0.0, 1.0), process=ProcessRules(min_tool_calls=4)
    )
    assert numbers(regenerate(most, score_spread=0.0, entropy=0.1, entropy_change=-0.9).harness) == (
        *(6, "factuality", 0.0, 1.0),
        4,
    )
    seven = structs.replace(PREVIOUS, dimensions=DimensionRules(k=7))
    assert numbers(regenerate(seven, score_spread=0.0).harness)[0] == 7
    assert numbers(regenerate(seven, share_invalid_rubrics=1.0).harness)[0] == 6


def test_calm_leads_back_to_the_default_and_stays_there():
    harness, seen = structs.replace(PREVIOUS, process=ProcessRules(min_tool_calls=3)), []
    for _ in range(4):
        harness = regenerate(harness).harness
        seen.append((harness.version, *numbers(harness)[::4]))
    assert seen == [(4, 4, 2), (5, 4, 1), (5, 4, 1), (5, 4, 1)]


def test_the_guard_of_citations_outlasts_the_alarm():
    guarded = regenerate(citation_change=-0.1, reward_change=0.1).harness
    assert regenerate(guarded).harness.dimensions.must_include == "citation"


def test_what_is_required_besides_stays_required():
    two = structs.replace(PREVIOUS, dimensions=DimensionRules(3, ("factuality", "depth")))
    guarded = regenerate(two, citation_change=-0.1, reward_change=0.1).harness
    assert guarded.dimensions.required == ("citation", "factuality", "depth")
    assert numbers(regenerate(guarded, share_invalid_rubrics=1.0).harness)[0] == 3  # no fewer than are required


def test_a_previous_harness_beyond_the_limits_is_kept_with_a_fault():
    regenerated = regenerate(rules=RulesHarness(limits=HarnessLimits(max_pool=3)))
    assert regenerated == Regenerated(PREVIOUS, "the pool may hold at most 3 dimensions")


SHARES = st.floats(0, 1)
CHANGES = st.floats(-1, 1)


@given(
    st.integers(2, 10),
    st.integers(0, 4),
    st.tuples(SHARES, SHARES).map(sorted),
    st.builds(
        Statistics,
        num_scored=st.integers(0, 9),
        score_spread=SHARES,
        share_at_ceiling=SHARES,
        share_under_verified=SHARES,
        share_invalid_rubrics=SHARES,
        share_invalid_assessments=SHARES,
        entropy=st.one_of(st.none(), st.floats(0, 3)),
        reward_change=CHANGES,
        citation_change=CHANGES,
        entropy_change=CHANGES,
    ),
)
def test_rules_keep_the_bounds_whatever_happens(k, calls, weights, statistics):
    rules = RulesHarness()
    harness = structs.replace(
        DEFAULT, dimensions=DimensionRules(k, "depth", *weights), process=ProcessRules(min_tool_calls=calls)
    )
    first = asyncio.run(rules.regenerate(statistics, harness, DEFAULT))
    assert first.fault == "" and find_fault(first.harness, rules.limits) == ""
    assert first == asyncio.run(rules.regenerate(statistics, harness, DEFAULT))


def test_settings_are_the_configs():
    rules = RulesHarness(RuleSettings(max_invalid=0.5, citation_dimension="depth"))
    assert rules.find_rules(Statistics(share_invalid_rubrics=0.4)) == []
    at_the_limits = {"share_invalid_rubrics": 0.5, "share_invalid_assessments": 0.5, "share_under_verified": 0.3}
    exact = RulesHarness(RuleSettings(max_invalid=0.5, max_under_verified=0.3))
    assert exact.find_rules(Statistics(**at_the_limits)) == []
    beyond = {name: value + 0.01 for name, value in at_the_limits.items()}
    assert exact.find_rules(Statistics(**beyond)) == ["rubrics", "assessments", "unverified"]
    guarded = regenerate(rules=rules, citation_change=-0.1, reward_change=0.1).harness
    assert guarded.dimensions.must_include == "depth"


@pytest.mark.parametrize(
    ("kind", "found"),
    [("rules", ("rubrics", "")), ("none", ("", "")), ("llm", ("", "the model did not answer: it is gone"))],
)
def test_the_harness_is_revised_by_whom_and_what_was_set(kind, found, monkeypatch):
    monkeypatch.setattr(train, "OpenAISampler", lambda endpoint: Endless(SamplingFailed("it is gone")))
    model = "openai:harness@http://localhost:1/v1" if kind == "llm" else ""
    meta = train.open_meta(HarnessSettings(kind=kind, model=model, rules=RuleSettings(max_invalid=0.2)))
    changes = {"share_invalid_rubrics": 0.22}  # too little for the rules as they stand, enough for these
    regenerated = regenerate(rules=meta, **changes)
    assert (regenerated.why, regenerated.fault) == found and regenerate(**changes).why == "calm"


def test_no_meta_harness():
    statistics = structs.replace(HEALTHY, score_spread=0.0)
    assert asyncio.run(MetaHarness().regenerate(statistics, PREVIOUS, DEFAULT)) == Regenerated(PREVIOUS)


# --------------------------------------------------------------------------------------------------------- statistics


def test_changes():
    before = Statistics(mean_reward=0.5, citation_validity=0.5, entropy=1.0)
    now = Statistics(mean_reward=0.75, citation_validity=0.25, entropy=0.5)
    changed = compare(now, before)
    assert (changed.reward_change, changed.citation_change, changed.entropy_change) == (0.25, -0.25, -0.5)
    assert compare(changed, None) == now
    unmeasured = compare(structs.replace(now, entropy=None), before)
    assert unmeasured.entropy_change == 0 and RulesHarness().find_rules(unmeasured) == ["citations"]


def test_a_number_that_is_none_is_refused():
    with pytest.raises(ValueError, match="entropy must be a finite number"):
        Statistics(entropy=float("nan"))


# ------------------------------------------------------------------------------------------------------------ a model


class Endless:
    """A chat model that says what it is told to, or raises it."""

    name = "scripted"

    def __init__(self, says, stop_reason="end_of_turn"):
        self.says = says
        self.stop_reason = stop_reason
        self.heard = []
        self.stopped = False

    async def reply(self, messages, params):
        self.heard.append((messages, params))
        if isinstance(self.says, BaseException):
            raise self.says
        if self.says is None:
            await asyncio.sleep(60)
        return ChatReply(self.says, self.stop_reason)

    async def stop(self):
        self.stopped = True


def ask(says, **options):
    sampler = says if isinstance(says, Endless) else Endless(says)
    return asyncio.run(LlmHarness(sampler, **options).regenerate(HEALTHY, PREVIOUS, DEFAULT))


WANTED = structs.replace(PREVIOUS, version=4, dimensions=DimensionRules(k=3), notes="Fewer.")
GOOD = encode_harness(WANTED, PREVIOUS)


@pytest.mark.parametrize("says", [GOOD, f"```json\n{GOOD}\n```", f"Here you are:\n{GOOD}\nThat should help."])
def test_a_model_that_answers_is_followed(says):
    assert ask(says) == Regenerated(WANTED, why="scripted")


@pytest.mark.parametrize(
    ("says", "fault"),
    [
        (SamplingFailed("the endpoint is\ngone"), "the model did not answer: the endpoint is gone"),
        (RuntimeError("boom \x1b[2J"), "the model did not answer: boom [2J"),
        (TimeoutError(), "the model did not answer within 180 s"),
        (Endless(GOOD, "length"), "the model's answer was cut off"),
        ("", "the harness is not JSON"),
        ("I would rather not.", "the harness is not JSON"),
        ("}{", "the harness is not JSON"),
        (GOOD + GOOD, "the harness is not JSON"),
        ("{" * 10**6 + "}", "the harness is longer than 20000 characters"),
        (GOOD.replace('"k":3', '"k":1'), "k must be from 2 to 10, the size of the pool"),
        (GOOD.replace('"k":3', '"k":3,"weights":{"depth":1}'), None),
    ],
)
def test_on_any_fault_the_previous_harness_is_kept(says, fault):
    regenerated = ask(says)
    assert regenerated.harness is PREVIOUS
    assert regenerated.fault == fault or (fault is None and "unknown field `weights`" in regenerated.fault)


def test_a_model_that_never_answers_is_not_waited_for():
    assert ask(None, timeout_s=0.05) == Regenerated(PREVIOUS, "the model did not answer within 0.05 s")


def test_being_cancelled_is_no_fault():
    with pytest.raises(asyncio.CancelledError):
        ask(asyncio.CancelledError())


def test_what_the_model_is_told():
    sampler = Endless(GOOD)
    llm = LlmHarness(sampler, limits=HarnessLimits(max_tool_calls=7), seed=5)
    asyncio.run(llm.regenerate(HEALTHY, PREVIOUS, DEFAULT))
    (system, user), params = sampler.heard[0]
    assert params.temperature == 0 and params.seed == 5
    assert "from 0 to 7" in system["content"] and '"min_number_of_tool_call"' in system["content"]
    assert "{" not in system["content"].replace(encode_harness(structs.replace(DEFAULT, notes="...")), "")
    statistics = json.loads(user["content"].split("Statistics:\n")[1].split("\n")[0])
    assert statistics["mean_reward"] == 0.6 and statistics["entropy"] is None
    assert encode_harness(PREVIOUS) in user["content"] and encode_harness(DEFAULT) in user["content"]
    assert POOL[-1].text in user["content"]
    asyncio.run(llm.stop())
    assert sampler.stopped


def test_over_a_real_endpoint():
    answers = iter([GOOD, None])
    with serve_chat(lambda body: next(answers)) as url:

        async def twice():
            llm = LlmHarness(OpenAISampler(Endpoint("harness", url)))
            found = [await llm.regenerate(HEALTHY, PREVIOUS, DEFAULT) for _ in range(2)]
            await llm.stop()
            return found

        followed, refused = asyncio.run(twice())
    assert followed.harness == WANTED
    assert refused.harness is PREVIOUS and "answered with status 500" in refused.fault


def test_spoiled_answers_keep_the_previous_harness_or_the_bounds():
    async def ask_all():
        chance, limits = random.Random(6), HarnessLimits()
        return [
            await LlmHarness(Endless(spoil(GOOD, chance)), limits=limits).regenerate(HEALTHY, PREVIOUS, DEFAULT)
            for _ in range(500)
        ]

    found = asyncio.run(ask_all())
    assert all(
        one.harness is PREVIOUS if one.fault else find_fault(one.harness, HarnessLimits()) == "" for one in found
    )
    assert {bool(one.fault) for one in found} == {True, False}
