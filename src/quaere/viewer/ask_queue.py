"""Questions to one agent, answered one after another: the page Ask behind its pages.

    with AskQueue(agent, AskHistory()) as queue:
        id = queue.add("Who built the Halm bridge?")
        queue.find(id).turns                         # as they are taken
        queue.cancel(id)

The model was loaded once, by the agent. A thread takes the questions in their order; records are never changed but
replaced, so that any other thread can read them at any time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from msgspec import structs

from quaere.api.agent import Agent
from quaere.api.answer import Answer
from quaere.api.background import Started
from quaere.errors import BadInput, QuaereError, failure_line
from quaere.records import Turn
from quaere.search.index import Index
from quaere.viewer.answer_view import describe_answer
from quaere.viewer.ask_history import AskHistory, AskLine, AskRecord

MAX_WAITING = 20
MAX_QUESTION_CHARS = 4000


class QueueFull(BadInput):
    """So many questions wait that another one is not taken."""


class AskQueue:
    """An agent, the questions that wait for it, and those it has answered."""

    def __init__(self, agent: Agent, history: AskHistory) -> None:
        self._agent = agent
        self._history = history
        self._changed = threading.Condition()
        self._open: dict[str, AskRecord] = {}  # waiting or running, in the order they were asked
        self._waiting: deque[str] = deque()
        self._running: Started[Answer] | None = None
        self._cancelled: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="quaere-ask", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------ for the pages

    @property
    def model(self) -> str:
        """The model that answers."""
        return self._agent.model

    @property
    def index(self) -> Index | None:
        """The index that is searched; None if it is behind a search server."""
        return self._agent.index

    @property
    def index_name(self) -> str:
        """The directory of the index; "" if it is behind a search server."""
        return str(self.index.path) if self.index is not None else ""

    @property
    def history(self) -> AskHistory:
        """Where the questions are kept that are over."""
        return self._history

    def add(self, question: str) -> AskRecord:
        """Put a question at the end of the queue."""
        text = question.strip()
        if not text or len(text) > MAX_QUESTION_CHARS:
            raise BadInput(
                f"a question has 1 to {MAX_QUESTION_CHARS} characters, not {len(text)}", hint="write one question"
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record = AskRecord(
            id=secrets.token_hex(6),
            question=text,
            time=now,
            state="waiting",
            model=self.model,
            index=self.index_name,
            quotes=bool(getattr(self._agent.protocol, "evidence", False)),
        )
        with self._changed:
            if self._closing:
                raise BadInput("the viewer is ending")
            if len(self._waiting) >= MAX_WAITING:
                raise QueueFull(f"{MAX_WAITING} questions are waiting", hint="ask again later, or cancel one of them")
            self._open[record.id] = record
            self._waiting.append(record.id)
            self._changed.notify_all()
        return record

    def cancel(self, id: str) -> None:
        """Stop a question, also in the middle of a turn; one that is over stays as it is."""
        with self._changed:
            if id in self._waiting:
                self._waiting.remove(id)
                self._finish(id, state="cancelled", problem="cancelled before its turn came")
            elif id in self._open:
                self._cancelled.add(id)
                if self._running is not None:
                    self._running.cancel()

    def find(self, id: str) -> AskRecord | None:
        """The record of a question as it is now; None if there is none of this id."""
        with self._changed:
            if id in self._open:
                return self._open[id]
        return self._history.read(id)

    def place(self, id: str) -> int:
        """How many questions are before this one; 0 if it is not waiting."""
        with self._changed:
            return self._waiting.index(id) + 1 if id in self._waiting else 0

    def lines(self) -> list[AskLine]:
        """Every question, the newest first."""
        with self._changed:
            return [*reversed(self._open.values()), *self._history.lines()]

    def look(self, id: str) -> tuple[object, ...]:
        """A value that changes when the page of a question does."""
        record = self.find(id)
        return () if record is None else (record.state, len(record.turns), self.place(id))

    def look_all(self) -> tuple[object, ...]:
        """A value that changes when the list of questions does."""
        return tuple((line.id, line.state) for line in self.lines())

    def close(self) -> None:
        """Cancel what runs, forget what waits, and end; the agent is not closed."""
        with self._changed:
            self._closing = True
            for id in list(self._open):
                self.cancel(id)
            self._changed.notify_all()
        self._thread.join()
        self._history.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------------- the thread

    def _work(self) -> None:
        while (id := self._take()) is not None:
            began = time.monotonic()
            ended = self._answer(id, self._add_turn(id))
            with self._changed:
                self._finish(id, seconds=time.monotonic() - began, **ended)

    def _take(self) -> str | None:
        """The next question, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return None
            id = self._waiting.popleft()
            self._open[id] = structs.replace(self._open[id], state="running")
            return id

    def _answer(self, id: str, on_turn: Callable[[Turn], None]) -> dict[str, Any]:
        """Ask the agent; returns what the record ends with."""
        try:
            started = self._agent.start(self._open[id].question, on_turn=on_turn)
            with self._changed:
                self._running = started
                if id in self._cancelled:  # before it had begun
                    started.cancel()
            answer = started.result()
        except CancelledError:
            return {"state": "cancelled", "problem": "cancelled"}
        except QuaereError as error:
            return {"state": "failed", "problem": str(error)}
        except Exception as error:  # a fault of the engine must not end the queue
            return {"state": "failed", "problem": failure_line(error)}
        finally:
            with self._changed:
                self._running = None
        return describe_answer(answer)

    def _add_turn(self, id: str) -> Callable[[Turn], None]:
        def add(turn: Turn) -> None:
            with self._changed:
                record = self._open[id]
                self._open[id] = structs.replace(record, turns=(*record.turns, turn))

        return add

    def _finish(self, id: str, **changes: Any) -> None:
        """Move a question to the history. The caller holds the lock, so it is always in one of the two."""
        record = structs.replace(self._open[id], **changes)
        self._history.add(record)
        del self._open[id]
        self._cancelled.discard(id)
