"""Settings and presets of a SCORE run; the defaults are the paper's values.

Each ablation of the paper, and each choice it leaves open, is one value:

    evaluator.frozen=true                 the evaluator is not trained; the solver is
    solver.frozen=true                    the solver is not trained; the evaluator is
    harness.kind=none                     the harness never changes; llm asks a model (harness.model=openai:NAME@URL)
    schedule=false                        no hints from earlier rubrics
    fixed_rubric="factuality, depth 0.3"  no rubric is chosen: always this one
    initial_retrieval=0                   the evaluator chooses without seeing passages
    solver.attempts=3                     K: number of reports on a question
    solver.minibatch=0                    one update per step on the whole batch
    solver.cap=tool_calls                 the limit of ten applies to searches, not to turns
    rubric_scope=query                    a rubric for every question, not one per step
    evaluator.validity=separate           validity is a score of its own, not that of the primary dimension
    evaluator.score_scale=5               scores from 0 to 5
    evaluator.tau=2                       searches needed per report, whatever the harness says
    evaluator.passes=2                    every report is assessed twice, in different orders
    evaluator.alpha=0.5                   the evaluator's learning rate, as a share of the solver's
    evaluator.moments=own                 separate Adam moments, so that its gradients do not scale the solver's steps
    evaluator.every=2                     U: the evaluator learns every second step
    evaluator.beta=0.9                    decay of its baseline
    evaluator.agreement=content           conclusions agree by numbers and longer words, not by citations and short ones
    evaluator.aggregation=token_mean      the loss of rubrics is a mean over tokens, as that of reports is
    evaluator.baseline=pair               two rubrics on the same questions, each the other's baseline: A = C1 - C2
    evaluator.weights=own                 the evaluator has weights of its own, which the solver's update does not move
    evaluator.verification=each           a search about all reports verifies none of them
    evaluator.tokens=turn                 it learns from its thoughts too, not from the rubric alone
    harness.every=10                      M: the harness is reconsidered every tenth step
    health.policy=warn                    no early stop: alarms are printed only
    shuffle_advantages=true               the shuffle control, which must not learn
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field, structs

from quaere.chat.dimensions import POOL
from quaere.errors import BadInput
from quaere.objectives import Aggregation
from quaere.recipes import report_baselines
from quaere.recipes.score.harness import HarnessLimits, default_harness
from quaere.recipes.score.memory import SchedulerSettings
from quaere.recipes.score.metaharness import RuleSettings
from quaere.records import Dimension, DimensionRules, Harness, ProcessRules
from quaere.rewards.reports import Agreement
from quaere.setting_types import Fraction, NonNegativeInt, PositiveInt
from quaere.training.report_run import (
    DEMO,
    SINGLE_GPU,
    EvaluatorConfig,
    ResearchConfig,
    WriterConfig,
    check_research,
    check_searches,
)
from quaere.training.settings import HealthSettings

RubricScope = Literal["step", "query"]
Tau = NonNegativeInt | Literal["harness_min_calls"]
LearningRateFactor = Annotated[float, Meta(gt=0, extra={"why": "set evaluator.frozen=true to train no evaluator"})]


class ScoreSolverConfig(WriterConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of the solver, which writes the reports.

        ScoreSolverConfig(batch=64, attempts=8, frozen=False)

    Attributes:
        frozen: The solver is not trained. [SCORE]
    """

    frozen: bool = False


