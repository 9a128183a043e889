"""Reports graded by a fixed judge, from top to bottom: the baselines of SCORE.

    repeat:
        draw questions, and let the actor write K reports on each
        let the judge score them; the judge is never trained
            checks:   by rules, without a model: citations, words, length
            model:    the initial model, by a fixed rubric, searching as SCORE's evaluator does
        report-grpo:  compare the reports on a question with one another; one update, with a KL term    (GRPO)
        report-dpo:   the best and the worst report on each question are a pair; raise the odds of the better    (DPO)

The defaults for writing are SCORE's, so that the runs differ from it only in judge and update.

    judge=model                           the initial model is the judge, with a fixed rubric
    fixed_rubric="factuality, depth 0.3"  this rubric, which writers are shown; else the first dimensions of the pool
    dpo_beta=0.5                          report-dpo: strength of the pull towards the initial model
    shuffle_advantages=true               the shuffle control, which must not learn
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.chat.dimensions import POOL
from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.rubric import default_rubric
from quaere.errors import BadInput
from quaere.grouping import grouped
from quaere.objectives.policy_gradient import Advantages, dpo_advantages, grpo
from quaere.recipes.registry import Recipe
from quaere.records import Harness, Rubric
from quaere.rewards.reports import ReportPay, check_report, report_reward
from quaere.runs import Run
from quaere.setting_types import PositiveFloat
from quaere.training.assessments import Assessed, Verdict, assess_reports, measure_assessments, view_reports
from quaere.training.batches import Sample, make_sample
from quaere.training.progress import Reporter
from quaere.training.report_run import (
    DEMO,
    DIALECT,
    ROLE,
    SINGLE_GPU,
    EvaluatorConfig,
    Research,
    ResearchConfig,
    WriterConfig,
    Written,
    check_research,
    check_searches,
    group_samples,
    learn_in_parts,
    measure_groups,
    measure_report,
    open_research,
    parse_rubric,
    plan_research,
    write_jobs,
    write_reports,
)
from quaere.training.rollouts import Stage, check_finite, coin, shuffled
from quaere.training.run_setup import check_openable
from quaere.training.settings import LearnerSettings
from quaere.training.step import Step, mean_parts, measure_advantages

JUDGE = "judge"  # a role that is never trained
HARNESS = Harness(0, POOL)
Judge = Literal["checks", "model"]


class ReportGrpoConfig(ResearchConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a report run with a fixed judge.

        ReportGrpoConfig(model="warm", index="demo/index", questions="open.jsonl", judge="model")

    Attributes:
        judge: checks scores citations, words and length by rules (`rewards/reports.py`); model is the initial
            model, with a fixed rubric. [Quaere]
    """

    judge: Judge = "checks"


