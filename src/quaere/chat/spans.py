"""Where in its document a quoted span stands: what a policy wrote as evidence, traced to the text it was shown.

    locate_span("the Halm  bridge", "Venn built the Halm bridge.") -> (11, 26)

A span counts as verbatim if it is a run of the document's own characters, with two things forgiven because policies
rewrite them without meaning to: any run of white space is as good as any other, and curly quotes and apostrophes are
as good as straight ones. Case, accents, dashes, the other punctuation and the order of words are not forgiven; `é`
written as one character and as two are different. White space around the span does not belong to it.

Whatever the policy wrote, offsets and stored text are the document's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from quaere.errors import BadInput
from quaere.records import Episode, Evidence, Passage, ProposeTask

_WHITE_SPACE = re.compile(r"\s+")
# One character for one, so that folding a quote moves no offset. Primes (feet, minutes) and guillemets stay themselves.
_QUOTES = str.maketrans(dict.fromkeys("‘’‚‛", "'") | dict.fromkeys("“”„‟", '"'))


def locate_span(span: str, text: str) -> tuple[int, int] | None:
    """The first place of the span in the text: letter for letter if there is one, else with spaces and quotes folded.

    Linear in the length of both: two plain searches and at most three walks over the white space.

        locate_span("Oss", "The Oss. The Oss!") -> (4, 7)
        locate_span("Venn's bridge", "Venn’s\\nbridge") -> (0, 13)
        locate_span("The oss", "The Oss") -> None
        locate_span("  ", "The Oss") -> None
    """
    wanted = span.strip()
    if not wanted:
        return None
    start = text.find(wanted)
    if start >= 0:
        return start, start + len(wanted)
    folded = _fold(wanted)
    start = _fold(text).find(folded)
    if start < 0:
        return None
    # A span ends with a character that is not white space: its end is that character's, not the next one's beginning.
    return _unfold(start, text), _unfold(start + len(folded) - 1, text) + 1


def find_evidence(span: str, passages: Iterable[Passage]) -> Evidence | None:
    """The span in the first passage whose text holds it, with offsets into that passage's document.

    Titles do not count: they are shown above a passage, but `document[start:end]` cannot point at them.

        find_evidence("built it", [Passage(id="b#1", doc_id="b", title="", text="Venn built it.", start=90, end=104)])
        -> Evidence(doc_id="b", start=95, end=103, text="built it")
    """
    for passage in passages:
        place = locate_span(span, passage.text)
        if place is not None:
            start, end = place
            return Evidence(passage.doc_id, passage.start + start, passage.start + end, passage.text[start:end])
    return None


def shown_passages(episode: Episode) -> list[Passage]:
    """The document a proposer was given, then every passage its searches brought back, in order and once each.

    Results count, not the text of replies: a page that imitates a reply shows nothing but itself. A turn's results end
    where its reply was cut, and a search whose reply no longer fitted into the sequence has shown nothing.

        shown_passages(Episode(task=ProposeTask("p1", document=river, hops=2), turns=(Turn(results=(...),),), ...))
        -> [river, Passage(id="bridges.md#0", ...)]
    """
    given = [episode.task.document] if isinstance(episode.task, ProposeTask) and episode.task.document else []
    returned = [
        hit.passage for turn in episode.turns if turn.failure is None for result in turn.results for hit in result.hits
    ]
    return list(dict.fromkeys(given + returned))


def check_evidence(evidence: Evidence, document_text: str) -> None:
    """Refuse evidence that is not `document[start:end]`, letter for letter.

    check_evidence(Evidence("b", 0, 4, "Venn"), "Venn built it.") -> None
    """
    start, end = evidence.start, evidence.end
    place = f"characters {start} to {end} of document {evidence.doc_id!r}"
    if not 0 <= start < end <= len(document_text):
        raise BadInput(f"evidence cannot be {place}, which has {len(document_text)}")
    if document_text[start:end] != evidence.text:
        raise BadInput(f"{place} are {_brief(document_text[start:end])}, not {_brief(evidence.text)}")


def _fold(text: str) -> str:
    """Every run of white space one space, every curly quote a straight one."""
    return _WHITE_SPACE.sub(" ", text).translate(_QUOTES)


def _unfold(index: int, text: str) -> int:
    """Where the character at `index` of the folded text stands in the text itself."""
    num_dropped = 0
    for run in _WHITE_SPACE.finditer(text):
        if run.start() - num_dropped >= index:
            break
        num_dropped += run.end() - run.start() - 1
    return index + num_dropped


def _brief(text: str, num_chars: int = 40) -> str:
    return repr(text if len(text) <= num_chars else text[: num_chars - 1] + "…")
