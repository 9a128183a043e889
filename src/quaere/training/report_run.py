"""Training on open-ended questions: what recipes that write reports have in common.

    async with open_research(config, store, reporter) as research:
        for step in research.training.steps(0, "reports", 100, role=ROLE, settings=config.solver.learner):
            questions = research.draw(step)

One role, the actor, is trained. The questions need no answers.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import chain
from typing import Literal

from msgspec import Struct, field, structs

from quaere.chat.protocol import Protocol
from quaere.dialects.report.evaluator_prompts import Verification
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput, ExtraMissing
from quaere.grouping import group_by
from quaere.objectives import DELTA
from quaere.objectives.policy_gradient import Advantages
from quaere.records import Dimension, Episode, Question, Report, ReportTask, Rubric, Weight
from quaere.rewards.reports import SCALE, Agreement, check_report, consistency_score, diversity_score
from quaere.rollout.episode import Job, Limits
from quaere.rollout.policy import derive_seed
from quaere.rollout.question_files import read_questions
from quaere.runs import Run
from quaere.setting_types import GroupSize, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from quaere.training.batches import Sample, make_sample
from quaere.training.given import QUESTIONS, read_source
from quaere.training.progress import Reporter
from quaere.training.rollouts import Stage, draw_questions
from quaere.training.run_setup import open_run, plan_memory
from quaere.training.settings import TINY_RUN, LearnerSettings, RunConfig, check_limits, check_run
from quaere.training.step import Step, measure_update, trace_tokens
from quaere.training.training_run import Memory, TrainingRun

ROLE = "actor"
DIALECT = "score"  # the dialect of the warm-up for reports, rubrics and assessments

Cap = Literal["turns", "tool_calls"]
Validity = Literal["base_dimension", "separate"]


# ------------------------------------------------------------------------------------------------------------- settings


class WriterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Writing reports: a group of reports on each question, compared with one another.

        WriterConfig(steps=100, batch=64, attempts=8)

    Attributes:
        steps: Steps of the run. [SCORE, Table 2]
        batch: Questions a step. [SCORE, Table 2]
        attempts: Reports on each question: K. [SCORE, Table 2]
        minibatch: Questions an update; 0: the whole batch. Later parts are learned from as if the weights of
            that moment had written them. [SCORE, Table 2]
        cap: What `limits.max_turns` bounds: turns, or searches, with one more turn for the report and one to
            spare. [SCORE]
        unbiased_std: Standard deviation of rewards with n - 1 in place of n. [Quaere]
        delta: Added to the standard deviation that rewards are divided by. [GRPO]
    """

    steps: PositiveInt = 100
    batch: PositiveInt = 64
    attempts: GroupSize = 8
    minibatch: NonNegativeInt = 32
    cap: Cap = "turns"
    unbiased_std: bool = True
    delta: NonNegativeFloat = DELTA
    limits: Limits = Limits(
        max_turns=10,
        turn_tokens=4096,
        sequence_tokens=12288,
        tool_response_tokens=1024,
        max_searches=10,
        topk=3,
        answer_tokens=1024,
    )
    learner: LearnerSettings = LearnerSettings(
        # kl_beta=0.05 keeps the writer near the reference model, with kl_flat also on groups with equal rewards.
        learning_rate=1e-6,
        warmup_ratio=0.05,
        kl_beta=0.05,
        kl="k3",
        kl_flat=True,
    )

    @property
    def num_samples(self) -> int:
        """Maximum number of reports per update."""
        return min(self.minibatch or self.batch, self.batch) * self.attempts

    @property
    def writing_limits(self) -> Limits:
        """Episode limits of a report, with `cap` applied.

        WriterConfig(cap="tool_calls").writing_limits.max_turns == 12
        """
        num = self.limits.max_turns
        in_calls = structs.replace(self.limits, max_turns=num + 2, max_searches=num)
        return self.limits if self.cap == "turns" else in_calls


class EvaluatorConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Assessing reports: in each pass, all reports on a question are scored in another order.

        EvaluatorConfig(passes=2, temperature=0.8)

    Attributes:
        temperature: Sampling temperature of rubrics and assessments. [SCORE, Table 2]
        passes: Assessments of every report; the scores are averaged. [Quaere]
        score_scale: Highest score; the lowest is 0. [SCORE]
        validity: Where a report's validity comes from: the score of the rubric's primary dimension, or one that
            is asked for separately. [SCORE]
        verification: Searches that verify a report: those about it and, shared, those about all reports; or each
            report's own only. [Quaere]
    """

    temperature: PositiveFloat = 0.8
    passes: PositiveInt = 1
    score_scale: PositiveFloat = SCALE
    validity: Validity = "base_dimension"
    verification: Verification = "shared"
    limits: Limits = Limits(
        max_turns=10,
        turn_tokens=2048,
        sequence_tokens=32768,
        tool_response_tokens=512,
        max_searches=32,
        topk=3,
        answer_tokens=1024,
    )


class ResearchConfig(RunConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run on open questions.

        ResearchConfig(model="warm", index="demo/index", questions="open.jsonl")

    Attributes:
        questions: What to write about: a JSONL file of questions, which need no answers, a run that wrote some, or a
            data set of the hub, hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]. [Quaere]
        shuffle_advantages: A control that must not learn: advantages go to the wrong episodes. [Quaere]
        fixed_rubric: No rubric is chosen: always this one, as in "factuality, depth 0.3". [SCORE]
    """

    questions: str = ""
    shuffle_advantages: bool = False
    fixed_rubric: str = ""
    solver: WriterConfig = field(default_factory=WriterConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)

    @property
    def searches_per_report(self) -> int:
        """Most searches by which an assessment can verify every report on a question; its last turn has the scores."""
        limits = self.evaluator.limits
        num_searches = min(limits.max_turns - 1, limits.max_searches)
        return num_searches // self.solver.attempts if self.evaluator.verification == "each" else num_searches


# Values of the presets of these names, for recipes to extend.
SINGLE_GPU: dict[str, object] = {
    "solver.batch": 8,
    "solver.minibatch": 0,
    "solver.limits.max_turns": 6,
    "solver.limits.turn_tokens": 1024,
    "solver.limits.sequence_tokens": 6144,
    "solver.learner.learning_rate": 2e-5,
    "solver.learner.gradient_checkpointing": True,
    "evaluator.limits.sequence_tokens": 16384,
    "adapter.rank": 16,
    "engine.max_rows": 64,
}
DEMO: dict[str, object] = {
    **TINY_RUN,
    "solver.minibatch": 0,
    "solver.limits.max_turns": 3,
    "solver.limits.turn_tokens": 128,
    "solver.limits.sequence_tokens": 768,
    "solver.limits.tool_response_tokens": 160,
    "solver.limits.topk": 1,
    "solver.learner.micro_tokens": 1024,  # fits into a laptop's memory
    "evaluator.limits.max_turns": 3,
    "evaluator.limits.turn_tokens": 256,
    "evaluator.limits.sequence_tokens": 2048,
    "evaluator.limits.tool_response_tokens": 160,
    "evaluator.limits.topk": 1,
    "health.policy": "warn",
}


def check_research(config: ResearchConfig, recipe: str, pool: Sequence[Dimension]) -> None:
    """Raise BadInput for values out of range or in conflict, and ExtraMissing without scikit-learn."""
    check_run(config)
    check_limits("solver.limits", config.solver.limits)
    if config.fixed_rubric:
        parse_rubric(config.fixed_rubric, pool)
    if find_spec("sklearn") is None:
        raise ExtraMissing(f"{recipe} compares conclusions with scikit-learn", extra="select")


def check_searches(config: ResearchConfig, num_needed: int) -> None:
    """Raise BadInput if no assessment has room for the searches that verify each report: all would earn 0."""
    if num_needed <= config.searches_per_report:
        return
    evaluator, num_reports = config.evaluator, config.solver.attempts
    num = num_needed * (num_reports if evaluator.verification == "each" else 1)
    lacking = {"max_turns": num + 1, "max_searches": num}.items()
    sets = [
        f"--set evaluator.limits.{name}={least}" for name, least in lacking if getattr(evaluator.limits, name) < least
    ]
    needed = f"{num_needed} search{'' if num_needed == 1 else 'es'}"
    assessed = f"an assessment of {num_reports} reports with evaluator.verification={evaluator.verification}"
    said = f"a report is verified by {needed}, and {assessed} has room for {config.searches_per_report}"
    raise BadInput(said, hint=" ".join(sets))


