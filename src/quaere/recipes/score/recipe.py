"""Registers SCORE for the command line."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect
from quaere.errors import BadInput
from quaere.policies.openai import OpenAISampler, parse_endpoint
from quaere.recipes.registry import Recipe
from quaere.recipes.score.config import PRESETS, HarnessSettings, ScoreConfig, check_config
from quaere.recipes.score.memory import ScoreMemory
from quaere.recipes.score.metaharness import FixedHarness, LlmHarness, MetaHarness, RulesHarness
from quaere.recipes.score.train import Score
from quaere.recipes.score.versions import Versions
from quaere.runs import Run
from quaere.training.progress import Reporter
from quaere.training.report_run import DIALECT, open_research, plan_research
from quaere.training.run_setup import check_openable


async def train(config: ScoreConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    memory = ScoreMemory(config.harness.first(), config.scheduler, Versions(store.path))
    meta = open_meta(config.harness)
    try:
        async with open_research(config, store, reporter, memory=memory) as research:
            await Score(config, research, memory, meta).run()
    finally:
        await meta.stop()


def open_meta(settings: HarnessSettings) -> MetaHarness:
    """The meta-harness of these settings."""
    if settings.kind == "rules":
        return RulesHarness(settings.rules, settings.limits)
    if settings.kind == "llm":
        return LlmHarness(OpenAISampler(parse_endpoint(settings.model)), limits=settings.limits)
    return FixedHarness()


def check(config: ScoreConfig) -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_config(config)
    if config.harness.model:
        parse_endpoint(config.harness.model)
    if config.trainer.kind == "tinker" and config.evaluator.moments == "own":
        raise BadInput(
            "a Tinker server has one set of optimizer moments, and evaluator.moments is own",
            hint="--set evaluator.moments=shared",
        )
    check_openable(config, "score", [DIALECT])


def plan(config: ScoreConfig) -> list[tuple[str, str]]:
    """The run's plan as lines of name and text: what it would do, and the most that a step costs."""
    evaluator, harness = config.evaluator, config.harness
    roles = (("solver", not config.solver.frozen), ("evaluator", config.learns_rubrics))
    learns = [name for name, is_learning in roles if is_learning]
    rubrics = f"always {config.fixed_rubric}" if config.fixed_rubric else f"one a {config.rubric_scope}"
    lines = [
        ("learns", " and ".join(learns)),
        ("rubrics", f"{rubrics}; {harness.dimensions.k} of {len(harness.pool) + len(harness.extra)} dimensions"),
        (
            "assessments",
            f"{evaluator.passes} over the reports on each question, at most {evaluator.limits.max_turns} turns and "
            f"{evaluator.limits.sequence_tokens:,} tokens",
        ),
        ("harness", "never changes" if harness.kind == "none" else f"{harness.kind}, every {harness.every} steps"),
    ]
    # With evaluator.moments=own, two objectives on one set of weights have Adam moments each.
    num_moments = 2 if len(learns) == 2 and evaluator.moments == "own" else 1
    return [*plan_research(config, has_evaluator=True, num_moments=num_moments), *lines]


def solver_protocol(config: ScoreConfig) -> Protocol:
    """The report writer's protocol, in training and afterwards."""
    return find_dialect("report", "writer").open(style=config.prompts)


SCORE = Recipe(
    name="score",
    summary="one model writes research reports and judges them, and learns both",
    schema=ScoreConfig,
    presets=PRESETS,
    check=check,
    plan=plan,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
    needs_answers=False,
)
