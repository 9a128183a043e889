"""Self-play of a proposer and a solver: settings, steps and their maximum cost, generation of the curriculum."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct, field

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import taught_name
from quaere.errors import BadInput
from quaere.records import Candidate, Question
from quaere.rewards.answers import normalise_answer
from quaere.rewards.proposer import FORMAT_WEIGHT
from quaere.rollout.policy import derive_seed
from quaere.setting_types import NonNegativeInt, PositiveInt
from quaere.training.given import LARGE_GPU, read_given, read_source, take_given
from quaere.training.health import check_curriculum, check_repeats
from quaere.training.proposals import GRPO_ROLLOUTS, ProposerConfig
from quaere.training.rollouts import Stage
from quaere.training.run_setup import plan_memory
from quaere.training.settings import HardeningConfig, RunConfig, ValidationSettings, check_hops, check_limits, check_run
from quaere.training.solver_phase import SolverConfig, check_solver, count_held_back, plan_validation
from quaere.training.step import Step, mean_of
from quaere.training.training_run import TrainingRun


class GenerationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Writing the questions that the solver learns from.

        GenerationConfig(candidates=512, batch=256, attempts=5, given="checked.jsonl")

    Attributes:
        candidates: Questions to write; 0: as many as the proposer's phase did. With `proposer.steps=0` they are
            those of an untrained proposer, the baseline for a trained one. [Dr. Zero]
        batch: Documents at a time. [Quaere]
        questions: Questions about each document. [EVE-Agent]
        samples: Samples of each question, of which the best by its format is taken. [Dr. Zero]
        max_words: A question of more words is dropped; 0: none is. [Dr. Zero]
        attempts: Attempts of the solver at each candidate: those it never or always solves are dropped. 0: no
            attempts, nothing is dropped. [Quaere]
        given: A file, run or data set (hub:OWNER/NAME) whose questions the first iteration's curriculum begins with.
            Those that repeat one of `proposer.held_back` are dropped. [Quaere]
        given_again: Begin every iteration with them: with `attempts`, each keeps those that its solver solves
            sometimes. [Quaere]
    """

    candidates: NonNegativeInt = 0
    batch: PositiveInt = 256
    questions: PositiveInt = 1
    samples: PositiveInt = 1
    max_words: NonNegativeInt = 50
    attempts: NonNegativeInt = 0
    given: str = ""
    given_again: bool = False


