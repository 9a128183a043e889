"""`run.db`: the SQLite file of a run, in WAL mode so that other processes can read while one writes.

create_database(Path("runs/ask-1/run.db"))
database = connect(Path("runs/ask-1/run.db"), write=False)
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quaere.disk import find_special
from quaere.errors import UPDATE_HINT, BadInput

SCHEMA_VERSION = 8
OLDEST_VERSION = 2  # readers leave it unchanged; it is migrated when opened for writing
SYNCHRONOUS = "FULL"  # a committed row survives a power cut, like its frame
_BUSY_S = 30.0  # how long a writer waits for another: a run in training, or a person adding verdicts or questions

# People's verdicts on candidates. A table of its own without a step column, so that `drop_after` cannot delete them.
_VERDICTS = """
CREATE TABLE verdicts (
    candidate_id TEXT PRIMARY KEY, kind TEXT NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL,
    span TEXT NOT NULL, note TEXT NOT NULL, time TEXT NOT NULL
) STRICT
"""
# Questions a person added, kept apart for the same reason. Iteration -1 means all iterations.
_ADDED = """
CREATE TABLE added (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, iteration INTEGER NOT NULL, document_id TEXT NOT NULL,
    hops INTEGER NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL, span TEXT NOT NULL, evidence TEXT,
    origin TEXT NOT NULL, time TEXT NOT NULL
) STRICT
"""
_ADDED_ALIASES = "ALTER TABLE added ADD COLUMN aliases TEXT NOT NULL DEFAULT '[]'"
# Per-token values of some episodes, as arrays of 32-bit numbers: integers for places, floats for the rest.
_TRACES = """
CREATE TABLE token_traces (
    episode_id TEXT PRIMARY KEY, step INTEGER NOT NULL, places BLOB NOT NULL, advantages BLOB NOT NULL,
    logprobs BLOB NOT NULL, entropies BLOB NOT NULL
) STRICT
"""
_SCHEMA = f"""
CREATE TABLE runs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, created TEXT NOT NULL, version TEXT NOT NULL,
    settings TEXT NOT NULL, writer_pid INTEGER, ended TEXT NOT NULL DEFAULT ''
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
    reason TEXT NOT NULL, scores TEXT NOT NULL,
    span TEXT NOT NULL DEFAULT '', evidence TEXT, support TEXT, refusals TEXT NOT NULL DEFAULT '[]',
    cluster INTEGER NOT NULL DEFAULT -1, question_type TEXT NOT NULL DEFAULT '', aliases TEXT NOT NULL DEFAULT '[]',
    searches INTEGER NOT NULL DEFAULT 0, proof TEXT NOT NULL DEFAULT '[]'
) STRICT;
{_VERDICTS};
{_ADDED};
{_ADDED_ALIASES};
{_TRACES};
CREATE TABLE events (
    number INTEGER PRIMARY KEY, step INTEGER NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
"""
# Statements that migrate each version to the next. New columns have defaults, so that old rows stay valid.
_MIGRATIONS = {
    2: (
        "ALTER TABLE candidates ADD COLUMN span TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE candidates ADD COLUMN evidence TEXT",
        "ALTER TABLE candidates ADD COLUMN support TEXT",
        "ALTER TABLE candidates ADD COLUMN refusals TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE candidates ADD COLUMN cluster INTEGER NOT NULL DEFAULT -1",
        "ALTER TABLE candidates ADD COLUMN question_type TEXT NOT NULL DEFAULT ''",
        _VERDICTS,
    ),
    3: (_ADDED,),
    4: ("ALTER TABLE candidates ADD COLUMN aliases TEXT NOT NULL DEFAULT '[]'", _ADDED_ALIASES),
    5: ("ALTER TABLE runs ADD COLUMN ended TEXT NOT NULL DEFAULT ''",),
    6: (_TRACES,),
    7: (
        "ALTER TABLE candidates ADD COLUMN searches INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE candidates ADD COLUMN proof TEXT NOT NULL DEFAULT '[]'",
    ),
}


def create_database(path: Path) -> None:
    """Create an empty database with the tables of the current schema."""
    database = sqlite3.connect(path)
    try:
        database.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    finally:
        database.close()


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open the database of a run; raises BadInput if it is not one or its schema is newer than this version reads.

    Opening an older schema for writing migrates it; opening it for reading leaves it unchanged.
    """
    if not path.is_file():
        raise BadInput(f"{path.parent} is not a run directory: it has no {path.name}", hint="quaere runs list")
    # SQLite opens these by itself, and waits where one is a pipe.
    if special := find_special(path.with_name(path.name + end) for end in ("-journal", "-wal", "-shm")):
        raise BadInput(f"{special} is no regular file; a run that has such files is not read", hint="delete it")
    mode = "mode=rw" if write else "mode=ro"
    if not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        mode = "immutable=1"  # without this, SQLite creates files beside a WAL database even to read it, and fails here
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_S)
        database.row_factory = sqlite3.Row
        version = _read_version(database)
        if write:
            database.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            version = _migrate(database, version)
    except sqlite3.Error as error:
        raise BadInput(f"{path} cannot be read: {error}", hint="quaere runs list") from error
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        database.close()
        said = f"{path} has schema {version}; this quaere reads {OLDEST_VERSION} to {SCHEMA_VERSION}"
        raise BadInput(said, hint=UPDATE_HINT if version > SCHEMA_VERSION else "quaere runs list")
    return database


def _read_version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(database: sqlite3.Connection, version: int) -> int:
    """Migrate an older schema to the current one in one transaction."""
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


def insert(
    database: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False
) -> None:
    """Insert rows into a table in one transaction: all or none.

    insert(database, "events", [{"step": 3, "kind": "alarm", "message": "the entropy is low"}])
    """
    if not rows:
        return
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    columns, values = ", ".join(rows[0]), ", ".join(f":{column}" for column in rows[0])
    with database:
        database.executemany(f"{verb} INTO {table} ({columns}) VALUES ({values})", rows)


def drop_after(database: sqlite3.Connection, step: int) -> None:
    """Delete all rows of later steps in one transaction; verdicts and added questions stay."""
    with database:
        for table in ("episodes", "metrics", "candidates", "events", "token_traces"):
            database.execute(f"DELETE FROM {table} WHERE step > ?", (step,))
