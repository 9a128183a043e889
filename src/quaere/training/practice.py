"""A run on questions that are given: what recipes that make none of their own have in common.

    async with open_practice(config, store, reporter) as practice:
        await practice.run(solver_of(config.solver, config.prompts))

The questions come from a file, or from the curriculum of a run that wrote its own. A run keeps a copy of them
(`questions.jsonl`), so that it can be gone on with whatever has become of where they came from.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, field, structs

from quaere.chat.prompts import PromptStyle
from quaere.errors import BadInput
from quaere.records import Question
from quaere.rollout.questions import read_questions
from quaere.runs import Run, find_run, runs_root
from quaere.training.bounds import check_least, check_run, check_solver
from quaere.training.opening import check_openable, open_run, open_training, plan_memory
from quaere.training.phases.playing import Stage
from quaere.training.phases.selecting import as_questions
from quaere.training.phases.solving import Solver, SolverConfig, practise
from quaere.training.protocols import solver_dialect
from quaere.training.reporting import Reporter
from quaere.training.settings import (
    AdapterSettings,
    CheckpointSettings,
    EngineSettings,
    HealthSettings,
    SamplingSettings,
    SearchSettings,
)
from quaere.training.trainingrun import TrainingRun

QUESTIONS = "questions.jsonl"
ROLES = ("solver",)

# What a preset of these names changes, for recipes to build on.
SINGLE_GPU: dict[str, object] = {
    "solver.batch": 32,
    "solver.learner.learning_rate": 2e-5,
    "solver.learner.gradient_checkpointing": True,
    "adapter.rank": 16,
}
DEMO: dict[str, object] = {
    "prompts": "brief",
    "solver.steps": 2,
    "solver.batch": 2,
    "solver.attempts": 3,
    "solver.limits.max_turns": 3,
    "solver.limits.turn_tokens": 96,
    "solver.limits.sequence_tokens": 640,
    "solver.limits.tool_response_tokens": 160,
    "solver.limits.topk": 1,
    "solver.learner.learning_rate": 1e-4,
    "adapter.rank": 8,
    "checkpoints.every": 1,
    "checkpoints.keep": 2,
}


class PracticeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole run: one role, which practises on `questions`, a file or a run that wrote some.

    With `solver.steps=0` it takes as many steps as `epochs` times all questions need.

        PracticeConfig(model="smollm2-135m", index="demo/index", questions="train.jsonl", epochs=2)
    """

    model: str = ""
    index: str = ""
    search_url: str = ""  # a search server to ask instead of the index itself
    questions: str = ""
    seed: int = 0
    epochs: float = 1.0
    prompts: PromptStyle = "full"
    solver: SolverConfig = field(default_factory=SolverConfig)
    adapter: AdapterSettings = AdapterSettings()
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    search: SearchSettings = SearchSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    health: HealthSettings = HealthSettings()


def check_config(config: PracticeConfig) -> None:
    """Refuse values that make no sense, each with one clear line."""
    check_least(0, {"epochs": config.epochs})
    check_run(config)
    check_solver(config.solver)


def check_practice(config: PracticeConfig, recipe: str) -> None:
    """Refuse what cannot be run, before anything is loaded; the questions are read elsewhere."""
    check_config(config)
    check_openable(config, recipe, [solver_dialect(config.solver.protocol)])


def count_steps(config: PracticeConfig, num_questions: int) -> int:
    """How many steps a run on so many questions has.

    count_steps(PracticeConfig(epochs=2, solver=SolverConfig(steps=0, batch=256)), 27_000) == 211
    """
    if config.solver.steps:
        return config.solver.steps
    return math.ceil(config.epochs * num_questions / min(config.solver.batch, num_questions))


# ------------------------------------------------------------------------------------------------------- the questions


def read_source(source: str, root: Path | None = None, *, answered: bool = True) -> list[Question]:
    """The questions of a file, or those that a run wrote and kept, by its directory or its name under `root`.

    Unless they need not be `answered`, each must have an answer to be learned from.

    read_source("train.jsonl"); read_source("drzero-1")
    """
    if not source:
        raise BadInput("no questions are given", hint="--questions FILE|RUN")
    found = find_source(source, root or runs_root())
    questions = read_questions(found) if found.is_file() else _read_run(found)
    if answered:
        _refuse_unanswerable(questions, source)
    return questions


