"""Journal of the question writer: what is finished is kept, so that a writer that was killed goes on where it was.

    journal = Journal(Path("own.jsonl.unfinished"), {"settings": settings, "index": index.fingerprint, "model": "qwen"})
    journal.batches                      # {0: Batch(number=0, kept=[...], dropped=[...])}
    journal.add(Batch(1, kept, dropped))

The first line says what the questions are written with; each further line is a batch of facts. A line that was cut by a
kill is written again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from quaere.errors import BadInput
from quaere.warmup.documents.drafts import Dropped, Worded


class Batch(msgspec.Struct, frozen=True):
    """The questions of one batch of facts that were kept, and those that were dropped.

    Batch(number=3, kept=[Worded(...)], dropped=[Dropped(...)])
    """

    number: int
    kept: list[Worded]
    dropped: list[Dropped]


class Journal:
    """A file of finished batches, for one writer at a time; `BadInput` if it was begun with something else."""

    def __init__(self, path: Path, written_with: Mapping[str, Any]) -> None:
        self.path = path
        self.batches: dict[int, Batch] = {}
        self._head = msgspec.json.encode(written_with, order="deterministic")
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        head, *whole = lines[:-1] or [self._head]  # what follows the last line break was cut
        if head != self._head:
            said = f"{path} was begun with another model, index or settings"
            raise BadInput(said, hint=f"the same command as then, or: rm {path}")
        for line in whole:
            try:
                batch = msgspec.json.decode(line, type=Batch)
            except msgspec.DecodeError as error:
                raise BadInput(f"{path} is damaged: {error}", hint=f"rm {path}, to begin again") from error
            self.batches[batch.number] = batch
        if path.exists():
            with path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in lines[:-1]))

    def add(self, batch: Batch) -> None:
        """Store a batch on disk."""
        if not self.path.exists() or not self.path.stat().st_size:
            self._append(self._head)
        self.batches[batch.number] = batch
        self._append(msgspec.json.encode(batch))

    def _append(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the file: the questions are written."""
        self.path.unlink(missing_ok=True)
