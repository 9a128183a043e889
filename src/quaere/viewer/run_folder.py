"""The runs that a viewer shows, those of a folder or a single one, and when they were written to.

folder = open_folder("runs/notes")
with folder.open("notes") as run: ...

A run is looked up by its name among the directories that exist. No path is ever made of what a request says, so a name
such as `../secrets` is a name that no run has.

An open page follows its run by server-sent events, and asks for its content again after each:

    event: change
    data: 7

The content is not sent, so one piece of code makes new pages and followed ones. Only the attributes of a few files are
read, so following a run costs its training nothing. The first event comes at once: no other event would tell of what
was written between the making of the page and the opening of its stream.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from quaere.api.run import Run
from quaere.errors import BadInput, nearest_hint
from quaere.runs.directory import CONFIG, DATABASE, is_locked, list_command, refuse_links, runs_root

T = TypeVar("T")
Signature: TypeAlias = tuple[object, ...]
LOOK_EVERY_S = 1.0
_BEAT_EVERY_S = 15.0  # a comment now and then, so that a client that is gone is noticed
MAX_STREAMS = 64
LEARN_RUN, MEASUREMENTS = "run", ("before", "after")  # directories of `quaere learn`: its run and its evaluations
HELD = "held.jsonl"  # the questions of its measurements
_WRITTEN = (DATABASE, f"{DATABASE}-wal", CONFIG, "harness.jsonl")


class NotShown(BadInput):
    """Raised for a run, step, episode or page that does not exist; the viewer answers 404."""


def require(found: T | None, said: str, hint: str) -> T:
    """What was found; raises `NotShown` with this message if it is None, empty or 0."""
    if not found:
        raise NotShown(said, hint=hint)
    return found


class RunFolder:
    """The run directories of a folder by name, listed anew at every call, since runs may be added or removed."""

    def __init__(self, root: Path, only: str = "") -> None:
        self.root = root
        self.only = only  # the name of the one run that is shown; "" for all of the folder

    def paths(self) -> dict[str, Path]:
        """The run directories by name, in alphabetical order; unprintable names are left out."""
        if self.only:
            # `quaere learn` evaluates before and after its run, in two further runs of the same folder.
            measured = [name for name in MEASUREMENTS if self.only == LEARN_RUN and self._is_run(name)]
            return {name: self.root / name for name in (self.only, *measured)}
        try:
            names = sorted(name for name in os.listdir(self.root) if name.isprintable() and not name.startswith("."))
        except OSError:
            return {}
        return {name: self.root / name for name in names if self._is_run(name)}

    def _is_run(self, name: str) -> bool:
        return os.path.isfile(f"{self.root}/{name}/{DATABASE}")  # joined as text: there may be thousands of runs

    def find(self, name: str) -> Path:
        """Directory of the run with this name; `NotShown` if there is none."""
        paths = self.paths()
        if name not in paths:
            hint = nearest_hint(name, list(paths), list_command(self.root))
            raise NotShown(f"no run {name} in {self.root}", hint=hint)
        return paths[name]

    def open(self, name: str) -> Run:
        """The run with this name, open for reading; `NotShown` if there is none."""
        return open_run(self.find(name))

    def title(self, name: str) -> str:
        """The run's name on pages; the run of `quaere learn` is called by the name of the folder that it is in."""
        return self.root.resolve().name if name == LEARN_RUN == self.only else name


def open_run(path: Path) -> Run:
    """Open a run directory for reading; `BadInput` if a file in it is a symbolic link, which could lead anywhere."""
    refuse_links(path)
    return Run.open(path.absolute())


def open_folder(given: str | None, runs: str | None = None) -> RunFolder:
    """The runs to show: `given` is a run directory, a run's name, a folder of runs, or the folder of a `quaere learn`,
    whose run is shown; None means the default folder.

    open_folder("runs/notes").only == "notes"; open_folder("runs").only == ""; open_folder("learned").only == "run"
    """
    root = runs_root(runs)
    if given is None:
        if not root.is_dir():
            raise BadInput(f"there is no folder of runs {root}", hint="quaere view RUN, or quaere view FOLDER")
        return RunFolder(root)
    for path in (root / given, Path(given)):
        if (path / DATABASE).is_file():
            resolved = path.absolute()
            return RunFolder(resolved.parent, only=resolved.name)
    if Path(given).is_dir():
        folder = RunFolder(Path(given))
        return RunFolder(folder.root.absolute(), only=LEARN_RUN) if _is_learning(folder) else folder
    names = list(RunFolder(root).paths())
    raise BadInput(f"{given} is neither a run nor a folder", hint=nearest_hint(given, names, list_command(root)))


def _is_learning(folder: RunFolder) -> bool:
    """True if the only runs in the folder are those of one `quaere learn`, which measures before it trains."""
    names = set(folder.paths())
    return {LEARN_RUN, MEASUREMENTS[0]} <= names <= {LEARN_RUN, *MEASUREMENTS}


def read_signature(path: Path) -> Signature:
    """A value that changes when the run is written to, begins or ends. Only file attributes are read.

    An empty write-ahead log counts as none: readers create and remove it.
    """
    folder = str(path)
    return (is_locked(path), *(sign_file(f"{folder}/{name}") for name in _WRITTEN))


def sign_file(path: str | Path) -> tuple[int, int] | None:
    """Size and modification time of a file; None if it is empty or does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if status.st_size else None


class Kept(Generic[T]):
    """An LRU cache of at most `most` entries by key, for many threads; an entry is read again when its mark changes."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lock = threading.Lock()  # not held while an entry is read, which may take long
        self._kept: dict[str, tuple[object, T]] = {}

    def get(self, key: str, mark: object, read: Callable[[], T]) -> T:
        """The cached value of this key if its mark is unchanged, else `read()`, which is then cached."""
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or kept[0] != mark:
            kept = (mark, read())
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = kept  # at the end: the first one is the least recently used
            while self._most is not None and len(self._kept) > self._most:
                self._kept.pop(next(iter(self._kept)))
        return kept[1]


class Streams:
    """The server-sent event streams of a server, at most `MAX_STREAMS`; all end when `is_stopping()` becomes true."""

    def __init__(self, is_stopping: Callable[[], bool]) -> None:
        self._is_stopping, self._num_open = is_stopping, 0

    def follow(self, look: Callable[[], Signature], every_s: float | None = None) -> Response:
        """A stream with one event now and one whenever the value of `look()` changes; 503 if too many are open.

        `look` is called every `every_s` seconds, by default once a second.
        """
        if self._num_open >= MAX_STREAMS:
            return Response("too many pages are being followed", 503, {"Retry-After": "30"}, "text/plain")
        return StreamingResponse(self._events(look, every_s or LOOK_EVERY_S), media_type="text/event-stream")

    async def _events(self, look: Callable[[], Signature], every_s: float) -> AsyncIterator[str]:
        self._num_open += 1
        try:
            seen, number, waited = await run_in_threadpool(look), 0, 0.0
            yield f"retry: 2000\nevent: change\ndata: {number}\n\n"
            while not self._is_stopping():
                await asyncio.sleep(every_s)
                waited += every_s
                found = await run_in_threadpool(look)
                if found != seen:
                    seen, number, waited = found, number + 1, 0.0
                    yield f"event: change\ndata: {number}\n\n"
                elif waited >= _BEAT_EVERY_S:
                    waited = 0.0
                    yield ": still here\n\n"
        finally:
            self._num_open -= 1
