"""Patterns that choose files, written as in a `.gitignore`: `*.md`, `drafts/`, `/top.txt`, `**/notes/*.csv`."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from quaere.errors import BadInput

_MAX_BYTES = 1 << 16
_MAX_PATTERNS = 1000
_MAX_WILDCARDS = 2
_WILDCARDS = re.compile(r"\*+")


class Globs:
    """What a person includes and excludes, relative to the folder that is read."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = _compile(include, "--include") if include else None
        self._exclude = _compile(exclude, "--exclude") if exclude else None

    def includes(self, name: str) -> bool:
        """True if the path is included; all are where no pattern was given."""
        return self._include is None or self._include.match_file(name)

    def excludes(self, name: str) -> bool:
        """True if the path is excluded; that of a folder ends with "/"."""
        return self._exclude is not None and self._exclude.match_file(name)


def _compile(patterns: Iterable[str], option: str) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise BadInput(f"{option}: {error}", hint=f"{option} '*.md', or '**/notes/*.csv', or 'drafts/'") from error


class IgnoreFiles:
    """The `.gitignore` files of a folder and those below it, read as the folders are entered from the top.

    Whoever wrote the documents may have written these too. Their patterns become regular expressions that try every
    split of a name between their wildcards (four of them in a long name take 18 s), so patterns with more than two are
    passed over. Files above the folder are not read.
    """

    def __init__(self, root: Path, complain: Callable[[Path, str], None]) -> None:
        self._root = root
        self._complain = complain
        self._of_folder: dict[Path, list[tuple[Path, GitIgnoreSpec]]] = {}

    def enter(self, folder: Path) -> None:
        """Read the `.gitignore` of a folder, whose parent has been entered before."""
        above = [] if folder == self._root else self._of_folder[folder.parent]
        spec = self._read(folder / ".gitignore")
        self._of_folder[folder] = [*above, (folder, spec)] if spec else above

    def match(self, path: Path, *, is_folder: bool) -> bool:
        """True if the path is ignored: the nearest file that has a pattern for it decides, by the last such pattern."""
        for folder, spec in reversed(self._of_folder[path.parent]):
            decided = spec.check_file(path.relative_to(folder).as_posix() + "/" * is_folder).include
            if decided is not None:
                return decided
        return False

    def _read(self, path: Path) -> GitIgnoreSpec | None:
        try:
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
                self._complain(path, "not followed: not a regular file of at most 64 KiB")
                return None
            lines = path.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(path, f"not followed: {error.strerror or error}")
            return None
        simple = [line for line in lines if len(_WILDCARDS.findall(line)) <= _MAX_WILDCARDS][:_MAX_PATTERNS]
        if len(simple) < len(lines):
            self._complain(path, f"{len(lines) - len(simple)} patterns not followed: too many wildcards, or lines")
        try:
            return GitIgnoreSpec.from_lines(simple)
        except ValueError as error:
            self._complain(path, f"not followed: {error}")
            return None
