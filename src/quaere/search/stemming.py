"""Stems of words, by PyStemmer (Snowball): one language per index, or none.

>>> stem(["configured", "configuring"], "english")
['configur', 'configur']
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from quaere.errors import BadInput

AUTO = "auto"  # the language is that of the documents
NO_STEMMER = "none"


def stem(words: Sequence[str], language: str) -> list[str]:
    """The stems of folded words; with the language "none" the words themselves."""
    return [*words] if language == NO_STEMMER else list(_stemmers.open(language).stemWords(words))


def check_stemmer(name: str) -> None:
    """Raise `BadInput` if there is no stemmer of this name."""
    if name not in (AUTO, NO_STEMMER, *_names()):
        raise BadInput(
            f"there is no stemmer for {name!r}", hint=f"--stemmer takes auto, none, or one of {', '.join(_names())}"
        )


@cache
def _names() -> tuple[str, ...]:
    import Stemmer

    return tuple(Stemmer.algorithms())


class _Stemmers(threading.local):
    """The stemmers of a thread: PyStemmer's are not to be shared between threads."""

    def __init__(self) -> None:
        self._opened: dict[str, Any] = {}

    def open(self, language: str) -> Any:
        """The thread's stemmer of a language."""
        if language not in self._opened:
            import Stemmer

            assert language != AUTO, "the build chooses the language"
            check_stemmer(language)
            self._opened[language] = Stemmer.Stemmer(language)
        return self._opened[language]


_stemmers = _Stemmers()
