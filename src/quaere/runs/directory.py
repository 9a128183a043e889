"""The files of a run directory: its database, the writer's lock, its episodes, and checks before reading and writing.

    make_directory(Path("runs/ask-1"), RunInfo(id="ask-1", kind="ask", ...))
    database = connect(Path("runs/ask-1/run.db"), write=True)
    lock = take_lock(Path("runs/ask-1"), database)

`run.db` is an SQLite file in WAL mode, so that other processes can read while one writes.

Episodes are in `episodes/00000.jsonl.zst`, `00001.jsonl.zst`, ..., each a sequence of complete zstd frames. A frame has
the lines of one append and can be decompressed alone; a shard as a whole is an ordinary `.jsonl.zst` file (`zstd -dc`
reads it). Only the index in `run.db` knows where a frame starts: bytes that no index row points at were left by a
killed process, and the next writer truncates them.

    read_frame(Path("runs/ask-1/episodes"), Frame(shard=0, offset=5120, length=874)) == [b'{"id":"ask-3",...}', ...]
"""

import fcntl
import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import zstandard
from filelock import FileLock, Timeout

from quaere.disk import find_special, new_folder, open_regular
from quaere.errors import UPDATE_HINT, BadInput
from quaere.runs.rows import Frame, RunInfo, insert

DATABASE, EPISODES, CONFIG, LOCK = "run.db", "episodes", "config.yaml", "run.lock"
BEGUN = "begun"  # stored in place of a run's end as long as it has not ended
SYNCHRONOUS = "FULL"  # a committed row survives a power cut, like its frame
_BUSY_S = 30.0  # how long a writer waits for another: a run in training, or a person adding verdicts or questions
_LOOK_S = 0.2  # how long a writer waits for the lock: `is_locked` takes it for an instant


# ------------------------------------------------------------------------------------------------------------- schema

OLDEST_VERSION = 2  # readers leave it unchanged; it is migrated when opened for writing
_OLDEST_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, created TEXT NOT NULL, version TEXT NOT NULL,
    settings TEXT NOT NULL, writer_pid INTEGER
) STRICT;
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    shard INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, line INTEGER NOT NULL,
    task_id TEXT NOT NULL, question TEXT NOT NULL, answer TEXT, protocol TEXT NOT NULL, model TEXT NOT NULL,
    end TEXT NOT NULL, answered INTEGER NOT NULL,
    num_turns INTEGER NOT NULL, num_searches INTEGER NOT NULL, num_tokens INTEGER NOT NULL,
    metrics TEXT NOT NULL, step INTEGER NOT NULL DEFAULT 0, phase TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX episodes_by_step ON episodes (step);
