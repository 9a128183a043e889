"""Everything that can be set about a SCORE run, with the paper's values as defaults; and the presets.

Each ablation of the paper, and each option it leaves open, is one value here:

    evaluator.frozen=true                 rubrics are chosen and never learned; the solver learns
    solver.frozen=true                    reports are written and never learned from; the evaluator learns
    harness.kind=none                     the harness never changes; llm asks a model (harness.model=openai:NAME@URL)
    schedule=false                        no hints from what was chosen before
    fixed_rubric="factuality, depth 0.3"  no rubric is chosen: always this one
    initial_retrieval=0                   the evaluator chooses without a look at the documents
    solver.attempts=3                     K: so many reports on a question
    solver.minibatch=0                    one update a step on the whole batch
    solver.cap=tool_calls                 the bound of ten is on searches, not on turns
    rubric_scope=query                    a rubric for every question, not one a step
    evaluator.validity=separate           validity is a score of its own, not that of the primary dimension
    evaluator.score_scale=5               scores from 0 to 5
    evaluator.tau=2                       so many searches a report, whatever the harness says
    evaluator.passes=2                    every report is assessed twice, in different orders
    evaluator.alpha=0.5                   the evaluator's learning rate, as a share of the solver's
    evaluator.moments=own                 Adam's moments for its updates alone: they no longer size the solver's steps
    evaluator.every=2                     U: the evaluator learns every second step
    evaluator.beta=0.9                    how slowly its baseline moves
    evaluator.tokens=turn                 it learns from its thoughts too, not from the rubric alone
    harness.every=10                      M: the harness is looked at every tenth step
    health.policy=warn                    no early stop: alarms are said and not acted upon
    shuffle_advantages=true               a control that must not learn
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from quaere.chat.dimensions import POOL
from quaere.errors import BadInput
from quaere.recipes.score.harness import HarnessLimits, default_harness
from quaere.recipes.score.metaharness import RuleSettings
from quaere.recipes.score.scheduler import SchedulerSettings
from quaere.records import Dimension, DimensionRules, Harness, ProcessRules
from quaere.setting_types import Fraction, NonNegativeInt, PositiveInt
from quaere.training.report_run import DEMO, SINGLE_GPU, EvaluatorConfig, ResearchConfig, WriterConfig, check_research
from quaere.training.settings import HealthSettings

RubricScope = Literal["step", "query"]
Tau = NonNegativeInt | Literal["harness_min_calls"]
LearningRateFactor = Annotated[float, Meta(gt=0, extra={"why": "set evaluator.frozen=true to train no evaluator"})]


class ScoreSolverConfig(WriterConfig, frozen=True, forbid_unknown_fields=True):
    """The solver's side: the writer of reports.

        ScoreSolverConfig(batch=64, attempts=8, frozen=False)

    Attributes:
        frozen: Reports are judged and never learned from. [SCORE]
    """

    frozen: bool = False


class ScoreEvaluatorConfig(EvaluatorConfig, frozen=True, forbid_unknown_fields=True):
    """The evaluator's side: it learns to choose rubrics.

        ScoreEvaluatorConfig(alpha=1.0, beta=0.7, every=1, tau="harness_min_calls")

    Attributes:
        frozen: Rubrics are chosen and never learned. [SCORE]
        alpha: The evaluator's learning rate as a share of the solver's. [SCORE]
        beta: Decay of the evaluator's baseline, a moving average. [SCORE, Table 2]
        every: Steps between two updates of the evaluator: U. [SCORE, Table 2]
        tau: Searches with which a report must be looked into, or it earns nothing; harness_min_calls: as the
            harness says. [SCORE]
        moments: Adam's moments: shared by both roles, so that the larger gradients size the steps of both; or a
            set of its own. [Quaere]
        tokens: What the evaluator learns from: the rubric, or the turn with its thoughts. [SCORE]
        shown_questions: Questions of the batch in the prompt for a rubric. [Quaere]
    """

    frozen: bool = False
    alpha: LearningRateFactor = 1.0
    beta: Fraction = 0.7
    every: PositiveInt = 1
    tau: Tau = "harness_min_calls"
    moments: Literal["shared", "own"] = "shared"
    tokens: Literal["rubric", "turn"] = "rubric"
    shown_questions: PositiveInt = 8


class HarnessSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The harness a run begins with, and who changes it.

        HarnessSettings(kind="rules", every=5, extra=(Dimension("chronology", "Events stand in their order."),))

    Attributes:
        kind: Who changes the harness: fixed rules, an LLM, or none. [SCORE]
        every: Steps between two looks at the harness: M. [SCORE, Table 2]
        model: Endpoint that `kind=llm` asks, openai:NAME@URL. [SCORE]
        pool: Dimensions to choose rubrics from. [SCORE]
        extra: Dimensions that are added to the pool. [Quaere]
        notes: A note to the evaluator that the first harness carries. [SCORE]
    """

    kind: Literal["rules", "llm", "none"] = "rules"
    every: PositiveInt = 5
    model: str = ""
    dimensions: DimensionRules = DimensionRules()
    process: ProcessRules = ProcessRules()
    pool: tuple[Dimension, ...] = POOL
    extra: tuple[Dimension, ...] = ()
    notes: str = ""
    rules: RuleSettings = RuleSettings()
    limits: HarnessLimits = HarnessLimits()

    def first(self) -> Harness:
        """The one a run begins with; what is not allowed is refused."""
        return default_harness(
            pool=(*self.pool, *self.extra),
            dimensions=self.dimensions,
            process=self.process,
            notes=self.notes,
            limits=self.limits,
        )


