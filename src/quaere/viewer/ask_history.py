"""The questions that were put to the page Ask, with their answers: kept until the viewer ends, or in a file.

    history = AskHistory(Path("asked.jsonl"))
    history.add(AskRecord(id="5f3a9c01d2e4", question="Who built the Halm bridge?", ...))
    history.lines()[0].answer -> "Orsolya Venn"

The file has one line of JSON for each question that is over, and is only ever appended to. What a killed process left
of a line is removed when the file is next opened. One viewer at a time writes it. Lists need the heads of the records
only, so the rest is read when a question is opened.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Evidence, Turn
from quaere.records.foreign_json import decode_json

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
            self._lines[record.id] = _head(record)
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


def _head(record: AskRecord) -> AskLine:
    return AskLine(record.id, record.question, record.time, record.state, record.answer)


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
