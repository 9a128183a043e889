"""Questions about what the documents do not say, written and checked without labels.

    draw_unanswerable(passages, num=600, seed=7)    # Draft(id="halm#0:16-unanswerable", kind="unanswerable", ...)
    find_fault_of_unanswerable(worded) -> ""
    await find_answered(examiner, "batch 3", worded) -> ["", "answered with the pages found"]

The model asks for an attribute that a passage does not give of a thing that it names. Another page may give it, so the
pages that a search finds are read several times: a model that reads an answer reads it again, and one that invents an
answer mostly invents another. The question is kept if no two readings agree.
"""

import re
from collections.abc import Sequence

from msgspec import structs

from quaere.chat.markup import first_fault
from quaere.records import Passage
from quaere.rewards.answers import contains, normalise_answer
from quaere.warmup.documents.askable_facts import find_spans
from quaere.warmup.documents.checked_question import Draft, Worded, draw_drafts
from quaere.warmup.documents.checks import KNOWN, Examiner, find_fault, names_subject
from quaere.warmup.documents.prompts import show_place

_NAMED = ("name", "identifier", "option")
_WORD = re.compile(r"[^\W_]+")
READ, FAILED = "answered with the pages found", "a reading failed"

# Normalised answers that say there is none: a whole answer, or a denial followed by what is denied.
_NO_ANSWERS = frozenset(
    "none|nothing|nobody|no one|unknown|unclear|uncertain|unspecified|undisclosed|na|nil".split("|")
)
_DENIAL = re.compile(
    r"\b(?:not|no|cannot|cant|dont|doesnt|didnt|isnt|arent|wasnt)\b.*\b(?:sure|known?|says?|said|tells?|told|gives?|given|"
    r"stated?|mention(?:s|ed)?|specif(?:y|ies|ied)|provided?|listed|found|described|disclosed|determined?|answers?|"
    r"information|details?|documents?|texts?|passages?|pages?|context)\b"
)


def draw_unanswerable(passages: Sequence[Passage], num: int, seed: int) -> list[Draft]:
    """At most `num` drafts about the same pages as answerable questions: the page must not show which kind it is."""
    return [
        structs.replace(draft, id=f"{draft.id}-unanswerable", kind="unanswerable", answers=())
        for draft in draw_drafts(passages, num, seed)
    ]


def find_fault_of_unanswerable(worded: Worded) -> str:
    """The rule that a question breaks, "" if none; it names its subject and nothing that its page does not name."""
    question, passage = worded.question, worded.fact.passage
    shown = show_place(passage)
    named = " ".join(question[start:end] for kind, start, end in find_spans(question) if kind in _NAMED)
    is_new = any(word not in shown.lower() for word in _WORD.findall(named.lower()))
    return find_fault(question, names=(), answer="") or first_fault(
        (not names_subject(question, passage, passage.text), "does not name what it is about"),
        (is_new, "names what its page does not"),
        (contains(shown, question), "is copied from its page"),
    )


async def find_answered(examiner: Examiner, name: str, worded: Sequence[Worded]) -> list[str]:
    """Per question, whether it is answered with its page and others that a search finds, or from memory; "" if not."""
    await examiner.search([item.question for item in worded])
    shown = [examiner.show(item) for item in worded]
    faults = await _find_repeated(examiner, f"{name}: with the pages found", worded, shown, READ)
    going = [at for at, fault in enumerate(faults) if not fault]
    asked = [worded[at] for at in going]
    known = await _find_repeated(examiner, f"{name}: from memory", asked, [()] * len(asked), KNOWN)
    for at, fault in zip(going, known, strict=True):
        faults[at] = fault
    return faults


async def _find_repeated(
    examiner: Examiner, name: str, worded: Sequence[Worded], texts: Sequence[tuple[str, ...]], fault: str
) -> list[str]:
    """Per question, `fault` if two of `tries` answers are the same, the first of them greedy; else ""."""
    faults = [""] * len(worded)
    seen: list[set[str]] = [set() for _ in worded]
    for number in range(examiner.settings.tries):
        going = [at for at, found in enumerate(faults) if not found]
        asked, shown = [worded[at] for at in going], [texts[at] for at in going]
        lines = await examiner.answer(f"{name}, attempt {number + 1}", asked, shown, 1.0 if number else 0.0)
        for at, line in zip(going, lines, strict=True):
            said = read_answer(line or "")
            if not line or said in seen[at]:  # a failure of the model is no sign that the documents do not answer
                faults[at] = fault if line else FAILED
            elif said:
                seen[at].add(said)
    return faults


def read_answer(line: str) -> str:
    """The normalised answer; "" if the line says that there is none.

    read_answer("The Oss.") == "oss"; read_answer("Unknown") == read_answer("The text does not say.") == ""
    """
    said = normalise_answer(line)
    return "" if said in _NO_ANSWERS or _DENIAL.search(said) else said
