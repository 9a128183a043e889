"""Registries that installed packages can add to, by entry points.

    [project.entry-points."quaere.recipes"]          # in the pyproject.toml of a package
    frugal = "frugal_package.recipe:FRUGAL"

    RECIPES = Registry("quaere.recipes", {"drzero": "quaere.recipes.drzero:DRZERO"})
    RECIPES.load("frugal")

What a registry holds is imported on first use. Installed packages are searched only for a name that is not one of the
registry's own, or to list all names. A name of the registry's own cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from quaere.errors import BadInput, requirement_hint

if TYPE_CHECKING:  # importing it takes longer than most commands need to start
    from importlib.metadata import EntryPoint


class Registry:
    """Objects by name: a group's own, and those of installed packages (entry points of this group)."""

    def __init__(self, group: str, places: Mapping[str, str]) -> None:
        self.group = group
        self.places = places
        self.names = Names(places, lambda: self.outside)

    @cached_property
    def outside(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages, by name."""
        from importlib.metadata import entry_points

        return {found.name: found for found in entry_points(group=self.group) if found.name not in self.places}

    def load(self, name: str) -> Any:
        """The object of this name; `BadInput` names the package whose object cannot be imported."""
        if name in self.places:
            module, _, constant = self.places[name].partition(":")
            return getattr(import_module(module), constant)
        found = self.outside[name]
        try:
            return found.load()
        except Exception as error:  # code of another package may raise anything
            package = found.dist.name if found.dist else found.module
            raise BadInput(
                f"{name} ({self.group}) of the package {package} cannot be loaded: {type(error).__name__}: {error}",
                hint=f"{requirement_hint(package)} --upgrade, or pip uninstall {package}",
            ) from error


class Names(Sequence[str]):
    """Names that are known, and further ones that are looked up only if needed.

    "drzero" in Names(("drzero",), find_installed)      # True, without a call of find_installed
    """

    def __init__(self, known: Iterable[str], more: Callable[[], Collection[str]]) -> None:
        self._known = tuple(known)
        self._more = more

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._more()

    def __iter__(self) -> Iterator[str]:
        yield from self._known
        yield from self._more()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return tuple(iter(self))[place]
