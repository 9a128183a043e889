"""What a run was begun with, read with as little work as possible: for lists of folders with thousands of runs.

read_brief("runs/notes") -> RunInfo(id="notes", kind="evolve", ...)

Opening a database in WAL mode creates two files beside it and removes them again, which takes longer than all the rest.
Where nothing is left in the write-ahead log, the file alone is complete and is read without one. Should a writer copy
its log into the file in this very moment, the file's attributes change, and whoever keeps the result reads it again.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from urllib.parse import quote

from quaere.runs.directory import DATABASE
from quaere.runs.rows import INFO_COLUMNS, RunInfo, read_info


def read_brief(path: str) -> RunInfo | None:
    """The description of the run in this directory; None if it needs, or deserves, to be opened as usual."""
    file = f"{path}/{DATABASE}"
    if os.path.islink(file) or _size(f"{file}-wal"):
        return None
    try:
        with closing(sqlite3.connect(f"file:{quote(file)}?immutable=1", uri=True)) as database:
            (row,) = database.execute(f"SELECT {INFO_COLUMNS} FROM runs").fetchall()
        return read_info(row)
    except (sqlite3.Error, ValueError, TypeError):  # damaged, or of another version: opening it says what is wrong
        return None


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0
