"""Checks of a demonstrated quotation: it was shown, it is copied letter for letter, and it supports the answer.

    find_misquote(episode) == "the evidence does not hold the answer"

A policy's own evidence may differ in white space and curly quotes. A demonstration may not differ at all, because the
model learns exact copying from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from quaere.chat.spans import find_evidence, shown_passages
from quaere.records import Answer, Episode, Proposal, ProposeTask, SolveTask
from quaere.rewards.guards import MAX_SENTENCE_WORDS, Triple, holds_answer, says_more, travelled, verbatim


def find_misquote(episode: Episode) -> str:
    """Why the evidence of a finished episode should not be learnt from, in a few words; "" if it is right.

    find_misquote(episode) == "the evidence is not letter for letter"
    """
    triple = _triple(episode)
    if not triple.span:
        return "there is no evidence"
    if find_evidence(triple.span, shown_passages(episode)) is None:
        return "the evidence was not shown"
    if not verbatim(triple):
        return "the evidence is not letter for letter"
    if not any(holds_answer(structs.replace(triple, answer=name)) for name in _names(episode, triple.answer)):
        return "the evidence does not hold the answer"
    if not says_more(triple):
        return "the evidence says no more than the answer"
    if len(triple.span.split()) > MAX_SENTENCE_WORDS:
        return "the evidence is long"
    return "" if travelled(triple) else "the evidence is not the last hop's"


def _triple(episode: Episode) -> Triple:
    """Question, answer and span with the texts they may quote, without titles, which have no offsets."""
    task, outcome = episode.task, episode.outcome
    document, hops, question, answer, span = "", 1, "", "", ""
    if isinstance(task, ProposeTask):
        document, hops = task.document.text if task.document else "", task.hops
    elif isinstance(task, SolveTask):
        question = task.question.text
    if isinstance(outcome, Answer):
        answer, span = outcome.text, outcome.span
    elif isinstance(outcome, Proposal):
        question, answer, span = outcome.question, outcome.answer, outcome.span
    returned = tuple(passage.text for passage in shown_passages(episode) if passage.text != document)
    return Triple(question, answer, span, len(span.split()), document, hops, returned)


def _names(episode: Episode, answer: str) -> Sequence[str]:
    """All accepted names of a solver's answer: the evidence may use another name than the answer given."""
    return (answer, *episode.task.question.answers) if isinstance(episode.task, SolveTask) else (answer,)
