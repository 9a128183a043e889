"""A way of solving: how it is spoken to, what an attempt is paid, how its tokens are weighed.

A folder of `dialects/` registers one as a `SolverDialect`; opened with options, it is a `Solver`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from quaere.chat.prompt_style import PromptStyle
from quaere.chat.protocol import Protocol
from quaere.dialects.demonstration import SolverTurns
from quaere.dialects.settings import AnswerScore, EvaluationSettings
from quaere.records import Answer, Episode, SolveTask
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.episode import Limits

Pay = Callable[[Episode], Mapping[str, float]]
"""What an attempt earned, part by part; `reward/total` is what it is paid, `answer/exact_match` if it was right."""


def read_outcome(episode: Episode) -> tuple[str, tuple[str, ...]]:
    """What was answered, "" if nothing was, and what is accepted."""
    assert isinstance(episode.task, SolveTask)
    answer = episode.outcome.text if isinstance(episode.outcome, Answer) else ""
    return answer, episode.task.question.answers


def solver_reward(episode: Episode) -> float:
    """1 if the answer is one of the question's by exact match, else 0; 0 without an answer."""
    return exact_match_score(*read_outcome(episode))


def pay_exact_match(episode: Episode) -> dict[str, float]:
    """1 for the right answer, 0 for any other."""
    reward = solver_reward(episode)
    return {"answer/exact_match": reward, "reward/total": reward}


def pay_f1(episode: Episode) -> dict[str, float]:
    """How much of the answer is right, whatever else was done: for comparing with those who are paid so too."""
    answer, accepted = read_outcome(episode)
    reward = f1_score(answer, accepted)
    return {"answer/exact_match": exact_match_score(answer, accepted), "answer/f1": reward, "reward/total": reward}


class Solver(Struct, frozen=True):
    """A way of solving: how it is spoken to, what an attempt is paid, and what else is of interest.

    `weigh` gives every token of an attempt a factor for its advantage; None counts them all alike. `measure` adds
    metrics of its own to a step. If it is `gated`, an attempt that broke the format (`format/held` is 0) is paid
    nothing, whatever a recipe adds to the pay.

        Solver(ToolCallSolver(), pay_exact_match)
    """

    protocol: Protocol
    pay: Pay = pay_exact_match
    weigh: Callable[[Episode], Sequence[float]] | None = None
    measure: Callable[[Sequence[Episode]], Mapping[str, float]] | None = None
    gated: bool = False


class SolverOptions(Struct, frozen=True):
    """How a dialect is to be opened: `evidence` asks for the sentence it relies on, `guided` opens turns for it.

    SolverOptions(style="brief", evidence=True, score="f1")
    """

    style: PromptStyle = "full"
    evidence: bool = False
    guided: bool = False
    settings: EvaluationSettings = EvaluationSettings()
    score: AnswerScore = "exact_match"

    @property
    def plain_pay(self) -> Pay:
        """Pay for the answer alone."""
        return pay_f1 if self.score == "f1" else pay_exact_match


class SolverDialect(Struct, frozen=True):
    """A dialect of solvers, as its folder registers it.

    `score` is how its paper scores an answer, `limits` how far an episode may go where nobody has said, `turns` what
    one search and an answer take. Without a `demonstration` no oracle can show how it is done; a teacher still can.

        SolverDialect(open_solver, turns=("search", "evaluate", "answer"), score="f1")
    """

    open: Callable[[SolverOptions], Solver]
    score: AnswerScore = "exact_match"
    limits: Limits = Limits()
    turns: tuple[str, ...] = ("search", "answer")
    can_be_guided: bool = False
    demonstration: SolverTurns | None = None
