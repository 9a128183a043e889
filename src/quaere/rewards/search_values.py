"""The value of each search of an episode, by the evidence that its question needs.

    value_searches(question, [[bridge_page], [other_page], [guild_page]]) -> [8, 1, 10]

The evidence may be found in any order, and each piece counts once: with the first search that returned it.

    10   the search returned all evidence that was still missing
     8   it returned some of it
     5   it returned another passage of a document with missing evidence
     1   it returned none of these

The evidence is the question's sentences or, where only documents are known (`gold_ids`), these documents. A question
with neither is judged by its accepted answers: a passage that contains one has the value 10.
"""

from collections.abc import Sequence

from quaere.records import Evidence, Passage, Question
from quaere.rewards.answers import normalise_answer
from quaere.rewards.format import contains

ALL, SOME, PAGE, NOTHING = 10, 8, 5, 1


def is_good(value: int) -> bool:
    """True if a search of this value returned evidence that was missing."""
    return value >= SOME


def value_searches(question: Question, searches: Sequence[Sequence[Passage]]) -> list[int]:
    """The value of every search, in order, from the passages it returned; [] if nothing is known to judge it by."""
    if not question.evidence and not question.gold_ids:
        return value_by_answers(question, searches)
    missing: list[Evidence | str] = list(question.evidence or dict.fromkeys(question.gold_ids))
    values = []
    for passages in searches:
        found = [piece for piece in missing if any(holds(passage, piece) for passage in passages)]
        pages = {piece.doc_id for piece in missing if isinstance(piece, Evidence)}
        missing = [piece for piece in missing if piece not in found]
        if found:
            values.append(SOME if missing else ALL)
        else:
            values.append(PAGE if any(passage.doc_id in pages for passage in passages) else NOTHING)
    return values


def value_by_answers(question: Question, searches: Sequence[Sequence[Passage]]) -> list[int]:
    """10 for a search that returned a passage with an accepted answer, else 1; [] if no answer can be looked for.

    "yes" and "no" occur in almost any text and so prove nothing. Passages are checked one by one, so that no match
    spans two of them.
    """
    answers = [answer for answer in question.answers if normalise_answer(answer) not in ("yes", "no")]
    if not answers:
        return []
    return [
        ALL if any(contains(one.titled_text, answer) for one in passages for answer in answers) else NOTHING
        for passages in searches
    ]


def holds(passage: Passage, piece: Evidence | str) -> bool:
    """True if the passage has the whole sentence, or is of the document if only that is known."""
    if isinstance(piece, str):
        return passage.doc_id == piece
    return passage.doc_id == piece.doc_id and passage.start <= piece.start and piece.end <= passage.end
