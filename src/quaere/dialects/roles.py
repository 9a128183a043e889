"""What a dialect registers: the protocol of each role, a solver's reward and settings, and demonstrations of turns.

A module of `dialects/` registers a `SolverDialect`, a `ProposerDialect` or, for other roles, a `RoleDialect`:

    WRITER = RoleDialect(ReportWriter)
    WRITER.open(style="brief")
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, structs

from quaere.chat.markup import THOUGHT, Block, ToolSchema, has_unclosed
from quaere.chat.protocol import (
    CITED_SOLVER_FINISH,
    NONE_LEFT,
    SOLVER_FINISH,
    Acted,
    Message,
    PromptStyle,
    Protocol,
    Quoted,
    final_reply,
    format_results,
    read_answer,
)
from quaere.records import Action, Answer, Episode, Malformed, Search, SearchResult, SolveTask, Task, Turn
from quaere.rewards.abstention import ABSTENTION, UNANSWERABLE, AbstentionRewards, is_abstention
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.episode import Limits
from quaere.setting_types import check_settings

Opened = TypeVar("Opened", covariant=True)

# Returns the reward components of an attempt: `reward/total` is the reward, `answer/exact_match` 1 for a right answer.
Pay = Callable[[Episode], Mapping[str, float]]

# How an answer is scored; `own` is the score used in the paper that the dialect comes from.
AnswerScore = Literal["own", "exact_match", "f1"]

# Where a solver comments on the results of a search: nowhere (none), in a note at the start of the next turn (note),
# in such a note with only the facts that help (facts), or in a separate turn (turn).
Remarks = Literal["none", "note", "facts", "turn"]


# ------------------------------------------------------------------------------------------------------------- rewards


def read_outcome(episode: Episode) -> tuple[str, tuple[str, ...]]:
    """The answer of an episode ("" if there is none) and the accepted answers."""
    assert isinstance(episode.task, SolveTask)
    answer = episode.outcome.text if isinstance(episode.outcome, Answer) else ""
    return answer, episode.task.question.answers


def solver_reward(episode: Episode) -> float:
    """1 if the answer equals an accepted answer of the question by exact match, else 0; 0 without an answer."""
    return exact_match_score(*read_outcome(episode))


def is_right(episode: Episode) -> bool:
    """True if the answer is right, or if the policy abstained from a question that has no answer."""
    return bool(solver_reward(episode)) or refuses_rightly(episode)


def refuses_rightly(episode: Episode) -> bool:
    """True if the policy abstained from a question that has no answer."""
    return episode.abstained and not read_outcome(episode)[1]


class Credit(Struct, frozen=True):
    """An advantage of the tokens `[start, end)` of an episode, besides the episode's own.

    Credit(start=391, end=420, value=0.05)
    """

    start: int
    end: int
    value: float


def pay_exact_match(episode: Episode) -> dict[str, float]:
    """Reward 1 for an answer by exact match, else 0."""
    reward = solver_reward(episode)
    return {"answer/exact_match": reward, "reward/total": reward}


def pay_f1(episode: Episode) -> dict[str, float]:
    """Reward F1 of the answer alone, without format or note terms."""
    reward = f1_score(*read_outcome(episode))
    return {"answer/exact_match": solver_reward(episode), "answer/f1": reward, "reward/total": reward}


def pay_abstention(episode: Episode, pay: Pay, rewards: AbstentionRewards, *, gated: bool = False) -> dict[str, float]:
    """The components of `pay`, with the reward for abstaining in place of its total if the policy abstained.

    If the dialect is `gated`, an episode that broke its format gets 0 all the same.
    """
    has_answer = bool(read_outcome(episode)[1])
    parts = {**pay(episode), "answer/abstained": float(episode.abstained), UNANSWERABLE: float(not has_answer)}
    if episode.abstained:
        parts["reward/total"] = rewards.of(episode) if not gated or parts["format/held"] else 0.0
    return parts


# --------------------------------------------------------------------------------------------------------------- roles


class DialectSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of the settings of dialects; a dialect without settings uses it as it is."""

    def check(self, section: str = "evaluation") -> None:
        """Raise `BadInput` for values out of bounds or in conflict; `section` prefixes names."""
        check_settings(self, section)


class Solver(Struct, frozen=True):
    """A solver: its protocol, its reward, its token weights and its metrics.

    `weigh` returns a factor per token for its advantage; None weighs all tokens alike. `measure` adds metrics to a
    step. With `gated`, an attempt that broke the format (`format/held` is 0) gets reward 0, whatever a recipe adds to
    the reward. `credit` returns additional advantages for some tokens of a step's episodes.

        Solver(ToolCallSolver(), pay_exact_match)
    """

    protocol: Protocol
    pay: Pay = pay_exact_match
    weigh: Callable[[Episode], Sequence[float]] | None = None
    measure: Callable[[Sequence[Episode]], Mapping[str, float]] | None = None
    gated: bool = False
    credit: Callable[[Sequence[Episode]], list[list[Credit]]] | None = None


