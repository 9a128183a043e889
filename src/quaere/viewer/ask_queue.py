"""The questions of the page Ask: asked to one agent, answered one after another, and kept with their answers.

    with AskQueue(agent, AskHistory(Path("asked.jsonl"))) as queue:
        id = queue.add("Who built the Halm bridge?").id
        queue.find(id).turns                         # as they are taken
        queue.cancel(id)

The model was loaded once, by the agent. A thread takes the questions in their order; records are never changed but
replaced, so that any other thread can read them at any time.

The history file has one line of JSON for each finished question, and is only ever appended to. What a killed
process left of a line is removed when the file is next opened. One viewer at a time writes it. Lists need the heads of
the records only, so the rest is read when a question is opened.
"""

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
from quaere.api.answer import Answer, say_doubt, say_unproven
from quaere.api.background import Started
from quaere.errors import BadInput, QuaereError, failure_line
from quaere.records import Evidence, Turn
from quaere.records.foreign_json import decode_json
from quaere.viewer.page_formats import copy_fields

MAX_WAITING = 20
MAX_QUESTION_CHARS = 4000

AskState = Literal["waiting", "running", "answered", "abstained", "unanswered", "cancelled", "failed"]


class AskLine(Struct, frozen=True):
    """The fields of a question that a list shows; `AskRecord` adds the rest.

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
        """True if the question neither waits nor runs, so that its record is final."""
        return self.state not in ("waiting", "running")


class AskRecord(AskLine, frozen=True):
    """A question, its turns so far and, once it is finished, its answer.

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


def describe_answer(answer: Answer, min_confidence: float = 0.0) -> dict[str, Any]:
    """The fields of `AskRecord` that an answer determines: state, and answer with its evidence or the problem."""
    if answer.episode.end != "answered":
        said = f"it ended without an answer: {answer.episode.end.replace('_', ' ')}"
        return {"state": "unanswered", "problem": said}
    if answer.abstained:
        return {"state": "abstained", "problem": say_doubt(answer.episode, min_confidence)}
    if not answer.found:
        said = f"not found in these documents: {say_unproven(answer.episode)}"
        return {"state": "unanswered", "problem": f"{said} (it would have been: {answer.text})"}
    sources = {name: getattr(answer, name) for name in ("evidence", "span", "support")}
    return {"state": "answered", "answer": answer.text, **sources}


# -------------------------------------------------------------------------------------------------------------- history


class AskHistory:
    """Records of finished questions, in a file or, without a path, in memory.

    `said` is the error if the file can no longer be written; records that could not be written stay in memory. There is
    no lock: the queue calls all of it while holding its own.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.said = ""
        self._lines: dict[str, AskLine] = {}
        # By id: the offset and length of its line in the file, or the record itself if it is in no file.
        self._stored: dict[str, tuple[int, int] | AskRecord] = {}
        self._size = 0
        self._handle = -1 if path is None else _open_locked(path)
        if path is not None:
            try:
                self._scan(path)
            except BaseException:
                self.close()
                raise

    def lines(self) -> list[AskLine]:
        """One `AskLine` per record, newest first."""
        return list(reversed(self._lines.values()))

    def read(self, id: str) -> AskRecord | None:
        """The record of this id; None if there is none."""
        stored = self._stored.get(id)
        if isinstance(stored, tuple):
            return decode_json(os.pread(self._handle, stored[1], stored[0]), AskRecord)
        return stored

    def add(self, record: AskRecord) -> None:
        """Add a record; with a writable file, the record is on disk (fsync) when `add` returns."""
        self._lines[record.id] = copy_fields(AskLine, record)
        self._stored[record.id] = (self._write(record) if self._handle >= 0 else None) or record

    def close(self) -> None:
        """Close the history's file, if there is one, which also releases its lock."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _write(self, record: AskRecord) -> tuple[int, int] | None:
        """Append a record to the file and return its place. If that fails, restore the file's length and set `said`."""
        written = 0
        try:
            line = msgspec.json.encode(record) + b"\n"
            while written < len(line):
                written += os.pwrite(self._handle, line[written:], self._size + written)
            os.fsync(self._handle)
        except (OSError, UnicodeError) as error:
            self.said = f"{self.path} cannot be written: {getattr(error, 'strerror', None) or error}"
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            return None
        self._size += len(line)
        return self._size - len(line), len(line)

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
                self._stored[head.id] = (self._size, len(line))
                self._size += len(line)


