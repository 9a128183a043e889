"""The files of a run directory: how they come to be, and who may write to them.

make_directory(Path("runs/ask-1"), RunInfo(id="ask-1", kind="ask", ...))
lock = take_lock(Path("runs/ask-1"), database)
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from quaere.errors import BadInput
from quaere.runs.database import connect, create_database, insert
from quaere.runs.rows import RunInfo

DATABASE, EPISODES, CONFIG, LOCK = "run.db", "episodes", "config.yaml", "run.lock"


def make_directory(
    path: Path, info: RunInfo, config: str | None = None, files: Mapping[str, bytes] | None = None
) -> None:
    """Make a run directory that appears complete, in one rename; `files` are kept in it by their names."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)  # left by a process of the same number that was killed
        partial.mkdir()
        try:
            (partial / EPISODES).mkdir()
            _write_info(partial / DATABASE, info)
            if config is not None:
                write_config(partial, config)
            for name, content in (files or {}).items():
                (partial / name).write_bytes(content)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)  # still there only if it was not renamed
    except OSError as error:
        reason = "it exists already" if path.exists() else error.strerror
        raise BadInput(f"cannot create the run directory {path}: {reason}", hint="quaere runs list") from error


def write_config(directory: Path, text: str) -> None:
    """Write `config.yaml`, or put another in its place; killed at any moment, one of the two is there whole."""
    partial = directory / f".{CONFIG}.partial"
    with partial.open("wb") as stream:
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(directory / CONFIG)


def refuse_links(path: Path) -> None:
    """Refuse to write to a run whose files are links: one that somebody else sent could lead to any file of ours."""
    files = (*path.iterdir(), *path.glob(f"{EPISODES}/*")) if path.is_dir() else ()
    for file in files:
        if file.is_symlink():
            raise BadInput(
                f"{file} is a link; a run is written to only where its files are its own",
                hint="put the file in the link's place",
            )


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
