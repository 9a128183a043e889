"""Quality of a curriculum by rules alone: the share of questions whose answer is found in the documents.

    quality = measure_quality([Asked("q1", "Who built Halm Bridge?", ("Venn",), texts=("Venn built it.",))])
    quality.num_proven, quality.faults == 1, {}

A question counts as proven if it is self-contained, does not contain its answer, and a sentence of its source text
contains the answer verbatim as whole words. No labels are used. The share is not an accuracy: a sentence may contain
the answer in another context, and a right answer may be worded differently in the source.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from quaere.chat.markup import first_fault
from quaere.chat.spans import check_evidence, shown_passages
from quaere.chat.statements import split_statements
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, wilson_interval
from quaere.records import Candidate, Episode, Evidence, Question
from quaere.rewards.answers import gives_away, names_alternatives, normalise_answer
from quaere.rollout.topic_questions import find_phrases
from quaere.warmup.documents.checks import find_fault

ReadDocument = Callable[[str], str]

CHOICE = "asks to choose"  # a sentence can contain both alternatives, so it proves neither
NAMELESS = "names nothing"
LEAKED = "gives its answer away"
UNSOURCED = "has no document"
MISQUOTED = "its evidence is not in its document"
UNPROVEN = "no sentence holds its answer"


class Asked(Struct, frozen=True):
    """A question, its accepted answers and its source texts; `misquoted` if its evidence is not in its document.

    Asked(id="q1", question="Who built Halm Bridge?", answers=("Venn",), texts=("Venn built it.",))
    """

    id: str
    question: str
    answers: tuple[str, ...]
    texts: tuple[str, ...] = ()
    misquoted: bool = False


class Quality(Struct, frozen=True):
    """Number of proven questions, and counts of the first rule that each other question violates.

    Quality(num=100, num_proven=71, faults={"no sentence holds its answer": 20, "names nothing": 9})
    """

    num: int
    num_proven: int
    faults: dict[str, int]

    @property
    def share(self) -> Interval:
        """Share of the questions whose answer is proven, with its Wilson interval."""
        return wilson_interval(self.num_proven, self.num)


def measure_quality(asked: Iterable[Asked]) -> Quality:
    """Check every question against the rules (`find_gap`) and count the results."""
    faults = Counter(find_gap(item) for item in asked)
    num_proven = faults.pop("", 0)
    return Quality(num_proven + faults.total(), num_proven, dict(faults.most_common()))


def find_gap(asked: Asked) -> str:
    """The first rule that a question violates; "" if its answer is proven.

    find_gap(Asked("q1", "Who built it?", ("Venn",), ("Venn built it.",))) == "names nothing"
    """
    question, answers = asked.question, asked.answers
    is_choice = any(normalise_answer(one) in ("yes", "no") or names_alternatives(question, one) for one in answers)
    fault = find_fault(question, names=(), answer="") or first_fault(
        (is_choice, CHOICE),
        (not find_phrases(question), NAMELESS),
        (any(gives_away(question, answer) for answer in answers), LEAKED),
        (asked.misquoted, MISQUOTED),
        (not asked.texts, UNSOURCED),
    )
    is_proven = not fault and any(_holds(text, answer) for text in asked.texts for answer in answers)
    return "" if is_proven else fault or UNPROVEN


def _holds(text: str, answer: str) -> bool:
    """True if a sentence of the text contains the answer verbatim and as whole words."""
    whole = re.compile(rf"(?<!\w){re.escape(answer.strip())}(?!\w)")
    return bool(answer.strip()) and any(whole.search(said.text) for said in split_statements(text))


# ------------------------------------------------------------------------------------------------ sources of questions


def of_question(question: Question, read_document: ReadDocument) -> Asked:
    """A line of a question file: proven by its evidence, or by the documents it names if it has none."""
    asked = Asked(question.id, question.text, question.answers)
    return _add_sources(asked, question.evidence, question.gold_ids, read_document)


def of_candidate(candidate: Candidate, episode: Episode | None, read_document: ReadDocument) -> Asked:
    """A candidate: proven by its evidence, or by its document and the passages its proposer saw if it has none."""
    evidence = (candidate.evidence,) if candidate.evidence else ()
    doc_ids = (candidate.document_id,) if candidate.document_id else ()
    shown = tuple(passage.text for passage in shown_passages(episode)) if episode else ()
    asked = Asked(candidate.id, candidate.question, candidate.answers, shown)
    return _add_sources(asked, evidence, doc_ids, read_document)


def _add_sources(
    asked: Asked, evidence: Sequence[Evidence], doc_ids: Sequence[str], read_document: ReadDocument
) -> Asked:
    """The question with its source texts: its evidence, or without evidence the documents, then the texts it had.

    `misquoted` is set if a piece of evidence is not in its document.
    """
    if not evidence:
        texts = []
        for doc_id in doc_ids:
            with suppress(BadInput):  # there is no such document
                texts.append(read_document(doc_id))
        return structs.replace(asked, texts=(*filter(None, texts), *asked.texts))
    misquoted = False
    for span in evidence:
        try:
            check_evidence(span, read_document(span.doc_id))
        except BadInput:
            misquoted = True
    return structs.replace(asked, texts=tuple(span.text for span in evidence), misquoted=misquoted)