def let_abstain(solver: Solver, rewards: AbstentionRewards) -> Solver:
    """The solver with `rewards` for abstaining, and with metrics of how often it abstains."""

    def measure(episodes: Sequence[Episode]) -> dict[str, float]:
        return {**(solver.measure(episodes) if solver.measure else {}), **measure_abstention(episodes)}

    pay = partial(pay_abstention, pay=solver.pay, rewards=rewards, gated=solver.gated)
    return structs.replace(solver, pay=pay, measure=measure)


def measure_abstention(episodes: Sequence[Episode]) -> dict[str, float]:
    """Share of episodes that abstained, of questions with accepted answers and of questions without.

    measure_abstention(episodes) -> {"abstention/answerable": 0.05, "abstention/unanswerable": 0.8}
    """
    groups = {
        name: [episode.abstained for episode in episodes if bool(read_outcome(episode)[1]) == has_answer]
        for name, has_answer in (("answerable", True), ("unanswerable", False))
    }
    return {f"abstention/{name}": sum(group) / len(group) for name, group in groups.items() if group}


class SolverOptions(Struct, frozen=True):
    """Options for opening a solver: `evidence` asks for the sentence it relies on, `guided` writes the start of turns.

    `abstention` lets it answer that the documents do not say.

        SolverOptions(style="brief", evidence=True, score="f1")
    """

    style: PromptStyle = "full"
    evidence: bool = False
    guided: bool = False
    settings: DialectSettings = DialectSettings()
    score: AnswerScore = "exact_match"
    abstention: bool = False

    @property
    def prompts(self) -> dict[str, Any]:
        """Keyword arguments that every solver protocol takes: `SolverProtocol(**options.prompts)`."""
        return {"style": self.style, "evidence": self.evidence, "abstention": self.abstention}

    @property
    def plain_pay(self) -> Pay:
        """The reward for the answer alone: F1 or exact match."""
        return pay_f1 if self.score == "f1" else pay_exact_match


class SolverDialect(Struct, frozen=True):
    """The solver of a dialect.

    `score` is the answer score of its paper, `limits` are the default episode limits, `turns` are the turns needed for
    one search and an answer, `settings` is the type of its own settings. With a `demonstration`, an oracle (a program
    that knows the answers) can demonstrate the dialect in a warm-up; without it, only a teacher model can.

        SolverDialect(open_solver, turns=("search", "evaluate", "answer"), score="f1")
    """

    open: Callable[[SolverOptions], Solver]
    score: AnswerScore = "exact_match"
    limits: Limits = Limits()
    turns: tuple[str, ...] = ("search", "answer")
    can_be_guided: bool = False
    demonstration: SolverTurns | None = None
    settings: type[DialectSettings] = DialectSettings


class RoleDialect(Struct, Generic[Opened], frozen=True):
    """Another role of a dialect: `open` creates its protocol.

    RoleDialect(ReportWriter)

    Every `open` takes `style`. A writer's also takes `guided` and the `pool` of dimensions; a rubric chooser's its
    harness; an assessor's the rubric, the number of reports, `scale`, `separate_validity` and `process`. A verifier's
    has no style but takes `guided`, `span` and `evidence`.
    """

    open: Callable[..., Opened]


class ProposerDialect(RoleDialect[Protocol], frozen=True):
    """The proposer of a dialect. `demonstration` writes its turns in scripted episodes; None: no warm-up can teach it.

    ProposerDialect(ToolCallProposer, demonstration=ToolCallTurns())
    """

    demonstration: ProposerTurns | None = None


# ----------------------------------------------------------------------------------------------- what protocols share

_ABSTAIN: dict[PromptStyle, str] = {
    "full": f" If the documents do not answer the question, finish with <answer>{ABSTENTION}</answer>.",
    "brief": f" If no document says it, answer: {ABSTENTION}.",
}


class PlainProtocol:
    """Base class of protocols; by default no tools, no marked blocks and no text that opens a turn.

    `advice` says how to search and ends in "to finish,"; `finish` says how to end an episode. Both are shown, in this
    order, to a policy whose turn could not be used. `failed` and `spent` are the replies to a search that failed, and
    to one after the last that was allowed; `show` makes the reply to any other.
    """

    tools: tuple[ToolSchema, ...] = ()
    marks: tuple[str, ...] = ()
    turns_per_search = 1
    guided = False
    refused = "That turn could not be used"
    failed = "The search could not be carried out. Nothing was looked up; you may try again."
    spent = NONE_LEFT
    finish: str
    advice: str

    def prefix(self, turn: int, is_last: bool) -> str:
        """Always "": the policy writes its turns from the first token on."""
        return ""

    def show(self, results: Sequence[SearchResult], earlier: Sequence[Turn]) -> Message:
        """The message with the passages that a search found."""
        return Message("tool", format_results(results))

    def reply(self, acted: Acted, earlier: Sequence[Turn] = (), *, final: bool = False) -> Message:
        """The found passages, or the error and how to go on; if `final`, with a note to answer now, unless guided."""
        action, results, failure = acted
        message = self.show(results, earlier)
        if failure is not None and failure.boundary == "search":
            message = Message(message.role, (self.failed,))
        elif failure is not None and failure.kind == "searches":
            message = Message(message.role, (f"{self.spent} To finish, {self.finish}.",))
        elif not isinstance(action, Search):
            reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
            message = Message("user", (f"{self.refused}: {reason}. {self.advice} {self.finish}.",))
        return final_reply(message, acted, self.finish) if final and not self.guided else message


