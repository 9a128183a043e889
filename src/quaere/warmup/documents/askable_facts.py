"""Facts to ask about: a statement of a passage and a short span of it that will be the answer, picked by rules.

    draw_facts(passage, Dice(7), 1)
    -> [Fact(id="halm#0:12", passage=Passage(...), name="Halm bridge", sentence="It was built by Orsolya Venn in 1702.",
             start=16, end=28, kind="name")]

No model is used here. What can be an answer is a table of patterns: options, identifiers, values with units, defaults,
dates, names, quoted words, short phrases. A page needs no title: whether a question can be understood without the page
is measured later, by searching with it.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from quaere.chat.statements import split_statements
from quaere.grouping import group_by
from quaere.records import Evidence, Passage
from quaere.rewards.answers import DATE, normalise_answer, year_aliases, year_of
from quaere.rollout.topic_questions import bare_title, find_phrases, is_title
from quaere.worlds.dice import Dice

Span = tuple[int, int]
Kind = Literal[
    "option", "identifier", "default", "quantity", "date", "number", "quoted", "name", "description", "phrase"
]

_MIN_WORDS, _MAX_WORDS = 4, 60  # words of a statement
_MAX_SPAN_WORDS = 6

# Units that make a number a quantity ("30 seconds"), as opposed to a count of things ("30 accounts").
UNITS = (
    r"%|percent|[kKMGT]i?[Bb]|bytes?|bits?|[munµ]?s|msec|sec(?:ond)?s?|min(?:ute)?s?|hours?|days?|weeks?|months?|years?|"
    r"milliseconds?|[mck]m|met(?:er|re)s?|feet|inch(?:es)?|miles?|pixels?|px|pt|points?|dpi|degrees?|°[CF]?|[kMG]?Hz|"
    r"dB|bpm|fps|[kM]?bps|volts?|[VWAK]|kg|g|lines?|columns?|characters?|times"
)
_NUMERAL = r"[-+]?\d[\d,]*(?:\.\d+)?"
_NOT_INSIDE = r"(?<![\w.,$€£/#^-])"
_PHRASE = r"(?:[a-z][\w'’-]* ){0,3}?[a-z][\w'’-]*"
_WORDS = r"(?:[a-z][\w'’-]+ ){1,3}?[a-z][\w'’-]+"  # two to four: one common word alone says little
_PHRASE_END = (
    r"(?=[,.;:)]|$| (?:of|in|by|for|from|who|which|that|and|or|at|on|with|to|when|if|as|is|are|based|located|known)\b)"
)

# Earlier rows take precedence where spans overlap. Group 1 is the span, if there is one.
PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("option", re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")),
    ("quantity", re.compile(rf"{_NOT_INSIDE}({_NUMERAL} ?(?:{UNITS}))(?!\w)")),
    (
        "default",
        re.compile(r"\b[Dd]efaults?(?: value)?(?:\s*[:=]|\s+(?:is|to|of))\s*[\"'`“]?([^\s\"'`”,;()|]{1,40}\w)"),
    ),
    ("date", DATE),
    (
        "identifier",
        re.compile(
            # A look ahead for one of "_", "::", "/", "."; then the whole of it without going back, in linear time.
            r"(?<![\w/.~<-])((?:~?/)?(?=[A-Za-z][^\W_]*+(?:_\w|::\w|/\w|\.[A-Za-z]))"
            r"[A-Za-z]\w*+(?:(?:::|/|\.(?=[A-Za-z]))\w++)*+(?:\(\))?|[a-z]+[A-Z]\w+|\w+\(\)"
            r"|[A-Z][A-Z0-9]{2,}(?:_\w+)?)(?![\w/])"
        ),
    ),
    ("quoted", re.compile(r"[\"“`‘*]{1,2}([^\W_][^\"“”`‘’*\n]{0,38}[^\W_])[\"”`’*]{1,2}")),
    ("number", re.compile(rf"{_NOT_INSIDE}({_NUMERAL})(?![\w%/-]|[.,]\d)")),
    ("description", re.compile(rf"\b(?:is|was|are|were) (?:an?|the) ({_PHRASE}){_PHRASE_END}")),
    (
        "phrase",
        re.compile(
            r"\b(?:called|named|using|uses?|via|press|click|choose|select|requires?|needs?|with|by|into|from|as|only|until|"
            rf"before|after|when|unless|must be|can be|means?) (?:an? |the )?+({_WORDS}){_PHRASE_END}"
        ),
    ),
)
# Weights of kinds in draws, if not 1: questions about phrases are seldom kept (1 % in manuals, those about options
# 24 %), and names and identifiers of one word, or of capitals alone, a third as often as others.
WEIGHTS: dict[Kind, float] = {"phrase": 0.1, "description": 0.1}
_PLAIN_WEIGHT = 0.3
_LOTS = 1 << 20
# Words that make no answer by themselves: they begin sentences, or are pronouns.
_NO_ANSWERS = frozenset(
    "he she it they his her its their this that these those when while after before during since if as at by from in "
    "on of to with although though however there then also but and or and/or not you your we one example note see "
    "section chapter table figure version default use used using such other same following above below e.g i.e "
    "etc".split()
)
_CROSS_REFERENCE = re.compile(
    r"^(?:see|refer to|for (?:more|further) |please see|(?:next|previous|up|home)\b)", re.IGNORECASE
)
# Lines that state nothing to ask about: addresses, headers of mails, heads of change-log entries, notices, code.
_NO_STATEMENT = re.compile(
    r"\w@\w|^(?:From|To|Cc|Bcc|Reply-To|Date|Sent|Subject|Received|Message-ID|In-Reply-To): |^\d{4}-\d\d-\d\d\b|"
    r"[{}<>;=|]\s*[{}<>;=|]|©|(?i:\bcopyright\b|^\W*(?:last changed|accessed|thanks to)\b)"
)
_EXAMPLE = re.compile(r"(?i)(?<![\w.@-])(?:examples?\b|e\.g\.)")  # what follows is made up
# An answer next to "or" is one of several right ones ("accounts of type STOCK or FUND").
_OR_BEFORE = re.compile(r"\bor (?:an? |the )?[\"'`“‘(*]{0,3}$")
_OR_AFTER = re.compile(r"[\"'`”’)*]{0,3},? \(?(?:or|and/or)\b")
_ROW = re.compile(r"^\||^[^:;]+: [^:;]+; [^:;]+: ")
_PLAIN = re.compile(r"[(\"'“*`]*[^\W\d_][^\W\d_'’-]+[)\"'”*`,.;:!?]*")
_DISAMBIGUATION = re.compile(r" \([^()]*\)$")  # the end of a title that separates pages of one name


class Fact(Struct, frozen=True):
    """A fact to ask about: a statement of a page, and a span of it as the answer.

    `name` is the page's name, "" if its title is not a name that the text uses.

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
        """The text of the span, with single spaces."""
        return " ".join(self.passage.text[self.start : self.end].split())

    @property
    def weight(self) -> float:
        """The weight of the fact in random draws, from 0 to 1."""
        is_plain = self.answer.isalpha() and (self.kind == "name" or self.answer.isupper())
        return WEIGHTS.get(self.kind, _PLAIN_WEIGHT if is_plain else 1.0)

    @property
    def evidence(self) -> Evidence:
        """The statement with its offsets in the document."""
        start = self.passage.start + self.sentence_start
        return Evidence(self.passage.doc_id, start, start + len(self.sentence), self.sentence)

    def accept(self, question: str = "") -> tuple[str, ...]:
        """The accepted answers: the span and, if the question names the year or the unit, the bare number.

        Fact(..., "4 May 1702").accept("In which year was Venn born?") == ("1702", "4 May 1702")
        Fact(..., "90 seconds").accept("After how many seconds does Heron close?") == ("90", "90 seconds")
        """
        return (*year_aliases(question, self.answer), *_bare_number(question, self.answer, self.kind), self.answer)

    @property
    def year(self) -> int | None:
        """The year of the answer if it is a date; else None."""
        return year_of(self.answer) if self.kind == "date" else None


