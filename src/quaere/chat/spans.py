"""Locator of quoted spans: it traces evidence that a policy wrote to the document text it was shown.

    locate_span("the Halm  bridge", "Venn built the Halm bridge.") -> (11, 26)

A span is verbatim if it is a run of the document's characters, with two exceptions that policies change without
intention: all runs of white space are equal, and curly quotes and apostrophes equal straight ones. Differences in case,
accents, dashes, other punctuation and word order count; so do composed and decomposed forms of `é`. White space around
the span is ignored. A span neither begins nor ends inside a word or number: "built in 170" is not in "built in 1702".

The returned offsets and the stored text are always the document's.
"""

import re
from collections.abc import Iterable

from quaere.errors import BadInput
from quaere.records import Episode, Evidence, Passage, ProposeTask
from quaere.whole_words import find_whole

_WHITE_SPACE = re.compile(r"\s+")
# One character maps to one, so that folding quotes keeps all offsets. Primes (feet, minutes) and guillemets are kept.
_QUOTES = str.maketrans(dict.fromkeys("‘’‚‛", "'") | dict.fromkeys("“”„‟", '"'))


def locate_span(span: str, text: str) -> tuple[int, int] | None:
    """Start and end of the span's first occurrence in whole words: exact, else with white space and quotes folded.

    Linear in the length of both: two substring searches and at most three passes over the white space.

        locate_span("Oss", "The Oss. The Oss!") -> (4, 7)
        locate_span("Venn's bridge", "Venn’s\\nbridge") -> (0, 13)
        locate_span("The oss", "The Oss") -> locate_span("The Os", "The Oss") -> None
        locate_span("  ", "The Oss") -> None
    """
    wanted = span.strip()
    if not wanted:
        return None
    start = find_whole(wanted, text)
    if start >= 0:
        return start, start + len(wanted)
    folded = _fold(wanted)
    start = find_whole(folded, _fold(text))
    if start < 0:
        return None
    # The end is one past the span's last character, which is never white space. Unfolding the index behind it would add
    # the white space that follows the span in the document.
    return _unfold(start, text), _unfold(start + len(folded) - 1, text) + 1


def find_evidence(span: str, passages: Iterable[Passage]) -> Evidence | None:
    """The span as evidence from the first passage that contains it, with offsets into the document; None if not found.

    Titles are not searched: they are shown above a passage, but are not part of `document[start:end]`.

        find_evidence("built it", [Passage(id="b#1", doc_id="b", title="", text="Venn built it.", start=90, end=104)])
        -> Evidence(doc_id="b", start=95, end=103, text="built it")
    """
    for passage in passages:
        if place := locate_span(span, passage.text):
            start, end = place
            return Evidence(passage.doc_id, passage.start + start, passage.start + end, passage.text[start:end])
    return None


def shown_passages(episode: Episode) -> list[Passage]:
    """Passages the policy was shown, in order and without duplicates: the proposer's document, then its search results.

    Results are read, not the text of replies: else a page that imitates a reply could add passages. A turn's results
    end where its reply was cut; a search whose reply did not fit into the sequence adds nothing.

        shown_passages(Episode(task=ProposeTask("p1", document=river, hops=2), turns=(Turn(results=(...),),), ...))
        -> [river, Passage(id="bridges.md#0", ...)]
    """
    given = [episode.task.document] if isinstance(episode.task, ProposeTask) and episode.task.document else []
    returned = [
        hit.passage for turn in episode.turns if turn.failure is None for result in turn.results for hit in result.hits
    ]
    return list(dict.fromkeys(given + returned))


def check_evidence(evidence: Evidence, document_text: str) -> None:
    """Raise `BadInput` unless the evidence's text equals `document[start:end]`.

    check_evidence(Evidence("b", 0, 4, "Venn"), "Venn built it.") -> None
    """
    start, end = evidence.start, evidence.end
    place = f"characters {start} to {end} of document {evidence.doc_id!r}"
    if not 0 <= start < end <= len(document_text):
        raise BadInput(f"evidence cannot be {place}, which has {len(document_text)} characters")
    if document_text[start:end] != evidence.text:
        raise BadInput(f"{place} read {_brief(document_text[start:end])}, but the evidence is {_brief(evidence.text)}")


def _fold(text: str) -> str:
    return _WHITE_SPACE.sub(" ", text).translate(_QUOTES)


def _unfold(index: int, text: str) -> int:
    """Index in `text` of the character at `index` in the folded text."""
    num_dropped = 0
    for run in _WHITE_SPACE.finditer(text):
        if run.start() - num_dropped >= index:
            break
        num_dropped += run.end() - run.start() - 1
    return index + num_dropped


def _brief(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
