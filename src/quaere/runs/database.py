"""`run.db`: the SQLite file of a run, in WAL mode so that people read while one process writes.

create_database(Path("runs/ask-1/run.db"))
database = connect(Path("runs/ask-1/run.db"), write=False)
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from quaere.errors import BadInput

SCHEMA_VERSION = 1

_SCHEMA = """
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
    metrics TEXT NOT NULL
) STRICT;
CREATE TABLE metrics (
    name TEXT NOT NULL, step INTEGER NOT NULL, value REAL, PRIMARY KEY (name, step)
) STRICT, WITHOUT ROWID;
"""


def create_database(path: Path) -> None:
    """Make an empty database with the tables of today's schema."""
    database = sqlite3.connect(path)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    finally:
        database.close()


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open the database of a run; anything that is not one, or a newer one, is a `BadInput`."""
    if not path.is_file():
        raise BadInput(f"{path.parent} is not a run directory: it has no {path.name}", hint="quaere runs list")
    mode = "mode=rw" if write else "mode=ro"
    if not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        mode = "immutable=1"  # SQLite wants to write beside a WAL database even to read it, unless nobody can change it
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
        database.row_factory = sqlite3.Row
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if write:
            database.execute("PRAGMA synchronous = FULL")  # a committed row survives a power cut, like its frame
    except sqlite3.Error as error:
        raise BadInput(f"{path} cannot be read: {error}", hint="quaere runs list") from error
    if version != SCHEMA_VERSION:
        database.close()
        said = f"{path} has schema {version}; this quaere reads {SCHEMA_VERSION}"
        raise BadInput(said, hint="pip install -U quaere" if version > SCHEMA_VERSION else "quaere runs list")
    return database
