"""Registry of search engines: those an index can be built with, and how each is built and opened.

    find_engine("bm25").open(Path("docs-index/bm25"), settings).search(["who built the Halm bridge?"], topk=3)

An installed package adds an engine with an entry point of the group `quaere.retrievers` (`plugins.py`) that is a
`Backend`:

    [project.entry-points."quaere.retrievers"]
    splade = "quaere_splade:SPLADE"
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from quaere.errors import BadInput
from quaere.plugins import Names, Registry

if TYPE_CHECKING:  # the command line lists the engines' names, so importing this module must stay cheap
    import numpy as np

    from quaere.records import Passage
    from quaere.search.manifest import IndexSettings
    from quaere.search.ranking import Engine, Progress

# By name: the module, and its constant.
_ENGINES = Registry(
    "search engine",
    "quaere.retrievers",
    {"bm25": "quaere.search.bm25:BM25", "dense": "quaere.search.dense:DENSE", "lance": "quaere.search.lance:LANCE"},
)
FUSED = {"hybrid": ("bm25", "dense")}  # engines whose rankings are fused
ENGINE_NAMES = Names(sorted([*_ENGINES.places, *FUSED]), lambda: _ENGINES.outside)


class KnownVectors(Struct, frozen=True):
    """Vectors of an earlier index in `folder`: passage n has the vector in row `rows[n]`, or none if that is -1."""

    folder: Path
    rows: np.typing.NDArray[np.int64]


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

        Backend(build_splade, open_splade, uses=lambda settings: ("dense",))
    """

    build: Callable[[EngineBuild], int]
    open: Callable[[Path, IndexSettings], Engine]
    uses: Callable[[IndexSettings], tuple[str, ...]] = lambda settings: ()
    check: Callable[[IndexSettings], None] = lambda settings: None


def find_engine(name: str) -> Backend:
    """Import and return the engine of this name; raises `BadInput` if there is none or its package is broken."""
    if name not in _ENGINES.names:
        choices = ", ".join(ENGINE_NAMES)
        raise BadInput(f"there is no search engine {name!r}", hint=f"one of {choices}, or install the package it is in")
    return _ENGINES.load(name, Backend)


def rebuild_hint(index: Path) -> str:
    """The command that builds the index again, for error messages."""
    return f"quaere index FOLDER --out {index}"
