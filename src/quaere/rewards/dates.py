"""Dates as answers: the year of a date is an accepted answer to a question for a year.

year_of("4 May 1702") == 1702
year_aliases("In which year was Venn born?", "4 May 1702") == ("1702",)
"""

from __future__ import annotations

import re

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
