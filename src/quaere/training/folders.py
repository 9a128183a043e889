"""Folders that appear whole or not at all.

with new_folder(Path("solver")) as folder:
    model.save_pretrained(folder)          # written under another name, synced, then renamed
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quaere.errors import BadInput


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `out` at the end, in place of what is there; nothing if that fails."""
    out = out.absolute()  # "." has no name of its own
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process of the same number that was killed
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in partial.iterdir():
            path.chmod(0o644)  # some writers make files that only their owner can read
            sync(path)
        sync(partial)
        _put_in_place(partial, out)
        sync(out.parent)
    except OSError as error:
        raise BadInput(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # still there only if it was not renamed


def _put_in_place(partial: Path, out: Path) -> None:
    if not out.exists():
        partial.rename(out)
        return
    # A directory cannot be renamed over a full one.
    old = out.with_name(f".{out.name}.old-{os.getpid()}")
    out.rename(old)
    partial.rename(out)
    shutil.rmtree(old)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
