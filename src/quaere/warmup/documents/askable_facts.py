"""Facts to ask about: a sentence of a page and a short span of it that will be the answer, picked by rules.

    draw_facts(passage, Dice(7), 1)
    -> [Fact(id="halm#0:12", passage=Passage(...), name="Halm bridge", sentence="It was built by Orsolya Venn in 1702.",
             start=16, end=28, kind="name")]

No model is used here. A span is a name, a date, a number or a description ("is a ..."), never a part of the page's own
name: the question has to name the page, or a search could not find it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from quaere.chat.statements import split_statements
from quaere.records import Evidence, Passage
from quaere.rewards.answers import normalise_answer
from quaere.rewards.dates import DATE, year_aliases, year_of
from quaere.rollout.topics import find_phrases, is_title
from quaere.worlds.dice import Dice

Kind = Literal["name", "date", "number", "description"]

_MIN_WORDS, _MAX_WORDS = 6, 60  # of a sentence
_MAX_SPAN_WORDS = 6
_NUMBER = re.compile(r"(?<![\w.,$€£/-])\d{1,3}(?:,\d{3})+\b|(?<![\w.,$€£/-])\d+(?:\.\d+)?(?= [a-z])")
# A description: up to four words after "is a", up to a word that starts another phrase.
_DESCRIPTION = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the) ((?:[\w'’-]+ ){0,3}?[\w'’-]+)"
    r"(?=,|\.| (?:of|in|by|for|from|who|which|that|and|at|on|with|to|based|located|known)\b)"
)
# Capitalised because they begin a sentence, or pronouns: not names.
_NOT_NAMES = frozenset(
    "he she it they his her its their this that these those when while after before during since if as at by from in "
    "on of to with although though however there then also but and or".split()
)
_WHOLE = re.compile(r"[\"'“(]?[A-ZÀ-Þ0-9].*[.!?][\"'”)]*$", re.DOTALL)  # a passage may begin or end inside a sentence
# The end of a title that separates pages of one name ("(river)"), or names a section or the web site ("- History").
_DISAMBIGUATION = re.compile(r" \([^()]*\)$| [-–|] [^-–|]+$")


class Fact(Struct, frozen=True):
    """A span of a sentence of a page, and the name by which a question can refer to the page.

    `start` and `end` are offsets in the passage's text.

        Fact(id="halm#0:16", passage=Passage(...), name="Halm bridge", sentence="It was built by Orsolya Venn in 1702.",
             start=16, end=28, kind="name")
    """

    id: str
    passage: Passage
    name: str
    sentence: str
    sentence_start: int
    start: int
    end: int
    kind: Kind

    @property
    def answer(self) -> str:
        """The text of the span."""
        return self.passage.text[self.start : self.end]

    @property
    def evidence(self) -> Evidence:
        """The sentence with its offsets in the document."""
        start = self.passage.start + self.sentence_start
        return Evidence(self.passage.doc_id, start, start + len(self.sentence), self.sentence)

    def accept(self, question: str = "") -> tuple[str, ...]:
        """The accepted answers: the span and, if the question asks for the year of a date, the year.

        Fact(..., "4 May 1702").accept("In which year was Venn born?") == ("1702", "4 May 1702")
        """
        return (*year_aliases(question, self.answer), self.answer)

    @property
    def year(self) -> int | None:
        """The year of a date; None for other kinds."""
        return year_of(self.answer) if self.kind == "date" else None


def page_name(title: str) -> str:
    """The name a question can use for a page: its title without disambiguation; "" if the title is no name.

    page_name("Halm (river)") == "Halm"; page_name("Halm - History") == "Halm"; page_name("notes_2.md") == ""
    """
    name = _DISAMBIGUATION.sub("", title.strip())
    return name if is_title(name) else ""


def draw_facts(passage: Passage, dice: Dice, num: int) -> list[Fact]:
    """At most `num` facts of a passage in random order, at most one per sentence."""
    by_sentence: dict[int, list[Fact]] = {}
    for fact in find_facts(passage):
        by_sentence.setdefault(fact.sentence_start, []).append(fact)
    chosen = [_pick(facts, dice) for facts in by_sentence.values()]
    dice.shuffle(chosen)
    return chosen[:num]


def _pick(facts: Sequence[Fact], dice: Dice) -> Fact:
    """One of a sentence's facts, each kind with equal probability: names alone are four fifths of all spans."""
    kind = dice.pick(sorted({fact.kind for fact in facts}))
    return dice.pick([fact for fact in facts if fact.kind == kind])


def find_facts(passage: Passage) -> Iterator[Fact]:
    """Every fact of a passage that can be asked about, in text order."""
    name = page_name(passage.title)
    if not name:
        return
    for said in split_statements(passage.text):
        if not _MIN_WORDS <= len(said.text.split()) <= _MAX_WORDS or not _WHOLE.match(said.text):
            continue
        for kind, start, end in _find_spans(said.text):
            if _can_be_asked(said.text[start:end], passage.title):
                place = said.start + start
                yield Fact(
                    id=f"{passage.id}:{place}",
                    passage=passage,
                    name=name,
                    sentence=said.text,
                    sentence_start=said.start,
                    start=place,
                    end=said.start + end,
                    kind=kind,
                )


def _find_spans(sentence: str) -> Iterator[tuple[Kind, int, int]]:
    """Non-overlapping spans of a sentence by kind; dates take precedence over names, numbers and descriptions."""
    taken: list[tuple[int, int]] = []
    found: list[tuple[Kind, int, int]] = [("date", *match.span()) for match in DATE.finditer(sentence)]
    found += [("name", *span) for span in find_phrases(sentence)]
    found += [("number", *match.span()) for match in _NUMBER.finditer(sentence)]
    found += [("description", *match.span(1)) for match in _DESCRIPTION.finditer(sentence)]
    for kind, start, end in found:
        if all(end <= first or last <= start for first, last in taken):
            taken.append((start, end))
            yield kind, start, end


def _can_be_asked(span: str, title: str) -> bool:
    """True for a short span that shares no word with the title and does not begin like a sentence."""
    words = set(normalise_answer(span).split())
    if span.split()[0].lower() in _NOT_NAMES:
        return False
    return bool(words) and len(span.split()) <= _MAX_SPAN_WORDS and not words & set(normalise_answer(title).split())
