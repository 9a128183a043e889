"""Opening everything a run of Dr. Zero needs, and saying beforehand what it will take."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from quaere.errors import BadInput
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.device import choose_device
from quaere.recipes.drzero.config import PRESETS, DrZeroConfig, check_config
from quaere.recipes.drzero.measuring import GRPO_ROLLOUTS
from quaere.recipes.drzero.prompts import solver_protocol
from quaere.recipes.drzero.train import ROLES, count_batches, count_candidates, count_steps, evolve
from quaere.recipes.registry import Recipe
from quaere.runs import Run
from quaere.search.index import Index, open_index
from quaere.search.searcher import LocalSearcher, Searcher, open_searcher
from quaere.training.actors import open_actors
from quaere.training.estimate import estimate_rollouts, estimate_run
from quaere.training.exporting import find_notes
from quaere.training.reporting import Reporter
from quaere.training.trainingrun import TrainingRun


async def train(config: DrZeroConfig, store: Run, reporter: Reporter) -> None:
    """Train from wherever the run stands, and close everything behind it."""
    index = _open_documents(config)
    searcher: Searcher = open_searcher(config.search_url) if config.search_url else LocalSearcher(index)
    try:
        actors = open_actors(
            config.model,
            ROLES,
            engine=config.engine,
            adapter=config.adapter,
            sampling=config.sampling,
            search=config.search,
            seed=config.seed,
            report=reporter.note,
        )
        training = TrainingRun(
            store,
            actors,
            checkpoints=config.checkpoints,
            health=config.health,
            reporter=reporter,
            num_steps=count_steps(config),
            seed=config.seed,
            read_document=index.document,
        )
        try:
            await evolve(config, training, index, searcher)
        finally:
            await actors.policy.stop()
    finally:
        await searcher.close()


def check(config: DrZeroConfig) -> None:
    """Refuse what cannot be run, before anything is loaded."""
    check_config(config)
    if not config.model:
        raise BadInput("no model is named", hint="quaere evolve drzero --model smollm2-135m --index DIR")
    _open_documents(config)
    style = find_notes(config.model).style
    if style not in (None, config.prompts):
        raise BadInput(
            f"{config.model} was taught {style} prompts, and the config says {config.prompts}",
            hint=f"--set prompts={style}",
        )
    resolve_model(config.model)  # found, or downloaded, before a run is begun for it


def _open_documents(config: DrZeroConfig) -> Index:
    """The index whose passages the proposer starts from; searching may go through a server instead."""
    if not config.index:
        raise BadInput("no index is named", hint="quaere evolve drzero --model M --index DIR")
    if config.index.startswith(("http://", "https://")):
        raise BadInput(
            "the proposer draws its documents from an index directory, not from a server",
            hint="--index DIR --set search_url=" + config.index,
        )
    return open_index(Path(config.index))


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
    candidates = count_candidates(config)
    tries = f", {generation.attempts} attempts at each" if generation.attempts else ""
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
        ("generation", f"{candidates} candidates in {count_batches(config)} steps{tries}"),
        (
            "solver phase",
            f"{solver.steps} steps of {solver.batch} questions; a step plays {solver.batch * solver.attempts} "
            f"episodes, {solver_tokens:,} tokens at most",
        ),
        *_plan_memory(config),
    ]


def _plan_memory(config: DrZeroConfig) -> list[tuple[str, str]]:
    """What the larger of the two phases needs, by the sizes of the model."""
    device = choose_device(config.engine.device)
    phases = [
        estimate_run(
            resolve_model(config.model).path,
            adapter=config.adapter,
            engine=config.engine,
            learner=phase.learner,
            sequence_tokens=phase.limits.sequence_tokens,
            device="cuda" if device == "cuda" else "cpu",
        )
        for phase in (config.proposer, config.solver)
    ]
    largest = max(phases, key=lambda estimate: estimate.memory.total)
    parts = [(name, size) for name, size in structs.asdict(largest.memory).items() if size >= 2**20]
    said = ", ".join(f"{name.replace('_', ' ')} {size / 2**30:.2f}" for name, size in parts)
    return [
        ("weights", f"{largest.num_parameters:,}, of which {largest.num_trainable:,} are trained in each role"),
        ("memory", f"about {largest.memory.total / 2**30:.1f} GiB on the {device}: {said}"),
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
)
