"""Deletion of runs, and the room it makes.

path = check_deletable(Path("runs/ask-20250301-101500"))
with hold_idle(path):
    delete_folders([path])         # 18_432 bytes are free again
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from quaere.disk import discard_folder, explain_errors
from quaere.errors import BadInput
from quaere.runs.database import connect
from quaere.runs.directory import DATABASE


def check_deletable(path: Path) -> Path:
    """The absolute path of a run; a `BadInput` for a link, and for a folder that is no run or holds others."""
    path = Path(os.path.abspath(path))  # not `resolve`: a link must be seen as one
    for link in (path, path / DATABASE):
        if link.is_symlink():
            raise BadInput(f"{link} is a link; nothing is deleted through links", hint="name the run's own directory")
    connect(path / DATABASE, write=False).close()  # refuses what is no run
    if others := [other.parent.name for other in path.glob(f"*/{DATABASE}")]:
        raise BadInput(
            f"{path} holds other runs ({', '.join(sorted(others)[:3])}); it is left as it is", hint="delete them first"
        )
    return path


def delete_folders(paths: Sequence[Path]) -> int:
    """Delete folders without following links, none left half-way under its name; the bytes that are free for it."""
    num_bytes = measure_size(paths)
    for path in paths:
        with explain_errors(path):
            left = discard_folder(path)
        if left.exists():
            raise BadInput(f"not everything in {path} could be deleted: the rest lies in {left}")
    return num_bytes


def measure_size(paths: Iterable[Path]) -> int:
    """Bytes that are free once these folders are gone: a file that is linked from elsewhere as well stays."""
    found: dict[tuple[int, int], list[os.stat_result]] = {}
    for status in (status for path in paths for status in _walk(path)):
        found.setdefault((status.st_dev, status.st_ino), []).append(status)
    return sum(links[0].st_size for links in found.values() if len(links) >= links[0].st_nlink)


def _walk(folder: Path) -> Iterator[os.stat_result]:
    """Every file below a folder, links as what they are."""
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a run that goes on deletes checkpoints
                yield os.lstat(os.path.join(root, name))
