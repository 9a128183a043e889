"""The files of a run directory: creation, the writer's lock, and checks before writing.

make_directory(Path("runs/ask-1"), RunInfo(id="ask-1", kind="ask", ...))
lock = take_lock(Path("runs/ask-1"), database)
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from quaere.disk import find_special, new_folder, write_file
from quaere.errors import BadInput
from quaere.runs.database import connect, create_database, insert
from quaere.runs.rows import RunInfo

DATABASE, EPISODES, CONFIG, LOCK = "run.db", "episodes", "config.yaml", "run.lock"
BEGUN = "begun"  # what is noted of a run's end while there is none
_LOOK_S = 0.2


def make_directory(
    path: Path, info: RunInfo, config: str | None = None, files: Mapping[str, bytes] | None = None
) -> None:
    """Create a complete run directory with one atomic rename; `files` are stored in it by name."""
    with new_folder(path, replace=False) as partial:
        (partial / EPISODES).mkdir()
        _write_info(partial / DATABASE, info)
        if config is not None:
            (partial / CONFIG).write_bytes(config.encode())
        for name, content in (files or {}).items():
            (partial / name).write_bytes(content)


def write_config(directory: Path, text: str) -> None:
    """Write or replace `config.yaml` atomically: after a kill either the old or the new file is there, complete."""
    write_file(directory / CONFIG, text)


def refuse_links(path: Path) -> None:
    """Raise BadInput if a file of the run is a symbolic link: in a run from someone else it could point to any file."""
    for file in _list_files(path):
        if file.is_symlink():
            raise BadInput(
                f"{file} is a symbolic link; a run can only be written to if its files are regular files",
                hint="replace the link by a copy of the file",
            )


def refuse_special(path: Path) -> None:
    """Raise BadInput if a file of the run is a pipe, a device or a socket: reading it might never end."""
    if found := find_special(_list_files(path)):
        raise BadInput(f"{found} is no regular file; a run that has such files is not read", hint="delete it")


def take_lock(path: Path, database: sqlite3.Connection) -> FileLock:
    """Acquire the writer's lock. The operating system releases it when the process ends, even if it is killed."""
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=_LOOK_S)  # wait briefly: `is_locked` takes a shared lock for an instant
        with database:
            database.execute("UPDATE runs SET writer_pid = ?", (os.getpid(),))
        return lock
    except Timeout as error:
        (pid,) = database.execute("SELECT writer_pid FROM runs").fetchone()
        who = f"process {pid}" if pid else "another process"
        raise BadInput(f"run {path.name} is being written by {who}", hint="wait for it, or start a new run") from error
    except (sqlite3.Error, OSError) as error:
        lock.release()
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot write to the run {path}: {reason}") from error


@contextmanager
def hold_idle(path: Path) -> Iterator[None]:
    """Keep writers out of a run while this lasts; a `BadInput` if one is at work."""
    if (path / LOCK).is_symlink():
        raise BadInput(f"{path / LOCK} is a link; a run's lock is its own file", hint="delete the link")
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=_LOOK_S)  # `is_locked` may hold it for an instant
    except Timeout:
        raise BadInput(f"run {path.name} is running", hint="stop it first, or wait for it") from None
    except OSError as error:
        raise BadInput(f"cannot lock the run {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """True while a process has the run open for writing."""
    try:
        handle = os.open(path / LOCK, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place must not block
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)  # this also releases the shared lock
    return False


def _list_files(path: Path) -> list[Path]:
    """What is in a run's directory, and its shards."""
    return [*path.iterdir(), *path.glob(f"{EPISODES}/*")] if path.is_dir() else []


def _write_info(path: Path, info: RunInfo) -> None:
    try:
        create_database(path)
        with closing(connect(path, write=True)) as database:
            settings = msgspec.json.encode(info.settings).decode()
            insert(database, "runs", [{**msgspec.structs.asdict(info), "settings": settings, "ended": BEGUN}])
    except sqlite3.Error as error:  # also raised for a full disk
        raise BadInput(f"cannot write the database of run {info.id}: {error}") from error
