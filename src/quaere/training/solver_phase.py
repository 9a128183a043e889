"""The solver's phase: group-relative advantages over several attempts per question (GRPO; Dr. Zero, Eq. 5).

Some of its questions are held back from training; exact match on them selects the phase's best checkpoint.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle
from quaere.dialects.registry import FROM_MEMORY, SolverDialectName, check_turns, find_dialect, open_solver
from quaere.dialects.roles import AnswerScore, Credit, DialectSettings, Solver, read_outcome, refuses_rightly
from quaere.errors import BadInput
from quaere.grouping import grouped
from quaere.objectives import DELTA
from quaere.objectives.policy_gradient import Advantages, grpo
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Episode, Question, name_sentences
from quaere.rewards.abstention import UNANSWERABLE, AbstentionRewards
from quaere.rewards.answers import exact_match_score, f1_score, normalise_answer
from quaere.rollout.episode import Limits
from quaere.rollout.policy import derive_seed
from quaere.setting_types import Fraction, GroupSize, NonNegativeFloat, NonNegativeInt, PositiveInt, SignedFraction
from quaere.training.information_gain import describe_gains, measure_gains
from quaere.training.rollouts import (
    Drawing,
    Stage,
    attempt_jobs,
    check_finite,
    count_distinct,
    count_steps_with_questions,
    draw_by_need,
    hide_some,
    learn,
    shuffled,
    shuffled_credits,
)
from quaere.training.settings import MIN_VALIDATION, LearnerSettings, ValidationSettings, check_limits
from quaere.training.step import (
    Step,
    Validated,
    mean_parts,
    measure_advantages,
    measure_asked,
    measure_attempts,
    measure_draws,
    measure_groups,
    measure_searches_kept,
    pass_histogram,
)
from quaere.training.training_run import TrainingRun


class AbstentionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Abstaining: the solver may answer that the documents do not say, and practises it.

        AbstentionSettings(allowed=True, reward=1.0, needless=0.0, hidden_share=0.25)

    Attributes:
        allowed: The prompt offers to abstain. [Quaere]
        reward: Reward for abstaining, after a search, from a question without an answer; a right answer earns 1, a
            wrong one 0. [Quaere]
        needless: Reward for abstaining from a question that has an answer. Above 0, the solver also learns to abstain
            where it is unsure, and gives fewer right answers; below 0, a wrong answer is better. [Quaere]
        hidden_share: Share of the questions of a step whose answers are hidden from their searches, so that they cannot
            be answered. Questions for yes or no and choices are never hidden. [Quaere]
    """

    allowed: bool = False
    reward: Fraction = 1.0
    needless: SignedFraction = 0.0
    hidden_share: Fraction = 0.25

    @property
    def rewards(self) -> AbstentionRewards:
        """What abstaining earns, by whether the question has an answer."""
        return AbstentionRewards(self.reward, self.needless)


class SolverConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The solver's phase: a group of attempts at each question, compared with one another.

        SolverConfig(steps=50, batch=256, attempts=5, dialect="evalact")

    Attributes:
        steps: Steps of the phase; it ends earlier when no question is left. With given questions, 0 takes as
            many as `epochs` needs. [Dr. Zero, Table 6]
        batch: Questions a step. [Dr. Zero, Table 6]
        attempts: Attempts at each question: the group of GRPO. [GRPO; Dr. Zero, Table 6]
        max_draws: How often a question may be drawn in an iteration; 0: no limit. [Quaere]
        several_share: Share of a step's questions that need two or more searches, as far as such questions last;
            0: as they come. [Quaere]
        unbiased_std: Standard deviation of rewards with n - 1 in place of n. [Quaere]
        delta: Added to the standard deviation that rewards are divided by. [GRPO]
        min_std: Least standard deviation that rewards are divided by, so that a group in which a small bonus is the
            only difference has small advantages. [Quaere]
        information_gain: Weight of a process reward for each search: by how much the learner's mean log-prob of the
            right answer's tokens rises with what it returned, standardised over the searches of all attempts at the
            question; 0: none. [Quaere]
        min_gain_std: Least standard deviation that these rises are divided by, in nats a token, so that rises that
            hardly differ have small advantages. [Quaere]
        shuffle_advantages: A control that must not learn: advantages go to the wrong episodes. [Quaere]
        dialect: The solver's dialect: its prompts, its reward and its own settings. [Dr. Zero; Search-R1;
            AutoRefine; Eval-RAR; EvalAct]
        answer_score: The reward for an answer: own is that of the dialect's paper. [Quaere]
        abstention: Whether the solver may say that the documents do not answer.
    """

    steps: NonNegativeInt = 50
    batch: PositiveInt = 256
    attempts: GroupSize = 5
    max_draws: NonNegativeInt = 2
    several_share: Fraction = 1 / 3
    unbiased_std: bool = True
    delta: NonNegativeFloat = DELTA
    min_std: NonNegativeFloat = 0.0
    information_gain: NonNegativeFloat = 0.0
    min_gain_std: NonNegativeFloat = 0.1
    shuffle_advantages: bool = False
    dialect: SolverDialectName = "tool-call"
    answer_score: AnswerScore = "own"
    abstention: AbstentionSettings = AbstentionSettings()
    evaluation: DialectSettings = DialectSettings()  # of the type that the dialect has
    limits: Limits = Limits(sequence_tokens=3072)
    learner: LearnerSettings = LearnerSettings()

    def __post_init__(self) -> None:
        kind = find_dialect(self.dialect, "solver").settings
        if type(self.evaluation) is not kind:  # of another dialect: this one's defaults
            structs.force_setattr(self, "evaluation", kind())

    @property
    def num_samples(self) -> int:
        """Maximum number of episodes per update."""
        return self.batch * self.attempts


def check_solver(solver: SolverConfig) -> None:
    """Raise BadInput for invalid settings of the solver's phase, and for limits with too few turns for its dialect."""
    check_limits("solver.limits", solver.limits)
    if solver.abstention.allowed and solver.dialect in FROM_MEMORY:
        raise BadInput(
            f"{solver.dialect} answers from memory, so it cannot say that the documents do not answer",
            hint="--set solver.abstention.allowed=false",
        )
    if solver.information_gain and solver.dialect in FROM_MEMORY:
        raise BadInput(
            f"{solver.dialect} answers from memory, so no search of it has an information gain",
            hint="--set solver.information_gain=0",
        )
    solver.evaluation.check("solver.evaluation")
    check_turns(solver.dialect, solver.limits)


