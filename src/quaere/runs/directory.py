"""The files of a run directory: how they come to be, and who may write to them.

make_directory(Path("runs/ask-1"), RunInfo(id="ask-1", kind="ask", ...))
lock = take_lock(Path("runs/ask-1"), database)
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from quaere.atomic import new_folder, write_file
from quaere.errors import BadInput
from quaere.runs.database import connect, create_database, insert
from quaere.runs.rows import RunInfo

DATABASE, EPISODES, CONFIG, LOCK = "run.db", "episodes", "config.yaml", "run.lock"


def make_directory(
    path: Path, info: RunInfo, config: str | None = None, files: Mapping[str, bytes] | None = None
) -> None:
    """Make a run directory that appears complete, in one rename; `files` are kept in it by their names."""
    with new_folder(path, replace=False) as partial:
        (partial / EPISODES).mkdir()
        _write_info(partial / DATABASE, info)
        if config is not None:
            (partial / CONFIG).write_bytes(config.encode())
        for name, content in (files or {}).items():
            (partial / name).write_bytes(content)


def write_config(directory: Path, text: str) -> None:
    """Write `config.yaml`, or put another in its place; killed at any moment, one of the two is there whole."""
    write_file(directory / CONFIG, text)


def take_lock(path: Path, database: sqlite3.Connection) -> FileLock:
    """Become the writer. The system lets go of the lock when its holder dies, however it dies."""
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        (pid,) = database.execute("SELECT writer_pid FROM runs").fetchone()
        who = f"process {pid}" if pid else "another process"
        raise BadInput(f"run {path.name} is being written by {who}", hint="wait for it, or start a new run") from error
    with database:
        database.execute("UPDATE runs SET writer_pid = ?", (os.getpid(),))
    return lock


def _write_info(path: Path, info: RunInfo) -> None:
    create_database(path)
    database = connect(path, write=True)
    try:
        settings = msgspec.json.encode(info.settings).decode()
        insert(database, "runs", [{**msgspec.structs.asdict(info), "settings": settings}])
    finally:
        database.close()
