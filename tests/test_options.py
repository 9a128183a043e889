"""Every option of every recipe changes something that can be seen.

In `SEEN` an option is changed here, and what is observed must differ; `SHOWN` names the test of a run that shows it;
`UNSEEN` says why no test can. Together they are all options."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from msgspec import Struct, structs

import observing
import observing_runs as runs
from option_places import PLACES
from quaere.recipes.drzero import DrZeroConfig
from quaere.recipes.practice import EvalActConfig
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.recipes.score.config import HarnessSettings, ScoreConfig, ScoreSolverConfig
from quaere.recipes.score.harness import HarnessLimits
from quaere.recipes.score.memory import SchedulerSettings
from quaere.recipes.score.metaharness import RuleSettings
from quaere.recipes.selector import SelectorSettings
from quaere.records import Dimension, DimensionRules, ProcessRules, Question, ReportTask, SolveTask
from quaere.rollout.episode import Limits
from quaere.training.evidence import EvidenceConfig, VerifierSettings
from quaere.training.given import PracticeConfig
from quaere.training.proposals import ProposerConfig, RewardConfig
from quaere.training.report_run import EvaluatorConfig, ResearchConfig
from quaere.training.self_play import GenerationConfig
from quaere.training.settings import (
    AdapterSettings,
    CheckpointSettings,
    EngineSettings,
    HealthSettings,
    LearnerSettings,
    SamplingSettings,
    SearchSettings,
    ValidationSettings,
)
from quaere.training.solver_phase import SolverConfig

TESTS = Path(__file__).parent
LEARNER = LearnerSettings(learning_rate=0.01, kl_beta=0.3, max_grad_norm=1e9)
# So little room that every limit is met.
LIMITS = Limits(max_turns=4, turn_tokens=90, sequence_tokens=1000, tool_response_tokens=120, max_searches=6, topk=2)
SOLVER = SolverConfig(steps=3, batch=4, attempts=3)
TASK = SolveTask(Question("q", "Who built it?", ("Venn",)))
WHERE = {"model": "n", "index": "j", "search_url": "http://s", "seed": 5}
DRZERO = DrZeroConfig(
    iterations=1,
    proposer=ProposerConfig(steps=2, batch=8, attempts=3, hop_ratio=(1, 1)),
    generation=GenerationConfig(attempts=3, batch=6, max_words=20),
    solver=SOLVER,
)

# What is observed, the struct it begins with, and another value for each option.
SEEN = [
    (
        observing.learned,
        LEARNER,
        {
            "learning_rate": 0.02,
            "betas": (0.5, 0.6),
            "weight_decay": 0.5,
            "warmup_ratio": 0.5,
            "min_warmup_steps": 4,
            "max_grad_norm": 0.1,
            "kl_beta": 3.0,
            "kl": "k2",
            "kl_flat": True,
            "aggregation": "sequence_mean",
            "micro_tokens": 1,
            "gradient_checkpointing": True,
            "offload_optimizer": True,
        },
    ),
    (observing.learned, structs.replace(LEARNER, kl_beta=0.0), {"keep_reference": True}),
    (
        observing.played,
        LIMITS,
        {
            "max_turns": 3,
            "turn_tokens": 60,
            "sequence_tokens": 600,
            "tool_response_tokens": 60,
            "topk": 1,
            "answer_turn": False,
            "thought_tokens": 20,
            "titles_first": True,
        },
    ),
    (observing.played, structs.replace(LIMITS, sequence_tokens=3000), {"max_searches": 2}),
    (observing.played, structs.replace(LIMITS, sequence_tokens=800), {"answer_tokens": 4}),
    (
        observing.paid_proposer,
        RewardConfig(),
        {
            "shape": "parabola",
            "format_weight": 0.25,
            "format_rule": "eve",
            "invalid_rule": "algorithm",
            "containment": "characters",
            "choices": False,
            "needed_searches": True,
        },
    ),
    (
        runs.practised,
        SOLVER,
        {"steps": 2, "batch": 5, "attempts": 4, "unbiased_std": False, "delta": 1.0, "min_std": 2.0}
        | {"shuffle_advantages": True},
    ),
    (runs.evolved, DRZERO, {"iterations": 2, "seed": 1, "prompts": "brief"}),
    (
        lambda proposer: runs.evolved(structs.replace(DRZERO, proposer=proposer)),
        DRZERO.proposer,
        {
            "steps": 3,
            "batch": 9,
            "hop_ratio": (1, 2),
            "document": False,
            "questions": 2,
            "attempts": 4,
            "advantage": "global",
            "unbiased_std": False,
            "delta": 1.0,
            "shuffle_advantages": True,
        },
    ),
    (
        lambda generation: runs.evolved(structs.replace(DRZERO, generation=generation)),
        DRZERO.generation,
        {"candidates": 4, "batch": 5, "questions": 2, "samples": 2, "max_words": 90, "attempts": 0},
    ),
    (runs.practised, structs.replace(SOLVER, steps=30), {"max_draws": 1}),
    (
        lambda validation: runs.practised(SOLVER, validation),
        ValidationSettings(questions=10, share=0.5, every=2),
        {"questions": 0, "every": 3, "share": 0.2},
    ),
    (observing.verified, VerifierSettings(), {"samples": 3, "turn_tokens": 9, "sequence_tokens": 99, "guided": True}),
    (
        observing.watched,
        HealthSettings(),
        {
            "patience": 1,
            "min_entropy": 0.2,
            "min_tokens": 20.0,
            "min_valid": 0.3,
            "max_mismatch": 0.6,
            "min_update_seen": 0.01,
            "zero_advantages": False,
            "min_searches_kept": 0.01,
            "max_abstained": 0.05,
            "min_refused": 0.6,
            "max_ceiling": 0.4,
            "min_spread": 0.2,
            "max_hack": 0.6,
        },
    ),
    (
        lambda health: runs.surrounded(health=health),
        HealthSettings(policy="rollback", patience=1),
        {"policy": "stop", "max_rollbacks": 1, "update_every": 2},
    ),
    (runs.surrounded, CheckpointSettings(every=2, keep=3), {"every": 1, "keep": 2}),
    (
        runs.engaged,
        EngineSettings(dtype="float32", base_dtype="float32"),
        {
            "device": "cpu" if torch.cuda.is_available() else "cuda",
            "dtype": "bfloat16",
            "base_dtype": "bfloat16",
            "mode": "deterministic",
            "max_rows": 4,
        },
    ),
    (runs.opened, DrZeroConfig(model="m", index="i"), {"model": "n", "index": "j", "search_url": "http://s"}),
    (runs.opened, PracticeConfig(model="m", index="i"), WHERE),
    (runs.opened, ResearchConfig(model="m", index="i"), WHERE),
    (
        lambda config: find_recipe("evalact").solver_protocol(config).opening(TASK),
        EvalActConfig(),
        {"prompts": "brief"},
    ),
    (
        lambda config: find_recipe("score").solver_protocol(config).opening(ReportTask(TASK.question)),
        ScoreConfig(),
        {"prompts": "brief"},
    ),
    (observing.allowed, SamplingSettings(temperature=0.5), {"off_policy": True}),
    (
        observing.quoted,
        EvidenceConfig(),
        {
            "cite": False,
            "check": "none",
            "value_weight": 0.1,
            "brevity_weight": 0.5,
            "brevity_tokens": 9,
            "guards": ("focused",),
        },
    ),
    (
        observing.selected,
        SelectorSettings(num_clusters=4),
        {"num_clusters": 5, "growth": 1.0, "exploration": 9.0, "run_score": "rescale", "previous_mean": "arm mean"}
        | {"learns": "yield"},
    ),
    (observing.paid_solver, SOLVER, {"dialect": "autorefine", "answer_score": "f1"}),
    (observing.harnessed, HarnessSettings(), {"kind": "none"}),
    (observing.harnessed, HarnessSettings(kind="llm", model="openai:a@http://a"), {"model": "openai:b@http://b"}),
    (observing.adapted, AdapterSettings(rank=4), {"rank": 8, "alpha": 8}),
    (observing.acted, SamplingSettings(), {"temperature": 0.5, "top_p": 0.5, "top_k": 7}),
    (
        lambda search: observing.acted(search=search),
        SearchSettings(replays=2, wait_s=1.0),
        {"replays": 3, "wait_s": 2.0},
    ),
    (
        observing.scheduled,
        SchedulerSettings(window=10, min_tries=2, margin=0.05, max_share=0.75),
        {
            "window": 2,
            "min_tries": 3,
            "margin": 0.1,
            "max_share": 0.7,
            "num_required": 0,
            "num_avoided": 1,
            "num_explore": 0,
        },
    ),
    (
        observing.ruled,
        RuleSettings(),
        {
            "max_invalid": 0.4,
            "max_under_verified": 0.7,
            "max_at_ceiling": 0.7,
            "min_spread": 0.01,
            "citation_fall": 0.2,
            "citation_dimension": "depth",
            "entropy_fall": 0.5,
            "widening": 0.1,
            "max_k": 7,
        },
    ),
    (
        observing.bounded,
        HarnessLimits(),
        {"max_tool_calls": 3, "max_pool": 12, "max_dimension_chars": 250, "max_notes_chars": 800, "max_chars": 10_000},
    ),
    (observing.offered, DimensionRules(k=3), {"k": 2, "must_include": "depth", "weight_min": 0.3, "weight_max": 0.3}),
    (
        lambda process: observing.offered(process=process),
        ProcessRules(),
        {
            "require_search": False,
            "require_verification": False,
            "require_gap_analysis": False,
            "citation_cross_check": False,
            "min_tool_calls": 3,
        },
    ),
    (
        HarnessSettings.first,
        HarnessSettings(),
        {"pool": HarnessSettings().pool[:5], "extra": (Dimension("order", "In order."),), "notes": "Look twice."},
    ),
    (
        observing.assessed,
        EvaluatorConfig(),
        {"temperature": 0.5, "score_scale": 5.0, "validity": "separate", "verification": "each"},
    ),
    (observing.compared, ScoreSolverConfig(), {"cap": "tool_calls", "unbiased_std": False, "delta": 1.0}),
]

SHOWN = {one: f"{file}::{test}" for file, tests in PLACES.items() for test, options in tests.items() for one in options}
UNSEEN: dict[str, str] = {}


def owner(schema, name):
    """The struct that first has the option: those that inherit it add nothing."""
    return [kind for kind in schema.__mro__ if name in getattr(kind, "__annotations__", {})][-1]


def options_of(config):
    """Every option of a config, by the struct it belongs to; those of a dialect are in the recipes that have it."""
    for option in structs.fields(config):
        if isinstance(option.type, type) and issubclass(option.type, Struct):
            yield from options_of(getattr(config, option.name))
        else:
            yield f"{owner(type(config), option.name).__name__}.{option.name}"


ROWS = [
    pytest.param(observe, start, name, value, id=f"{owner(type(start), name).__name__}.{name}")
    for observe, start, values in SEEN
    for name, value in values.items()
]


@cache
def observed(number):
    return SEEN[number][0](SEEN[number][1])


@pytest.mark.parametrize("number", range(len(SEEN)))
def test_what_is_observed_depends_on_nothing_else(number):
    observe, start, _ = SEEN[number]
    assert observe(start) == observed(number)


@pytest.mark.parametrize(("observe", "start", "name", "value"), ROWS)
def test_an_option_changes_what_is_observed(observe, start, name, value):
    assert getattr(start, name) != value
    number = next(n for n, row in enumerate(SEEN) if row[0] is observe and row[1] is start)
    assert observe(structs.replace(start, **{name: value})) != observed(number)


def test_these_are_all_options_there_are():
    listed = [*dict.fromkeys(row.id for row in ROWS), *SHOWN, *UNSEEN]  # rows may repeat what every recipe has
    assert sorted(listed) == sorted(set(listed)), "an option stands in one place"
    assert set(listed) == {option for name in RECIPES for option in options_of(find_recipe(name).schema())}
    assert len(UNSEEN) <= 8


@cache
def read_tests(file):
    """The text of a file of tests, and what stands in it."""
    text = (TESTS / file).read_text()
    return text, ast.parse(text).body


@cache
def source_of(place):
    """The text of a test: its decorators, its body."""
    file, _, name = place.partition("::")
    text, body = read_tests(file)
    (found,) = [node for node in body if getattr(node, "name", "") == name]
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : found.end_lineno])


@pytest.mark.parametrize(("option", "place"), SHOWN.items(), ids=list(SHOWN))
def test_the_test_that_shows_an_option_is_there_and_speaks_of_it(option, place):
    assert re.search(rf"\b{option.partition('.')[2]}\b", source_of(place))