CREATE TABLE metrics (
    name TEXT NOT NULL, step INTEGER NOT NULL, value REAL, PRIMARY KEY (name, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX metrics_by_step ON metrics (step);
CREATE TABLE candidates (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, step INTEGER NOT NULL, iteration INTEGER NOT NULL,
    episode_id TEXT NOT NULL, document_id TEXT NOT NULL, hops INTEGER NOT NULL,
    question TEXT NOT NULL, answer TEXT NOT NULL, num_right INTEGER NOT NULL, num_attempts INTEGER NOT NULL,
    reason TEXT NOT NULL, scores TEXT NOT NULL
) STRICT;
CREATE TABLE events (
    number INTEGER PRIMARY KEY, step INTEGER NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
"""
# Statements that migrate each version to the next; a new database goes through all of them. New columns have defaults,
# so that old rows stay valid. Verdicts and added questions are a person's: tables of their own without a step column,
# so that `drop_after` cannot delete them. Iteration -1 of an added question means all iterations. A token trace has the
# per-token values of an episode, as arrays of 32-bit numbers: integers for places, floats for the rest.
_MIGRATIONS = {
    2: (
        "ALTER TABLE candidates ADD COLUMN span TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE candidates ADD COLUMN evidence TEXT",
        "ALTER TABLE candidates ADD COLUMN support TEXT",
        "ALTER TABLE candidates ADD COLUMN refusals TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE candidates ADD COLUMN cluster INTEGER NOT NULL DEFAULT -1",
        "ALTER TABLE candidates ADD COLUMN question_type TEXT NOT NULL DEFAULT ''",
        """CREATE TABLE verdicts (
            candidate_id TEXT PRIMARY KEY, kind TEXT NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL,
            span TEXT NOT NULL, note TEXT NOT NULL, time TEXT NOT NULL
        ) STRICT""",
    ),
    3: (
        """CREATE TABLE added (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, iteration INTEGER NOT NULL, document_id TEXT NOT NULL,
            hops INTEGER NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL, span TEXT NOT NULL, evidence TEXT,
            origin TEXT NOT NULL, time TEXT NOT NULL
        ) STRICT""",
    ),
    4: (
        "ALTER TABLE candidates ADD COLUMN aliases TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE added ADD COLUMN aliases TEXT NOT NULL DEFAULT '[]'",
    ),
    5: ("ALTER TABLE runs ADD COLUMN ended TEXT NOT NULL DEFAULT ''",),
    6: (
        """CREATE TABLE token_traces (
            episode_id TEXT PRIMARY KEY, step INTEGER NOT NULL, places BLOB NOT NULL, advantages BLOB NOT NULL,
            logprobs BLOB NOT NULL, entropies BLOB NOT NULL
        ) STRICT""",
    ),
    7: (
        "ALTER TABLE candidates ADD COLUMN searches INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE candidates ADD COLUMN proof TEXT NOT NULL DEFAULT '[]'",
    ),
}
SCHEMA_VERSION = max(_MIGRATIONS) + 1

# ----------------------------------------------------------------------------------------------------- folder of runs


def runs_root(given: str | Path | None = None) -> Path:
    """The folder of runs: the one given, else `$QUAERE_RUNS`, else `./runs`."""
    return Path(given or os.environ.get("QUAERE_RUNS") or "runs")


def list_command(root: Path) -> str:
    """The command that lists the runs of a folder, which it names if it is not the default.

    list_command(Path("others")) == "quaere runs list --runs others"
    """
    return "quaere runs list" + ("" if root == runs_root() else f" --runs {shlex.quote(str(root))}")


# ----------------------------------------------------------------------------------------------------------- database


def _create_database(path: Path, info: RunInfo) -> None:
    settings = msgspec.json.encode(info.settings).decode()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        database.execute("PRAGMA journal_mode = WAL")
        steps = "; ".join(statement for number in _MIGRATIONS for statement in _MIGRATIONS[number])
        database.executescript(f"BEGIN; {_OLDEST_SCHEMA} {steps}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        insert(database, "runs", [{**msgspec.structs.asdict(info), "settings": settings, "ended": BEGUN}])


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open the database of a run; raises BadInput if it is not one or its schema is newer than this version reads.

    Opening an older schema for writing migrates it; opening it for reading leaves it unchanged.
    """
    others = list_command(path.parent.parent)
    if not path.is_file():
        raise BadInput(f"{path.parent} is not a run directory: it has no {path.name}", hint=others)
    # SQLite opens these by itself, and waits where one is a pipe.
    if special := find_special(path.with_name(path.name + end) for end in ("-journal", "-wal", "-shm")):
        raise BadInput(f"{special} is no regular file; a run that has such files is not read", hint="delete it")
    mode = "mode=rw" if write else "mode=ro"
    if not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        mode = "immutable=1"  # otherwise SQLite, in WAL mode, would create files here even for reading, and fail
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_S)
        database.row_factory = sqlite3.Row
        version = _read_version(database)
        if write:
            database.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            version = _migrate(database, version)
    except sqlite3.Error as error:
        raise BadInput(f"{path} cannot be read: {error}", hint=others) from error
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        database.close()
        said = f"{path} has schema {version}; this quaere reads {OLDEST_VERSION} to {SCHEMA_VERSION}"
        raise BadInput(said, hint=UPDATE_HINT if version > SCHEMA_VERSION else others)
    return database


def _read_version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _migrate(database: sqlite3.Connection, version: int) -> int:
    """Migrate an older schema to the current one in one transaction; returns the version the database then has."""
    if not OLDEST_VERSION <= version < SCHEMA_VERSION:
        return version
    with database:
        # The write lock comes first, then the version is read again: another process may have migrated in between.
        database.execute("BEGIN IMMEDIATE")
        for number in range(_read_version(database), SCHEMA_VERSION):
            for statement in _MIGRATIONS[number]:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {number + 1}")
    return SCHEMA_VERSION


def drop_after(database: sqlite3.Connection, step: int) -> None:
    """Delete all rows of later steps in one transaction; verdicts and added questions stay."""
    with database:
        for table in ("episodes", "metrics", "candidates", "events", "token_traces"):
            database.execute(f"DELETE FROM {table} WHERE step > ?", (step,))


# ----------------------------------------------------------------------------------------------- directory and lock


def make_directory(
    path: Path, info: RunInfo, config: str | None = None, files: Mapping[str, bytes] | None = None
) -> None:
    """Create a complete run directory with one atomic rename; `files` are stored in it by name."""
    with new_folder(path, replace=False) as partial:
        (partial / EPISODES).mkdir()
        try:
            _create_database(partial / DATABASE, info)
        except sqlite3.Error as error:  # also raised for a full disk
            raise BadInput(f"cannot write the database of run {info.id}: {error}") from error
        stored = {} if config is None else {CONFIG: config.encode()}
        for name, content in {**stored, **(files or {})}.items():
            (partial / name).write_bytes(content)


def refuse_links(path: Path) -> None:
    """Raise BadInput if a file of the run is a symbolic link: in a run from someone else it could point to any file."""
    if link := next(filter(Path.is_symlink, _list_files(path)), None):
        said = f"{link} is a symbolic link; a run can only be written to if its files are regular files"
        raise BadInput(said, hint="replace the link by a copy of the file")


def refuse_special(path: Path) -> None:
    """Raise BadInput if a file of the run is a pipe, a device or a socket: reading it might never end."""
    if found := find_special(_list_files(path)):
        raise BadInput(f"{found} is no regular file; a run that has such files is not read", hint="delete it")


def _list_files(path: Path) -> list[Path]:
    return [*path.iterdir(), *path.glob(f"{EPISODES}/*")] if path.is_dir() else []


def take_lock(path: Path, database: sqlite3.Connection) -> FileLock:
    """Acquire the writer's lock; raises BadInput if another process holds it.

    The operating system releases the lock when the process ends, even if it is killed.
    """
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=_LOOK_S)
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
    """Hold the writer's lock of a run during the `with` block; raises BadInput if another process writes the run."""
    if (path / LOCK).is_symlink():
        raise BadInput(f"{path / LOCK} is a link; a run's lock is its own file", hint="delete the link")
    lock = FileLock(path / LOCK)
    try:
        held = lock.acquire(timeout=_LOOK_S)
    except Timeout:
        raise BadInput(f"run {path.name} is running", hint="stop it first, or wait for it") from None
    except OSError as error:
        raise BadInput(f"cannot lock the run {path}: {error.strerror}") from error
    with held:
        yield


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


# ---------------------------------------------------------------------------------------------------------- episodes


def shard_path(directory: Path, shard: int) -> Path:
    """Path of a shard file.

    shard_path(Path("episodes"), 3) == Path("episodes/00003.jsonl.zst")
    """
    return directory / f"{shard:05d}.jsonl.zst"


def read_frame(directory: Path, frame: Frame) -> list[bytes]:
    """The lines of one frame; raises BadInput if the file does not contain what the index says."""
    if not frame.length:  # of a small copy of a run, made by benchmarks/shrink_run.py
        said = "the text of this episode was left out of this copy of its run"
        raise BadInput(said, hint="its answer and rewards are listed with its question")
    path = shard_path(directory, frame.shard)
    try:
        with open_regular(path) as stream:
            stream.seek(frame.offset)
            compressed = stream.read(frame.length)
        return zstandard.ZstdDecompressor().decompress(compressed).splitlines()
    except (OSError, zstandard.ZstdError) as error:
        said = f"the episodes in {path} at byte {frame.offset} are damaged: {error}"
        raise BadInput(said, hint="restore the file from a backup") from error