def _bare_number(question: str, answer: str, kind: Kind) -> tuple[str, ...]:
    if kind != "quantity":
        return ()
    number, unit = re.fullmatch(rf"({_NUMERAL}) ?(.*)", answer).groups()  # type: ignore[union-attr]
    return (number,) if normalise_answer(unit) and normalise_answer(unit) in normalise_answer(question).split() else ()


def page_name(title: str) -> str:
    """The name of a page: its title without numbering and disambiguation; "" if the title is not a name.

    page_name("Halm (river)") == page_name("20.5. Halm") == "Halm"; page_name("notes_2.md") == ""
    """
    name = bare_title(_DISAMBIGUATION.sub("", title.strip()))
    return name if is_title(name) else ""


def _used_name(passage: Passage) -> str:
    """The name of the page if the passage contains a word of it, else "": titles of manuals are often not names.

    _used_name(Passage(..., title="Orsolya Venn", text="Venn built it.")) == "Orsolya Venn"
    """
    name = page_name(passage.title)
    words = [word for word in name.split() if not word.islower()]
    return name if any(word in passage.text for word in words) else ""


def draw_facts(passage: Passage, dice: Dice, num: int) -> list[Fact]:
    """At most `num` facts of a passage in random order, at most one per statement."""
    by_sentence = group_by(find_facts(passage), lambda fact: fact.sentence_start)
    chosen = [_pick(facts, dice) for facts in by_sentence.values()]
    chosen.sort(key=lambda fact: _draw_lot(fact.weight, dice), reverse=True)
    return chosen[:num]


