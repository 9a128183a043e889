"""Keyword options that are read by their names: bad ones are refused with the nearest name there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from quaere.errors import BadInput


def refuse_unknown(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse the first name that is not known.

    refuse_unknown(["max_wrods"], ["max_words", "k1"], "index option")
    raises "there is no index option 'max_wrods': did you mean max_words?"
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise BadInput(f"there is no {what} {name!r}: {meant}")