def solver_of(config: SolverConfig, style: PromptStyle, *, evidence: bool = False) -> Solver:
    """The solver that a run's config describes.

    solver_of(SolverConfig(dialect="evalrar"), "brief").protocol.name == "evalrar-solver"
    """
    return open_solver(
        config.dialect,
        style=style,
        evidence=evidence,
        settings=config.evaluation,
        answer_score=config.answer_score,
        abstention=config.abstention.rewards if config.abstention.allowed else None,
    )


async def learn_by_comparing(
    training: TrainingRun, stage: Stage, step: Step, asked: Sequence[Question], config: SolverConfig, solver: Solver
) -> None:
    """Learn from a step's questions with GRPO: attempts at each, compared with one another, and one update."""
    jobs = attempt_jobs(solver.protocol, asked, config.attempts, step.name)
    played = await stage.play(step, "solver", jobs, config.limits)
    episodes = [episode for episode in played.episodes if not episode.search_failed]
    paid = [solver.pay(episode) for episode in episodes]
    rewards = [parts["reward/total"] for parts in paid]
    check_finite(rewards)
    advantages = compare(episodes, rewards, config)
    credits = give_credit(step, stage, episodes, solver, config)
    if config.shuffle_advantages:
        advantages, credits = shuffled(advantages, step.seed), shuffled_credits(credits, step.seed)
    learn(step, episodes, advantages, solver.weigh, credits)
    for episode, parts, advantage in zip(episodes, paid, advantages.values.tolist(), strict=True):
        step.keep(episode, {**parts, "advantage": advantage})
    step.metrics |= {
        **measure_solver(episodes, paid, advantages, config.attempts),
        **measure_asked(asked),
        **measure_attempts(episodes, paid),
    }
    levels = (training.phase_values(step, name) for name in ("solver/searches", "questions/searches_needed"))
    own = solver.measure(episodes) if solver.measure else {}
    step.metrics |= {**measure_searches_kept(*levels), **own}


async def practise(
    training: TrainingRun,
    stage: Stage,
    iteration: int,
    config: SolverConfig,
    *,
    solver: Solver,
    questions: Sequence[Question],
    validation: ValidationSettings,
    also: Mapping[str, float] | None = None,
    learn_from: Callable[..., Awaitable[None]] = learn_by_comparing,
) -> None:
    """Train the solver on these questions, except those held back, by `learn_from`; it ends with its best weights.

    The phase is shorter than `config.steps` if the questions do not last. `also` are metrics added to every step.
    """
    seed = training.config.seed
    questions, held_back = hold_back(questions, validation, seed)
    num_steps = count_steps_with_questions(config.steps, len(questions), config.batch, config.max_draws)
    drawing, abstention = Drawing(config.batch, num_steps, config.max_draws, config.several_share), config.abstention
    if abstention.allowed:
        held_back = hide_some(held_back, abstention.hidden_share, derive_seed(seed, "hidden"))
    validator = Validator(stage, solver, held_back, config.limits, validation.every, num_steps, abstention.allowed)
    for step in training.steps(iteration, "solver", num_steps, role="solver", settings=config.learner):
        if step.number == 0:
            for said in _describe_shortage(config, validation, num_steps, len(questions), len(held_back)):
                training.reporter.note(f"iteration {iteration + 1}: {said}")
        await validator.before(step)
        asked = draw_by_need(questions, step.number, drawing, derive_seed(seed, "questions", iteration))
        if abstention.allowed:
            asked = hide_some(asked, abstention.hidden_share, derive_seed(step.seed, "hidden"))
        await learn_from(training, stage, step, asked, config, solver)
        num_done, num = step.number + 1, len(questions)
        step.metrics |= measure_draws(num_done, config.batch, num, count_distinct(questions, num_done, drawing))
        step.metrics |= also or {}
        await validator.after(step)
    training.take_best("solver")
    training.skip(config.steps - num_steps)