def parse_rubric(text: str, pool: Sequence[Dimension]) -> Rubric:
    """A rubric in the form of `Rubric.text`: the primary dimension, then others with weights.

    parse_rubric("factuality, coverage 0.4", POOL) == Rubric("factuality", (Weight("coverage", 0.4),))
    """
    primary, *others = (part.split() for part in text.split(","))
    names = {item.name for item in pool}
    try:
        ((first,), weights) = primary, tuple(Weight(name, float(weight)) for name, weight in others)
    except ValueError:
        raise BadInput(f"fixed_rubric is invalid: {text}", hint='fixed_rubric="factuality, coverage 0.4"') from None
    rubric = Rubric(first, weights)
    if unknown := [name for name in rubric.dimensions if name not in names]:
        raise BadInput(
            f"fixed_rubric names the unknown dimension {unknown[0]}; the dimensions are {', '.join(sorted(names))}"
        )
    if len(set(rubric.dimensions)) < len(rubric.dimensions) or not all(0 <= item.weight <= 1 for item in weights):
        raise BadInput("fixed_rubric must name each dimension once, with weights from 0 to 1")
    return rubric


# ------------------------------------------------------------------------------------------------------------- the run


class Research(Struct, frozen=True):
    """A started run on open-ended questions: its training loop, its stage and its questions.

    Research(config=ResearchConfig(...), training=TrainingRun(...), stage=Stage(...), questions=[Question(...)])
    """

    config: ResearchConfig
    training: TrainingRun
    stage: Stage
    questions: list[Question]

    def draw(self, step: Step) -> list[Question]:
        """The questions of a step, from shuffled rounds over all questions of the run."""
        seed = derive_seed(self.config.seed, "questions", step.iteration)
        return draw_questions(self.questions, step.number, self.config.solver.batch, seed)


@asynccontextmanager
async def open_research(
    config: ResearchConfig,
    store: Run,
    reporter: Reporter,
    *,
    roles: Sequence[str] = (ROLE,),
    memory: Memory | None = None,
) -> AsyncIterator[Research]:
    """Context that opens, and closes, everything a run on open-ended questions needs."""
    questions = read_questions(store.path / QUESTIONS)
    async with open_run(config, roles, reporter) as opened:
        training = TrainingRun(config, store, opened.actors, reporter, config.solver.steps, memory=memory)
        yield Research(config, training, Stage(opened.actors, opened.searcher), questions)


def plan_research(
    config: ResearchConfig, *, has_evaluator: bool, num_roles: int = 1, num_moments: int = 1, num_rubrics: int = 1
) -> list[tuple[str, str]]:
    """Lines of a dry run: the phases, and the maximum cost of a step, with or without a model that assesses reports.

    `num_rubrics` is under how many rubrics each question is written about; each role has weights of its own.
    """
    questions = read_source(config.questions, answered=False)
    solver = config.solver
    batch, limits = min(solver.batch, len(questions)), solver.writing_limits
    num_reports = batch * num_rubrics * solver.attempts
    seen = solver.steps * batch / len(questions)
    assessed = config.evaluator.limits.sequence_tokens if has_evaluator else 0
    return [
        ("questions", f"{len(questions)}, each seen {seen:.3g} times"),
        (
            "reports",
            f"{solver.steps} steps of {batch} questions, {num_rubrics * solver.attempts} reports on each; "
            f"at most {limits.max_turns} turns and {limits.max_searches} searches; "
            f"a step writes {num_reports} reports, {num_reports * limits.sequence_tokens:,} tokens at most",
        ),
        *plan_memory(
            config,
            (structs.replace(solver, batch=batch * num_rubrics),) * num_roles,
            sampled_tokens=assessed,
            num_moments=num_moments,
        ),
    ]


# ---------------------------------------------------------------------------------------------------------- the update


def learn_in_parts(step: Step, groups: Sequence[Sequence[Sample]], minibatch: int) -> dict[str, float]:
    """Updates on samples grouped by question, one per part of `minibatch` questions; returns their metrics.

    A part whose advantages are all 0 is skipped. Whatever the number of updates, the learning-rate schedule advances by
    one step, at the last update.
    """
    size = minibatch or max(1, len(groups))
    parts = [list(chain.from_iterable(groups[first : first + size])) for first in range(0, len(groups), size)]
    measured = measure_update(step.learner, list(chain.from_iterable(groups))) if step.measures_update else {}
    told = [part for part in parts if any(any(sample.advantages) for sample in part)]
    trace_tokens(step, list(chain.from_iterable(told)))
    settings = step.learner.settings
    updates = [
        step.learner.step(part, None if number + 1 == len(told) else settings) for number, part in enumerate(told)
    ]
    return measured | _merge_updates(updates)


