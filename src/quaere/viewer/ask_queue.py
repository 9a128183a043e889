"""The questions of the page Ask: asked to one agent, answered one after another, and kept with their answers.

    with AskQueue(agent, AskHistory(Path("asked.jsonl"))) as queue:
        id = queue.add("Who built the Halm bridge?").id
        queue.find(id).turns                         # as they are taken
        queue.cancel(id)

The model was loaded once, by the agent. A thread takes the questions in their order; records are never changed but
replaced, so that any other thread can read them at any time.

The file of a history has one line of JSON for each question that is over, and is only ever appended to. What a killed
process left of a line is removed when the file is next opened. One viewer at a time writes it. Lists need the heads of
the records only, so the rest is read when a question is opened.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct, structs

from quaere.api.agent import Agent
from quaere.api.answer import Answer
from quaere.api.background import Started
from quaere.errors import BadInput, QuaereError, failure_line
from quaere.records import Evidence, Turn
from quaere.records.foreign_json import decode_json

MAX_WAITING = 20
MAX_QUESTION_CHARS = 4000

AskState = Literal["waiting", "running", "answered", "unanswered", "cancelled", "failed"]


class AskLine(Struct, frozen=True):
    """The head of a record, as a list shows it.

    AskLine(id="5f3a9c01d2e4", question="Who built the Halm bridge?", time="2025-03-01T10:15:00+00:00",
            state="answered", answer="Orsolya Venn")
    """

    id: str
    question: str
    time: str
    state: AskState
    answer: str = ""

    @property
    def is_over(self) -> bool:
        """True if nothing will be added to it."""
        return self.state not in ("waiting", "running")


class AskRecord(AskLine, frozen=True):
    """A question, the turns so far, and once it is over its answer.

    `evidence` is the quoted sentence as its document has it, `span` as the model wrote it, `support` the first sentence
    the model was shown that contains the answer. `quotes` is whether the model was asked to quote, None if that is not
    known. `problem` is why it ended without an answer.

        AskRecord(id="5f3a9c01d2e4", question="Who built the Halm bridge?", time="2025-03-01T10:15:00+00:00",
                  state="answered", answer="Orsolya Venn", model="smollm2-135m", index="notes-index",
                  turns=(Turn(...),), seconds=4.2)
    """

    model: str = ""
    index: str = ""
    quotes: bool | None = False
    turns: tuple[Turn, ...] = ()
    evidence: Evidence | None = None
    span: str = ""
    support: Evidence | None = None
    problem: str = ""
    seconds: float = 0.0


def describe_answer(answer: Answer) -> dict[str, Any]:
    """What a record says of an answer."""
    if answer.episode.end != "answered":
        said = f"it ended without an answer: {answer.episode.end.replace('_', ' ')}"
        return {"state": "unanswered", "problem": said}
    if not answer.found:
        said = "not found in these documents: the passage with its answer has too few of the question's key words"
        return {"state": "unanswered", "problem": f"{said} (it would have been: {answer.text})"}
    return {
        "state": "answered",
        "answer": answer.text,
        "evidence": answer.evidence,
        "span": answer.span,
        "support": answer.support,
    }


# -------------------------------------------------------------------------------------------------------------- history


class AskHistory:
    """Records of questions that are over; without a path they are kept in memory.

    `said` is why the file cannot be written any more; what is not in it is kept in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.said = ""
        self._lock = threading.Lock()
        self._lines: dict[str, AskLine] = {}
        self._kept: dict[str, AskRecord] = {}
        self._places: dict[str, tuple[int, int]] = {}  # by id: offset and length of its line in the file
        self._size = 0
        self._handle = -1
        if path is not None:
            self._handle = _open_locked(path)
            try:
                self._scan(path)
            except BaseException:
                self.close()
                raise

    def lines(self) -> list[AskLine]:
        """The head of every record, the newest first."""
        with self._lock:
            return list(reversed(self._lines.values()))

    def read(self, id: str) -> AskRecord | None:
        """The record of this id; None if there is none."""
        with self._lock:
            if id in self._kept or id not in self._places:
                return self._kept.get(id)
            offset, length = self._places[id]
            return decode_json(os.pread(self._handle, length, offset), AskRecord)

    def add(self, record: AskRecord) -> None:
        """Add a record; with a file, it is on disk when this returns."""
        with self._lock:
            self._lines[record.id] = AskLine(record.id, record.question, record.time, record.state, record.answer)
            if self._handle < 0 or not self._write(record):
                self._kept[record.id] = record

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _write(self, record: AskRecord) -> bool:
        """Append a record to the file; False if that failed, and the file is as it was."""
        line = msgspec.json.encode(record) + b"\n"
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._handle, line[written:], self._size + written)
            os.fsync(self._handle)
        except OSError as error:
            self.said = f"{self.path} cannot be written: {error.strerror}"
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            return False
        self._places[record.id] = (self._size, len(line))
        self._size += len(line)
        return True

    def _scan(self, path: Path) -> None:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    os.ftruncate(self._handle, self._size)
                    return
                try:
                    head = decode_json(line, AskLine)
                except msgspec.DecodeError as error:
                    raise BadInput(
                        f"{path}, line {number}: not a question of the page Ask: {error}",
                        hint="name another file: quaere view --history FILE",
                    ) from error
                self._lines[head.id] = head
                self._places[head.id] = (self._size, len(line))
                self._size += len(line)


