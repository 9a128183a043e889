"""Supervised fine-tuning on given answers, from top to bottom: the baseline that neither searches nor tries.

    repeat:
        draw questions, and write the episode in which each is answered at once with its first accepted answer
        one update that makes those answers likelier                                        (cross-entropy)

An episode's prompt is that of the solver's dialect, `direct` by default, so that the trained model is asked in
evaluation as it was taught. Validation on held-back questions chooses the checkpoint, as in `practice.py`.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import structs

from quaere.dialects.roles import Solver, is_right
from quaere.errors import TrainingStopped
from quaere.recipes.practice import CLOSED_BOOK, CLOSED_PRESETS, practice_recipe
from quaere.records import Episode, Question, SolveTask
from quaere.rewards.answers import ABSTENTION
from quaere.training.batches import make_sample
from quaere.training.given import PracticeConfig, plan_practice, train_practice
from quaere.training.rollouts import Stage
from quaere.training.settings import ValidationSettings
from quaere.training.solver_phase import AbstentionSettings, SolverConfig, practice_steps
from quaere.training.training_run import TrainingRun
from quaere.warmup.scripted_episodes import Attempt, demonstrate


class SftConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of supervised fine-tuning on given answers.

    An episode: the question, and <answer> with its first accepted answer; nothing is searched for. One episode is
    written of each question and none is compared with others: `solver.attempts` and what concerns groups have no
    effect.

        SftConfig(model="base", index="demo/index", questions="train.jsonl")
    """

    solver: SolverConfig = structs.replace(CLOSED_BOOK, dialect="direct")


async def imitate(
    training: TrainingRun,
    stage: Stage,
    iteration: int,
    config: SolverConfig,
    *,
    solver: Solver,
    questions: Sequence[Question],
    validation: ValidationSettings,
    seed: int,
    also: Mapping[str, float] | None = None,
) -> None:
    """Train the solver on the accepted answers to these questions, except those held back (see `practise`)."""
    answering = structs.replace(config, abstention=AbstentionSettings())  # no answer is hidden
    phase = practice_steps(training, stage, iteration, answering, solver.protocol, questions, validation, seed)
    async for step, asked in phase:
        written = [await _write_answer(stage, solver, one, config, f"{step.name}-{one.id}") for one in asked]
        episodes = [episode for episode in written if is_right(episode)]
        if not episodes:
            said = "no answer of the batch fits into the limits after its prompt"
            raise TrainingStopped(said, hint="raise solver.limits.sequence_tokens or solver.limits.turn_tokens")
        # Nobody sampled these tokens, so there is no sampler to differ from.
        learned = step.learner.step([make_sample(episode, 1.0) for episode in episodes])
        step.metrics |= {name: value for name, value in learned.items() if not name.startswith("mismatch/")}
        step.metrics |= {"solver/unwritten": float(len(written) - len(episodes)), **(also or {})}
        for episode in episodes:
            step.keep(episode, solver.pay(episode))


async def _write_answer(stage: Stage, solver: Solver, question: Question, config: SolverConfig, name: str) -> Episode:
    """The episode of a solver that answers, or abstains, as it should; one whose answer does not fit is not right."""
    written = f"<answer>{next(filter(str.strip, question.answers), ABSTENTION)}</answer>"
    attempt = Attempt(name, SolveTask(question), lambda turns, shown: written, solver.protocol)
    return await demonstrate(attempt, stage.searcher, stage.actors.policy.renderer, config.limits, name="labels")


def plan_sft(config: PracticeConfig) -> list[tuple[str, str]]:
    """Lines of a dry run: one episode of each question."""
    return plan_practice(structs.replace(config, solver=structs.replace(config.solver, attempts=1)))


_PRESETS = {**CLOSED_PRESETS, "paper": {**CLOSED_PRESETS["paper"], "solver.learner.kl_beta": 0.0}}
SFT = structs.replace(
    practice_recipe("sft", SftConfig, "supervised fine-tuning on given answers, without a search", _PRESETS),
    plan=plan_sft,
    train=partial(train_practice, practise=imitate),
)