class ReportDpoConfig(ReportGrpoConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a DPO run: the best and the worst report on a question are a pair.

        ReportDpoConfig(model="warm", index="demo/index", questions="open.jsonl", dpo_beta=0.1)

    Attributes:
        dpo_beta: Strength of the pull towards the initial model: a greater value keeps the policy closer to it.
            [DPO]
    """

    dpo_beta: PositiveFloat = 0.1
    solver: WriterConfig = WriterConfig(
        minibatch=0,  # DPO's weights of the pairs are computed once per step and go stale after an update
        learner=LearnerSettings(learning_rate=1e-6, warmup_ratio=0.05, aggregation="token_sum", keep_reference=True),
    )


# The settings that each preset changes, for both recipes; `paper` is SCORE's too.
PRESETS: dict[str, dict[str, object]] = {
    # The paper reserves no turn for the report or the assessment.
    "paper": {"engine.max_rows": 256, "solver.limits.answer_turn": False, "evaluator.limits.answer_turn": False},
    "single-gpu": SINGLE_GPU,
    "demo": DEMO,
}


def check_grpo(config: ReportGrpoConfig, recipe: str = "report-grpo") -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_research(config, recipe, POOL)
    if config.judge == "model":
        check_searches(config, HARNESS.process.min_tool_calls)
    check_openable(config, recipe, [DIALECT])


def check_dpo(config: ReportDpoConfig) -> None:
    """As `check_grpo`, and raise `BadInput` if the learner's settings are not those of DPO."""
    learner = config.solver.learner
    if (learner.aggregation, learner.keep_reference) != ("token_sum", True):
        raise BadInput(
            "report-dpo needs solver.learner.aggregation=token_sum and solver.learner.keep_reference=true",
            hint="leave these two settings at their defaults",
        )
    if config.solver.minibatch:
        raise BadInput(
            f"report-dpo makes one update per batch: solver.minibatch must be 0, not {config.solver.minibatch}"
        )
    check_grpo(config, "report-dpo")


# ------------------------------------------------------------------------------------------------------------- the loop


class Paid(Struct, frozen=True):
    """A report on the question at index `place` of the batch, and the components of its reward.

    Paid(written=Written(...), place=0, parts={"reward/total": 0.8})
    """

    written: Written
    place: int
    parts: dict[str, float]

    @property
    def reward(self) -> float:
        """The total reward."""
        return self.parts["reward/total"]


async def train(config: ReportGrpoConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    roles = (ROLE, JUDGE) if config.judge == "model" else (ROLE,)
    async with open_research(config, store, reporter, roles=roles) as research:
        await research.training.iterate(1, FixedJudge(config, research).practise)


class FixedJudge:
    """The training loop of both recipes; their judge is never trained."""

    def __init__(self, config: ReportGrpoConfig, research: Research) -> None:
        self.config, self.research, self.stage = config, research, research.stage
        fixed = parse_rubric(config.fixed_rubric, POOL) if config.fixed_rubric else default_rubric(HARNESS)
        self.rubric: Rubric | None = fixed if config.judge == "model" or config.fixed_rubric else None

    async def practise(self, iteration: int) -> None:
        """Run all steps of the training loop."""
        config, solver = self.config, self.config.solver
        writer = report_protocol(config)
        steps = self.research.training.steps(iteration, "reports", solver.steps, role=ROLE, settings=solver.learner)
        for step in steps:
            questions = self.research.draw(step)
            jobs = write_jobs(writer, questions, [self.rubric] * len(questions), solver.attempts, step.name)
            groups = await write_reports(self.stage, step, ROLE, jobs, solver.writing_limits)
            paid = await self.judge(step, groups)
            check_finite([item.reward for item in paid])
            if isinstance(config, ReportDpoConfig):
                advantages, kept = self.prefer(step, paid, config.dpo_beta)
            else:
                graded = [(item.written, item.place, item.reward) for item in paid]
                advantages, kept = compare_reports(config, step, graded), paid
            self.measure(step, groups, paid, advantages, kept)

    async def judge(self, step: Step, groups: Sequence[Sequence[Written]]) -> list[Paid]:
        """The reward of every report: 0 if it is unfinished; a report that the judge did not score is left out."""
        if self.config.judge == "checks":
            return [
                Paid(written, place, {"reward/total": check_report(written.report).total if written.report else 0.0})
                for place, group in enumerate(groups)
                for written in group
            ]
        assert self.rubric is not None
        evaluator = self.config.evaluator
        assessed = await assess_groups(
            self.config, self.stage, step, JUDGE, groups, [self.rubric] * len(groups), HARNESS
        )
        for viewing, episode in assessed.passes:
            step.keep(episode, {"assessment/reports": float(len(viewing.order))})
        step.metrics |= measure_assessments(assessed, evaluator.score_scale)
        return [
            Paid(written, place, pay_report(verdict, self.rubric, evaluator, HARNESS.process.min_tool_calls).parts)
            for place, written, verdict in pair_verdicts(groups, assessed)
            if written.report is None or verdict is not None
        ]

    def prefer(self, step: Step, paid: Sequence[Paid], beta: float) -> tuple[Advantages, list[Paid]]:
        """Make one DPO update on pairs of the best and the worst report on each question; no pair if rewards are equal.

        Returns the advantages and their reports: first the better of every pair, then the worse.
        """
        pairs = _find_pairs(paid)
        if not pairs:
            return dpo_advantages([], [], beta=beta), []
        if self.config.shuffle_advantages:
            pairs = [pair if coin(step.seed, number) > 0 else pair[::-1] for number, pair in enumerate(pairs)]
        sides = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        ratios = _log_ratios(step, [make_sample(item.written.episode, 0.0) for item in sides])
        chosen, rejected = ratios[: len(pairs)], ratios[len(pairs) :]
        advantages = dpo_advantages(chosen, rejected, beta=beta)
        samples = group_samples([item.written.episode for item in sides], [0] * len(sides), advantages)
        step.metrics |= learn_in_parts(step, samples, 0)
        margins = [better - worse for better, worse in zip(chosen, rejected, strict=True)]
        step.metrics |= {
            "dpo/pairs": float(len(pairs)),
            "dpo/margin": beta * sum(margins) / len(margins),
            "dpo/accuracy": sum(margin > 0 for margin in margins) / len(margins),
        }
        return advantages, sides

    def measure(
        self,
        step: Step,
        groups: Sequence[Sequence[Written]],
        paid: Sequence[Paid],
        advantages: Advantages,
        kept: Sequence[Paid],
    ) -> None:
        """Store every report with its reward and advantage, and compute the metrics of the step."""
        values = {item.written.episode.id: value for item, value in zip(kept, advantages.values.tolist(), strict=True)}
        parts = {item.written.episode.id: item.parts for item in paid}
        everything = [written for group in groups for written in group]
        measured = [measure_report(written) for written in everything]
        for written, known in zip(everything, measured, strict=True):
            name = written.episode.id
            advantage = {"advantage": values[name]} if name in values else {}
            step.keep(written.episode, {**known, **parts.get(name, {}), **advantage})
        step.metrics |= {"reward/mean": 0.0} | mean_parts([item.parts for item in paid])
        step.metrics |= measure_advantages(advantages) | measure_groups(groups, measured)


# ------------------------------------------------------------------------------------------------- shared with SCORE


async def assess_groups(
    config: ResearchConfig,
    stage: Stage,
    step: Step,
    role: str,
    groups: Sequence[Sequence[Written]],
    rubrics: Sequence[Rubric],
    harness: Harness,
) -> Assessed:
    """Assessments of all finished reports by this role; reports on one question are assessed together."""
    finished = [[item.report for item in group if item.report is not None] for group in groups]
    viewings = view_reports(finished, rubrics, harness, passes=config.evaluator.passes, name=step.name, seed=step.seed)
    return await assess_reports(stage, step, role, viewings, config.evaluator, config.prompts)


def pair_verdicts(
    groups: Sequence[Sequence[Written]], assessed: Assessed
) -> Iterator[tuple[int, Written, Verdict | None]]:
    """Every report with the index of its question and its verdict, None if it is unfinished or was not scored."""
    for place, group in enumerate(groups):
        question = next((item.report.question.id for item in group if item.report), "")
        verdicts = iter(assessed.verdicts.get(question, []))
        for written in group:
            yield place, written, next(verdicts, None) if written.report else None


def pay_report(verdict: Verdict | None, rubric: Rubric, evaluator: EvaluatorConfig, tau: int) -> ReportPay:
    """The reward of a report by its verdict; `verdict=None` means that the report is unfinished and earns 0."""
    return report_reward(
        verdict.scores if verdict else None,
        rubric,
        scale=evaluator.score_scale,
        separate=evaluator.validity == "separate",
        num_searches=verdict.num_searches if verdict else 0,
        tau=tau,
    )


def compare_reports(
    config: ResearchConfig, step: Step, graded: Sequence[tuple[Written, int, float]], *, learns: bool = True
) -> Advantages:
    """GRPO advantages of `graded` (report, index of its question, reward), and an update if the solver `learns`."""
    solver, places, rewards = config.solver, [place for _, place, _ in graded], [reward for *_, reward in graded]
    check_finite(rewards)
    advantages = grpo(rewards, places, delta=solver.delta, unbiased=solver.unbiased_std)
    if config.shuffle_advantages:
        advantages = shuffled(advantages, step.seed)
    if learns:
        groups = group_samples([written.episode for written, *_ in graded], places, advantages)
        step.metrics |= learn_in_parts(step, groups, solver.minibatch)
    return advantages


# ----------------------------------------------------------------------------------------------------------------- DPO


def _find_pairs(paid: Sequence[Paid]) -> list[tuple[Paid, Paid]]:
    """The best and the worst report of every question, the first of equals; no pair if their rewards are equal."""
    groups = grouped((item.place, item) for item in paid).values()
    pairs = [(max(same, key=lambda item: item.reward), min(same, key=lambda item: item.reward)) for same in groups]
    return [(best, worst) for best, worst in pairs if best.reward > worst.reward]


def _log_ratios(step: Step, samples: Sequence[Sample]) -> list[float]:
    """log pi - log pi_ref of each sample, summed over all tokens that the model wrote."""
    now, before = step.learner.score(samples), step.learner.score_reference(samples)
    return [sum(new) - sum(old) for new, old in zip(now, before, strict=True)]


# --------------------------------------------------------------------------------------------------------- registration


def report_protocol(config: ResearchConfig) -> Protocol:
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
    presets=PRESETS,
    check=check_grpo,
    plan=plan_reports,
    train=train,
    solver_protocol=report_protocol,
    takes_questions=True,
    needs_answers=False,
)
REPORT_DPO = structs.replace(
    REPORT_GRPO,
    name="report-dpo",
    summary="the same judge, and pairs of its best and its worst",
    schema=ReportDpoConfig,
    check=check_dpo,
)