class ScoreConfig(ResearchConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run.

        ScoreConfig(model="warm", index="demo/index", questions="open.jsonl")

    Attributes:
        rubric_scope: One rubric a step, or one for every question. [SCORE]
        initial_retrieval: Passages to show for each question in a prompt for a rubric. [SCORE]
        schedule: Give the evaluator hints from what was chosen before. [SCORE]
    """

    rubric_scope: RubricScope = "step"
    initial_retrieval: NonNegativeInt = 1  # passages to show for each question in a prompt for a rubric
    schedule: bool = True
    solver: ScoreSolverConfig = field(default_factory=ScoreSolverConfig)
    evaluator: ScoreEvaluatorConfig = field(default_factory=ScoreEvaluatorConfig)
    scheduler: SchedulerSettings = SchedulerSettings()
    harness: HarnessSettings = field(default_factory=HarnessSettings)
    health: HealthSettings = HealthSettings(policy="stop")

    @property
    def learns_rubrics(self) -> bool:
        """Does the evaluator learn anything?"""
        return not self.evaluator.frozen and not self.fixed_rubric


# What each preset changes; what it does not name is as in the paper.
PRESETS: dict[str, dict[str, object]] = {
    # The paper keeps no turn for the report or the assessment.
    "paper": {
        "engine.max_rows": 256,
        "solver.limits.answer_turn": False,
        "evaluator.limits.answer_turn": False,
    },
    "single-gpu": {**SINGLE_GPU, "evaluator.shown_questions": 4},
    "demo": {
        **DEMO,
        "evaluator.shown_questions": 2,
        "harness.every": 2,
        "harness.dimensions.k": 2,
        "evaluator.score_scale": 10.0,
    },
}


def check_config(config: ScoreConfig) -> None:
    """Refuse values that make no sense, each with one clear line."""
    harness = config.harness
    check_research(config, "score", (*harness.pool, *harness.extra))
    harness.first()
    config.scheduler.check()
    if harness.kind == "llm" and not harness.model:
        raise BadInput("harness.kind=llm asks a model, and none is named", hint="harness.model=openai:NAME@URL")
    if harness.model and harness.kind != "llm":
        raise BadInput(f"harness.model={harness.model} would never be asked", hint="harness.kind=llm")
    if config.solver.frozen and not config.learns_rubrics:
        raise BadInput("with the solver frozen, and no rubric to learn, nobody would learn anything")