def find_source(source: str, root: Path) -> Path:
    """The file of this name, or the run's directory."""
    if Path(source).is_file():
        return Path(source)
    try:
        return find_run(root, source)
    except BadInput as error:
        raise BadInput(f"there is neither a file of questions nor a run {source}", hint=error.hint) from None


def _read_run(path: Path) -> list[Question]:
    """A run's whole curriculum as people's verdicts leave it, or the questions it was given itself."""
    if (path / QUESTIONS).is_file():
        return read_questions(path / QUESTIONS)
    with Run.open(path) as run:
        questions = as_questions(run.curriculum())
        kind = run.info.kind
    if not questions:
        why = "kept none" if kind == "evolve" else f"is a run of `quaere {kind}`, which writes none"
        raise BadInput(f"run {path.name} has no questions to learn from: it {why}", hint=f"quaere curriculum {path}")
    return questions  # a run's candidates have ids of their own, over all iterations


def _refuse_unanswerable(questions: Sequence[Question], source: str) -> None:
    without = [question.id for question in questions if not any(answer.strip() for answer in question.answers)]
    if without:
        others = f" and {len(without) - 1} more" if len(without) > 1 else ""
        raise BadInput(
            f"{source}: question {without[0]}{others} cannot be learned from: no accepted answers are given",
            hint='each line needs {"question": "...", "answers": ["..."]}',
        )


def encode_questions(questions: Sequence[Question]) -> bytes:
    """The questions as a file that `read_questions` reads back."""
    rows = [
        {
            "id": question.id,
            "question": question.text,
            "answers": question.answers,
            "hops": question.hops,
            "evidence": question.evidence,
            "set": question.set,
            "gold_ids": question.gold_ids,
        }
        for question in questions
    ]
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


# --------------------------------------------------------------------------------------------------------- the running


class Practice:
    """A run that is open: its steps, its stage and its questions."""

    def __init__(self, config: PracticeConfig, training: TrainingRun, stage: Stage, questions: list[Question]) -> None:
        self.config = config
        self.training = training
        self.stage = stage
        self.questions = questions

    async def run(self, solver: Solver) -> None:
        """GRPO on the questions to its end, from wherever the run stands."""
        phase = structs.replace(self.config.solver, steps=self.training.num_steps)

        async def iterate(iteration: int) -> None:
            await practise(
                self.training,
                self.stage,
                iteration,
                phase,
                solver=solver,
                questions=self.questions,
                seed=self.config.seed,
            )

        await self.training.iterate(1, iterate)


@asynccontextmanager
async def open_practice(config: PracticeConfig, store: Run, reporter: Reporter) -> AsyncIterator[Practice]:
    """Open everything a run on given questions needs, and close it behind whoever used it."""
    questions = read_questions(store.path / QUESTIONS)
    async with open_run(config, ROLES, reporter) as opened:
        training = open_training(config, store, opened.actors, reporter, count_steps(config, len(questions)))
        yield Practice(config, training, Stage(opened.actors, opened.searcher), questions)


def plan_practice(config: PracticeConfig) -> list[tuple[str, str]]:
    """What would run, and what each step costs at most."""
    questions = read_source(config.questions)
    solver, num_steps = config.solver, count_steps(config, len(questions))
    batch = min(solver.batch, len(questions))
    num_tokens = batch * solver.attempts * solver.limits.sequence_tokens
    return [
        ("questions", f"{len(questions)}, each seen {num_steps * batch / len(questions):.3g} times"),
        (
            "solver",
            f"{solver.protocol}, at most {solver.limits.max_turns} turns and {solver.limits.max_searches} searches",
        ),
        (
            "solver phase",
            f"{num_steps} steps of {batch} questions; a step plays {batch * solver.attempts} episodes, "
            f"{num_tokens:,} tokens at most",
        ),
        *plan_memory(config, (solver,)),
    ]
