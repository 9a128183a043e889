"""Solvers: the protocol, reward and token weights of a policy that answers questions.

A folder of `dialects/` registers a `SolverDialect`; `SolverDialect.open` makes a `Solver` from options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from quaere.chat.protocol import PromptStyle, Protocol
from quaere.dialects.demonstration import SolverTurns
from quaere.dialects.settings import AnswerScore, EvaluationSettings
from quaere.records import Answer, Episode, SolveTask
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.episode import Limits

Pay = Callable[[Episode], Mapping[str, float]]
"""The reward components of an attempt: `reward/total` is the reward, `answer/exact_match` is 1 for a right answer."""


def read_outcome(episode: Episode) -> tuple[str, tuple[str, ...]]:
    """The answer of an episode ("" if there is none) and the accepted answers."""
    assert isinstance(episode.task, SolveTask)
    answer = episode.outcome.text if isinstance(episode.outcome, Answer) else ""
    return answer, episode.task.question.answers


def solver_reward(episode: Episode) -> float:
    """1 if the answer is one of the question's by exact match, else 0; 0 without an answer."""
    return exact_match_score(*read_outcome(episode))


def pay_exact_match(episode: Episode) -> dict[str, float]:
    """Reward 1 for an answer by exact match, else 0."""
    reward = solver_reward(episode)
    return {"answer/exact_match": reward, "reward/total": reward}


def pay_f1(episode: Episode) -> dict[str, float]:
    """Reward F1 of the answer alone, with no format or note terms: for comparisons between solvers paid by F1."""
    answer, accepted = read_outcome(episode)
    reward = f1_score(answer, accepted)
    return {"answer/exact_match": exact_match_score(answer, accepted), "answer/f1": reward, "reward/total": reward}


class Solver(Struct, frozen=True):
    """A solver: its protocol, its reward, its token weights and its metrics.

    `weigh` returns a factor per token for its advantage; None weighs all tokens alike. `measure` adds metrics to a
    step. With `gated`, an attempt that broke the format (`format/held` is 0) gets reward 0, whatever a recipe adds to
    the reward.

        Solver(ToolCallSolver(), pay_exact_match)
    """

    protocol: Protocol
    pay: Pay = pay_exact_match
    weigh: Callable[[Episode], Sequence[float]] | None = None
    measure: Callable[[Sequence[Episode]], Mapping[str, float]] | None = None
    gated: bool = False


class SolverOptions(Struct, frozen=True):
    """Options for opening a solver: `evidence` asks for the sentence it relies on, `guided` writes the start of turns.

    SolverOptions(style="brief", evidence=True, score="f1")
    """

    style: PromptStyle = "full"
    evidence: bool = False
    guided: bool = False
    settings: EvaluationSettings = EvaluationSettings()
    score: AnswerScore = "exact_match"

    @property
    def plain_pay(self) -> Pay:
        """The reward for the answer alone: F1 or exact match."""
        return pay_f1 if self.score == "f1" else pay_exact_match


class SolverDialect(Struct, frozen=True):
    """The solver of a dialect, as the dialect's folder registers it.

    `score` is the answer score of its paper, `limits` are the default episode limits, `turns` are the turns needed for
    one search and an answer. Without a `demonstration` no oracle can demonstrate the dialect; a teacher still can.

        SolverDialect(open_solver, turns=("search", "evaluate", "answer"), score="f1")
    """

    open: Callable[[SolverOptions], Solver]
    score: AnswerScore = "exact_match"
    limits: Limits = Limits()
    turns: tuple[str, ...] = ("search", "answer")
    can_be_guided: bool = False
    demonstration: SolverTurns | None = None
