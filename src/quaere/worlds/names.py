"""Names from small grammars: unique, pronounceable, and never a common English word by accident.

A lexicon maps an entry to its possible forms, which may contain further entries:

    {"root": ("{onset}{vowel}{coda}",), "town": ("^{root}gate",), ...}   # "^" capitalises the next letter
    "{town}" -> "Halmgate"
"""

from __future__ import annotations

from itertools import pairwise

from quaere.worlds.blocked import BLOCKED, RUDE
from quaere.worlds.dice import Dice
from quaere.worlds.schema import Family, split_slots

_MAX_DRAWS = 200


def strip_article(name: str) -> str:
    """The name without a leading lower-case "the".

    strip_article("the Oss") == "Oss"; strip_article("The Salt Ledger") == "The Salt Ledger"
    """
    return name[4:] if name.startswith("the ") else name


def capitalise(text: str) -> str:
    """The text with its first letter in upper case, the rest unchanged.

    capitalise("the Oss") == "The Oss"
    """
    return text[:1].upper() + text[1:]


def is_inventable(word: str) -> bool:
    """True if the word is neither a common English word nor rude.

    is_inventable("halm"), not is_inventable("Hand")
    """
    word = word.lower().removeprefix("^")
    return word not in BLOCKED and not any(syllables in word for syllables in RUDE)


class NameMaker:
    """Draws unique names for one world.

    NameMaker(family, dice, num_people=40).unique("{town}") == "Halmgate"
    """

    def __init__(self, family: Family, dice: Dice, num_people: int) -> None:
        self._family = family
        self._dice = dice
        self._taken: set[str] = set()  # never iterated: the order of a set differs between runs
        self._pools: dict[str, tuple[str, ...]] = {}
        for entry, people_per_form in family.pools.items():
            forms = [self._draw(entry) for _ in range(max(12, num_people // people_per_form))]
            self._pools[entry] = tuple(forms)

    def expand(self, pattern: str) -> str:
        """The pattern with every slot filled from the lexicon.

        expand("the {adj} {creature}") == "the Grey Petrel"
        """
        parts = split_slots(pattern)
        text = "".join(part if position % 2 == 0 else self._entry(part) for position, part in enumerate(parts))
        if "^" in text:
            before, _, after = text.partition("^")
            text = before + capitalise(after)
        return text

    def _entry(self, entry: str) -> str:
        pool = self._pools.get(entry)
        return self._dice.pick(pool) if pool else self._draw(entry)

    def _draw(self, entry: str) -> str:
        while True:
            text = self.expand(self._dice.pick(self._family.lexicon[entry]))
            if entry not in self._family.invented or is_inventable(text):
                return text

    def claim(self, name: str) -> bool:
        """Take the name; False if it is taken (ignoring case and articles) or repeats a word."""
        key = strip_article(name).lower().removeprefix("the ")
        tokens = key.split()
        if key in self._taken or any(one == two for one, two in pairwise(tokens)):  # "the Second Second Nail Wake"
            return False
        self._taken.add(key)
        return True

    def unique(self, patterns: tuple[str, ...]) -> str:
        """A name from one of the patterns that is not taken yet."""
        for _ in range(_MAX_DRAWS):
            name = self.expand(self._dice.pick(patterns))
            if self.claim(name):
                return name
        raise AssertionError(f"the patterns {patterns} are exhausted")  # a fault of the family's data, not of the user

    def try_unique(self, pattern: str) -> str | None:
        """A name from this pattern; None if the first draw is taken."""
        name = self.expand(pattern)
        return name if self.claim(name) else None