def _open_locked(path: Path) -> int:
    """A handle on the file, which no other viewer has while it is open."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}", hint="quaere view --history FILE") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise BadInput(f"{path} is no regular file", hint="quaere view --history FILE")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BadInput(f"{path} is the history of another viewer", hint="end that one, or name another file") from None
    except OSError:  # a file system without locks
        pass
    return handle


# ---------------------------------------------------------------------------------------------------------------- queue


class QueueFull(BadInput):
    """So many questions wait that another one is not taken."""


class AskQueue:
    """An agent, the questions that wait for it, and those it has answered."""

    def __init__(self, agent: Agent, history: AskHistory) -> None:
        self.model = agent.model
        self.index = agent.index  # None if it is behind a search server
        self.index_name = str(agent.index.path) if agent.index is not None else ""
        self.history = history
        self._agent = agent
        self._changed = threading.Condition()
        self._open: dict[str, AskRecord] = {}  # waiting or running, in the order they were asked
        self._running: Started[Answer] | None = None
        self._cancelled: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="quaere-ask", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------ for the pages

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
            if len(self._waiting()) >= MAX_WAITING:
                raise QueueFull(f"{MAX_WAITING} questions are waiting", hint="ask again later, or cancel one of them")
            self._open[record.id] = record
            self._changed.notify_all()
        return record

    def cancel(self, id: str) -> None:
        """Stop a question, also in the middle of a turn; one that is over stays as it is."""
        with self._changed:
            if id in self._waiting():
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
        return self.history.read(id)

    def place(self, id: str) -> int:
        """How many questions are before this one; 0 if it is not waiting."""
        with self._changed:
            waiting = self._waiting()
            return waiting.index(id) + 1 if id in waiting else 0

    def lines(self) -> list[AskLine]:
        """Every question, the newest first."""
        with self._changed:
            return [*reversed(self._open.values()), *self.history.lines()]

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
        self.history.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------------- the thread

    def _work(self) -> None:
        while (id := self._take()) is not None:
            began = time.monotonic()
            ended = self._answer(id)
            with self._changed:
                self._finish(id, seconds=time.monotonic() - began, **ended)

    def _take(self) -> str | None:
        """The next question, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting() or self._closing)
            id = next(iter(self._waiting()), None)
            if id is not None:
                self._open[id] = structs.replace(self._open[id], state="running")
            return id

    def _waiting(self) -> list[str]:
        """The questions that wait, the next one first. The caller holds the lock."""
        return [id for id, record in self._open.items() if record.state == "waiting"]

    def _answer(self, id: str) -> dict[str, Any]:
        """Ask the agent; returns what the record ends with."""
        try:
            started = self._agent.start(self._open[id].question, on_turn=partial(self._add_turn, id))
            with self._changed:
                self._running = started
                if id in self._cancelled:  # before it had begun
                    started.cancel()
            answer = started.result()
        except CancelledError:
            return {"state": "cancelled", "problem": "cancelled"}
        except Exception as error:  # a fault of the engine must not end the queue
            problem = str(error) if isinstance(error, QuaereError) else failure_line(error)
            return {"state": "failed", "problem": problem}
        finally:
            with self._changed:
                self._running = None
        return describe_answer(answer)

    def _add_turn(self, id: str, turn: Turn) -> None:
        with self._changed:
            record = self._open[id]
            self._open[id] = structs.replace(record, turns=(*record.turns, turn))

    def _finish(self, id: str, **changes: Any) -> None:
        """Move a question to the history. The caller holds the lock, so it is always in one of the two."""
        record = structs.replace(self._open[id], **changes)
        self.history.add(record)
        del self._open[id]
        self._cancelled.discard(id)
