"""The oracle's phrases as data: TOML files of lists, from which thoughts, notes and evaluations are drawn.

Do not reorder them: what a seed draws depends on their order.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files


@cache
def load_forms(name: str) -> dict[str, tuple[str, ...]]:
    """The lists of phrases in one file, by name.

    load_forms("thoughts")["not_found"][0] == "Nothing on {X} here."
    """
    read = tomllib.loads((files(__name__) / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: tuple(forms) for key, forms in read.items()}
