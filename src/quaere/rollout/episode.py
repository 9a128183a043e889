"""The episode loop: one coroutine that alternates between policy turns and replies of the environment.

episode = await run_episode(policy, ToolCallSolver(), searcher, SolveTask(question), Limits(), seed=7)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from quaere.chat.markup import find_blocks
from quaere.chat.protocol import Acted, Condenses, GivesTurns, KeepsCutAnswers, Message, Protocol, Quoted, shown_results
from quaere.errors import SamplingFailed, SearchFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import (
    Action,
    Answer,
    Boundary,
    EndReason,
    Episode,
    Failure,
    Final,
    Malformed,
    Search,
    SearchResult,
    SolveTask,
    Task,
    Turn,
)
from quaere.rewards.abstention import is_hidden
from quaere.rollout.policy import Conversation, Policy, Written, derive_seed
from quaere.search.engines import CANDIDATES, titles_first
from quaere.setting_types import NonNegativeInt, PositiveInt

if TYPE_CHECKING:  # importing it loads the search engines, and reading a run needs only the limits
    from quaere.search.searcher import Searcher

_SPENT = "searches"  # kind of failure of a search beyond the limit on searches
_SPARE_HITS = 20  # further hits of a search that leaves out passages with hidden answers


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Episode limits: turns, searches, tokens per turn, per reply and per sequence.

        Limits(max_turns=5, turn_tokens=512, sequence_tokens=3072, tool_response_tokens=512, max_searches=8, topk=3)

    Attributes:
        max_turns: Turns the model may take. [Dr. Zero]
        turn_tokens: Tokens the model may write in one turn. [Quaere]
        sequence_tokens: Tokens of the whole episode: prompt, turns and results. [Quaere]
        tool_response_tokens: Tokens of one search's results; what is longer is cut. [Quaere]
        max_searches: Queries in all; a turn may hold several, and `max_turns` may allow fewer. [Quaere]
        topk: Passages that a query returns. [Search-R1]
        titles_first: Show passages first whose title the query names, among the first ten found. [Quaere]
        answer_turn: Keep the last turn and `answer_tokens` for the answer: once no further search is possible,
            by turns, searches or tokens, the reply says so, and searches after it are refused. The papers do
            not do this (preset paper). [Quaere]
        answer_tokens: Tokens of the sequence that are kept for the answer. [Quaere]
        thought_tokens: Tokens of a thought at the start of a turn; a longer thought is ended, and the turn
            goes on after it. 0: as many as the turn has. No effect on models behind an endpoint. [Quaere]
    """

    max_turns: PositiveInt = 5
    turn_tokens: PositiveInt = 512
    sequence_tokens: PositiveInt = 3072
    tool_response_tokens: PositiveInt = 512
    max_searches: NonNegativeInt = 8
    topk: PositiveInt = 3
    answer_turn: bool = True
    answer_tokens: PositiveInt = 64
    thought_tokens: NonNegativeInt = 0
    titles_first: bool = False


