"""Self-play of a proposer and a solver: steps and their maximum cost, generation of questions, rewards of proposals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from quaere.chat.protocol import Protocol
from quaere.objectives.policy_gradient import Advantages, grpo, hrpo, reinforce_global
from quaere.rollout.policy import derive_seed
from quaere.training.given import count_given_steps, plan_given, take_given
from quaere.training.health import check_curriculum
from quaere.training.measures import mean_parts, measure_advantages, measure_proposals, pass_histogram
from quaere.training.proposals import Proposed, measure_overlap
from quaere.training.rollouts import Stage, check_finite, shuffled
from quaere.training.run_setup import plan_memory
from quaere.training.self_play_config import GenerationConfig, ProposerConfig, SelfPlayConfig
from quaere.training.solver_phase import plan_validation
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun

ROLES = ("proposer", "solver")


# Episodes per document of GRPO, for comparison: 4 questions about each document, each attempted 4 times.
GRPO_ROLLOUTS = 4 * (4 + 1)


def count_steps(config: SelfPlayConfig) -> int:
    """Number of steps of a run over all phases."""
    num_batches = count_batches(config.generation, config.proposer)
    given, again = config.generation.given, config.generation.given_again
    num_given = sum(count_given_steps(given, iteration, again=again) for iteration in range(config.iterations))
    return num_given + config.iterations * (config.proposer.steps + num_batches + config.solver.steps)


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
    config: SelfPlayConfig, training: TrainingRun, stage: Stage, solver: Protocol, iteration: int, seen: set[str]
) -> AsyncIterator[tuple[Step, range]]:
    """The steps in which the proposer writes the solver's questions, each with the numbers of its documents.

    Given questions come first, in a step of their own that is not yielded. `seen` (normalised questions so far) is
    extended. Metrics of a step are added after the caller is done with it.
    """
    generation, proposer = config.generation, config.proposer
    total, size = count_documents(generation, proposer), documents_a_batch(generation)
    num_given = count_given_steps(generation.given, iteration, again=generation.given_again)
    num_steps = num_given + count_batches(generation, proposer)
    for step in training.steps(iteration, "generation", num_steps):
        if step.number < num_given:
            tries = {"attempts": generation.attempts, "max_words": generation.max_words}
            await take_given(step, training, stage, solver, config.solver.limits, seen, **tries)
        else:
            first = (step.number - num_given) * size
            yield step, range(first, min(total, first + size))
        measure_generation(step)
        if step.number + 1 == num_steps:
            _check_curriculum(config, training, step)


def _check_curriculum(config: SelfPlayConfig, training: TrainingRun, step: Step) -> None:
    """In the last generation step, add metrics of how many questions are new, and an alarm if too few are."""
    stored = training.store.candidates(kept=True)
    kept = [candidate for candidate in stored if candidate.iteration == step.iteration]
    kept += [candidate for candidate in step.candidates if candidate.kept]  # not stored yet
    measured = measure_overlap(kept, [candidate for candidate in stored if candidate.iteration < step.iteration])
    if step.iteration == 0:
        measured.pop("curriculum/overlap", None)  # there is nothing to overlap with
    step.metrics |= measured
    step.alarms += check_curriculum(int(measured["curriculum/new"]), step.iteration, config.health)


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
        *plan_given(generation.given, again=generation.given_again),
        (
            "solver phase",
            f"{solver.steps} steps of {solver.batch} questions; a step plays {solver.batch * solver.attempts} "
            f"episodes, {solver_tokens:,} tokens at most",
        ),
        plan_validation(config.validation),
        *plan_memory(config, (config.proposer, config.solver)),
    ]


# ---------------------------------------------------------------------------------- rewards and metrics of the proposer


def measure_proposer(
    step: Step, judged: Sequence[Proposed], advantages: Advantages, num_documents: int, num_attempts: int
) -> None:
    """Add metrics of rewards, question format, the solver's attempts and cost to the step, and keep its episodes."""
    measured = [item.measured() for item in judged]
    for item, values, advantage in zip(judged, measured, advantages.values.tolist(), strict=True):
        step.keep(item.episode, {**values, "advantage": advantage})
    step.metrics |= mean_parts(measured)
    step.metrics |= measure_advantages(advantages)
    step.metrics |= measure_proposals(
        [item.episode for item in judged],
        [item.task.hops for item in judged],
        [item.score.valid for item in judged],
        [item.written.question for item in judged],
    )
    tried = [item for item in judged if item.num_attempts]
    step.metrics |= pass_histogram(
        [item.num_right for item in tried if item.num_attempts == num_attempts], num_attempts
    )
    step.metrics |= {
        "cost/documents": float(num_documents),
        "cost/proposer_episodes": step.metrics["proposer/episodes"],
        "cost/solver_episodes": step.metrics.get("solver/episodes", 0.0),
        "cost/valid_questions": float(len(tried)),
        "cost/grpo_episodes": float(GRPO_ROLLOUTS * num_documents),
    }


def measure_generation(step: Step) -> None:
    """Add to the step's metrics: candidates, kept ones, the searches those need, and the count of each drop reason."""
    step.metrics["curriculum/candidates"] = float(len(step.candidates))
    step.metrics["curriculum/kept"] = float(sum(candidate.kept for candidate in step.candidates))
    if needs := [candidate.num_searches for candidate in step.candidates if candidate.kept]:
        step.metrics["curriculum/searches_needed"] = sum(needs) / len(needs)
    for reason in {candidate.reason for candidate in step.candidates if candidate.reason}:
        dropped = sum(candidate.reason == reason for candidate in step.candidates)
        step.metrics[f"curriculum/{reason.replace(' ', '_')}"] = float(dropped)


def proposer_advantages(
    rewards: Sequence[float], proposals: Sequence[Proposed], config: ProposerConfig, seed: int
) -> Advantages:
    """Rewards standardised by requested hops (HRPO), by document (GRPO) or over the batch (REINFORCE++)."""
    check_finite(rewards)
    options: dict[str, Any] = {"delta": config.delta, "unbiased": config.unbiased_std}
    if config.advantage == "hrpo":
        found = hrpo(rewards, [item.task.hops for item in proposals], lone_group=config.lone_group, **options)
    elif config.advantage == "grpo":
        documents = {item.task.id: number for number, item in enumerate(proposals)}
        found = grpo(rewards, [documents[item.task.id] for item in proposals], lone_group=config.lone_group, **options)
    else:
        found = reinforce_global(rewards, **options)
    return shuffled(found, seed) if config.shuffle_advantages else found
