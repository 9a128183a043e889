"""SCORE, from top to bottom (the paper's Algorithms 1 and 2).

    repeat:
        1  the scheduler gives hints, the harness its constraints
        2  the evaluator chooses a rubric within them
        3  the solver writes K reports on every question, searching as it goes
        4  the evaluator verifies the reports with its own searches and scores them
               R = validity * (1 + sum of weight * score); 0 for a report verified with too few searches
        5  the solver's update: reports on one question compared with one another                             (GRPO)
        6  the evaluator's update: its reward is the consistency of the K reports' conclusions, minus a moving
               average as baseline, or that under another rubric                                         (REINFORCE)
        7  the scheduler records the rubric; every M steps the harness is revised from statistics

One set of weights plays both roles (unless `evaluator.weights` is own), and both updates act on it, each with a KL term
to the initial model in its loss.
Failures of the evaluator have a neutral effect: a rubric that breaks the rules is replaced by a default and trains
nothing, and a report without an assessment is left out of the solver's update.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from quaere.dialects.registry import find_dialect
from quaere.dialects.report.rubric import default_rubric
from quaere.errors import BadInput, SearchFailed
from quaere.objectives.policy_gradient import Advantages
from quaere.policies.openai import OpenAISampler, parse_endpoint
from quaere.policies.sampler import SamplingParams
from quaere.recipes.registry import Recipe
from quaere.recipes.report_baselines import assess_groups, compare_reports, pair_verdicts, pay_report, report_protocol
from quaere.recipes.score.config import PRESETS, HarnessSettings, ScoreConfig, check_config
from quaere.recipes.score.gauges import collect_statistics, measure_gauges, read_history
from quaere.recipes.score.harness import HarnessVersion, Versions, compare, describe_change
from quaere.recipes.score.memory import ScoreMemory
from quaere.recipes.score.metaharness import LlmHarness, MetaHarness, RulesHarness
from quaere.recipes.score.rubric_signals import (
    Chosen,
    ask_twice,
    compare_pairs,
    compare_with_average,
    find_scopes,
    mean_known,
    rubric_sample,
    spread_rubrics,
)
from quaere.records import Harness, Hints, Passage, Question, Rubric, RubricTask
from quaere.rewards.reports import ReportPay, consistency_score, most_reward
from quaere.rollout.episode import Job, Limits
from quaere.runs import Run
from quaere.training.assessments import Assessed, Verdict, measure_assessments, verdict_parts
from quaere.training.batches import Sample
from quaere.training.learner import Learner
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
from quaere.training.step import Step, mean_parts, measure_advantages, trace_tokens

EVALUATOR = "evaluator"  # a role of its own where `evaluator.weights` is own


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
        self.evaluator = roles_of(config)[-1]

    async def evolve(self, iteration: int) -> None:
        """Run all training steps, each one pass through the algorithm in the module's docstring."""
        config, memory = self.config, self.memory
        # The first update of a step advances the learning-rate schedule: the solver's, unless it is frozen.
        settings = self.evaluator_settings if config.solver.frozen else config.solver.learner
        if self.evaluator != ROLE and config.learns_rubrics:
            learner = self.stage.actors.learner(self.evaluator, self.evaluator_settings, config.solver.steps)
            assert isinstance(learner, Learner)  # `check` refuses a server for this
            memory.open_evaluator(learner)
        for step in self.training.steps(iteration, "reports", config.solver.steps, role=ROLE, settings=settings):
            harness = memory.harness
            questions = self.research.draw(step)
            if config.evaluator.baseline == "pair":
                questions = ask_twice(questions)
            chosen = await self.choose_rubrics(step, questions, harness)
            rubrics = spread_rubrics(chosen, len(questions))
            groups = await self.write(step, questions, rubrics, harness)
            # Reports on one question are assessed together.
            assessed = await assess_groups(config, self.stage, step, self.evaluator, groups, rubrics, harness)
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
        num_rubrics = 2 if config.evaluator.baseline == "pair" else 1
        scopes = find_scopes(len(questions), num_rubrics, per_question=per_question)
        evaluator, tasks = config.evaluator, []
        for number, places in enumerate(scopes):
            shown = [questions[place] for place in places[: evaluator.shown_questions]]
            of_step = f"{step.name}-rubric" if number == 0 else f"{step.name}-rubric-{number + 1}"
            name = f"{step.name}-{shown[0].id}-rubric" if per_question else of_step
            tasks.append(await self.rubric_task(name, shown, harness, step))
        chooser = find_dialect("report", "rubric").open(harness, style=config.prompts)
        jobs = [Job(chooser, task, task.id) for task in tasks]
        limits = Limits(1, evaluator.limits.turn_tokens, evaluator.limits.sequence_tokens)
        params = SamplingParams(temperature=evaluator.temperature)
        played = await self.stage.play(step, self.evaluator, jobs, limits, name="rubrics", params=params)
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
        learner, evaluator = self.config.solver.learner, self.config.evaluator
        rate = evaluator.alpha * learner.learning_rate
        return structs.replace(learner, aggregation=evaluator.aggregation, learning_rate=rate)

    def update_solver(self, step: Step, judged: Sequence[Judged]) -> Advantages:
        """Make a GRPO update on all reports that have a reward, unless the solver is frozen; returns the advantages."""
        graded = [(item.written, item.place, item.pay.total) for item in judged if item.pay is not None]
        return compare_reports(self.config, step, graded, learns=not self.config.solver.frozen)

    def update_evaluator(
        self, step: Step, chosen: Sequence[Chosen], agreements: Sequence[float | None]
    ) -> list[float | None]:
        """REINFORCE on the rubrics, with the consistency of reports as reward; returns each rubric's advantage.

        The advantage is None for a rubric that is not valid or under which no consistency is known.

        The moving average is updated at every step with a valid rubric, whether or not the evaluator is updated.
        """
        config = self.config.evaluator
        if config.baseline == "pair":
            signals = compare_pairs(chosen, agreements)
        else:
            signals, self.memory.baseline = compare_with_average(chosen, agreements, self.memory.baseline, config.beta)
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
        if (own := self.memory.evaluator) is not None:
            trace_tokens(step, samples, own)
            measured = own.step(samples)
            self.stage.actors.weights_changed(self.evaluator)
            return measured
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
        step.metrics |= measure_gauges(read_history(self.training.store, step.step, step.metrics))
        memory.step = step.step
        if config.kind == "none" or (step.number + 1) % config.every:
            return
        history = read_history(self.training.store, step.step, step.metrics, step.step - config.every)
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
        rubrics = spread_rubrics(chosen, len(groups))
        values, parts = iter(advantages.values.tolist()), []
        for item in judged:
            parts.append({**measure_report(item.written), **_pay_parts(item, rubrics[item.place])})
            advantage = {"advantage": next(values)} if item.pay is not None else {}
            step.keep(item.written.episode, {**parts[-1], **advantage})
        for viewing, episode in assessed.passes:
            step.keep(episode, {"assessment/reports": float(len(viewing.order))})
        harness = self.memory.harness
        step.metrics |= {"reward/mean": 0.0} | mean_parts(parts) | measure_advantages(advantages)
        step.metrics |= measure_groups(
            groups, [measure_report(item.written) for item in judged], self.config.evaluator.agreement
        )
        step.metrics |= measure_assessments(assessed, scale)
        step.metrics |= {
            "harness/version": float(harness.version),
            "harness/k": float(harness.dimensions.k),
            "harness/min_tool_calls": float(harness.process.min_tool_calls),
            "evaluator/baseline": self.memory.baseline,
        }
        shares = {
            "rubrics/valid": mean_known([one.valid for one in chosen if one.episode is not None]),
            "evaluator/advantage": mean_known(signals),
        }
        step.metrics |= {name: value for name, value in shares.items() if value is not None}


