"""Options by name: what is unknown or out of bounds is refused in one line."""

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


def check_positive(options: object, names: Iterable[str]) -> None:
    """Refuse the first of these options that was given and is below 1.

    check_positive(args, ("limit", "max_rows"))    # BadInput: --max-rows must be at least 1, not 0
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {value}")
