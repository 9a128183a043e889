"""Kinds of answers (yes/no, choice, name, number, other), and which option of a closed question an answer takes.

    kind_of("Is Halm older than Oss?", ["yes"]) -> "yes/no"
    kind_of("Which is older, Halm or Oss?", ["Oss"]) -> "choice"
    kind_of("Who built it?", ["Orsolya Venn"]) -> "name"
    option_of("Which is older, Halm or Oss?", "Oss") -> "second"

Yes/no questions and choices are closed: a model that read nothing is right half of the time. A model that always gives
the same option scores the share of questions for which that option is right; if training makes it give the other one,
the score jumps although nothing was learned. So closed questions are scored separately, and `find_constants` finds such
models.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict

from msgspec import Struct

from quaere.evaluation.qa.items import Item
from quaere.grouping import group_by
from quaere.rewards.answers import contains, normalise_answer

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
    """The kind of answer a question asks for; for closed kinds the right option and the option taken, else "".

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

    The first option is before the question's last "or". `quaere.rewards.answers.find_alternative` is stricter, because
    a question that it recognises as a choice may contain its answer: it refuses long titles, and sentences without a
    comma.

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
    """The kind of answer asked for and, for a closed kind, the right option and the option that `answer` takes.

    Without accepted answers the kind is "".

    describe_answer("Is it old?", ["yes"], "no") -> {"kind": "yes/no", "right_option": "yes", "option": "no"}
    """
    kind = kind_of(question, accepted) if accepted else ""
    if kind not in CLOSED:
        return {"kind": kind, "right_option": "", "option": ""}
    allowed = ("yes", "no") if kind == "yes/no" else ("first", "second")
    right = next((option for one in accepted if (option := option_of(question, one)) in allowed), "")
    taken = option_of(question, answer or "")
    return {"kind": kind, "right_option": right, "option": taken if taken in allowed else ""}


def _is_number(answer: str) -> bool:
    """True for numbers, dates and quantities, but not for names that begin with a number ("712 Fifth Avenue")."""
    words = _WORD.findall(answer)
    while len(words) > 1 and words[0].lower() in _BEFORE_NUMBERS:
        words = words[1:]
    if not words or any(word[:1].isupper() and not _is_of_number(word) for word in words):
        return False
    return _is_of_number(words[0]) and any(word[0].isdigit() or word.lower() in _NUMBER_WORDS for word in words)


def _is_of_number(word: str) -> bool:
    return word[0].isdigit() or word.lower() in _NUMBER_WORDS | _DATE_WORDS


def _is_name(answer: str) -> bool:
    """True for an identifier, and if every word except joining ones ("of", "de") begins with a capital or a digit.

    At least one word must begin with a capital.
    """
    if _IDENTIFIER.fullmatch(answer):
        return True
    words = [word for word in _WORD.findall(answer) if word.lower() not in _JOINING]
    return any(word[0].isupper() for word in words) and all(word[0].isupper() or word[0].isdigit() for word in words)


# ----------------------------------------------------------------------------------------------------- constant answers


_CONSTANT = 0.9
_MIN_QUESTIONS = 8  # with fewer, all answers may be alike by chance (with 8 fair coins: 1 in 128)


class Constant(Struct, frozen=True):
    """The option a model takes most often among the `num` questions of a closed kind in a set.

    `share` is the share of questions for which the model takes it, `right_share` the share for which it is right.

        Constant(set="2wiki", kind="yes/no", option="no", share=0.98, right_share=0.2, num=45, is_constant=True)
    """

    set: str
    kind: str
    option: str  # "yes", "no", "first" or "second"
    share: float
    right_share: float
    num: int
    is_constant: bool  # given to at least 90 % of the questions, though right for fewer than 90 %


def find_constants(items: Iterable[Item]) -> tuple[Constant, ...]:
    """The option that a model takes most often, for each question set and closed kind of answer.

    Sets are kept apart because they word questions differently: a model may say "no" to all questions of 2Wiki only.
    """
    closed = (item for item in items if item.kind in CLOSED and item.right_option)
    groups = group_by(closed, lambda item: (item.set, item.kind))
    found = []
    for (name, kind), chosen in sorted(groups.items()):
        said = Counter(item.option for item in chosen if item.option)
        if not said:
            continue
        num = len(chosen)
        option, count = min(said.items(), key=lambda pair: (-pair[1], pair[0]))
        share, right = count / num, sum(item.right_option == option for item in chosen) / num
        is_constant = num >= _MIN_QUESTIONS and share >= _CONSTANT > right
        found.append(Constant(name, kind, option, share, right, num, is_constant))
    return tuple(found)


def say_constant(name: str, found: Constant) -> str:
    """A warning in words: `warm says "no" to 44 of 45 yes/no questions of 2wiki; "no" is right for 9`."""
    said, right = round(found.share * found.num), round(found.right_share * found.num)
    of = f" of {found.set}" if found.set else ""
    if found.kind == "choice":
        where = f"{said} of {found.num} choices{of}"
        return f"{name} takes the {found.option} of two things in {where}; the {found.option} is right in {right}"
    where = f"{said} of {found.num} yes/no questions{of}"
    return f'{name} says "{found.option}" to {where}; "{found.option}" is right for {right}'
