"""Order of search results by whether the query names their titles.

A small model answers from the first passage it is shown, and BM25 often has the page of the thing that is asked about
second or third: behind a page that repeats the question's other words.

    titles_first("who built the Halm bridge?", hits, topk=3)    # the page "Halm bridge" first
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from quaere.records import Hit
from quaere.search.words import terms

CANDIDATES = 10  # hits to be ordered: pages further down share few words with the query
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")  # "Mercury (planet)" is called Mercury
_ARTICLE = re.compile(r"the\s+(?=\S)", re.IGNORECASE)


def titles_first(query: str, hits: Sequence[Hit], topk: int) -> list[Hit]:
    """The first `topk` hits once those with a title that the query names are first, longer titles before shorter."""
    asked = frozenset(terms(query))
    return sorted(hits, key=lambda hit: -_num_named(hit.passage.title, query, asked))[:topk]


def _num_named(title: str, query: str, asked: frozenset[str]) -> int:
    """The terms of a title if the query has them all, else 0.

    A title of one word must stand in the query as it is written: a page called Request is not named by "a request".
    """
    name = _ARTICLE.sub("", _QUALIFIER.sub("", title), count=1)
    words = terms(name)
    if not asked.issuperset(words):
        return 0
    if len(words) == 1 and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", query):
        return 0
    return len(words)
