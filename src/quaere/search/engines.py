"""Registry of search engines: those an index can be built with, and how each is built and opened.

    find_engine("bm25").open(Path("docs-index/bm25"), settings).search(["who built the Halm bridge?"], topk=3)

An installed package adds an engine by an entry point of the group `quaere.retrievers` whose value is a `Backend`:

    [project.entry-points."quaere.retrievers"]
    splade = "quaere_splade:SPLADE"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from quaere.errors import BadInput

if TYPE_CHECKING:  # the command line lists the engines' names, so importing this module must stay cheap
    from importlib.metadata import EntryPoint

    import numpy as np
    from numpy.typing import NDArray

    from quaere.records import Passage
    from quaere.search.manifest import IndexSettings
    from quaere.search.ranking import Engine, Progress

GROUP = "quaere.retrievers"
_BUILT_IN = {
    "bm25": "quaere.search.bm25:BM25",
    "dense": "quaere.search.dense:DENSE",
    "lance": "quaere.search.lance:LANCE",
}
_FUSED = {"hybrid": ("bm25", "dense")}  # engines whose rankings are fused


class KnownVectors(Struct, frozen=True):
    """Vectors of an earlier index in `folder`: passage n has the vector in row `rows[n]`, or none if that is -1."""

    folder: Path
    rows: NDArray[np.int64]


class EngineBuild(Struct, frozen=True):
    """What an engine is built from: passages by number, the settings, and the folder for its files.

    `known` is a slow function that finds the vectors of an earlier index to take over; None for a new index.

        EngineBuild(store.passage, num_passages=31, settings=IndexSettings(), folder=Path("docs-index/bm25"), ...)
    """

    read: Callable[[int], Passage]
    num_passages: int
    settings: IndexSettings
    folder: Path
    progress: Progress
    known: Callable[[], KnownVectors] | None = None


class Backend(Struct, frozen=True):
    """A search engine.

    `build` writes its files and returns how many passages it embedded, and `open` loads it from their folder. `uses`
    names the fields of `IndexSettings` that influence its results; `check` raises `BadInput` for unsupported settings.

        Backend(build_bm25, open_bm25, uses=lambda settings: ("bm25",))
    """

    build: Callable[[EngineBuild], int]
    open: Callable[[Path, IndexSettings], Engine]
    uses: Callable[[IndexSettings], tuple[str, ...]] = lambda settings: ()
    check: Callable[[IndexSettings], None] = lambda settings: None


def engine_choices() -> tuple[str, ...]:
    """The names of all engines, those of installed packages last."""
    return tuple(dict.fromkeys([*sorted([*_BUILT_IN, *_FUSED]), *sorted(load_entry_points(GROUP))]))


def engine_parts(name: str) -> tuple[str, ...]:
    """The engines that a named engine consists of: `engine_parts("hybrid") == ("bm25", "dense")`."""
    return _FUSED.get(name, (name,))


@cache
def find_engine(name: str) -> Backend:
    """Import and return the engine of this name; raises `BadInput` if there is none or its package is broken."""
    from importlib.metadata import EntryPoint

    entry = EntryPoint(name, _BUILT_IN[name], GROUP) if name in _BUILT_IN else load_entry_points(GROUP).get(name)
    if entry is None:
        choices = ", ".join(engine_choices())
        raise BadInput(f"there is no search engine {name!r}", hint=f"one of {choices}, or install the package it is in")
    try:
        found = entry.load()
        if not isinstance(found, Backend):
            raise TypeError(f"{entry.value} is not a Backend")
    except Exception as error:  # a package may fail in any way when it is imported
        package = entry.dist.name if entry.dist else "quaere"
        said = f"the search engine {name!r} of the package {package} cannot be loaded: {type(error).__name__}: {error}"
        raise BadInput(" ".join(said.split()), hint=f"update {package}, or choose another --engine") from error
    return found


def load_entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of installed packages in a group, by name; none of them is imported."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=group)}


def rebuild_hint(index: Path) -> str:
    """The command that builds the index again, for error messages."""
    return f"quaere index FOLDER --out {index}"