async def run_episode(
    policy: Policy,
    protocol: Protocol,
    searcher: Searcher,
    task: Task,
    limits: Limits,
    *,
    episode_id: str = "",
    seed: int = 0,
    params: SamplingParams | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> Episode:
    """Run one episode: the policy works on the task until it answers or reaches a limit.

    Failures of the policy or of a search, and turns that cannot be parsed, are recorded on their turn and not raised.
    `params` sets the temperature and other sampling parameters; lengths and stop strings come from the limits and the
    protocol.
    """
    session = episode_id or task.id
    policy.open(session)
    try:
        conversation = policy.begin(session, protocol, task)
        params, on_turn = params or SamplingParams(), on_turn or (lambda turn: None)
        play = _Play(conversation, protocol, searcher, task, limits, params, seed, on_turn)
        end = await play.run()
    finally:
        policy.close(session)
    return Episode(
        id=session,
        task=task,
        protocol=protocol.name,
        model=policy.name,
        seed=seed,
        segments=conversation.segments,
        turns=tuple(play.turns),
        outcome=play.outcome,
        end=end,
    )


@dataclass
class _Play:
    """State of an episode in progress."""

    conversation: Conversation
    protocol: Protocol
    searcher: Searcher
    task: Task
    limits: Limits
    params: SamplingParams
    seed: int
    on_turn: Callable[[Turn], None]
    turns: list[Turn] = field(default_factory=list)
    outcome: Final | None = None
    round_tokens: int = 0  # tokens of the longest turn so far, including its reply
    must_answer: bool = False  # the policy has been told that no further search is possible

    async def run(self) -> EndReason:
        for index in range(self.limits.max_turns):
            is_last = index == self.limits.max_turns - 1
            given = (
                self.protocol.given_turn(self.task, index)
                if not is_last and isinstance(self.protocol, GivesTurns)
                else None
            )
            if given is None:
                self.conversation.open_turn(self.protocol.prefix(index, is_last or self.must_answer))
            if self._room < 1:
                return "sequence_limit"
            turn = await self._write(index) if given is None else self._write_for(given, index)
            end = self._ended(turn, is_last)
            if end is None:
                turn, fits = await self._answer(turn)
                end = None if fits else "sequence_limit"
            elif end == "turn_limit":
                turn = _failed(turn, "limit", "turns", "the last turn did not finish the task")
            self.turns.append(turn)
            self.on_turn(turn)
            if end is not None:
                return end
        return "turn_limit"

    @property
    def _room(self) -> int:
        return self.limits.sequence_tokens - self.conversation.num_tokens

    async def _write(self, index: int) -> Turn:
        params = structs.replace(
            self.params,
            max_tokens=min(self.limits.turn_tokens, self._room),
            stop=self.protocol.stop,
            seed=derive_seed(self.seed, index),
        )
        started, start = time.perf_counter(), self.conversation.num_tokens
        try:
            written = await self.conversation.write(params, self.limits.thought_tokens)
        except SamplingFailed as error:
            failure = Failure("model", "sampling", str(error))
            return Turn(index, "", Malformed("the policy wrote nothing"), "failed", failure=failure)
        turn = Turn(
            index=index,
            text=written.text,
            action=self._read(written),
            stop_reason=written.stop_reason,
            num_tokens=written.num_tokens,
            start=start,
            acts_at=self._find_action(written.text, start),
            sample_s=time.perf_counter() - started,
        )
        return _checked(turn)

    def _write_for(self, message: Message, index: int) -> Turn:
        """Append a turn that the protocol supplies in place of the policy, and parse its action."""
        written = self.conversation.write_for(message)
        start = self.conversation.num_tokens
        return _checked(Turn(index, written.text, self._read(written), written.stop_reason, start=start, acts_at=start))

    def _read(self, written: Written) -> Action:
        protocol, action = self.protocol, self.protocol.read(written.text, self.turns)
        if written.stop_reason == "length" and isinstance(action, Answer) and isinstance(protocol, KeepsCutAnswers):
            return protocol.read_cut(action)
        return action

    def _find_action(self, text: str, start: int) -> int:
        """Index of the token where the block marked by the protocol begins.

        The turn's start if it has no such block.
        """
        blocks = find_blocks(text, ("think", *self.protocol.marks)) if self.protocol.marks else []
        offset = next((block.start for block in blocks if block.name != "think"), None)
        return start if offset is None else self.conversation.locate(offset)

    def _ended(self, turn: Turn, is_last: bool) -> EndReason | None:
        if turn.stop_reason == "failed":
            return "failed"
        if isinstance(turn.action, Final):
            self.outcome = turn.action
            return "answered"
        return "turn_limit" if is_last else None

    async def _answer(self, turn: Turn) -> tuple[Turn, bool]:
        """Execute the action and append the environment's reply; the flag is False if the reply does not fit."""
        results: tuple[SearchResult, ...] = ()
        notes: str | None = None
        if isinstance(turn.action, Search):
            started = time.perf_counter()
            try:
                results = await self._search(turn.action)
                turn, notes = await self._take_notes(turn, results)
            except SearchFailed as error:
                results = ()
                turn = _failed(turn, "limit" if error.kind == _SPENT else "search", error.kind, str(error))
            turn = structs.replace(turn, search_s=time.perf_counter() - started)
        message = self._reply(turn, results, notes)
        # Keep one token free: without it the policy could not write its next turn.
        shown = self.conversation.answer(message, self._reply_tokens(message, results), self._room - 1)
        if shown is not None:
            read = shown_results(results, shown) if notes is None else results
            return structs.replace(turn, results=read, reply=shown.text), True
        turn = structs.replace(turn, results=results, reply=message.text)
        return _failed(turn, "limit", "sequence_tokens", "the reply does not fit into the sequence"), False

    async def _take_notes(self, turn: Turn, results: Sequence[SearchResult]) -> tuple[Turn, str | None]:
        """Let the policy condense the results into notes, in a separate conversation, if the protocol wants notes.

        Raises SearchFailed if this fails: the results are then not shown, as if the search had failed.
        """
        protocol, most = self.protocol, self.limits.sequence_tokens // 2  # half of a sequence to read, half to write
        if not isinstance(protocol, Condenses):
            return turn, None
        seed = derive_seed(self.seed, turn.index, "notes")
        num_tokens = min(self.limits.turn_tokens, most)
        params = structs.replace(self.params, max_tokens=num_tokens, stop=protocol.note_stop, seed=seed)
        messages = protocol.note_opening(self.task, turn, results, self.turns)
        try:
            written = await self.conversation.write_beside(messages, params, self.limits.thought_tokens, most)
        except SamplingFailed as error:
            raise SearchFailed(f"no notes were taken of what was found: {error}", kind="notes") from error
        return structs.replace(turn, note_tokens=written.num_tokens), protocol.read_notes(written.text)

    def _reply(self, turn: Turn, results: Sequence[SearchResult], notes: str | None) -> Message:
        """The environment's reply, with notes in place of the results; it says if no further search is possible."""

        acted = Acted(turn.action, results, turn.failure)

        def write(*, final: bool) -> Message:
            message = self.protocol.reply(acted, self.turns, final=final)
            return message if notes is None else structs.replace(message, parts=(Quoted(notes),))

        usual = write(final=False)
        if not self.limits.answer_turn:
            return usual
        final = write(final=True)
        self.must_answer = self.must_answer or not self._allows_search(turn, results, usual, final)
        return final if self.must_answer else usual

    def _allows_search(self, turn: Turn, results: Sequence[SearchResult], usual: Message, final: Message) -> bool:
        """True if turns, searches and tokens are left for another search and the answer after the usual reply."""
        limits, per_search = self.limits, self.protocol.turns_per_search
        turns_left = limits.max_turns - 1 - turn.index
        if results:  # the search just made needs further turns, such as EvalAct's evaluation of its results
            turns_left -= per_search - 1
        if turns_left <= per_search or self._num_searches + len(results) >= limits.max_searches:
            return False
        now, then = (self.conversation.count(message, limits.tool_response_tokens) for message in (usual, final))
        # The length of another search and its reply is unknown; the longest round so far is the estimate.
        self.round_tokens = max(self.round_tokens, turn.num_tokens + then)
        return self._room - now >= self.round_tokens + self._kept_tokens(num_searches=1 + bool(results))

    def _reply_tokens(self, message: Message, results: Sequence[SearchResult]) -> int:
        """Token limit of a reply; passages are cut further if the answer would no longer fit after them."""
        limit = self.limits.tool_response_tokens
        if not (self.limits.answer_turn and results):
            return limit
        room = self._room - self.conversation.count(message, 0) - self._kept_tokens(num_searches=1)
        return max(0, min(limit, room))

    def _kept_tokens(self, num_searches: int) -> int:
        """Tokens reserved for the answer and, where searches are evaluated, for evaluating `num_searches` of them."""
        num_evaluations = num_searches * (self.protocol.turns_per_search - 1)
        return min(self.limits.answer_tokens, self.limits.turn_tokens) * (1 + 2 * num_evaluations)

    @property
    def _num_searches(self) -> int:
        return sum(len(turn.results) for turn in self.turns)

    async def _search(self, action: Search) -> tuple[SearchResult, ...]:
        if self.must_answer:
            raise SearchFailed("no searches were left, and the policy had been told so", kind=_SPENT)
        if self._num_searches + len(action.queries) > self.limits.max_searches:
            raise SearchFailed(f"at most {self.limits.max_searches} searches are allowed", kind=_SPENT)
        return await find_results(self.searcher, self.task, action.queries, self.limits)


async def find_results(
    searcher: Searcher, task: Task, queries: Sequence[str], limits: Limits
) -> tuple[SearchResult, ...]:
    """The results of a task's queries, in the order in which they are shown, without passages with hidden answers."""
    topk, ordered = limits.topk, limits.titles_first
    wanted = max(topk, CANDIDATES) if ordered else topk
    hiding = task.question if isinstance(task, SolveTask) and task.question.hidden else None
    found = await searcher.search(queries, wanted + (_SPARE_HITS if hiding else 0))
    if hiding:
        found = [[hit for hit in hits if not is_hidden(hit.passage, hiding)][:wanted] for hits in found]
    return tuple(
        SearchResult(query, tuple(titles_first(query, hits, topk) if ordered else hits))
        for query, hits in zip(queries, found, strict=True)
    )


def _checked(turn: Turn) -> Turn:
    """The turn, with a failure recorded if no action could be read from its text."""
    if not isinstance(turn.action, Malformed):
        return turn
    if turn.stop_reason == "length":
        return _failed(turn, "limit", "turn_tokens", "the turn was cut off before it held an action")
    return _failed(turn, "protocol", "malformed", turn.action.reason)


def _failed(turn: Turn, boundary: Boundary, kind: str, message: str) -> Turn:
    return structs.replace(turn, failure=Failure(boundary, kind, message))


# -------------------------------------------------------------------------------------------------------- many episodes


class Job(Struct, frozen=True):
    """An episode to run; `limits` and `seed` override those of `run_many`.

    Job(protocol=ToolCallSolver(), task=SolveTask(...), episode_id="q1-0")
    """

    protocol: Protocol
    task: Task
    episode_id: str = ""
    limits: Limits | None = None
    seed: int | None = None


async def run_many(
    policy: Policy,
    jobs: Sequence[Job],
    searcher: Searcher,
    limits: Limits,
    *,
    seed: int = 0,
    params: SamplingParams | None = None,
    concurrency: int = 32,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_turn: Callable[[Turn], None] | None = None,
) -> AsyncGenerator[Episode, None]:
    """Run every job, at most `concurrency` at a time, and yield the episodes in the order of the jobs.

    `on_episode` is called with each episode as soon as it ends, in order of completion; `on_turn` with each turn. Who
    may stop early closes the generator (`contextlib.aclosing`), which ends the other episodes.

    An episode's seed derives from its number unless its job has a seed, so results do not depend on which episode
    finishes first. A policy with `lockstep` gets its episodes in cohorts that start together; which episodes share a
    batch is then determined by their numbers.
    """
    names = [job.episode_id or job.task.id for job in jobs]
    if len(set(names)) != len(names):
        raise ValueError("episodes of one run_many call must have different ids")
    gate = asyncio.Semaphore(concurrency)

    async def run(number: int) -> Episode:
        job = jobs[number]
        async with gate:
            episode = await run_episode(
                policy,
                job.protocol,
                searcher,
                job.task,
                job.limits or limits,
                episode_id=names[number],
                seed=derive_seed(seed, number) if job.seed is None else job.seed,
                params=params,
                on_turn=on_turn,
            )
        on_episode(episode)
        return episode

    cohort = concurrency if policy.lockstep else max(1, len(jobs))
    for first in range(0, len(jobs), cohort):
        numbers = range(first, min(first + cohort, len(jobs)))
        if policy.lockstep:
            # All sessions of a cohort are opened before any of them samples: a lockstep sampler starts a batch only
            # once every open session has asked, and a session opened late would change the batches.
            for number in numbers:
                policy.open(names[number])
        tasks = [asyncio.create_task(run(number)) for number in numbers]
        try:
            for task in tasks:
                yield await task
        finally:
            # The consumer may stop early; without this, its episodes would keep the sampler busy.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if policy.lockstep:  # a task that was cancelled before it began has not closed its session
                for number in numbers:
                    policy.close(names[number])
