"""Dr. Zero as the command line knows it."""

from __future__ import annotations

from quaere.dialects.registry import solver_dialect
from quaere.recipes.drzero.config import PRESETS, DrZeroConfig, check_config
from quaere.recipes.drzero.measures import GRPO_ROLLOUTS
from quaere.recipes.drzero.prompts import solver_protocol
from quaere.recipes.drzero.train import ROLES, count_batches, count_candidates, count_steps, evolve
from quaere.recipes.registry import Recipe
from quaere.runs import Run
from quaere.training.estimate import estimate_rollouts
from quaere.training.given import plan_given
from quaere.training.phases.validation import plan_validation
from quaere.training.progress import Reporter
from quaere.training.run_setup import check_openable, open_run, open_training, plan_memory


async def train(config: DrZeroConfig, store: Run, reporter: Reporter) -> None:
    """Train from wherever the run stands, and close everything behind it."""
    async with open_run(config, ROLES, reporter) as opened:
        training = open_training(
            config, store, opened.actors, reporter, count_steps(config), read_document=opened.index.document
        )
        await evolve(config, training, opened.index, opened.searcher)


def check(config: DrZeroConfig) -> None:
    """Refuse what cannot be run, before anything is loaded."""
    check_config(config)
    protocol = config.solver.protocol
    check_openable(config, "drzero", ["drzero"] if protocol == "tool-call" else ["drzero", solver_dialect(protocol)])


def plan(config: DrZeroConfig) -> list[tuple[str, str]]:
    """What would run, and what each step costs at most."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    rollouts = estimate_rollouts(
        proposer.batch,
        proposer.questions,
        proposer.attempts,
        sequence_tokens=proposer.limits.sequence_tokens,
        attempt_tokens=solver.limits.sequence_tokens,
    )
    candidates = count_candidates(generation, proposer)
    samples = f", each the best of {generation.samples} samples" if generation.samples > 1 else ""
    tries = f"{samples}, {generation.attempts} attempts at each" if generation.attempts else samples
    solver_tokens = solver.batch * solver.attempts * solver.limits.sequence_tokens
    return [
        ("iterations", f"{config.iterations}, {count_steps(config)} steps in all"),
        (
            "proposer phase",
            f"{proposer.steps} steps of {proposer.batch} documents; a step plays {rollouts.num_proposals} + "
            f"{rollouts.num_attempts} episodes, {rollouts.max_tokens:,} tokens at most",
        ),
        (
            "episodes a document",
            f"{rollouts.num_episodes // proposer.batch}, where GRPO with 4 x 4 takes {GRPO_ROLLOUTS}",
        ),
        ("generation", f"{candidates} candidates in {count_batches(generation, proposer)} steps{tries}"),
        *plan_given(generation.given),
        (
            "solver phase",
            f"{solver.steps} steps of {solver.batch} questions; a step plays {solver.batch * solver.attempts} "
            f"episodes, {solver_tokens:,} tokens at most",
        ),
        plan_validation(config.validation),
        *plan_memory(config, (config.proposer, config.solver)),
    ]


DRZERO = Recipe(
    name="drzero",
    summary="a proposer and a solver that teach each other, without data",
    schema=DrZeroConfig,
    presets=PRESETS,
    check=check,
    plan=plan,
    train=train,
    solver_protocol=solver_protocol,
    given=lambda config: config.generation.given,
)
