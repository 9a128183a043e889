"""Finds the files of a corpus: those of its sources that are chosen, readable, and not links out of the folder.

walk = Walk([Path("docs"), Path("notes.pdf")], FileChoice(exclude=["drafts/"]))
walk.files()        -> [SourceFile(path=Path("docs/rivers.md"), id="docs/rivers.md", ...), ...]
walk.report         -> CorpusReport(num_excluded=1, ...)

Patterns that choose files are written as in a `.gitignore`: `*.md`, `drafts/`, `/top.txt`, `**/notes/*.csv`.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct, field
from pathspec import GitIgnoreSpec

from quaere.errors import BadInput
from quaere.search.extracted import storable_text
from quaere.search.files import FILE_SUFFIXES, MAX_FILE_MIB
from quaere.search.json_lines import ROW_SUFFIXES, is_rows_file

_MAX_NAMED = 10_000  # skipped files named in the report; the others are only counted
_MAX_SUFFIXES = 20
SUPPORTED = (
    "files that can be read: "
    + " ".join(sorted(FILE_SUFFIXES) + [one for one in ROW_SUFFIXES if one.count(".") == 1])
    + " (or .jsonl.gz ...)"
)
# An index is known by its names: what is in a folder of documents may be untrusted, and is not opened here.
_INDEX_FILES = frozenset({"manifest.json", "documents.bin", "passages.npy"})


class SourceFile(Struct, frozen=True):
    """A file of the corpus: its document's id, size and time, and why it must not be opened ("" if it may).

    SourceFile(path=Path("docs/rivers.md"), id="rivers.md", size=812, mtime_ns=1763300000000000000, refused="")
    """

    path: Path
    id: str
    size: int
    mtime_ns: int
    refused: str


class SourceFolder(Struct, frozen=True, tag="folder"):
    """A folder of the corpus: a digest of its relevant entries' names, and size and time of its `.gitignore`.

    SourceFolder(id="coast", names="5f2c...", ignore=(120, 1763300000000000000))
    """

    id: str
    names: str
    ignore: tuple[int, int] | None = None


def common_folder(sources: Sequence[Path]) -> Path:
    """The folder that document ids are relative to: the only source, or the innermost folder with all sources.

    common_folder([Path("/a/docs"), Path("/a/b.pdf")]) == Path("/a")
    """
    # Symbolic links are not resolved: ids use the link's own name.
    folders = [os.path.abspath(source if source.is_dir() else source.parent) for source in sources]
    return Path(os.path.commonpath(folders))


class FileChoice(Struct, frozen=True):
    """Rules for choosing files: the folder `leave_out` is skipped, files have a maximum size and must match patterns.

    FileChoice(leave_out=Path("docs/index"), max_file_mib=64, exclude=("drafts/",))
    """

    leave_out: Path | None = None
    max_file_mib: int = MAX_FILE_MIB
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    gitignore: bool = True


ANY_FILE = FileChoice()


class CorpusReport(Struct):
    """Counts of documents read and skipped, with the names and reasons of skipped files.

    `unreadable` lists skipped files, `problems` the unreadable parts of files that were read, and `missing` counts
    files by the library they need, with how to install it.

        CorpusReport(num_documents=12, num_duplicates=1, unreadable=["scan.pdf: not a readable PDF file (...)"],
                     missing={".docx files need python-docx: ...": 3})
    """

    num_documents: int = 0
    num_duplicates: int = 0
    num_empty: int = 0
    num_unreadable: int = 0
    unreadable: list[str] = field(default_factory=list)
    ignored_suffixes: dict[str, int] = field(default_factory=dict)
    other_encodings: dict[str, int] = field(default_factory=dict)
    num_problems: int = 0
    problems: list[str] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    num_gitignored: int = 0
    num_excluded: int = 0

    def leave_out(self, name: str, reason: str) -> None:
        """Count a file or folder that is skipped, and list it with the reason."""
        self.num_unreadable += 1
        _name(self.unreadable, name, reason)

    def note_problem(self, name: str, problem: str) -> None:
        """Count a part of a file that could not be read, and list the problem."""
        self.num_problems += 1
        _name(self.problems, name, problem)


def _name(named: list[str], name: str, reason: str) -> None:
    if len(named) < _MAX_NAMED:
        named.append(storable_text(f"{name}: {reason}"))


class Walk:
    """Finds the files of one or several sources. Every file is returned once, in the order of ids, with links last.

    Files of a folder are skipped if they are hidden, of an unsupported type, ignored by a `.gitignore` in the folder,
    excluded, of another index, or not matched by the `include` patterns, if there are any. A file given as a source is
    always taken.
    """

    def __init__(self, sources: Sequence[Path], choice: FileChoice) -> None:
        self.report = CorpusReport()
        self.folders: list[SourceFolder] = []
        for source in sources:
            if not source.exists():
                raise BadInput(f"there is no {source}", hint="name a folder of documents or a JSON Lines file")
        self._sources, self._base, self._choice = sources, common_folder(sources), choice
        self._leave_out = choice.leave_out.resolve() if choice.leave_out else None
        self._include = _compile(choice.include or ["*"], "--include")
        self._exclude = _compile(choice.exclude, "--exclude")

    def files(self) -> list[SourceFile]:
        """The files of all sources."""
        found: dict[str, SourceFile] = {}
        suffixes: Counter[str] = Counter()
        for source in self._sources:
            root = source.resolve()
            for path in self._walk(source, suffixes):
                name = self._name(path)
                if name not in found:
                    found[name] = SourceFile(path, name, *self._look_at(path, root))
        self.report.ignored_suffixes = dict(suffixes.most_common(_MAX_SUFFIXES))
        # Of equal documents the first is kept, and of a file and a link to it that should be the file.
        return sorted(found.values(), key=lambda file: (file.path.is_symlink(), Path(file.id).parts))

    def _name(self, path: Path) -> str:
        return Path(os.path.abspath(path)).relative_to(self._base).as_posix()

    def _walk(self, source: Path, ignored_suffixes: Counter[str]) -> Iterator[Path]:
        if not source.is_dir():
            if not _is_supported(source):
                raise BadInput(f"{source} is not a kind of file that can be read", hint=SUPPORTED)
            yield source
            return
        ignores = IgnoreFiles(source, self._note_problem) if self._choice.gitignore else None
        for folder, folders, names in os.walk(source, onerror=self._pass_over_folder):
            here = Path(folder)
            self.folders.append(describe_folder(here, self._name(here), folders, names, self._leave_out))
            if _INDEX_FILES.issubset(names):
                self.report.leave_out(self._name(here), "an index, whose files are no documents")
                folders.clear()
                continue
            if ignores:
                ignores.enter(here)
            folders[:] = [name for name in folders if self._is_chosen(here / name, source, ignores, is_folder=True)]
            for path in filter(Path.is_symlink, (here / name for name in folders)):
                self.report.leave_out(self._name(path), "a link to a folder, which is not followed")
            for path in (here / name for name in names if not name.startswith(".")):
                if not _is_supported(path):
                    ignored_suffixes[path.suffix.lower() or path.name] += 1
                elif self._is_chosen(path, source, ignores):
                    yield path

    def _is_chosen(self, path: Path, source: Path, ignores: IgnoreFiles | None, *, is_folder: bool = False) -> bool:
        """True if a file should be read or a folder searched; other entries are counted in the report."""
        if is_folder and (path.name.startswith(".") or path.resolve() == self._leave_out):
            return False
        name = path.relative_to(source).as_posix() + "/" * is_folder
        if ignores and ignores.match(path, is_folder=is_folder):
            self.report.num_gitignored += 1
        elif self._exclude.match_file(name) or not (is_folder or self._include.match_file(name)):
            self.report.num_excluded += 1
        else:
            return True
        return False

    def _look_at(self, path: Path, root: Path) -> tuple[int, int, str]:
        """Size and modification time of a file, and why it must not be opened: a pipe, a link out of the folder, ..."""
        try:
            file = path.resolve(strict=True)
            status = file.stat()
        except (OSError, RuntimeError):  # RuntimeError: links that lead to one another, before Python 3.13
            return 0, 0, "a link that leads nowhere" if path.is_symlink() else "it is gone"
        is_file, most = stat.S_ISREG(status.st_mode), self._choice.max_file_mib
        size = status.st_size if is_file else 0
        reasons = {
            "a link out of the folder": not file.is_relative_to(root),
            "not a regular file": not is_file,
            # JSON Lines are streamed, and a file of them is many documents.
            f"larger than {most} MiB": size > most << 20 and not is_rows_file(path),
            "permission denied": not os.access(file, os.R_OK),
        }
        return size, status.st_mtime_ns, next((reason for reason, applies in reasons.items() if applies), "")

    def _pass_over_folder(self, error: OSError) -> None:
        self.report.leave_out(self._name(Path(error.filename)), error.strerror or str(error))

    def _note_problem(self, path: Path, problem: str) -> None:
        self.report.note_problem(self._name(path), problem)


def _is_supported(path: Path) -> bool:
    return path.suffix.lower() in FILE_SUFFIXES or is_rows_file(path)


def describe_folder(
    folder: Path, name: str, folders: Iterable[str], files: Iterable[str], leave_out: Path | None
) -> SourceFolder:
    """The record of a folder with these entries; hidden ones, unsupported files and `leave_out` are ignored."""
    wanted = [f"{entry}/" for entry in folders if not _is_left_out(folder / entry, leave_out)]
    wanted += [entry for entry in files if not entry.startswith(".") and _is_supported(Path(entry))]
    digest = blake2b("\0".join(sorted(wanted)).encode(errors="surrogateescape"), digest_size=16)
    ignore = None
    with suppress(OSError):
        status = os.lstat(folder / ".gitignore")
        ignore = (status.st_size, status.st_mtime_ns)
    return SourceFolder(name, digest.hexdigest(), ignore)


def _is_left_out(folder: Path, leave_out: Path | None) -> bool:
    # Names are compared first: resolving every folder would take longer than all the rest.
    is_named_so = leave_out is not None and folder.name == leave_out.name
    return folder.name.startswith(".") or (is_named_so and folder.resolve() == leave_out)


# ------------------------------------------------------------------------------------------------------------- patterns


_MAX_BYTES = 1 << 16
_MAX_PATTERNS = 1000
_MAX_WILDCARDS = 2
_WILDCARDS = re.compile(r"\*+")


def _compile(patterns: Iterable[str], option: str) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise BadInput(f"{option}: {error}", hint=f"{option} '*.md', or '**/notes/*.csv', or 'drafts/'") from error


class IgnoreFiles(Struct):
    """The `.gitignore` files of a folder and those below it, read as the folders are entered from the top.

    The files may come from an untrusted author. Their patterns become regular expressions that try every split of a
    name between their wildcards (four wildcards with a long name take 18 s), so patterns with more than two wildcards
    are ignored. `.gitignore` files above the folder are not read.
    """

    root: Path
    complain: Callable[[Path, str], None]
    _of_folder: dict[Path, list[tuple[Path, GitIgnoreSpec]]] = {}

    def enter(self, folder: Path) -> None:
        """Read the `.gitignore` of a folder, whose parent has been entered before."""
        above = [] if folder == self.root else self._of_folder[folder.parent]
        spec = self._read(folder / ".gitignore")
        self._of_folder[folder] = [*above, (folder, spec)] if spec else above

    def match(self, path: Path, *, is_folder: bool) -> bool:
        """True if the path is ignored, by the last matching pattern of the nearest `.gitignore` that has one."""
        for folder, spec in reversed(self._of_folder[path.parent]):
            decided = spec.check_file(path.relative_to(folder).as_posix() + "/" * is_folder).include
            if decided is not None:
                return decided
        return False

    def _read(self, path: Path) -> GitIgnoreSpec | None:
        try:
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
                raise ValueError("not a regular file of at most 64 KiB")
            lines = path.read_text("utf-8", errors="replace").splitlines()
            simple = [line for line in lines if len(_WILDCARDS.findall(line)) <= _MAX_WILDCARDS][:_MAX_PATTERNS]
            if len(simple) < len(lines):
                self.complain(path, f"{len(lines) - len(simple)} patterns ignored: too many wildcards or lines")
            return GitIgnoreSpec.from_lines(simple)
        except (OSError, ValueError) as error:  # ValueError: an invalid pattern
            if not isinstance(error, FileNotFoundError):
                self.complain(path, f"ignored: {getattr(error, 'strerror', None) or error}")
            return None
