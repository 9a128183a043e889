"""Registers Search-R1, AutoRefine and the report baselines with a fixed judge for the command line."""

from __future__ import annotations

from functools import partial

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect
from quaere.recipes.baselines.config import PRESETS, AutoRefineConfig, SearchR1Config
from quaere.recipes.baselines.protocols import solver_protocol
from quaere.recipes.baselines.report_baselines import train as train_reports
from quaere.recipes.baselines.reports_config import PRESETS as REPORT_PRESETS
from quaere.recipes.baselines.reports_config import ReportDpoConfig, ReportGrpoConfig, check_dpo, check_grpo
from quaere.recipes.baselines.train import train
from quaere.recipes.registry import Recipe
from quaere.training.qa_run import check_practice, plan_practice
from quaere.training.report_run import plan_research

SEARCH_R1 = Recipe(
    name="search-r1",
    summary="a solver that searches between tags, paid for the right answer",
    schema=SearchR1Config,
    presets=PRESETS,
    check=partial(check_practice, recipe="search-r1"),
    plan=plan_practice,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
)
AUTOREFINE = Recipe(
    name="autorefine",
    summary="Search-R1 with a note on what was found after each search, which may be paid for",
    schema=AutoRefineConfig,
    presets=PRESETS,
    check=partial(check_practice, recipe="autorefine"),
    plan=plan_practice,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
)


def report_protocol(config: ReportGrpoConfig) -> Protocol:
    """The report writer's protocol, in training and afterwards."""
    return find_dialect("report", "writer").open(style=config.prompts)


def plan_reports(config: ReportGrpoConfig) -> list[tuple[str, str]]:
    """The run's plan as lines of name and text: what it would do, and the most that a step costs."""
    judge = "rules, which read nothing" if config.judge == "checks" else f"{config.model} as it is now, never trained"
    return [*plan_research(config, has_evaluator=config.judge == "model"), ("judge", judge)]


REPORT_GRPO = Recipe(
    name="report-grpo",
    summary="reports under a judge that never changes, compared with one another",
    schema=ReportGrpoConfig,
    presets=REPORT_PRESETS,
    check=check_grpo,
    plan=plan_reports,
    train=train_reports,
    solver_protocol=report_protocol,
    takes_questions=True,
    needs_answers=False,
)
REPORT_DPO = Recipe(
    name="report-dpo",
    summary="the same judge, and pairs of its best and its worst",
    schema=ReportDpoConfig,
    presets=REPORT_PRESETS,
    check=check_dpo,
    plan=plan_reports,
    train=train_reports,
    solver_protocol=report_protocol,
    takes_questions=True,
    needs_answers=False,
)