class SelfPlayConfig(RunConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run in which a proposer and a solver teach each other.

        SelfPlayConfig(model="smollm2-135m", index="demo/index", iterations=3)

    Attributes:
        iterations: Rounds of proposer's phase, generation and solver's phase. [Dr. Zero]
        stop_after: Stop after this many iterations in a row in which validation did not rise by more than its
            standard error, or nothing was learned; 0: never. [Quaere]
    """

    iterations: PositiveInt = 3
    stop_after: NonNegativeInt = 0
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    validation: ValidationSettings = ValidationSettings()


# One iteration takes about 25 minutes. Questions of 3 and 4 hops need two and three searches. Those of 2 hops need one
# search, as those of 1 hop do, so they are left out.
LARGE_LOOP: dict[str, object] = {
    **LARGE_GPU,
    "proposer.steps": 10,
    "proposer.batch": 64,
    "proposer.hop_ratio": (1, 0, 2, 2),
    "proposer.limits.turn_tokens": 192,
    "proposer.limits.sequence_tokens": 4864,
    "proposer.limits.tool_response_tokens": 560,
    "proposer.learner.learning_rate": 5e-5,
    "proposer.learner.warmup_ratio": 0.1,
    "proposer.learner.min_warmup_steps": 5,
    "proposer.learner.micro_tokens": 32768,
    "generation.candidates": 1500,
    "generation.attempts": 4,
}


def needed_dialects(config: SelfPlayConfig, own: str) -> list[str]:
    """Names of the warm-ups that a warmed-up model needs in order to play all roles of this config.

    `own` is the name of the recipe's own warm-up, which teaches its proposer and the tool-call solver. It is left out
    if all questions are given, so that no proposer plays, and the solver has another dialect.
    """
    solver = own if config.solver.dialect == "tool-call" else taught_name(config.solver.dialect)
    proposes = config.proposer.steps > 0 or config.generation.candidates > 0
    return list(dict.fromkeys([own, solver] if proposes else [solver]))


def check_self_play(config: SelfPlayConfig) -> None:
    """Raise BadInput for invalid or contradictory values."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    check_run(config)
    check_limits("proposer.limits", proposer.limits)
    check_solver(solver)
    config.validation.check()
    if generation.attempts == 1:
        raise BadInput("generation.attempts=1 would drop every question, as one is all or none: set 0, or 2 or more")
    if generation.given_again and not generation.given:
        raise BadInput("generation.given_again=true repeats given questions: set generation.given=FILE as well")
    if config.stop_after and not (config.validation.questions and solver.steps):
        raise BadInput("stop_after compares validations: set validation.questions=64 and solver.steps=50 or so as well")
    if proposer.is_hardening:
        _check_hardening(proposer, generation)
    elif proposer.hardening != HardeningConfig():
        raise BadInput(
            "proposer.hardening has no effect with proposer.task=propose: set proposer.task=harden or reword"
        )
    if not any(proposer.hop_ratio):
        raise BadInput(f"proposer.hop_ratio gives a weight for 1, 2, ... hops, not {list(proposer.hop_ratio)}")
    if not proposer.is_hardening:  # rewordings have no hops
        check_hops(proposer.hop_ratio, proposer.limits, document=proposer.document)
    if proposer.advantage == "grpo" and proposer.questions < 2:
        raise BadInput(
            "proposer.advantage=grpo compares questions about one document: set proposer.questions=2 or more"
        )
    if solver.steps and not proposer.steps and not generation.candidates:
        if not generation.given:
            raise BadInput("proposer.steps=0 leaves the solver no questions: set generation.candidates=256 or so")
        if config.iterations > 1 and not generation.given_again:
            raise BadInput(
                "generation.given is for the first iteration, and proposer.steps=0 leaves the others no questions: "
                "set iterations=1, generation.given_again=true, or generation.candidates=256 or so"
            )


def _check_hardening(proposer: ProposerConfig, generation: GenerationConfig) -> None:
    """Raise BadInput for settings that the task of rewording questions would ignore or cannot work with."""
    task = f"proposer.task={proposer.task}"
    proposer.hardening.check(task, generation.given, again=generation.given_again)
    if not proposer.document:
        raise BadInput(f"{task} shows the page of each question: leave out proposer.document=false")
    if proposer.task == "harden" and min(proposer.limits.max_turns - 1, proposer.limits.max_searches) < 1:
        said = f"{task} takes a search and a turn more for the question, and proposer.limits have no room for both"
        raise BadInput(said, hint="--set proposer.limits.max_turns=2 --set proposer.limits.max_searches=1, or more")
    if proposer.reward.format_weight not in (0, FORMAT_WEIGHT):
        raise BadInput(f"{task} has no format reward: leave out proposer.reward.format_weight")
    if not count_candidates(generation, proposer):
        raise BadInput("proposer.steps=0 leaves nothing to reword: set generation.candidates=256 or so")


def refuse_hardening(config: SelfPlayConfig, recipe: str) -> None:
    """Raise BadInput if the proposer should reword questions in a recipe with a loop of its own."""
    if config.proposer.is_hardening:
        said = f"proposer.task={config.proposer.task} is a task of drzero, not of {recipe}"
        raise BadInput(said, hint="quaere evolve drzero ...")


ROLES = ("proposer", "solver")


def count_steps(config: SelfPlayConfig) -> int:
    """Number of steps of a run over all phases."""
    num_batches = count_batches(config.generation, config.proposer)
    num_given = sum(count_given_steps(config.generation, iteration) for iteration in range(config.iterations))
    if config.proposer.is_hardening:
        num_given = config.iterations if config.proposer.hardening.attempts else 0
    return num_given + config.iterations * (config.proposer.steps + num_batches + config.solver.steps)


def count_given_steps(generation: GenerationConfig, iteration: int) -> int:
    """Number of generation steps in which an iteration attempts given questions: 1 where they are taken, else 0."""
    return int(bool(generation.given) and (generation.given_again or iteration == 0))


def count_batches(generation: GenerationConfig, proposer: ProposerConfig) -> int:
    """Number of an iteration's generation steps in which the proposer writes."""
    return -(-count_documents(generation, proposer) // documents_a_batch(generation))


def count_documents(generation: GenerationConfig, proposer: ProposerConfig) -> int:
    """Number of documents for which an iteration generates questions."""
    return -(-count_candidates(generation, proposer) // generation.questions)


def count_candidates(generation: GenerationConfig, proposer: ProposerConfig) -> int:
    """Number of questions an iteration generates: by default one per prompt of the proposer's phase."""
    return generation.candidates or proposer.steps * proposer.batch


def documents_a_batch(generation: GenerationConfig) -> int:
    """Number of documents per generation step."""
    return max(1, generation.batch // generation.questions)


def place_tasks(config: SelfPlayConfig, iteration: int, numbers: Sequence[int]) -> tuple[int, list[int]]:
    """Seed and numbers of an iteration's tasks, for `draw_tasks`.

    Every iteration has its own seed. With `proposer.carry_on`, all iterations have the seed of the first, and their
    numbers follow those of the iteration before, so that no document is drawn again before every document was drawn.
    """
    if not config.proposer.carry_on:
        return derive_seed(config.seed, "tasks", iteration), list(numbers)
    # The same shift for both uses of the tasks: the questions are written about the documents the proposer learned on.
    proposer = config.proposer
    size = max(proposer.steps * proposer.batch, count_documents(config.generation, proposer))
    return derive_seed(config.seed, "tasks", 0), [iteration * size + number for number in numbers]


async def generation_steps(
    config: SelfPlayConfig,
    training: TrainingRun,
    stage: Stage,
    solver: Protocol,
    iteration: int,
    seen: set[str],
    *,
    is_held: Callable[[Question], bool] = lambda question: False,
) -> AsyncIterator[tuple[Step, range]]:
    """The steps in which the proposer writes the solver's questions, each with the numbers of its documents.

    Given questions come first, in a step of their own that is not yielded; those that repeat a question on which the
    solver is measured (`is_held`) are dropped. `seen` (normalised questions so far) is extended. Metrics of a step are
    added after the caller is done with it.
    """
    generation, proposer = config.generation, config.proposer
    total, size = count_documents(generation, proposer), documents_a_batch(generation)
    num_given = count_given_steps(generation, iteration)
    num_steps = num_given + count_batches(generation, proposer)
    for step in training.steps(iteration, "generation", num_steps):
        if step.number < num_given:
            given, limits = read_given(training.store), config.solver.limits
            how = {"attempts": generation.attempts, "max_words": generation.max_words}
            await take_given(step, training, stage, solver, limits, given, seen, is_held=is_held, **how)
        else:
            first = (step.number - num_given) * size
            yield step, range(first, min(total, first + size))
        _measure_generation(step, is_attempted=generation.attempts > 0)
        if step.number + 1 == num_steps:
            _check_curriculum(config, training, step)


def _check_curriculum(config: SelfPlayConfig, training: TrainingRun, step: Step) -> None:
    """In the last generation step, add metrics of how many questions are new, and an alarm if too few are."""
    stored = training.store.candidates(kept=True)
    kept = [candidate for candidate in stored if candidate.iteration == step.iteration]
    kept += [candidate for candidate in step.candidates if candidate.kept]  # not stored yet
    earlier = [candidate for candidate in stored if candidate.iteration < step.iteration]
    measured = measure_overlap(kept, earlier, is_written=count_batches(config.generation, config.proposer) > 0)
    if step.iteration == 0:
        measured.pop("curriculum/overlap", None)  # there is nothing to overlap with
    repeats = measure_repeats(kept, earlier)
    step.metrics |= measured | repeats
    if "curriculum/new" in measured:
        step.alarms += check_curriculum(int(measured["curriculum/new"]), step.iteration, config.health)
    step.alarms += check_repeats(repeats.get("curriculum/repeats", 0.0), step.iteration, config.health)


def plan_self_play(config: SelfPlayConfig) -> list[tuple[str, str]]:
    """Lines of a dry run: the phases, and the maximum cost of a step."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    num_proposals = proposer.batch * proposer.questions
    num_attempts = num_proposals * proposer.attempts
    num_tokens = num_proposals * proposer.limits.sequence_tokens + num_attempts * solver.limits.sequence_tokens
    candidates = count_candidates(generation, proposer)
    samples = f", each the best of {generation.samples} samples" if generation.samples > 1 else ""
    tries = f"{samples}, {generation.attempts} attempts at each" if generation.attempts else samples
    solver_tokens = solver.batch * solver.attempts * solver.limits.sequence_tokens
    num_given = len(read_source(generation.given)) if generation.given else 0
    joined = f"{num_given} join {'every' if generation.given_again else 'the first'} iteration's curriculum"
    given = [("given questions", joined)] if generation.given else []
    if proposer.is_hardening:
        given = proposer.hardening.plan(generation.given)
    most = candidates + num_given  # of an iteration's curriculum
    is_endless = bool(config.stop_after) and not count_held_back(most, config.validation)
    return [
        ("iterations", f"{config.iterations}, {count_steps(config)} steps in all"),
        (
            "proposer phase",
            f"{proposer.steps} steps of {proposer.batch} documents; a step plays {num_proposals} + "
            f"{num_attempts} episodes, {num_tokens:,} tokens at most",
        ),
        (
            "episodes a document",
            f"{(num_proposals + num_attempts) // proposer.batch}, where GRPO with 4 x 4 takes {GRPO_ROLLOUTS}",
        ),
        ("generation", f"{candidates} candidates in {count_batches(generation, proposer)} steps{tries}"),
        *given,
        (
            "solver phase",
            f"{solver.steps} steps of {solver.batch} questions; a step plays {solver.batch * solver.attempts} "
            f"episodes, {solver_tokens:,} tokens at most",
        ),
        plan_validation(most, config.validation),
        *([("stop_after", "never: no iteration has enough questions to validate")] if is_endless else []),
        *plan_memory(config, (config.proposer, config.solver)),
    ]


# -------------------------------------------------------------------------------------------- measures of a curriculum


def measure_verdicts(kept: Sequence[Candidate], curriculum: Sequence[Candidate]) -> dict[str, float]:
    """Metrics of how people's verdicts and added questions changed the curriculum that the run kept.

    measure_verdicts([a, b], [b, c, added])
    -> {"curriculum/questions": 3.0, "curriculum/rejected": 1.0, "curriculum/accepted": 1.0, "curriculum/added": 1.0}
    """
    num_added = sum(candidate.added for candidate in curriculum)
    num_accepted = sum(not candidate.kept for candidate in curriculum)
    return {
        "curriculum/questions": float(len(curriculum)),
        "curriculum/rejected": float(len(kept) - (len(curriculum) - num_accepted - num_added)),
        "curriculum/accepted": float(num_accepted),
        "curriculum/added": float(num_added),
    }


def measure_overlap(
    kept: Sequence[Candidate], earlier: Sequence[Candidate], *, is_written: bool = True
) -> dict[str, float]:
    """The number of kept questions that are new, and the share of kept questions that repeat an earlier one.

    The share is left out if no question was kept. A question repeats another if its words are the same, or if it rests
    on the same sentences; where these are unknown, if it asks for the same answer about the same document. Questions
    that were given before and are given again are left out; {} if there are no others because none were to be written.

        measure_overlap([same, other], [same]) -> {"curriculum/new": 1.0, "curriculum/overlap": 0.5}
    """
    given = {normalise_answer(candidate.question) for candidate in earlier if candidate.given}
    new = [one for one in kept if not (one.given and normalise_answer(one.question) in given)]
    if kept and not new and not is_written:
        return {}
    kept, known = new, {key for candidate in earlier for key in _keys(candidate)}
    num_new = sum(known.isdisjoint(_keys(candidate)) for candidate in kept)
    overlap = {"curriculum/overlap": 1 - num_new / len(kept)} if kept else {}
    return {"curriculum/new": float(num_new), **overlap}


_SAME_WORDS = 0.7  # share of the words of two questions that both have, from which on one nearly repeats the other


def measure_repeats(kept: Sequence[Candidate], earlier: Sequence[Candidate]) -> dict[str, float]:
    """The share of kept questions that nearly repeat an earlier one, or one before them in the list.

    Questions about one page, or with one answer, are compared by their words. Given ones are left out, since an
    iteration may be given the same again. {} if no other was kept.

        measure_repeats([a, nearly_a, b], []) -> {"curriculum/repeats": 0.333}
    """
    before, written = ([one for one in some if not one.given] for some in (earlier, kept))
    by_key: dict[tuple[str, str], list[set[str]]] = {}
    num_repeats = 0
    for number, candidate in enumerate([*before, *written]):
        words = set(normalise_answer(candidate.question).split())
        keys = (("page", candidate.document_id), ("answer", normalise_answer(candidate.answer)))
        groups = [by_key.setdefault(key, []) for key in keys if key[1]]
        is_near = any(len(words & other) >= _SAME_WORDS * len(words | other) for group in groups for other in group)
        num_repeats += is_near and number >= len(before)
        for group in groups:
            group.append(words)
    return {"curriculum/repeats": num_repeats / len(written)} if written else {}


def _keys(candidate: Candidate) -> set[tuple[str, ...]]:
    """Keys that a repeated question shares: its words, and its sentences or, without them, document and answer."""
    words = ("words", normalise_answer(candidate.question))
    if candidate.sentences:
        return {words, ("sentences", candidate.sentences)}
    fact = ("fact", candidate.document_id, normalise_answer(candidate.answer))
    return {words, fact} if candidate.document_id else {words}


def _measure_generation(step: Step, *, is_attempted: bool) -> None:
    """Add to the step's metrics: candidates, kept ones, the searches those need, and the count of each drop reason.

    If the solver attempts them, also the share of the proposer's questions that are kept, without those of which a
    failed search leaves nothing to say.
    """
    written = [item for item in step.candidates if not item.given and item.reason not in ("unfinished", "spoiled")]
    kept = [candidate for candidate in step.candidates if candidate.kept]
    reasons = Counter(candidate.reason for candidate in step.candidates if candidate.reason)
    step.metrics |= {
        "curriculum/candidates": float(len(step.candidates)),
        "curriculum/kept": float(len(kept)),
        **mean_of("gate/yield", [item.kept for item in written if is_attempted]),
        **mean_of("curriculum/searches_needed", [candidate.num_searches for candidate in kept]),
        **{f"curriculum/{reason.replace(' ', '_')}": float(count) for reason, count in reasons.items()},
    }