def _pick(facts: Sequence[Fact], dice: Dice) -> Fact:
    """Draw one of a statement's facts: first a kind by its weight, because names would outnumber all others."""
    kinds = sorted({(fact.kind, fact.weight) for fact in facts})
    chosen = max(kinds, key=lambda kind: _draw_lot(kind[1], dice))
    return dice.pick([fact for fact in facts if (fact.kind, fact.weight) == chosen])


def _draw_lot(weight: float, dice: Dice) -> float:
    """A random sort key: sorting by it, descending, gives a weighted random order (sampling without replacement)."""
    return math.pow((dice.below(_LOTS) + 1) / _LOTS, 1 / weight)


def is_drawn(fact: Fact, dice: Dice) -> bool:
    """A random decision: True with a probability equal to the fact's weight."""
    return dice.below(_LOTS) < fact.weight * _LOTS


def find_facts(passage: Passage) -> Iterator[Fact]:
    """Every fact of a passage that can be asked about, in text order; text from the first example on is ignored."""
    name = _used_name(passage)
    example = _EXAMPLE.search(passage.text)
    end = example.start() if example else len(passage.text)
    for said in split_statements(passage.text):
        if said.end > end:
            return
        for kind, start, stop in find_spans(said.text) if _is_prose(said.text) else ():
            if _can_be_asked(said.text[start:stop], passage) and not _is_alternative(said.text, start, stop):
                start, stop = said.start + start, said.start + stop
                yield Fact(f"{passage.id}:{start}", passage, name, said.text, said.start, start, stop, kind)


def _is_prose(statement: str) -> bool:
    """True for a sentence or table row of a fit length; no cross-reference, address or notice, and no bare command.

    At least three words and half of all must be plain words, except in a table row.

    [_is_prose(said) for said in ("d.rast map=accum_5K", "F0 7F 08 0B ff", "| team | 5,000 |")] == [False, False, True]
    """
    words = statement.split()
    is_long = _MIN_WORDS <= len(words) <= _MAX_WORDS
    if not is_long or _CROSS_REFERENCE.match(statement) or _NO_STATEMENT.search(statement):
        return False
    num_plain = sum(_PLAIN.fullmatch(word) is not None for word in words)
    return bool(_ROW.search(statement)) or (num_plain >= 3 and 2 * num_plain >= len(words))


def find_spans(sentence: str) -> Iterator[tuple[Kind, int, int]]:
    """Non-overlapping answer spans of a statement as (kind, start, end), in the order of `PATTERNS`."""
    taken = bytearray(len(sentence))  # 1 for each character of a span
    for kind, pattern in PATTERNS:
        found = [match.span(match.re.groups) for match in pattern.finditer(sentence)]
        if kind == "number":  # names may hold numbers ("Pelikan 2"), and are the better answer
            yield from _take("name", find_phrases(sentence), taken)
        yield from _take(kind, found, taken)


def _take(kind: Kind, spans: Sequence[Span], taken: bytearray) -> Iterator[tuple[Kind, int, int]]:
    for start, end in spans:
        if 1 not in taken[start:end]:
            taken[start:end] = b"\1" * (end - start)
            yield kind, start, end


def _is_alternative(sentence: str, start: int, end: int) -> bool:
    """True if "or" next to the span makes it only one of several alternatives.

    _is_alternative("Press Alt or Shift.", 6, 9) is True
    """
    return bool(_OR_AFTER.match(sentence, end) or _OR_BEFORE.search(sentence[max(0, start - 12) : start]))


def _can_be_asked(span: str, passage: Passage) -> bool:
    """True if the span can be an answer: short, no pronoun, without words of the title, more than folder names."""
    words = set(normalise_answer(span).split())
    # A digit is guessed too easily, and says too little to tell two facts apart.
    if len(span) == 1 or not words or len(span.split()) > _MAX_SPAN_WORDS or span.split()[0].lower() in _NO_ANSWERS:
        return False
    title, folders = _page_words(passage.title, passage.doc_id.rpartition("/")[0])
    return not words & title and not words <= folders


@lru_cache(maxsize=1)  # of one page after the other, each with many spans
def _page_words(title: str, folders: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a page's title, and of its folders' names."""
    return frozenset(normalise_answer(title).split()), frozenset(normalise_answer(folders.replace("/", " ")).split())
