"""Answer comparison for training and evaluation: normalisation, exact match, token F1, and the years of dates."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = {"yes", "no", "noanswer"}
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """The text in lower case without punctuation, articles and extra white space.

    normalise_answer("The  Halm Bridge!") -> "halm bridge"
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match_score(answer: str, accepted: Iterable[str]) -> float:
    """1.0 if the normalised answer equals an accepted one, else 0.0. An answer that normalises to "" never matches.

    exact_match_score("the Halm bridge", ["Halm Bridge"]) -> 1.0
    exact_match_score("", ["The The"]) -> 0.0
    """
    normalised = normalise_answer(answer)
    # A missing answer arrives as "" and must not match an accepted answer that normalises to "" too, such as "The The".
    return float(bool(normalised) and any(normalised == normalise_answer(other) for other in accepted))


def f1_score(answer: str, accepted: Iterable[str]) -> float:
    """Highest token F1 between the normalised answer and any accepted one; 0 if either normalises to "".

    "yes", "no" and "noanswer", on either side, give no partial credit (HotpotQA's rule).

        f1_score("Halm bridge", ["old Halm bridge"]) -> 0.8
        f1_score("yes no", ["yes"]) -> 0.0
    """
    return max((_token_f1(answer, other) for other in accepted), default=0.0)


def _token_f1(answer: str, other: str) -> float:
    ours, theirs = normalise_answer(answer), normalise_answer(other)
    # Without this rule, an answer of "yes no" would get partial credit for either.
    if ours != theirs and (ours in _CLOSED or theirs in _CLOSED):
        return 0.0
    mine, others = ours.split(), theirs.split()
    shared = (Counter(mine) & Counter(others)).total()
    return 2 * shared / (len(mine) + len(others)) if shared else 0.0


# ------------------------------------------------------------------------------------------------------- years of dates

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(
    rf"\b(?:\d{{1,2}} (?:{_MONTHS}) \d{{4}}|(?:{_MONTHS})(?: \d{{1,2}},)? \d{{4}}|1[0-9]{{3}}|20[0-9]{{2}})\b"
)
_YEAR = re.compile(r"\d{4}")
_WORD = re.compile(r"\w+")


def year_of(text: str) -> int | None:
    """The year of a text that is a date and nothing else; None otherwise.

    year_of("May 1702") == 1702; year_of("1702 horses") is None
    """
    found = _YEAR.search(text) if DATE.fullmatch(text.strip()) else None
    return int(found[0]) if found else None


def year_aliases(question: str, answer: str) -> tuple[str, ...]:
    """The year as a further accepted answer, if the answer is a longer date and the question asks for a year; else ().

    year_aliases("When was Venn born?", "4 May 1702") == ()
    """
    year = year_of(answer)
    if year is None or "year" not in _WORD.findall(question.lower()) or answer.strip() == str(year):
        return ()
    return (str(year),)