class SolverProtocol(PlainProtocol):
    """Base class of the protocols of solvers; `examples` are worked examples between system prompt and question.

    With `evidence`, the prompt asks for the sentence that the answer relies on; an answer without one is still read.
    With `abstention`, a policy may answer that the documents do not say: the system prompt says so, and `mark`
    recognises such an answer.
    """

    name: str
    system: str
    examples: Sequence[Message] = ()

    def __init__(self, *, style: PromptStyle, evidence: bool, abstention: bool) -> None:
        self.style, self.evidence, self.abstention = style, evidence, abstention
        words = CITED_SOLVER_FINISH if evidence else SOLVER_FINISH
        self.finish = f'{words}, or "{ABSTENTION}" if no document says it' if abstention else words

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, worked examples if there are any, and the question."""
        if not isinstance(task, SolveTask):
            raise TypeError(f"{self.name} solves questions; it got a {type(task).__name__}")
        system = self.system + (_ABSTAIN[self.style] if self.abstention else "")
        question = Message("user", ("Question:\n", Quoted(task.question.text)))
        return [Message("system", (system,)), *self.examples, question]

    def mark(self, action: Action) -> Action:
        """The action; an answer that abstains is marked as such if that is allowed."""
        if self.abstention and isinstance(action, Answer) and is_abstention(action.text):
            return structs.replace(action, abstained=True)
        return action


def read_first(blocks: Sequence[Block], readers: Mapping[str, Callable[[Block], Action]]) -> Action | None:
    """The action of the first block that is an answer or has a name in `readers`; None if there is none.

    An answer comes with the last quotation (evidence) before it.
    """
    span: Block | None = None
    for block in blocks:
        if block.name in readers:
            return readers[block.name](block)
        if block.name == "evidence":
            span = block
        if block.name == "answer":
            return read_answer(block, span)
    return None


def no_action(text: str, names: Sequence[str], missing: str) -> Malformed:
    """The error for a turn without an action: a block of one of these names is not closed, or else `missing`."""
    unclosed = next((name for name in (THOUGHT, *names) if has_unclosed(text, name)), "")
    return Malformed(reason=f"the {unclosed} block is not closed" if unclosed else missing)


# ------------------------------------------------------------------------------------------------------ demonstrations


class SolverTurns(ABC):
    """Writes the turns of a demonstrated solver in a dialect's markup, and checks episodes by the dialect's own rules.

    The oracle, a program that knows the answers, supplies thought, note and action.

        ToolCallTurns().search("I look it up.", "Halm bridge")
        -> '<think>I look it up.</think>\\n<tool_call>{"name": "search", "arguments": {"query_list": ["Halm ..."]}}...'
    """

    remarks: Remarks = "none"

    @abstractmethod
    def search(self, thought: str, query: str, note: str = "") -> str:
        """A turn that searches; `note`, on the previous search, comes first if the dialect has notes."""

    def answer(self, thought: str, answer: str, *, span: str = "", note: str = "") -> str:
        """The last turn: thought, the quoted sentence if there is one, and the answer."""
        return f"{think(thought)}{quote(span)}<answer>{answer}</answer>"

    def evaluation(self, thought: str, text: str, score: int) -> str:
        """The turn that evaluates the previous search, in dialects whose `remarks` are "turn"."""
        raise NotImplementedError(f"{type(self).__name__} has no turn that evaluates a search: remarks must be turn")

    def find_fault(self, episode: Episode) -> str:
        """Which format rule of the dialect an episode breaks, in a few words; "" if none."""
        return ""

    def find_flaw(self, episode: Episode) -> str:
        """Why an episode that keeps the format is still a poor demonstration; "" if it is a good one."""
        return ""


class ProposerTurns(ABC):
    """Writes the turns of a demonstrated proposer in a dialect's markup."""

    @abstractmethod
    def search(self, thought: str, query: str) -> str:
        """A turn that searches."""

    @abstractmethod
    def proposal(self, thought: str, question: str, answer: str, span: str = "") -> str:
        """The last turn: thought, question, the quoted sentence if there is one, and the answer."""


def think(thought: str) -> str:
    """A thought between its tags, followed by a line break."""
    return f"<think>{thought}</think>\n"


def quote(span: str) -> str:
    """The evidence sentence between its tags; "" if there is none."""
    return f"<evidence>{span}</evidence>" if span else ""


def write_call(name: str, arguments: dict[str, object]) -> str:
    """A tool call as JSON between its tags."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"
