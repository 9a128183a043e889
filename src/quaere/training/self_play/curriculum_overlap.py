"""Overlap of an iteration's curriculum with those of earlier iterations.

    measure_overlap([same, other], [same]) -> {"curriculum/new": 1.0, "curriculum/overlap": 0.5}

A question repeats an earlier one if its words are the same, or if it asks for the same answer about the same document.
Kept questions are those the solver solves sometimes, as far as it attempted them, so a new one is one to learn from.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.records import Candidate
from quaere.rewards.answers import normalise_answer

_Key = tuple[str, ...]


def measure_overlap(kept: Sequence[Candidate], earlier: Sequence[Candidate]) -> dict[str, float]:
    """The number of kept questions that repeat none of the earlier ones, and the share of those that do.

    There is no share without a kept question.
    """
    known = {key for candidate in earlier for key in _keys(candidate)}
    num_new = sum(known.isdisjoint(_keys(candidate)) for candidate in kept)
    overlap = {"curriculum/overlap": 1 - num_new / len(kept)} if kept else {}
    return {"curriculum/new": float(num_new), **overlap}


def _keys(candidate: Candidate) -> set[_Key]:
    """What a question is known by: its words and, if it has a document, that document with the answer."""
    words = {("words", normalise_answer(candidate.question))}
    fact = ("fact", candidate.document_id, normalise_answer(candidate.answer))
    return words | ({fact} if candidate.document_id else set())
