"""Kinds of answers: what a question asks for, and which of its options an answer takes.

    kind_of("Is Halm older than Oss?", ["yes"]) -> "yes/no"
    kind_of("Which is older, Halm or Oss?", ["Oss"]) -> "choice"
    kind_of("Who built it?", ["Orsolya Venn"]) -> "name"
    option_of("Which is older, Halm or Oss?", "Oss") -> "second"

Yes/no questions and choices are closed: a model that read nothing is right half of the time, and one that always says
the same can gain or lose by turning over. So their scores are shown apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypedDict

from quaere.rewards.answers import normalise_answer
from quaere.rewards.format import contains

Kind = Literal["yes/no", "choice", "name", "number", "other"]
KINDS: tuple[Kind, ...] = ("yes/no", "choice", "name", "number", "other")
CLOSED: tuple[Kind, ...] = ("yes/no", "choice")

_NUMBER_WORDS = frozenset(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion first
    second third fourth fifth sixth seventh eighth ninth tenth half once twice dozen
    """.split()
)
_BEFORE_NUMBERS = frozenset(
    "a about an around approximately at between c circa early in late least more nearly on over than the".split()
)
# Capitalised words that are parts of dates, times and quantities, not of names.
_DATE_WORDS = frozenset(
    """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday ad bc bce ce am pm us usd eur gb mb kb
    """.split()
)
_JOINING = frozenset("a an the of and de la le du del der den di da von van y in on at for to s".split())
_WORD = re.compile(r"[^\W_]+")
_IDENTIFIER = re.compile(r"-{0,2}[\w.:/-]*\w[_.:/\\-]+\w[\w.:/()-]*|\w*[a-z][A-Z]\w*|[A-Za-z]+\d\w*|--?\w+")


class AnswerFields(TypedDict):
    """Fields of a score that say what was asked for; the options are "" of open kinds.

    {"kind": "yes/no", "right_option": "yes", "option": "no"}
    """

    kind: str
    right_option: str
    option: str


def kind_of(question: str, answers: Sequence[str]) -> Kind:
    """The kind of answer a question asks for, by its accepted answers; the first of them is taken as the usual form."""
    if any(normalise_answer(answer) in ("yes", "no") for answer in answers):
        return "yes/no"
    if any(option_of(question, answer) in ("first", "second") for answer in answers):
        return "choice"
    usual = answers[0].strip() if answers else ""
    if _is_number(usual):
        return "number"
    # An answer that is accepted in lower case too is a word at the start of a phrase ("Blue", "blue").
    return "name" if _is_name(usual) and usual.lower() not in answers[1:] else "other"


def option_of(question: str, answer: str) -> str:
    """Which option of a closed question an answer takes: "yes", "no", "first", "second", or "" for none.

    The first option is before the question's last "or". `quaere.rewards.format.find_alternative` is stricter, since
    what it takes for a choice may contain its answer: it refuses long titles and sentences without a comma.

        option_of("Who died first, Venn or Brod?", "Brod") -> "second"
        option_of("Who died first, Venn or Brod?", "Marta Brod") -> ""
    """
    said = normalise_answer(answer)
    if said in ("yes", "no"):
        return said
    before, joined, after = question.rpartition(" or ")
    if not joined or contains(before, answer) == contains(after, answer):
        return ""
    return "first" if contains(before, answer) else "second"


def describe_answer(question: str, accepted: Sequence[str], answer: str | None) -> AnswerFields:
    """The fields of a score that say what was asked for: the kind, and of a closed one the right and the taken option.

    describe_answer("Is it old?", ["yes"], "no") -> {"kind": "yes/no", "right_option": "yes", "option": "no"}
    """
    kind = kind_of(question, accepted)
    if kind not in CLOSED:
        return {"kind": kind, "right_option": "", "option": ""}
    allowed = ("yes", "no") if kind == "yes/no" else ("first", "second")
    right = next((option for one in accepted if (option := option_of(question, one)) in allowed), "")
    taken = option_of(question, answer or "")
    return {"kind": kind, "right_option": right, "option": taken if taken in allowed else ""}


def _is_number(answer: str) -> bool:
    """True of numbers, dates and quantities, but not of names with a number in front ("712 Fifth Avenue")."""
    words = _WORD.findall(answer)
    while len(words) > 1 and words[0].lower() in _BEFORE_NUMBERS:
        words = words[1:]
    if not words or any(word[:1].isupper() and not _is_of_number(word) for word in words):
        return False
    return _is_of_number(words[0]) and any(word[0].isdigit() or word.lower() in _NUMBER_WORDS for word in words)


def _is_of_number(word: str) -> bool:
    return word[0].isdigit() or word.lower() in _NUMBER_WORDS | _DATE_WORDS


def _is_name(answer: str) -> bool:
    """True of an identifier, and where every word but joining ones begins with a capital or a digit."""
    if _IDENTIFIER.fullmatch(answer):
        return True
    words = [word for word in _WORD.findall(answer) if word.lower() not in _JOINING]
    return any(word[0].isupper() for word in words) and all(word[0].isupper() or word[0].isdigit() for word in words)
