"""Facts to ask about: a sentence of a page and a short span of it that is to be the answer, picked by rules.

    draw_facts(passage, Dice(7), 1)
    -> [Fact(id="halm#0:12", passage=Passage(...), name="Halm bridge", sentence="It was built by Orsolya Venn in 1702.",
             start=16, end=28, kind="name")]

Nothing is asked of a model here. A span is a name, a date, a number or what a thing is said to be, never a part of the
page's own name: a question has to name the page, or nobody could look for it.
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
# What a thing is said to be: up to four words behind "is a", as far as a word that begins something else.
_DESCRIPTION = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the) ((?:[\w'’-]+ ){0,3}?[\w'’-]+)"
    r"(?=,|\.| (?:of|in|by|for|from|who|which|that|and|at|on|with|to|based|located|known)\b)"
)
# A capitalised word that begins a sentence or stands for a name is no name.
_NOT_NAMES = frozenset(
    "he she it they his her its their this that these those when while after before during since if as at by from in "
    "on of to with although though however there then also but and or".split()
)
_WHOLE = re.compile(r"[\"'“(]?[A-ZÀ-Þ0-9].*[.!?][\"'”)]*$", re.DOTALL)  # a passage may begin or end inside a sentence
# What tells a page from others of its name, or names a section of it or the site it is of.
_DISAMBIGUATION = re.compile(r" \([^()]*\)$| [-–|] [^-–|]+$")


class Fact(Struct, frozen=True):
    """A span of a sentence of a page, and the name by which a question can call the page.

    `start` and `end` are places in the passage's text.

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
        """The span."""
        return self.passage.text[self.start : self.end]

    @property
    def evidence(self) -> Evidence:
        """The sentence with its place in the document."""
        start = self.passage.start + self.sentence_start
        return Evidence(self.passage.doc_id, start, start + len(self.sentence), self.sentence)

    def accept(self, question: str = "") -> tuple[str, ...]:
        """Every way the question may be answered: by the span and, if it asks for the year of a date, by the year.

        Fact(..., "4 May 1702").accept("In which year was Venn born?") == ("1702", "4 May 1702")
        """
        return (*year_aliases(question, self.answer), self.answer)

    @property
    def year(self) -> int | None:
        """The year of a date."""
        return year_of(self.answer) if self.kind == "date" else None


def page_name(title: str) -> str:
    """What a question can call a page: its title without what tells it from others of that name; "" if nothing will do.

    page_name("Halm (river)") == "Halm"; page_name("Halm - History") == "Halm"; page_name("notes_2.md") == ""
    """
    name = _DISAMBIGUATION.sub("", title.strip())
    return name if is_title(name) else ""


def draw_facts(passage: Passage, dice: Dice, num: int) -> list[Fact]:
    """At most `num` facts of a passage, in an order drawn by the dice; no two in one sentence."""
    by_sentence: dict[int, list[Fact]] = {}
    for fact in find_facts(passage):
        by_sentence.setdefault(fact.sentence_start, []).append(fact)
    chosen = [_pick(facts, dice) for facts in by_sentence.values()]
    dice.shuffle(chosen)
    return chosen[:num]


def _pick(facts: Sequence[Fact], dice: Dice) -> Fact:
    """One of a sentence's facts, every kind as likely as any other: names alone are four fifths of all spans."""
    kind = dice.pick(sorted({fact.kind for fact in facts}))
    return dice.pick([fact for fact in facts if fact.kind == kind])


def find_facts(passage: Passage) -> Iterator[Fact]:
    """Every fact of a passage that can be asked about, in the order of the text."""
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
    """Spans by kind; a place that one of them has taken is not given to the next."""
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
    """A short span that shares no word with the title and does not begin like a sentence."""
    words = set(normalise_answer(span).split())
    if span.split()[0].lower() in _NOT_NAMES:
        return False
    return bool(words) and len(span.split()) <= _MAX_SPAN_WORDS and not words & set(normalise_answer(title).split())
