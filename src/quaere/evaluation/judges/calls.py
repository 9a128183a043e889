"""Single-turn requests to a judge: inputs are quoted, outputs are parsed or counted as unreadable.

turns = [JudgeTurn(messages, parse=read_verdict, stop=("</verdict>",))]
await ask_each(policy, turns, temperature=0.0) -> ["supported"]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from quaere.chat.messages import Message, Quoted
from quaere.chat.tags import find_blocks
from quaere.chat.tools import ToolSchema
from quaere.errors import SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import Action, Answer, Failure, Malformed, Question, SearchResult, SolveTask, Task, Turn
from quaere.records.foreign_json import decode_json
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import NoSearcher

T = TypeVar("T")

# Angle brackets in quoted text are replaced, so that a judge that repeats its input cannot reproduce a tag from it.
_BRACKETS = str.maketrans("<>", "‹›")
_MAX_JSON_CHARS = 100_000


class JudgeTurn(Generic[T]):
    """The protocol of one judge turn; `parse` returns the parsed output, or None if it cannot be parsed.

    JudgeTurn([Message("user", ("Is it so?",))], parse=lambda text: text == "yes" or None)
    """

    name = "report-judge"
    tools: tuple[ToolSchema, ...] = ()
    marks: tuple[str, ...] = ()
    turns_per_search = 1

    def __init__(
        self, messages: Sequence[Message], parse: Callable[[str], T | None], *, stop: str = "", prefix: str = ""
    ) -> None:
        self.parse = parse
        self.stop: tuple[str, ...] = (stop,) if stop else ()
        self._messages = list(messages)
        self._prefix = prefix

    def opening(self, task: Task) -> list[Message]:
        """The messages given to the constructor."""
        return self._messages

    def prefix(self, turn: int, is_last: bool) -> str:
        """The text that opens the turn, for models too small to follow the output format."""
        return self._prefix

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The turn's text as an answer if it can be parsed, else `Malformed`."""
        return Malformed("the judge's words cannot be read") if self.parse(text) is None else Answer(text)

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """A reminder of the task; never used, since a judge has one turn."""
        return Message("user", ("Answer as you were asked to.",))


async def ask_each(
    policy: Policy,
    turns: Sequence[JudgeTurn[T]],
    *,
    limits: Limits,
    temperature: float = 0.0,
    seed: int = 0,
    concurrency: int = 32,
    advance: Callable[[], None] = lambda: None,
) -> list[T | None]:
    """Parsed output of the judge for each turn, in order; None if unreadable or if the judge failed."""
    jobs = [Job(turn, SolveTask(Question(f"judge-{number}", ""))) for number, turn in enumerate(turns)]
    sampling: dict[str, Any] = {"temperature": temperature, "seed": seed, "concurrency": concurrency}
    said = await put_turns(policy, jobs, limits=limits, advance=advance, **sampling)
    return [None if text is None else turn.parse(text) for turn, text in zip(turns, said, strict=True)]


async def put_turns(
    policy: Policy,
    jobs: Sequence[Job],
    *,
    limits: Limits,
    temperature: float = 0.0,
    seed: int = 0,
    concurrency: int = 32,
    advance: Callable[[], None] = lambda: None,
) -> list[str | None]:
    """Text the judge wrote in each of these single turns, in order; None if unreadable or if the judge failed.

    Raises SamplingFailed if every request failed: an outage must not be scored as unreadable output.
    """
    found: list[str | None] = []
    failures: list[Failure] = []
    params = SamplingParams(temperature=temperature)
    async for episode in run_many(
        policy, jobs, NoSearcher(), limits, seed=seed, params=params, concurrency=concurrency
    ):
        found.append(episode.outcome.text if isinstance(episode.outcome, Answer) else None)
        failures += [turn.failure for turn in episode.turns if turn.stop_reason == "failed" and turn.failure]
        advance()
    if failures and len(failures) == len(jobs):  # an outage, not unreadable output
        raise SamplingFailed(f"the judge {policy.name}: {failures[0].message}")
    return found


def quote(text: str) -> Quoted:
    """Quoted text in which tags are neutralised: quote("<verdict>").text -> "‹verdict›"."""
    return Quoted(text.translate(_BRACKETS))


def read_block(text: str, name: str) -> str | None:
    """Content of the tag outside thoughts; None if it is missing or occurs with different contents.

    read_block("<think>hm</think><verdict> supported </verdict>", "verdict") -> "supported"
    """
    said = {block.content.strip() for block in find_blocks(text, ("think", name)) if block.name == name}
    return said.pop() if len(said) == 1 else None


def read_list(text: str, item: type[T]) -> list[T] | None:
    """The JSON list in a reply, after any thought and inside any code fence; None if there is no valid one.

    read_list('[{"number": 1, "score": 7}]', Scored) -> [Scored(number=1, score=7.0)]
    """
    reply = text.rpartition("</think>")[2]
    start, end = reply.find("["), reply.rfind("]")
    if start < 0 or end < start or end - start > _MAX_JSON_CHARS:
        return None
    try:
        return decode_json(reply[start : end + 1], list[item])  # type: ignore[valid-type]
    except msgspec.DecodeError:
        return None