def _pay_parts(item: Judged, rubric: Rubric) -> dict[str, float]:
    """The reward components of a report, as metrics; {} if it was not assessed."""
    if item.pay is None:
        return {}
    parts = {**item.pay.parts, "reward/share": item.pay.total / most_reward(rubric)}
    if item.verdict is None:  # unfinished, so it was not assessed
        del parts["reward/verified"]
        return parts
    return {**parts, "report/searches": float(item.verdict.num_searches), **verdict_parts(item.verdict.scores.scores)}


# --------------------------------------------------------------------------------------------------------- registration


def roles_of(config: ScoreConfig) -> tuple[str, ...]:
    """The roles with weights: the solver's and, where the evaluator has its own, the evaluator's."""
    return (ROLE, EVALUATOR) if config.evaluator.weights == "own" else (ROLE,)


async def train(config: ScoreConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    memory = ScoreMemory(config.harness.first(), config.scheduler, Versions(store.path))
    meta = open_meta(structs.replace(config.harness, limits=config.harness_limits))
    try:
        async with open_research(config, store, reporter, roles=roles_of(config), memory=memory) as research:
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
    for name, what in (("moments", "one set of optimizer moments"), ("weights", "one set of weights to learn")):
        if config.trainer.kind == "tinker" and getattr(config.evaluator, name) == "own":
            raise BadInput(
                f"a Tinker server has {what}, and evaluator.{name} is own", hint=f"--set evaluator.{name}=shared"
            )
    check_openable(config, "score", [DIALECT])


def plan(config: ScoreConfig) -> list[tuple[str, str]]:
    """The run's plan as lines of name and text: what it would do, and the most that a step costs."""
    evaluator, harness = config.evaluator, config.harness
    roles = (("solver", not config.solver.frozen), ("evaluator", config.learns_rubrics))
    learns = [name for name, is_learning in roles if is_learning]
    num_rubrics = "two" if evaluator.baseline == "pair" else "one"
    rubrics = f"always {config.fixed_rubric}" if config.fixed_rubric else f"{num_rubrics} a {config.rubric_scope}"
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
    num_roles = len(roles_of(config))
    # Both optimizers are in memory throughout: of two roles, or of two objectives on one set of weights.
    num_moments = 2 if len(learns) == 2 and (num_roles == 2 or evaluator.moments == "own") else 1
    counts = {"num_roles": num_roles, "num_moments": num_moments, "num_rubrics": 1 + (evaluator.baseline == "pair")}
    return [*plan_research(config, has_evaluator=True, **counts), *lines]


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