def _open_locked(path: Path) -> int:
    """Open or create the file and lock it; `BadInput` if another viewer holds the lock or the file is unusable."""
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
    """Raised by `AskQueue.add` when `MAX_WAITING` questions already wait."""


class AskQueue:
    """A queue of questions for one agent, answered one at a time by a thread, and their history."""

    def __init__(self, agent: Agent, history: AskHistory) -> None:
        self.model = agent.model
        self.index = agent.index  # None if it is behind a search server
        self.index_name = str(agent.index.path) if agent.index is not None else ""
        self.history, self._agent = history, agent
        self._changed = threading.Condition()
        self._open: dict[str, AskRecord] = {}  # waiting or running, in the order they were asked
        self._running: Started[Answer] | None = None
        self._cancelled: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="quaere-ask", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------ for the pages

    def add(self, question: str) -> AskRecord:
        """Append a question to the queue and return its record.

        Raises `QueueFull` if too many wait, `BadInput` if the text is empty or too long or the viewer is ending.
        """
        text = question.strip()
        if not 1 <= len(text) <= MAX_QUESTION_CHARS:
            said = f"a question has 1 to {MAX_QUESTION_CHARS} characters, not {len(text)}"
            raise BadInput(said, hint="write one question")
        record = AskRecord(
            id=secrets.token_hex(6),
            question=text,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
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
        """Cancel a question that waits or runs, also in the middle of a turn; no effect on finished or unknown ones."""
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
            return self._open.get(id) or self.history.read(id)

    def place(self, id: str) -> int:
        """Position of this question among those that wait, counted from 1; 0 if it is not waiting."""
        with self._changed:
            waiting = self._waiting()
            return waiting.index(id) + 1 if id in waiting else 0

    def lines(self) -> list[AskLine]:
        """One line per question, open or finished, newest first."""
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
        """Cancel every open question, end the thread and close the history; the agent stays open."""
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
        """Wait for a question, mark it as running and return its id; None once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting() or self._closing)
            id = next(iter(self._waiting()), None)
            if id is not None:
                self._open[id] = structs.replace(self._open[id], state="running")
            return id

    def _waiting(self) -> list[str]:
        """Ids of the waiting questions, oldest first. The caller holds the lock."""
        return [id for id, record in self._open.items() if record.state == "waiting"]

    def _answer(self, id: str) -> dict[str, Any]:
        """Ask the agent; returns the final fields of the record: state, and answer or problem."""
        try:
            started = self._agent.start(self._open[id].question, on_turn=partial(self._add_turn, id))
            with self._changed:
                self._running = started
                if id in self._cancelled:  # before it had begun
                    started.cancel()
            return describe_answer(started.result(), self._agent.opened.min_confidence)
        except CancelledError:
            return {"state": "cancelled", "problem": "cancelled"}
        except Exception as error:  # a fault must not end the queue: later questions would wait forever
            problem = str(error) if isinstance(error, QuaereError) else failure_line(error)
            return {"state": "failed", "problem": problem}
        finally:
            with self._changed:
                self._running = None

    def _add_turn(self, id: str, turn: Turn) -> None:
        with self._changed:
            self._open[id] = structs.replace(self._open[id], turns=(*self._open[id].turns, turn))

    def _finish(self, id: str, **changes: Any) -> None:
        """Move a question with these changes to the history. The caller holds the lock: no reader sees it missing."""
        self.history.add(structs.replace(self._open[id], **changes))
        del self._open[id]
        self._cancelled.discard(id)
