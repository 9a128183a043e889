"""Answers to questions with their sources: those of the page Ask, of a run of `quaere ask`, and of any episode.

read_answers(run, "ask-20250301-101500")[0].chips[0] ->
Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span", [...])

An answer is shown with the sentence that proves it: the one the model quoted, else one it was shown that contains the
answer. Without an answer, what was searched for and the passages that were seen are shown instead.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

from quaere.api.answer import read_answer
from quaere.api.run import Run, open_documents
from quaere.records import Answer, Episode, Evidence, Passage, Proposal, SolveTask
from quaere.runs.rows import EpisodeFilter, EpisodeRow
from quaere.viewer.ask_queue import AskLine, AskRecord, describe_answer
from quaere.viewer.document_reader import TextPart, document_address, mark_part, place_of
from quaere.viewer.page_formats import copy_fields, path_to

ASK_KIND = "ask"  # the kind of a run of `quaere ask`
MAX_ANSWERS = 50  # answers on the page of a run; the page of its questions has all of them
CONTEXT_CHARS = 250  # characters of a document that are shown on either side of a sentence
_MAX_SEEN = 10  # passages listed where there is no answer
_EMPTY_LINES = re.compile(r"\n\s*\n")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#])")

Chips = Literal["", "quoted", "support", "seen"]
Quotation = Literal["none", "verbatim", "not found"]
View = TypeVar("View", bound="AnswerView")


class Chip(Struct, frozen=True):
    """A source of an answer: a sentence or passage, and where its document is in the viewer.

    `href` is "" if the document is gone or has changed at that place; `context` is then empty, and else the part of
    the document around the sentence, which is marked.

    Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span", [...])
    """

    label: str
    text: str
    href: str
    context: list[TextPart]


class AnswerView(AskLine, frozen=True, kw_only=True):
    """A question and, once it is finished, its answer.

    `chips_are` is the kind of the chips: the quoted sentence, a sentence that contains the answer, or, without an
    answer, the passages that were seen. `quotation` is "none" where nothing was quoted; `quotes` is whether the model
    was asked to, None if that is not known. `queries` are what was searched for, `markdown` is all of it to copy.
    """

    problem: str
    quotes: bool | None
    span: str
    quotation: Quotation
    queries: list[str]
    chips_are: Chips
    chips: list[Chip]
    markdown: str


class RunAnswer(AnswerView, frozen=True, kw_only=True):
    """An answer of a run, whose `id` is its episode's; `scores` are empty where no accepted answers were given."""

    scores: dict[str, float]


# ----------------------------------------------------------------------------------------------------- answers of a run


def read_answers(run: Run, name: str) -> list[RunAnswer]:
    """The first `MAX_ANSWERS` answers of a run of `quaere ask`, oldest first; [] for any other run."""
    if run.info.kind != ASK_KIND:
        return []
    documents, base = open_documents(run), path_to("run", name, "document")
    return [
        view_answer(RunAnswer, record, documents.read, base, scores=row.metrics)
        for row in run.rows(EpisodeFilter())[:MAX_ANSWERS]
        if (record := read_record(run, row)) is not None
    ]


def read_record(run: Run, row: EpisodeRow, episode: Episode | None = None) -> AskRecord | None:
    """An episode of a run as a record of the page Ask; None if it is no answer to a question.

    A proposal is the answer to its own question.
    """
    episode, question = episode or run.episode(row.id), row.question
    if isinstance(episode.outcome, Proposal):
        question, final = episode.outcome.question, Answer(episode.outcome.answer, episode.outcome.span)
        episode = structs.replace(episode, outcome=final)
    elif not isinstance(episode.task, SolveTask):
        return None
    quotes, least = (run.info.settings.get(key) for key in ("evidence", "min_overlap"))
    overlap, confidence = least if isinstance(least, int | float) else 0.0, run.min_confidence
    return AskRecord(
        id=row.id,
        question=question,
        time=run.info.created,
        quotes=quotes if isinstance(quotes, bool) else None,
        turns=episode.turns,
        **describe_answer(read_answer(episode, overlap, confidence), confidence),
    )


# --------------------------------------------------------------------------------------------------------- any answer


def view_answer(
    kind: type[View], record: AskRecord, read_document: Callable[[str], str], base: str, **more: Any
) -> View:
    """A view of class `kind` made from a record; the fields that `AnswerView` lacks come from `more` or the record.

    `read_document` gives "" for a document that does not exist; `base` is the address of the documents.
    """
    kept, evidence = _choose(record)
    chips = [_chip(read_document, base, *each) for each in evidence]
    return copy_fields(
        kind,
        record,
        quotation="verbatim" if record.evidence else "not found" if record.span.strip() else "none",
        queries=list(dict.fromkeys(result.query for turn in record.turns for result in turn.results)),
        chips_are=kept if chips else "",
        chips=chips,
        markdown=write_markdown(record, [] if kept == "seen" else chips),
        **more,
    )


def unquoted_support(record: AskRecord) -> Evidence | None:
    """The sentence that contains the answer, where the model quoted none that it was shown."""
    return None if record.evidence else record.support


def write_markdown(record: AskRecord, sources: list[Chip]) -> str:
    """Question, answer and the sentences that prove it, each with its source, as Markdown.

    "**Who built it?**\\n\\nOrsolya Venn\\n\\n> Orsolya Venn built it.\\n>\\n> — halm.md, The Halm bridge"
    """
    cited = [f"> {_escape(source.text)}\n>\n> — {_escape(source.label)}" for source in sources]
    return "\n\n".join([f"**{_escape(record.question)}**", _escape(record.answer or record.problem), *cited])


def _escape(text: str) -> str:
    """Text as one line that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _choose(record: AskRecord) -> tuple[Chips, list[tuple[Evidence, Passage | None]]]:
    """Sources shown under an answer: quoted, found or merely seen; with the passage around each, if it was shown."""
    seen = [hit.passage for turn in record.turns for result in turn.results for hit in result.hits]
    sentence = record.evidence or record.support
    if sentence is not None:
        own = (one for one in seen if one.doc_id == sentence.doc_id)
        around = next((one for one in own if one.start <= sentence.start and sentence.end <= one.end), None)
        return "quoted" if record.evidence else "support", [(sentence, around)]
    if not record.is_over or record.state == "answered":
        return "", []
    named = list({passage.id: passage for passage in seen}.values())[:_MAX_SEEN]
    return "seen", [(place_of(each), each) for each in named]


def _chip(read_document: Callable[[str], str], base: str, found: Evidence, passage: Passage | None) -> Chip:
    named = [found.doc_id, *((passage.title, passage.heading, passage.place) if passage else ())]
    label = ", ".join(dict.fromkeys(word for word in named if word))
    href = document_address(read_document, base, found)
    context = _surround(read_document(found.doc_id), found) if href else []
    return Chip(label, found.text, href, context)


def _surround(text: str, found: Evidence) -> list[TextPart]:
    """The part of a document around a sentence, in whole words and without empty lines."""
    before, after = text[: found.start], text[found.end :]
    if len(before) > CONTEXT_CHARS:
        before = before[-CONTEXT_CHARS:]
        before = "… " + (before.partition(" ")[2] or before)  # not all languages put spaces between words
    if len(after) > CONTEXT_CHARS:
        after = after[:CONTEXT_CHARS]
        after = (after.rpartition(" ")[0] or after) + " …"
    before, after = (_EMPTY_LINES.sub("\n", side) for side in (before, after))
    return mark_part(before + found.text + after, len(before), len(before) + len(found.text))
