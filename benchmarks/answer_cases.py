"""Answers with accepted answers, on which scorers are compared: random ones, and ones made of what scorers get wrong.

draw_cases()[2] == ("river yes", ("an the river Yes,", "mill", "-"))
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random

SEED = 31
NUM_RANDOM = 10_000

Case = tuple[str, tuple[str, ...]]  # the answer, and the accepted ones

# Few words, so that answers share some; articles, closed answers, numbers and punctuation as in real answers.
_WORDS = (
    *("Halm", "bridge", "old", "mill", "Orsolya", "Venn", "river", "river", "1702", "1,702", "St.", "U.S.", "(north)"),
    *("the", "The", "a", "an", "yes", "Yes,", "no", "No.", "noanswer", "and", "of", "-", "x-y", "it's", "Č", "naïve"),
)
NASTY = (
    *("", " ", "the", "A an the", "The The", ".", "?!", "_the_", "a.", "yes", "No.", "yes no", "noanswer"),
    *("the-yes", "theatre", "Jean-Luc", "jeanluc", "the\u2019s end", "the's end", "İstanbul", "i̇stanbul"),
    *("STRASSE", "Straße", "the\u00a0end", "the\u200bend", "１７０２", "1702", "$1,702", "a\tb\nb", "\u0301the"),
)


def draw_cases() -> list[Case]:
    """The random cases, then every pair of nasty texts."""
    dice = random.Random(SEED)

    def text(longest: int) -> str:
        return " ".join(dice.choice(_WORDS) for _ in range(1 + dice.randrange(longest)))

    def case() -> Case:
        answer = text(4)
        accepted = [text(4) for _ in range(1 + dice.randrange(3))]
        if dice.random() < 0.3:  # equal words are rare among random ones
            words = answer.split()
            dice.shuffle(words)
            accepted[0] = " ".join(words).upper()
        return answer, tuple(accepted)

    found = [case() for _ in range(NUM_RANDOM)]
    return found + [(answer, (other,)) for answer, other in itertools.product(NASTY, repeat=2)]


def hash_cases(cases: list[Case]) -> str:
    """A hash by which a recording names the cases it was made with."""
    return hashlib.sha256(json.dumps(cases).encode()).hexdigest()
