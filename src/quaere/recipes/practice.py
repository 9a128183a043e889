"""Recipes on given questions, from top to bottom: EvalAct, Eval-RAR, Search-R1, AutoRefine, R1 and SFT.

    repeat:
        draw questions, and let the solver play G episodes of each
        reward each episode as its dialect does
        compare the episodes of a question with one another                                 (GRPO)
        one update, with a KL term in the preset `paper`

They differ in the solver's dialect, which is its prompts, its reward and its token weights (`dialects/registry.py`),
and in their papers' settings: each is a config and a row at the end of this file. Retrieved text carries no loss.

SFT, the baseline that neither searches nor tries, writes the episode in which each question is answered at once with
its first accepted answer, and makes those answers likelier. The prompt is that of its dialect, so that the trained
model is asked in evaluation as it was taught.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import structs

from quaere.chat.protocol import Protocol
from quaere.dialects.roles import Solver, is_right
from quaere.errors import TrainingStopped
from quaere.recipes.registry import Recipe
from quaere.records import Episode, Question, SolveTask
from quaere.rewards.abstention import ABSTENTION
from quaere.rollout.episode import Limits
from quaere.setting_types import NonNegativeFloat
from quaere.training.batches import make_sample
from quaere.training.given import (
    DEMO,
    LARGE_GPU,
    PAPER,
    SINGLE_GPU,
    PracticeConfig,
    check_practice,
    plan_practice,
    train_practice,
)
from quaere.training.rollouts import Stage
from quaere.training.settings import LearnerSettings
from quaere.training.solver_phase import AbstentionSettings, SolverConfig, practise, solver_of
from quaere.training.step import Step, trace_tokens
from quaere.training.training_run import TrainingRun
from quaere.warmup.scripted_episodes import Attempt, demonstrate

Presets = dict[str, dict[str, object]]

_LEARNER = LearnerSettings(learning_rate=1e-6)
# Eval-RAR's values, also for Search-R1 and AutoRefine, so that runs of the three differ in dialect and reward alone.
_TAGGED = SolverConfig(
    dialect="evalrar", steps=200, batch=512, attempts=5, limits=Limits(topk=3, sequence_tokens=4096), learner=_LEARNER
)
# For answers from memory: a single turn, and nothing is searched for.
CLOSED_BOOK = structs.replace(_TAGGED, dialect="cot", limits=Limits(max_turns=1, sequence_tokens=2048))

# ------------------------------------------------------------------------------------------------------------- settings


class EvalActConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an EvalAct run; `answer_score` is explicit, so that a solver without Evaluate has the same reward.

    An episode: think, Search, Evaluate with a score, a cue by the score, ..., answer. Its reward is F1 if it kept the
    format, else 0 (Eq. 4), and the advantages of each search's and evaluation's tokens are scaled by the score (PCAR,
    Eq. 5 to 10). The scores are the policy's own; their calibration is measured, and rewarded only with
    `solver.evaluation.brier`.

        EvalActConfig(model="warm", index="demo/index", questions="train.jsonl")

    Each ablation of the paper, and each choice it leaves open, is one value. To leave the warm-up out, name a model
    without one after `--model`.

        epochs=0                                          no reinforcement learning: the warm-up alone
        solver.dialect=tool-call                          no Evaluate; the reward is still F1
        solver.evaluation.pcar=false                      Evaluate without PCAR
        solver.evaluation.base=0.05                       with solver.evaluation.most=0.25: PCAR, low
        solver.evaluation.base=0.2                        with solver.evaluation.most=1 and
                                                          solver.evaluation.floor=0.01: PCAR, high
        solver.evaluation.segment=search_eval             PCAR weighs the calls alone, not the thoughts
        solver.evaluation.bad_score=clamp                 a score off the scale becomes the nearest one
        solver.evaluation.think_before_evaluate=fail      thoughts before an evaluation break the format
        solver.evaluation.epsilon=1                       scores that hardly differ change little
        solver.evaluation.scores=oracle                   PCAR by what the searches returned
        solver.evaluation.permuted=true                   the control of PCAR: its scores in random order
        solver.evaluation.brier=0.2                       scores are rewarded for being true
        solver.shuffle_advantages=true                    the shuffle control, which must not learn
    """

    epochs: NonNegativeFloat = 2.0
    solver: SolverConfig = SolverConfig(
        dialect="evalact",
        answer_score="f1",
        steps=0,
        batch=256,
        attempts=5,
        # Twenty searches, twenty evaluations, the answer, and one spare turn.
        limits=Limits(max_turns=42, max_searches=20, topk=3, sequence_tokens=16384),
        learner=_LEARNER,
    )


class EvalRarConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an Eval-RAR run.

    An episode: think, <search>, <information>, <evaluate> what it found or what is missing, ..., <answer>. Its reward
    is 1 for the right answer, else 0.1 if an evaluation has it (Eq. 2 to 5); only the policy's own words count as one.

        EvalRarConfig(model="warm", index="demo/index", questions="train.jsonl")

    Each ablation of the paper, and each choice it leaves open, is one value:

        solver.evaluation.bonus=0            no evaluation reward
        solver.evaluation.contain=raw        an evaluation must contain the answer letter for letter
        solver.evaluation.note_rule=grounded the reward is for evaluations of what was shown, without guesses
        solver.min_std=0.1                   small advantages where that reward is the only difference
        solver.dialect=search-r1             no evaluation at all
        solver.shuffle_advantages=true       the shuffle control, which must not learn
    """

    solver: SolverConfig = _TAGGED


class SearchR1Config(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a Search-R1 run, trained with GRPO.

    An episode: think, <search>, <information>, ..., <answer>. Its reward is 1 for the right answer.

        SearchR1Config(model="warm", index="demo/index", questions="train.jsonl")

        solver.answer_score=f1               the reward is F1
        solver.information_gain=0.5          searches are rewarded for making the right answer likelier
        solver.shuffle_advantages=true       the shuffle control, which must not learn
    """

    solver: SolverConfig = structs.replace(_TAGGED, dialect="search-r1")


class AutoRefineConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an AutoRefine run.

    An episode: think, <search>, <documents>, <refine> what helps, ..., <answer>. Its reward is F1 of the answer or, if
    that is 0, 0.1 if a note contains the right answer.

        AutoRefineConfig(model="warm", index="demo/index", questions="train.jsonl")

        solver.answer_score=exact_match      the reward for the answer is exact match
        solver.evaluation.bonus=0            no reward for notes
        solver.evaluation.contain=raw        a note must contain the answer letter for letter
        solver.shuffle_advantages=true       the shuffle control, which must not learn
    """

    solver: SolverConfig = structs.replace(_TAGGED, dialect="autorefine")


class R1Config(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an R1 run: reinforcement learning without a search.

    An episode: think, <answer>, from memory. Its reward is 1 for the right answer. The index is not searched.

        R1Config(model="base", index="demo/index", questions="train.jsonl")

        solver.dialect=direct                answers without a thought
        solver.answer_score=f1               the reward is F1
        solver.shuffle_advantages=true       the shuffle control, which must not learn
    """

    solver: SolverConfig = CLOSED_BOOK


class SftConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of supervised fine-tuning on given answers.

    An episode: the question, and <answer> with its first accepted answer; nothing is searched for. One episode is
    written of each question and none is compared with others: `solver.attempts` and what concerns groups have no
    effect.

        SftConfig(model="base", index="demo/index", questions="train.jsonl")
    """

    solver: SolverConfig = structs.replace(CLOSED_BOOK, dialect="direct")


# The settings that each preset changes. The defaults differ from the paper only in the settings that `paper` lists. A
# mean over the tokens of each episode gives tokens of short episodes more weight, which rewards searching less. A KL
# term as weak as the papers' costs a forward pass of the reference model and has no effect.
PRESETS: Presets = {
    "paper": {**PAPER, "solver.learner.aggregation": "sequence_mean"},
    "single-gpu": SINGLE_GPU,
    "large-gpu": LARGE_GPU,
    "demo": DEMO,
}
EVALACT_PRESETS: Presets = {
    "paper": {**PAPER, "solver.learner.aggregation": "token_sum"},
    "single-gpu": {**SINGLE_GPU, "solver.limits.max_turns": 14, "solver.limits.sequence_tokens": 6144},
    # Six searches, six evaluations, an answer, and one spare turn.
    "large-gpu": {**LARGE_GPU, "solver.limits.max_turns": 14, "solver.limits.sequence_tokens": 6144},
    "demo": {**DEMO, "solver.limits.max_turns": 6, "solver.limits.sequence_tokens": 1024},
}
# One turn; in `large-gpu` with room for a thought.
CLOSED_PRESETS: Presets = {
    name: {
        **preset,
        "solver.limits.max_turns": 1,
        **({"solver.limits.turn_tokens": 512} if name == "large-gpu" else {}),
    }
    for name, preset in PRESETS.items()
}

SFT_PRESETS: Presets = {**CLOSED_PRESETS, "paper": {**CLOSED_PRESETS["paper"], "solver.learner.kl_beta": 0.0}}

# ------------------------------------------------------------------------------------------------------------- the loop


def solver_protocol(config: PracticeConfig) -> Protocol:
    """The solver's protocol, in training and in evaluation."""
    return solver_of(config.solver, config.prompts).protocol


def practice_recipe(name: str, schema: type[PracticeConfig], summary: str, presets: Presets = PRESETS) -> Recipe:
    """A recipe that trains the solver of its config on given questions.

    practice_recipe("frugal", FrugalConfig, "a solver whose searches lower its reward")
    """
    return Recipe(
        name=name,
        summary=summary,
        schema=schema,
        presets=presets,
        check=partial(check_practice, recipe=name),
        plan=plan_practice,
        train=train_practice,
        solver_protocol=solver_protocol,
        takes_questions=True,
    )


async def imitate(training: TrainingRun, stage: Stage, iteration: int, config: SolverConfig, **how: Any) -> None:
    """Train the solver on the accepted answers to its questions (see `practise`)."""
    answering = structs.replace(config, abstention=AbstentionSettings())  # no answer is hidden
    await practise(training, stage, iteration, answering, **how, learn_from=learn_answers)


async def learn_answers(
    training: TrainingRun, stage: Stage, step: Step, asked: Sequence[Question], config: SolverConfig, solver: Solver
) -> None:
    """Make the accepted answers to a step's questions likelier (cross-entropy)."""
    written = [await _write_answer(stage, solver, one, config, f"{step.name}-{one.id}") for one in asked]
    episodes = [episode for episode in written if is_right(episode)]
    if not episodes:
        said = "no answer of the batch fits into the limits after its prompt"
        raise TrainingStopped(said, hint="raise solver.limits.sequence_tokens or solver.limits.turn_tokens")
    samples = [make_sample(episode, 1.0) for episode in episodes]
    trace_tokens(step, samples)
    # Nobody sampled these tokens, so there is no sampler to differ from.
    learned = step.learner.step(samples)
    step.metrics |= {name: value for name, value in learned.items() if not name.startswith("mismatch/")}
    step.metrics["solver/unwritten"] = float(len(written) - len(episodes))
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


# -------------------------------------------------------------------------------------------------------- registration


EVALACT = practice_recipe(
    "evalact",
    EvalActConfig,
    "a solver that scores each of its searches, and learns most from those it relied on",
    EVALACT_PRESETS,
)
EVALRAR = practice_recipe(
    "evalrar",
    EvalRarConfig,
    "a solver that writes after each search what it found or what is missing, and may be rewarded for it",
)
SEARCH_R1 = practice_recipe(
    "search-r1", SearchR1Config, "a solver that searches between tags, rewarded for the right answer"
)
AUTOREFINE = practice_recipe(
    "autorefine", AutoRefineConfig, "Search-R1 with a note on what was found after each search, which may be rewarded"
)
R1 = practice_recipe(
    "r1", R1Config, "a solver that thinks and answers from memory, rewarded for the right answer", CLOSED_PRESETS
)
SFT = structs.replace(
    practice_recipe("sft", SftConfig, "supervised fine-tuning on given answers, without a search", SFT_PRESETS),
    plan=plan_sft,
    train=partial(train_practice, practise=imitate),
)