class ScoreEvaluatorConfig(EvaluatorConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of the evaluator, which learns to choose rubrics.

        ScoreEvaluatorConfig(alpha=1.0, beta=0.7, every=1, tau="harness_min_calls")

    Attributes:
        frozen: The evaluator is not trained. [SCORE]
        alpha: The evaluator's learning rate as a share of the solver's. [SCORE]
        beta: Decay of the evaluator's baseline, a moving average. [SCORE, Table 2]
        every: Steps between two updates of the evaluator: U. [SCORE, Table 2]
        tau: Searches needed to verify a report; with fewer, the report earns 0. harness_min_calls: as many as the
            harness says. [SCORE]
        moments: Adam's moments: shared by both roles, so that the larger gradients scale the steps of both; or
            own. [Quaere]
        weights: Weights of the evaluator: shared with the solver, or its own: an adapter, or without adapters a copy of
            the model. [SCORE; Quaere]
        aggregation: How the loss of a rubric's tokens is reduced; the solver's is `solver.learner.aggregation`.
            [Quaere]
        baseline: What a rubric's consistency is compared with: a moving average of earlier steps, or that of a second
            rubric for the same questions, which doubles the reports of a step. [SCORE; Quaere]
        agreement: What conclusions are compared by: all words, or content: numbers and words of four letters or more,
            without citations. [SCORE; Quaere]
        tokens: Tokens the evaluator learns from: the rubric, or the whole turn with its thoughts. [SCORE]
        shown_questions: Questions of the batch in the prompt for a rubric. [Quaere]
    """

    frozen: bool = False
    alpha: LearningRateFactor = 1.0
    beta: Fraction = 0.7
    every: PositiveInt = 1
    tau: Tau = "harness_min_calls"
    moments: Literal["shared", "own"] = "shared"
    weights: Literal["shared", "own"] = "shared"
    aggregation: Aggregation = "token_sum"
    baseline: Literal["average", "pair"] = "average"
    agreement: Agreement = "words"
    tokens: Literal["rubric", "turn"] = "rubric"
    shown_questions: PositiveInt = 8


class HarnessSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The initial harness of a run, and what may change it.

        HarnessSettings(kind="rules", every=5, extra=(Dimension("chronology", "Events stand in their order."),))

    Attributes:
        kind: What changes the harness: fixed rules, an LLM, or none. [SCORE]
        every: Steps between two revisions of the harness: M. [SCORE, Table 2]
        model: Endpoint that `kind=llm` asks, openai:NAME@URL. [SCORE]
        pool: Dimensions to choose rubrics from. [SCORE]
        extra: Dimensions that are added to the pool. [Quaere]
        notes: A note to the evaluator in the initial harness. [SCORE]
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
        """The initial harness of a run; `BadInput` if it breaks a bound."""
        return default_harness(
            pool=(*self.pool, *self.extra),
            dimensions=self.dimensions,
            process=self.process,
            notes=self.notes,
            limits=self.limits,
        )


class ScoreConfig(ResearchConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a SCORE run.

        ScoreConfig(model="warm", index="demo/index", questions="open.jsonl")

    Attributes:
        rubric_scope: One rubric per step, or one for every question. [SCORE]
        initial_retrieval: Passages per question that the prompt for a rubric shows. [SCORE]
        schedule: Give the evaluator hints from earlier rubrics. [SCORE]
    """

    rubric_scope: RubricScope = "step"
    initial_retrieval: NonNegativeInt = 1
    schedule: bool = True
    solver: ScoreSolverConfig = field(default_factory=ScoreSolverConfig)
    evaluator: ScoreEvaluatorConfig = field(default_factory=ScoreEvaluatorConfig)
    scheduler: SchedulerSettings = SchedulerSettings()
    harness: HarnessSettings = field(default_factory=HarnessSettings)
    health: HealthSettings = HealthSettings(policy="stop")

    @property
    def harness_limits(self) -> HarnessLimits:
        """Bounds of a harness, which never requires more searches than an assessment has room for."""
        limits = self.harness.limits
        return structs.replace(limits, max_tool_calls=min(limits.max_tool_calls, self.searches_per_report))

    @property
    def learns_rubrics(self) -> bool:
        """True if the evaluator is trained."""
        return not self.evaluator.frozen and not self.fixed_rubric


# With the paper's values, conclusions agree by their citations and short words, and the losses have different units.
_COMPARABLE: dict[str, object] = {"evaluator.agreement": "content", "evaluator.aggregation": "token_mean"}
# The settings that each preset changes; all others are the paper's.
PRESETS: dict[str, dict[str, object]] = {
    "paper": report_baselines.PRESETS["paper"],
    "single-gpu": {**SINGLE_GPU, **_COMPARABLE, "evaluator.shown_questions": 4},
    "demo": {
        **DEMO,
        **_COMPARABLE,
        "evaluator.shown_questions": 2,
        "harness.every": 2,
        "harness.dimensions.k": 2,
        "evaluator.score_scale": 10.0,
    },
}


def check_config(config: ScoreConfig) -> None:
    """Raise `BadInput` for values out of bounds and for values that contradict each other."""
    harness = config.harness
    check_research(config, "score", (*harness.pool, *harness.extra))
    min_calls, tau = harness.first().process.min_tool_calls, config.evaluator.tau
    check_searches(config, min_calls if isinstance(tau, str) else max(tau, min_calls))
    config.scheduler.check()
    if harness.kind == "llm" and not harness.model:
        raise BadInput("harness.kind=llm needs a model to ask", hint="--set harness.model=openai:NAME@URL")
    if harness.model and harness.kind != "llm":
        raise BadInput(
            f"harness.model={harness.model} is used only with harness.kind=llm", hint="--set harness.kind=llm"
        )
    if config.fixed_rubric and config.evaluator.baseline == "pair":
        raise BadInput(
            "evaluator.baseline=pair compares two chosen rubrics, and fixed_rubric chooses none",
            hint="--set evaluator.baseline=average",
        )
    if config.solver.frozen and not config.learns_rubrics:
        raise BadInput(
            "nothing would be trained: solver.frozen=true, and the evaluator is frozen or has a fixed_rubric",
            hint="--set solver.frozen=false",
        )