def _merge_updates(updates: Sequence[dict[str, float]]) -> dict[str, float]:
    """Metrics of several updates of one step: means, except the maximum of the mismatch and the sum of tokens.

    _merge_updates([{"loss/policy": 0.2, "batch/model_tokens": 10.0}, {"loss/policy": 0.4, "batch/model_tokens": 30.0}])
    -> {"loss/policy": 0.3, "batch/model_tokens": 40.0, "batch/updates": 2.0}
    """
    if not updates:
        return {}
    merged = {name: sum(one[name] for one in updates) / len(updates) for name in updates[0]}
    merged["batch/model_tokens"] = sum(one["batch/model_tokens"] for one in updates)
    if "mismatch/max" in merged:
        merged["mismatch/max"] = max(one["mismatch/max"] for one in updates)
    return merged | {"batch/updates": float(len(updates))}


def group_samples(episodes: Sequence[Episode], places: Sequence[int], advantages: Advantages) -> list[list[Sample]]:
    """Samples of these episodes, grouped by question (equal `places`)."""
    groups = group_by(zip(places, episodes, advantages.values.tolist(), strict=True), lambda one: one[0])
    return [[make_sample(episode, value) for _, episode, value in group] for group in groups.values()]


# ------------------------------------------------------------------------------------------------------ report episodes


NAME = "reports"  # prefix of the episodes' metrics


class Written(Struct, frozen=True):
    """A report episode; `report` is None if the report was not finished.

    Written(episode=Episode(...), report=Report(...))
    """

    episode: Episode
    report: Report | None

    @property
    def conclusion(self) -> str:
        """The report's conclusion; "" if it was not finished."""
        return self.report.conclusion if self.report else ""


def write_jobs(
    protocol: Protocol, questions: Sequence[Question], rubrics: Sequence[Rubric | None], num_reports: int, name: str
) -> list[Job]:
    """`num_reports` episodes per question, with the rubric at the same index; those of one question are adjacent.

    write_jobs(ReportWriter(), [question], [rubric], 2, "i0-r3")[1].episode_id == "i0-r3-q1-r1"
    """
    tasks = [
        ReportTask(question, rubric, number)
        for question, rubric in zip(questions, rubrics, strict=True)
        for number in range(num_reports)
    ]
    return [Job(protocol, task, f"{name}-{task.id}") for task in tasks]


async def write_reports(
    stage: Stage, step: Step, role: str, jobs: Sequence[Job], limits: Limits
) -> list[list[Written]]:
    """Play the jobs; returns the reports of each question in order, without episodes in which a search failed."""
    played = await stage.play(step, role, jobs, limits, name=NAME)
    groups: dict[str, list[Written]] = {_question(job.task).id: [] for job in jobs}
    for episode in played.episodes:
        if not episode.search_failed:
            groups[_question(episode.task).id].append(Written(episode, bind_report(episode)))
    return list(groups.values())


def _question(task: object) -> Question:
    assert isinstance(task, ReportTask)
    return task.question


def measure_report(written: Written) -> dict[str, float]:
    """Metrics of one report that need no judge.

    measure_report(written) -> {"report/finished": 1.0, "report/citations": 4.0, "check/resolved": 1.0, ...}
    """
    report = written.report
    if report is None:
        return {"report/finished": 0.0}
    return {
        "report/finished": 1.0,
        "report/citations": float(len(report.citations)),
        "report/words": float(len(report.text.split())),
        "report/repeated": report.repeated_share,
        **check_report(report).parts,
    }


def measure_groups(
    groups: Sequence[Sequence[Written]], measured: Sequence[Mapping[str, float]], agreement: Agreement = "words"
) -> dict[str, float]:
    """Metrics of a batch of reports: means of the reports' metrics, similarity of conclusions and diversity of texts.

    An unfinished report has no citations and counts as 0 in the citation checks.

        measure_groups(groups, measured) -> {"check/resolved": 0.6, "consistency/mean": 0.4, "diversity/mean": 0.7, ...}
    """
    found: dict[str, list[float | None]] = {
        name: [values.get(name, 0.0 if name.startswith("check/") else None) for values in measured]
        for name in dict.fromkeys(name for values in measured for name in values)
    }
    found["consistency/mean"] = [consistency_score([item.conclusion for item in group], agreement) for group in groups]
    found["diversity/mean"] = [diversity_score([item.report.text for item in group if item.report]) for group in groups]
    known = {name: [value for value in values if value is not None] for name, values in found.items()}
    return {name: sum(values) / len(values) for name, values in known.items() if values}
