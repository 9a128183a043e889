"""SCORE, from top to bottom (the paper's Algorithms 1 and 2).

    repeat:
        1  the scheduler gives hints, the harness its constraints
        2  the evaluator chooses a rubric within them
        3  the solver writes K reports on every question, searching as it goes
        4  the evaluator verifies the reports with its own searches and scores them
               R = validity * (1 + sum of weight * score); 0 for a report verified with too few searches
        5  the solver's update: reports on one question compared with one another                             (GRPO)
        6  the evaluator's update: its reward is the consistency of the K reports' conclusions, minus a moving
               average as baseline                                                                       (REINFORCE)
        7  the scheduler records the rubric; every M steps the harness is revised from statistics

One set of weights plays both roles, and both updates act on it, each with a KL term to the initial model in its loss.
Failures of the evaluator have a neutral effect: a rubric that breaks the rules is replaced by a default and trains
nothing, and a report without an assessment is left out of the solver's update.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from quaere.dialects.registry import find_dialect
from quaere.dialects.report.rubric import default_rubric
from quaere.errors import BadInput, SearchFailed
from quaere.objectives.policy_gradient import Advantages, ema_centered
from quaere.policies.openai import OpenAISampler, parse_endpoint
from quaere.policies.sampler import SamplingParams
from quaere.recipes.registry import Recipe
from quaere.recipes.report_baselines import (
    assess_groups,
    compare_reports,
    pair_verdicts,
    pay_report,
    report_protocol,
)
from quaere.recipes.score.config import PRESETS, HarnessSettings, ScoreConfig, check_config
from quaere.recipes.score.gauges import collect_statistics, measure_gauges, read_history
from quaere.recipes.score.harness import HarnessVersion, Versions, compare, describe_change
from quaere.recipes.score.memory import ScoreMemory
from quaere.recipes.score.metaharness import LlmHarness, MetaHarness, RulesHarness
from quaere.records import Episode, Harness, Hints, Passage, Question, Rubric, RubricTask
from quaere.rewards.reports import ReportPay, consistency_score, most_reward
from quaere.rollout.episode import Job, Limits, Sample, make_sample
from quaere.runs import Run
from quaere.training.assessments import (
    Assessed,
    Verdict,
    measure_assessments,
    verdict_parts,
)
from quaere.training.measures import mean_parts, measure_advantages
from quaere.training.progress import Reporter
from quaere.training.report_run import (
    DIALECT,
    ROLE,
    Research,
    Written,
    measure_groups,
    measure_report,
    open_research,
    parse_rubric,
    plan_research,
    write_jobs,
    write_reports,
)
from quaere.training.rollouts import coin
from quaere.training.run_setup import check_openable
from quaere.training.settings import LearnerSettings
from quaere.training.step import Step, trace_tokens


class Chosen(Struct, frozen=True):
    """The rubric for the questions at `places`, and the episode that chose it; the default rubric is not `valid`.

    Chosen(rubric=Rubric(...), places=(0, 1, 2), episode=Episode(...), valid=True)
    """

    rubric: Rubric
    places: tuple[int, ...]
    episode: Episode | None = None
    valid: bool = False


class Judged(Struct, frozen=True):
    """A report with its assessment and reward; `pay` is None if the evaluator did not assess it (excluded).

    Judged(written=Written(...), place=0, verdict=Verdict(...), pay=ReportPay(...))
    """

    written: Written
    place: int
    verdict: Verdict | None = None
    pay: ReportPay | None = None


class Score:
    """The training loop of SCORE; its methods are the parts of a step."""

    def __init__(self, config: ScoreConfig, research: Research, memory: ScoreMemory, meta: MetaHarness) -> None:
        self.config, self.memory, self.meta = config, memory, meta
        self.research, self.training, self.stage = research, research.training, research.stage

    async def evolve(self, iteration: int) -> None:
        """Run all training steps, each one pass through the algorithm in the module's docstring."""
        config, memory = self.config, self.memory
        # The first update of a step advances the learning-rate schedule: the solver's, unless it is frozen.
        settings = self.evaluator_settings if config.solver.frozen else config.solver.learner
        for step in self.training.steps(iteration, "reports", config.solver.steps, role=ROLE, settings=settings):
            harness = memory.harness
            questions = self.research.draw(step)
            chosen = await self.choose_rubrics(step, questions, harness)
            rubrics = _spread_rubrics(chosen, len(questions))
            groups = await self.write(step, questions, rubrics, harness)
            # By the same weights; reports on one question are assessed together.
            assessed = await assess_groups(config, self.stage, step, ROLE, groups, rubrics, harness)
            judged = self.judge(groups, assessed, rubrics, harness)
            advantages = self.update_solver(step, judged)
            agreements = self.agree([[item.conclusion for item in group] for group in groups])
            signals = self.update_evaluator(step, chosen, agreements)
            self.measure(step, chosen, groups, assessed, judged, advantages, signals)
            await self.look_back(step, chosen, agreements)

    def agree(self, conclusions: Sequence[Sequence[str]]) -> list[float | None]:
        """The consistency C of the conclusions on each question; None for a question with fewer than two."""
        return [consistency_score(one, self.config.evaluator.agreement) for one in conclusions]

    # --------------------------------------------------------------------------------------------- 1, 2: the rubrics

    async def choose_rubrics(self, step: Step, questions: Sequence[Question], harness: Harness) -> list[Chosen]:
        """One rubric for all questions, or one for each; the default rubric where no valid one was chosen."""
        config, everywhere = self.config, tuple(range(len(questions)))
        if config.fixed_rubric:
            return [Chosen(parse_rubric(config.fixed_rubric, harness.pool), everywhere)]
        per_question = config.rubric_scope == "query"
        scopes = [(place,) for place in everywhere] if per_question else [everywhere]
        evaluator, tasks = config.evaluator, []
        for places in scopes:
            shown = [questions[place] for place in places[: evaluator.shown_questions]]
            name = f"{step.name}-{shown[0].id}-rubric" if per_question else f"{step.name}-rubric"
            tasks.append(await self.rubric_task(name, shown, harness, step))
        chooser = find_dialect("report", "rubric").open(harness, style=config.prompts)
        jobs = [Job(chooser, task, task.id) for task in tasks]
        limits = Limits(1, evaluator.limits.turn_tokens, evaluator.limits.sequence_tokens)
        params = SamplingParams(temperature=evaluator.temperature)
        played = await self.stage.play(step, ROLE, jobs, limits, name="rubrics", params=params)
        return [
            Chosen(episode.outcome, places, episode, valid=True)
            if isinstance(episode.outcome, Rubric)
            else Chosen(default_rubric(harness), places, episode)
            for episode, places in zip(played.episodes, scopes, strict=True)
        ]

    async def rubric_task(self, name: str, shown: Sequence[Question], harness: Harness, step: Step) -> RubricTask:
        """The task of choosing a rubric: the questions, hints from earlier choices, a sample of the documents."""
        hints = self.memory.scheduler.hints(harness) if self.config.schedule else Hints()
        passages = await self.look_up(shown, step)
        return RubricTask(name, tuple(question.text for question in shown), harness, hints, passages)

    async def look_up(self, shown: Sequence[Question], step: Step) -> tuple[Passage, ...]:
        """A few passages for each question, without duplicates; none if the search fails."""
        num = self.config.initial_retrieval
        if not num:
            return ()
        try:
            found = await self.stage.searcher.search([question.text for question in shown], num)
        except SearchFailed:
            step.metrics["rubrics/retrieval_failed"] = 1.0
            return ()
        return tuple({hit.passage.id: hit.passage for hits in found for hit in hits}.values())

    # ------------------------------------------------------------------------- 3, 4: reports and their assessment

    async def write(
        self, step: Step, questions: Sequence[Question], rubrics: Sequence[Rubric], harness: Harness
    ) -> list[list[Written]]:
        """K reports on every question; the writers are shown the rubric."""
        solver = self.config.solver
        writer = find_dialect("report", "writer").open(style=self.config.prompts, pool=harness.pool)
        jobs = write_jobs(writer, questions, rubrics, solver.attempts, step.name)
        return await write_reports(self.stage, step, ROLE, jobs, solver.writing_limits)

    def judge(
        self, groups: Sequence[Sequence[Written]], assessed: Assessed, rubrics: Sequence[Rubric], harness: Harness
    ) -> list[Judged]:
        """Every report with its reward: 0 if it is unfinished, None if it was not assessed (not learned from)."""
        evaluator = self.config.evaluator
        tau = harness.process.min_tool_calls if isinstance(evaluator.tau, str) else evaluator.tau
        return [
            Judged(written, place, verdict, pay_report(verdict, rubrics[place], evaluator, tau))
            if written.report is None or verdict is not None
            else Judged(written, place)
            for place, written, verdict in pair_verdicts(groups, assessed)
        ]

    # --------------------------------------------------------------------------------------------- 5, 6: the updates

    @property
    def evaluator_settings(self) -> LearnerSettings:
        """Settings of the evaluator's REINFORCE update, at alpha times the solver's learning rate."""
        learner = self.config.solver.learner
        rate = self.config.evaluator.alpha * learner.learning_rate
        return structs.replace(learner, aggregation="token_sum", learning_rate=rate)

    def update_solver(self, step: Step, judged: Sequence[Judged]) -> Advantages:
        """Make a GRPO update on all reports that have a reward, unless the solver is frozen; returns the advantages."""
        graded = [(item.written, item.place, item.pay.total) for item in judged if item.pay is not None]
        return compare_reports(self.config, step, graded, learns=not self.config.solver.frozen)

    def update_evaluator(
        self, step: Step, chosen: Sequence[Chosen], agreements: Sequence[float | None]
    ) -> list[float | None]:
        """REINFORCE on the rubrics, with the consistency of reports as reward; returns each rubric's advantage.

        The advantage is None for a rubric that is not valid or under which no consistency is known.

        The baseline is updated at every step with a valid rubric, whether or not the evaluator is updated.
        """
        config, memory = self.config.evaluator, self.memory
        means = [_mean([agreements[place] for place in one.places]) if one.valid else None for one in chosen]
        centered = ema_centered([mean for mean in means if mean is not None], memory.baseline, beta=config.beta)
        memory.baseline = centered.baseline
        values = iter(centered.values)
        signals = [None if mean is None else next(values) for mean in means]
        if self.config.shuffle_advantages:
            signals = [None if one is None else one * coin(step.seed, number) for number, one in enumerate(signals)]
        samples = [
            rubric_sample(one.episode, signal, config.tokens == "rubric")
            for one, signal in zip(chosen, signals, strict=True)
            if one.episode is not None and signal is not None
        ]
        is_due = not config.frozen and (step.number + 1) % config.every == 0
        if is_due and any(any(sample.advantages) for sample in samples):
            measured = self.learn_rubrics(step, samples)
            step.metrics |= {f"evaluator/{name.replace('/', '_')}": value for name, value in measured.items()}
        return signals

    def learn_rubrics(self, step: Step, samples: Sequence[Sample]) -> dict[str, float]:
        """Make the evaluator's update, on the weights after the solver's (if it is not frozen); returns its metrics."""
        trace_tokens(step, samples)
        if self.config.solver.frozen:
            return step.learner.step(samples)
        moments = "evaluator" if self.config.evaluator.moments == "own" else ""
        return step.learner.step(samples, self.evaluator_settings, moments=moments)

    # --------------------------------------------------------------------------------------------- 7: looking back

    async def look_back(self, step: Step, chosen: Sequence[Chosen], agreements: Sequence[float | None]) -> None:
        """Record the rubrics in the scheduler; every `harness.every` steps revise the harness."""
        memory, config = self.memory, self.config.harness
        for one in chosen:
            if one.valid:
                memory.scheduler.record(step.step, one.rubric, [agreements[place] for place in one.places])
        step.metrics |= measure_gauges(read_history(self.training.store, step.metrics))
        memory.step = step.step
        if config.kind == "none" or (step.number + 1) % config.every:
            return
        history = read_history(self.training.store, step.metrics, step.step - config.every)
        names = [item.name for item in memory.harness.pool]
        counts = {name: tally.tries for name, tally in memory.scheduler.tally(names).items()}
        statistics = compare(collect_statistics(step.step, history, counts), memory.statistics)
        made = await self.meta.regenerate(statistics, memory.harness, memory.default)
        changed = describe_change(memory.harness, made.harness)
        memory.change_harness(HarnessVersion(step.step, made.harness, statistics, made.why, made.fault))
        step.metrics["harness/faults"] = float(bool(made.fault))
        if made.fault:
            self.training.reporter.note(f"step {step.step}: the harness stays as it is: {made.fault}")
        elif changed:
            self.training.reporter.note(f"step {step.step}: harness {made.harness.version}, {made.why}: {changed}")

    def measure(
        self,
        step: Step,
        chosen: Sequence[Chosen],
        groups: Sequence[Sequence[Written]],
        assessed: Assessed,
        judged: Sequence[Judged],
        advantages: Advantages,
        signals: Sequence[float | None],
    ) -> None:
        """Store every episode with its rewards and advantages, and compute the metrics of the step."""
        scale = self.config.evaluator.score_scale
        for one, signal in zip(chosen, signals, strict=True):
            if one.episode is not None and not one.episode.search_failed:
                advantage = {} if signal is None else {"advantage": signal}
                step.keep(one.episode, {"rubric/valid": float(one.valid), **advantage})
        rubrics = _spread_rubrics(chosen, len(groups))
        values, parts = iter(advantages.values.tolist()), []
        for item in judged:
            parts.append({**measure_report(item.written), **_pay_parts(item, rubrics[item.place])})
            advantage = {"advantage": next(values)} if item.pay is not None else {}
            step.keep(item.written.episode, {**parts[-1], **advantage})
        for viewing, episode in assessed.passes:
            step.keep(episode, {"assessment/reports": float(len(viewing.order))})
        harness = self.memory.harness
        step.metrics |= {"reward/mean": 0.0} | mean_parts(parts) | measure_advantages(advantages)
        step.metrics |= measure_groups(groups, [measure_report(item.written) for item in judged])
        step.metrics |= measure_assessments(assessed, scale)
        step.metrics |= {
            "harness/version": float(harness.version),
            "harness/k": float(harness.dimensions.k),
            "harness/min_tool_calls": float(harness.process.min_tool_calls),
            "evaluator/baseline": self.memory.baseline,
        }
        shares = {
            "rubrics/valid": _mean([one.valid for one in chosen if one.episode is not None]),
            "evaluator/advantage": _mean(signals),
        }
        step.metrics |= {name: value for name, value in shares.items() if value is not None}


