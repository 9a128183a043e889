"""Answers: how they are compared in training and evaluation, and how they are found in texts and questions.

exact_match_score("the Halm bridge", ["Halm Bridge"]) -> 1.0
gives_away("Did Venn build Halm?", "Venn") -> True
year_of("May 1702") -> 1702
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from quaere.whole_words import UNSPACED

Containment = Literal["words", "characters"]

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


# -------------------------------------------------------------------------------------- answers in texts and questions

# Words that begin a yes/no question. The two alternatives of a comparison stand right after one of them ("Did A or B
# ..."), or at the end of the question.
_ASKING = frozenset("did do does is are was were has have had will would can could".split())
_ARTICLE_WORDS = frozenset(("a", "an", "the"))
# Words that come right before an alternative in lower case that no comma sets apart.
_BEFORE = _ARTICLE_WORDS | frozenset("by in at on of to from with for than as into after before between".split())
# Words that are no real alternative: "Was it built by Venn or not?" gives its answer away.
_EVASIVE = frozenset(
    """not no yes none neither nothing nobody noone never else other others another same any anyone anybody anything
    some someone somebody something somewhere elsewhere more less fewer later earlier so both either maybe unknown
    """.split()
)
_MAX_NAME_WORDS = 8
_MAX_DESCRIPTION_WORDS = 16  # "the director of the first film in the Halm series"


def contains(text: str, answer: str, *, containment: Containment = "words") -> bool:
    """True if the normalised text contains the normalised answer.

    By default whole words are compared: by characters, an answer of "5" is contained in every question about 1950.
    Comparing characters is for scripts without spaces between words. An answer that normalises to "" is never
    contained.

        contains("Built in 1950.", "5") -> False
        contains("Built in 1950.", "5", containment="characters") -> True
    """
    haystack, needle = normalise_answer(text), normalise_answer(answer)
    if not needle:
        return False
    return f" {needle} " in f" {haystack} " if containment == "words" else needle in haystack


# Typesetting replaces the characters of the keyboard, and models write those of the keyboard.
_ALIKE = {char: f"[{re.escape(kind)}]" for kind in ("'‘’‚‛", '"“”„‟', "-‐‑‒–—−") for char in kind}
_ATTACHED = rf"{UNSPACED}\uac00-\ud7a3"  # Korean attaches particles to its words


@lru_cache(2048)
def match_as_written(answer: str) -> re.Pattern[str]:
    """Pattern of the answer as whole words, in any case and with any white space. "9" is not in "3.9", "" in no text.

    Typographic quotes and dashes equal those of the keyboard. Scripts without spaces between words have no whole words.

        match_as_written("Orsolya Venn").search("Orsolya\nVenn's bridge") -> a match
    """
    words = answer.split()
    if not words:
        return re.compile(r"(?!)")
    pattern = r"\s+".join("".join(_ALIKE.get(char) or re.escape(char) for char in word) for word in words)
    before = "" if re.match(f"[{_ATTACHED}]", words[0]) else rf"(?<![^\W{_ATTACHED}])(?<!\d[.,])"
    after = "" if re.match(f"[{_ATTACHED}]", words[-1][-1]) else rf"(?![^\W{_ATTACHED}])(?![.,]\d)"
    return re.compile(before + pattern + after, re.IGNORECASE)


def gives_away(question: str, answer: str, *, containment: Containment = "words") -> bool:
    """True if the question contains its own answer, except as one of two alternatives to choose from.

    gives_away("Did Venn build Halm?", "Venn") -> True
    gives_away("Who built Halm, Venn or Brod?", "Venn") -> False
    """
    return contains(question, answer, containment=containment) and not names_alternatives(question, answer)


def names_alternatives(question: str, answer: str) -> bool:
    """True if the question asks to choose between two things, one of which is the answer and occurs nowhere else."""
    return find_alternative(question, answer) is not None


def find_alternative(question: str, answer: str) -> int | None:
    """Which of two things to choose between is the answer: 0 or 1; None if neither is, or if it is named elsewhere too.

    The alternatives are joined by the question's only "or" and are of one kind: two names, two numbers, or two plain
    words or descriptions. They are at the end of the question, after a comma or colon unless it is a yes/no question,
    or are the subject of a yes/no question.

        find_alternative("Which is older, the Halm bridge or the Oss mill?", "Oss mill") -> 1
        find_alternative("Did Venn or Brod build it?", "Venn") -> 0
        find_alternative("Was it built by Venn or not?", "Venn") -> None
        find_alternative("Who built the bridge that Venn or Brod drew?", "Venn") -> None
    """
    words = question.strip().rstrip("?!. ").split()
    middle, *others = [place for place, word in enumerate(words) if word.lower() == "or"] or [0]
    if others or not 0 < middle < len(words) - 1:
        return None
    spans = [(start, len(words)) for start in _starts_of_left(words, middle)]
    if words[0].lower() in _ASKING:
        spans += [(1, end) for end in range(middle + 2, min(len(words), middle + 2 + _MAX_DESCRIPTION_WORDS))]
    chosen = (_choose(words, start, middle, end, answer) for start, end in spans)
    return next((number for number in chosen if number is not None), None)


def _starts_of_left(words: Sequence[str], middle: int) -> list[int]:
    """Indices at which the alternative before "or" (at `middle`) may begin, if the other alternative ends the question.

    This may be after any comma, as names have commas too: "Who died first, Olm Venn, 2nd Earl of Oss or Marta Brod?"
    """
    first = max(1, middle - _MAX_DESCRIPTION_WORDS)
    starts = [place for place in range(first, middle) if words[place - 1].endswith((",", ":"))]
    if starts or words[0].lower() not in _ASKING:
        return starts
    if words[middle - 1][:1].isdigit():
        return [middle - 1]
    start = middle
    if words[middle - 1][:1].isupper():
        while start > 1 and words[start - 1][:1].isupper():
            start -= 1
        return [start]
    while start > 1 and words[start - 1].lower() not in _BEFORE:
        start -= 1
    return [start] if start > 1 else []


def _choose(words: Sequence[str], start: int, middle: int, end: int, answer: str) -> int | None:
    """0 if words[start:middle] is the answer, 1 if words[middle + 1:end] is; None if neither, or no alternatives."""
    left, right = words[start:middle], words[middle + 1 : end]
    if not (_is_alternative(left) and _is_alternative(right) and _kinds(left) & _kinds(right)):
        return None
    if end < len(words) and words[end][:1].isupper():  # the name continues: "Brod" in "Brod Vale" is another name
        return None
    wanted, found = normalise_answer(answer), [normalise_answer(" ".join(side)) for side in (left, right)]
    if not wanted or wanted not in found:
        return None
    number = found.index(wanted)
    other = found[1 - number]
    if not other or contains(other, wanted) or contains(wanted, other):
        return None
    return None if contains(" ".join([*words[:start], *words[end:]]), answer) else number


def _is_alternative(words: Sequence[str]) -> bool:
    """True for a name, number or description that could be the answer, but not for "someone else" or two sentences.

    Titles in a description may have any word: "the author of Never Say Die".
    """
    if not 0 < len(words) <= _MAX_DESCRIPTION_WORDS or any(word.endswith(("?", ";")) for word in words):
        return False
    is_description = _kinds(words) == {"word"}
    if not is_description and len(words) > _MAX_NAME_WORDS:
        return False
    bare = [word.strip(".,:;!?()\"'").replace("-", "") for word in words if word.lower() not in _ARTICLE_WORDS]
    if not is_description or len(bare) < 3:
        return not _EVASIVE & {word.lower() for word in bare}
    return not _EVASIVE & {bare[0].lower(), bare[-1].lower(), *bare}


def _kinds(words: Sequence[str]) -> set[str]:
    """{"number"}, {"name"} or {"word"}, by the first word of a phrase; {"number", "name"} for "45 Fathers"."""
    first, *rest = [word.lstrip("\"'(") for word in words if word.lower() not in _ARTICLE_WORDS] or [""]
    if first[:1].isdigit():
        return {"number", "name"} if any(word[:1].isupper() for word in rest) else {"number"}
    return {"name" if first[:1].isupper() else "word"}


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