def _describe_shortage(
    config: SolverConfig, validation: ValidationSettings, num_steps: int, num_questions: int, num_held_back: int
) -> Iterator[str]:
    """What is said of a phase whose questions are too few to last, or to hold back as many as were wanted."""
    if num_steps < config.steps:
        yield (
            f"the questions ({num_questions}) last for {num_steps} of {config.steps} steps with "
            f"solver.max_draws={config.max_draws}; the other steps are skipped"
        )
    wanted = count_held_back(num_questions + num_held_back, validation)
    if validation.questions and not wanted:
        yield f"no question is held back to validate: {_too_few(num_questions, validation)}"
    if num_held_back < wanted:
        said = "those about one sentence stay together"
        yield f"{num_held_back} questions are held back to validate, not {wanted}: {said}"


def compare(episodes: Sequence[Episode], values: Sequence[float], config: SolverConfig) -> Advantages:
    """The values, one per episode, relative to those of the other attempts at the same question (GRPO)."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(episode.task.id for episode in episodes))}
    groups = [numbers[episode.task.id] for episode in episodes]
    return grpo(values, groups, delta=config.delta, unbiased=config.unbiased_std, min_std=config.min_std)


def give_credit(
    step: Step, stage: Stage, episodes: Sequence[Episode], solver: Solver, config: SolverConfig
) -> list[list[Credit]]:
    """What tokens of each episode get besides its advantage: from the dialect, and for the information gain."""
    credits: list[list[Credit]] = solver.credit(episodes) if solver.credit else [[] for _ in episodes]
    if not config.information_gain:
        return credits
    gains = measure_gains(step.learner, stage.actors.policy.renderer, solver.protocol, episodes)
    step.metrics |= describe_gains(gains)
    turns = [(number, place) for number, found in enumerate(gains) for place in found]
    values = [gains[number][place] for number, place in turns]
    check_finite(values)
    searched, scale = [episodes[number] for number, _ in turns], structs.replace(config, min_std=config.min_gain_std)
    advantages = compare(searched, values, scale).values.tolist() if turns else []
    for (number, place), value in zip(turns, advantages, strict=True):
        turn = episodes[number].turns[place]
        credits[number].append(Credit(turn.start, turn.start + turn.num_tokens, config.information_gain * value))
    return credits


def measure_solver(
    episodes: Sequence[Episode], paid: Sequence[Mapping[str, float]], advantages: Advantages, num_attempts: int
) -> dict[str, float]:
    """Metrics of rewards, advantages and groups, and the histogram of right attempts per question."""
    pairs = zip(episodes, paid, strict=True)
    rights = grouped((one.task.id, parts["answer/exact_match"] or refuses_rightly(one)) for one, parts in pairs)
    whole = [int(sum(several)) for several in rights.values() if len(several) == num_attempts]
    measured = {"reward/mean": 0.0} | mean_parts(paid) | measure_advantages(advantages)
    return measured | measure_groups(advantages) | pass_histogram(whole, num_attempts)


# ---------------------------------------------------------------------------------------------------------- validation


def _too_few(num_questions: int, settings: ValidationSettings) -> str:
    return f"validation.share={settings.share:g} of {num_questions} questions is fewer than {MIN_VALIDATION}"


def count_held_back(num_questions: int, settings: ValidationSettings) -> int:
    """Number of questions to hold back for validation; 0 if the settings allow fewer than 8.

    count_held_back(400, ValidationSettings(questions=64, share=0.1)) == 40
    """
    count = min(settings.questions, int(settings.share * num_questions))
    return count if count >= MIN_VALIDATION else 0


def hold_back(
    questions: Sequence[Question], settings: ValidationSettings, seed: int
) -> tuple[list[Question], list[Question]]:
    """The questions to train on and those to validate on, with the same distribution of hops.

    Questions with the same last sentence of evidence, such as a fact and its rewording, are on one side, as are those
    without evidence that have the same words: there may be fewer to validate on for it. The selection derives from
    sentences, words, ids and the seed alone: a resumed run holds back the same questions, and if one is added or
    rejected, hardly any other changes sides.
    """
    size, total = count_held_back(len(questions), settings), len(questions)
    # Largest remainder method: each number's share rounded down, plus one for those with the largest remainders.
    counts = Counter(question.hops for question in questions)
    left = Counter({hops: count * size // total for hops, count in counts.items()})
    by_remainder = sorted(counts, key=lambda hops: (-(counts[hops] * size % total), hops))
    left.update(by_remainder[: size - left.total()])
    names = ((name_sentences(one.evidence[-1:]) or normalise_answer(one.text) or one.id, one) for one in questions)
    together = grouped(names)
    held: set[str] = set()
    firsts = {name: min(one.id for one in several) for name, several in together.items()}
    # Sorted by a hash, not shuffled: a shuffle would change completely with one added question.
    for name in sorted(together, key=lambda name: derive_seed(seed, "validation", firsts[name])):
        needed = Counter(question.hops for question in together[name])
        if needed <= left:
            left -= needed
            held |= {question.id for question in together[name]}
    train = [question for question in questions if question.id not in held]
    return train, [question for question in questions if question.id in held]


@dataclass(frozen=True)
class Validator:
    """Evaluates the solver greedily on the held-back questions at certain steps of its phase.

    A checkpoint is rated by exact match, in which an episode that abstained counts as its reward if it may abstain.

    Validator(stage, Solver(ToolCallSolver()), held_back, Limits(), every=10, num_steps=50, may_abstain=True)
    """

    stage: Stage
    solver: Solver
    questions: Sequence[Question]
    limits: Limits
    every: int
    num_steps: int
    may_abstain: bool = False

    async def before(self, step: Step) -> None:
        """Evaluate the weights at the start of the phase, in its first step."""
        if self.questions and step.number == 0:
            step.validated_before = await self._score(step, "validation_start")

    async def after(self, step: Step) -> None:
        """Evaluate the weights after the step, if validation is due."""
        num_done = step.number + 1
        if self.questions and (num_done % self.every == 0 or num_done == self.num_steps):
            self.stage.actors.weights_changed("solver")  # otherwise the sampler would still have the old weights
            step.validated_after = await self._score(step, "validation")

    async def _score(self, step: Step, name: str) -> Validated | None:
        """Exact match over the episodes without a failed search; None if there are none."""
        started = time.perf_counter()
        jobs = attempt_jobs(self.solver.protocol, self.questions, 1, f"{step.name}-{name}")
        played = await self.stage.play(
            step, "solver", jobs, self.limits, name=name, params=SamplingParams(temperature=0.0)
        )
        scored = [(episode, score_answer(episode)) for episode in played.episodes if not episode.search_failed]
        step.metrics[f"{name}/seconds"] = time.perf_counter() - started
        if not scored:
            return None
        step.validation += scored
        for part in ("exact_match", "f1"):
            step.metrics[f"{name}/{part}"] = sum(scores[f"answer/{part}"] for _, scores in scored) / len(scored)
        answered = sum(isinstance(episode.outcome, Answer) for episode, _ in scored)
        step.metrics[f"{name}/unanswered"] = 1 - answered / len(scored)
        ratings = [self._rate(episode, scores["answer/exact_match"]) for episode, scores in scored]
        if self.may_abstain:
            step.metrics[f"{name}/abstained"] = sum(episode.abstained for episode, _ in scored) / len(scored)
            step.metrics[f"{name}/rating"] = fmean(ratings)
        return Validated(fmean(ratings), len(scored), pvariance(ratings))

    def _rate(self, episode: Episode, exact_match: float) -> float:
        abstained = self.may_abstain and episode.abstained
        return self.solver.pay(episode)["reward/total"] if abstained else exact_match


def score_answer(episode: Episode) -> dict[str, float]:
    """Exact match and F1 of the answer, both 0 without an answer, and whether the question has no accepted one."""
    text, accepted = read_outcome(episode)
    scores = {"answer/exact_match": exact_match_score(text, accepted), "answer/f1": f1_score(text, accepted)}
    return scores if accepted else {**scores, UNANSWERABLE: 1.0}


def plan_validation(num_questions: int, settings: ValidationSettings) -> tuple[str, str]:
    """The line of a dry run about validation, for at most this many questions.

    plan_validation(32, ValidationSettings())
    -> ("validation", "none, as validation.share=0.1 of 32 questions is fewer than 8; the last checkpoint counts")
    """
    held = count_held_back(num_questions, settings)
    if not held:
        why = f", as {_too_few(num_questions, settings)}" if settings.questions else ""
        return "validation", f"none{why}; the last checkpoint counts"
    return (
        "validation",
        f"at most {held} questions held back, {settings.share:.0%} of all or fewer, answered greedily every "
        f"{settings.every} steps; the best checkpoint counts",
    )