def _spread_rubrics(chosen: Sequence[Chosen], num_questions: int) -> list[Rubric]:
    found = {place: one.rubric for one in chosen for place in one.places}
    return [found[place] for place in range(num_questions)]


def rubric_sample(episode: Episode, advantage: float, rubric_only: bool) -> Sample:
    """The training sample of a chosen rubric: the tokens of the rubric alone, or of the whole turn."""
    sample, start = make_sample(episode, advantage), episode.turns[-1].acts_at if rubric_only else 0
    mask = tuple(flag and place >= start for place, flag in enumerate(sample.loss_mask))
    advantages = tuple(value if flag else 0.0 for value, flag in zip(sample.advantages, mask, strict=True))
    return structs.replace(sample, loss_mask=mask, advantages=advantages)


def _pay_parts(item: Judged, rubric: Rubric) -> dict[str, float]:
    """The reward components of a report, as metrics; {} if it was not assessed."""
    if item.pay is None:
        return {}
    parts = {**item.pay.parts, "reward/share": item.pay.total / most_reward(rubric)}
    if item.verdict is None:  # unfinished, so it was not assessed
        del parts["reward/verified"]
        return parts
    return {**parts, "report/searches": float(item.verdict.num_searches), **verdict_parts(item.verdict.scores.scores)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# --------------------------------------------------------------------------------------------------------- registration


async def train(config: ScoreConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    memory = ScoreMemory(config.harness.first(), config.scheduler, Versions(store.path))
    meta = open_meta(config.harness)
    try:
        async with open_research(config, store, reporter, memory=memory) as research:
            await research.training.iterate(1, Score(config, research, memory, meta).evolve)
    finally:
        await meta.stop()


def open_meta(settings: HarnessSettings) -> MetaHarness:
    """The meta-harness of these settings."""
    if settings.kind == "rules":
        return RulesHarness(settings.rules, settings.limits)
    if settings.kind == "llm":
        return LlmHarness(OpenAISampler(parse_endpoint(settings.model)), limits=settings.limits)
    return MetaHarness()


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


SCORE = Recipe(
    name="score",
    summary="one model writes research reports and judges them, and learns both",
    schema=ScoreConfig,
    presets=PRESETS,
    check=check,
    plan=plan,
    train=train,
    solver_protocol=report_protocol,
    takes_questions=True,
    needs_answers=False,
)
