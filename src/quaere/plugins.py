"""Registries that installed packages can add to, by entry points: recipes, dialects and search engines.

    [project.entry-points."quaere.recipes"]          # in the pyproject.toml of a package
    frugal = "frugal_package.recipe:FRUGAL"

    RECIPES = Registry("recipe", "quaere.recipes", {"drzero": "quaere.recipes.drzero:DRZERO"})
    RECIPES.load("frugal", Recipe)

What a registry holds is imported on first use. Installed packages are searched only for a name that is not one of the
registry's own, or to list all names. A name of the registry's own cannot be replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quaere.errors import BadInput, QuaereError, catch_missing_libraries, requirement_hint

if TYPE_CHECKING:  # importing it takes longer than most commands need to start
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry:
    """Objects by name: a group's own, and those of installed packages (entry points of this group).

    `noun` says in errors what the objects are; `places` are the group's own, as `module:constant`.
    """

    def __init__(self, noun: str, group: str, places: Mapping[str, str]) -> None:
        self.noun, self.group, self.places = noun, group, places
        self.names = Names(places, lambda: self.outside)

    @property
    def outside(self) -> dict[str, tuple[EntryPoint, ...]]:
        """The entry points of installed packages by name, sorted; a name has several if several packages add it."""
        found = _find_installed(self.group, tuple(sys.path))
        return {name: entries for name, entries in found.items() if name not in self.places}

    def load(self, name: str, kind: type[T]) -> T:
        """The object of this name; `BadInput` in one line if its package is broken or it is of another kind."""
        if name in self.places:
            module, _, constant = self.places[name].partition(":")
            return cast(T, getattr(import_module(module), constant))
        entry, *others = self.outside[name]
        if others:
            packages = sorted(map(_package_of, (entry, *others)))
            raise BadInput(
                f"the {self.noun} {name!r} is in several packages: {', '.join(packages)}",
                hint=f"pip uninstall {packages[0]}, or another of them",
            )
        return self._load_outside(entry, kind)

    def _load_outside(self, entry: EntryPoint, kind: type[T]) -> T:
        try:
            with catch_missing_libraries():
                found = entry.load()
            if not isinstance(found, kind):
                raise TypeError(f"{entry.value} is not a {kind.__name__}")
        except QuaereError:  # it has a hint of its own, such as the extra to install
            raise
        except Exception as error:  # code of another package may raise anything
            package, reason = _package_of(entry), f"{type(error).__name__}: {error}"
            said = f"the {self.noun} {entry.name!r} of the package {package} cannot be loaded: {reason}"
            hint = f"{requirement_hint(package)} --upgrade, or pip uninstall {package}"
            raise BadInput(" ".join(said.split()), hint=hint) from error
        return found


@cache
def _find_installed(group: str, path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name; none is imported. They are searched for again if `sys.path` has changed."""
    from importlib.metadata import entry_points

    found = entry_points(group=group)
    return {name: tuple(entry for entry in found if entry.name == name) for name in sorted(found.names)}


def _package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


class Names(Sequence[str]):
    """Names that are known, and further ones that are looked up whenever they are needed; each is listed once.

    "drzero" in Names(("drzero",), find_installed)      # True, without a call of find_installed
    """

    def __init__(self, known: Iterable[str], more: Callable[[], Collection[str]]) -> None:
        self._known, self._more = tuple(known), more

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._more()

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._known, *self._more()])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, place: Any) -> Any:
        return tuple(self)[place]
