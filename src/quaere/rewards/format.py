"""Format reward of a proposer, by EVE (Eq. 9 and its appendix D) or by Dr. Zero's released code.

    F = (1 + think + tool + answer) / 4, and 0 if question or answer is missing

Dr. Zero's paper names the parts but gives no formula. Its released code uses the formula above with two differences
(`format_rule="released"`): a question that contains its own answer scores 0, where EVE gives the full score; and a
question of several hops written without any search scores 0 in the tool part, where EVE gives 1 / hops.

The functions take counts and texts; the caller has read the episode.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from quaere.rewards.answers import normalise_answer

InvalidRule = Literal["text", "algorithm"]
FormatRule = Literal["released", "eve"]
Containment = Literal["words", "characters"]

SHORT_WORDS = 5
LONG_WORDS = 10

# Words that begin a yes/no question. The two alternatives of a comparison stand right after one of them ("Did A or B
# ..."), or at the end of the question.
_ASKING = frozenset("did do does is are was were has have had will would can could".split())
_ARTICLES = frozenset(("a", "an", "the"))
# Words that come right before an alternative in lower case that no comma sets apart.
_BEFORE = _ARTICLES | frozenset("by in at on of to from with for than as into after before between".split())
# Words that are no real alternative: "Was it built by Venn or not?" gives its answer away.
_EVASIVE = frozenset(
    """not no yes none neither nothing nobody noone never else other others another same any anyone anybody anything
    some someone somebody something somewhere elsewhere more less fewer later earlier so both either maybe unknown
    """.split()
)
_MAX_NAME_WORDS = 8
_MAX_DESCRIPTION_WORDS = 16  # "the director of the first film in the Halm series"


class FormatScore(Struct, frozen=True):
    """The parts of the format reward, each in [0, 1], and their total.

    `valid` says whether the solver attempts the question: an invalid proposal earns its format reward only. `leaked`
    says that it is invalid because the question contains its answer.

        FormatScore(think=1.0, tool=1.0, answer=0.5, valid=True, total=0.875)
    """

    think: float
    tool: float
    answer: float
    valid: bool
    total: float
    leaked: bool = False


def format_score(
    *,
    question: str,
    answer: str,
    hops: int,
    num_turns: int,
    num_planned_turns: int,
    num_valid_calls: int,
    num_responses: int,
    sources: Sequence[str],
    format_rule: FormatRule = "eve",
    invalid_rule: InvalidRule = "text",
    containment: Containment = "words",
    choices: bool = True,
) -> FormatScore:
    """The format score of a proposal. A missing question or answer is given as "".

    `sources` are the document the proposer was given and all responses it got. An answer that normalises to "" counts
    as missing, because no attempt can match it. `invalid_rule` decides about a question that contains its own answer:
    "text" makes it invalid (EVE's text), "algorithm" does not (EVE's algorithm). With `choices`, one of two
    alternatives to choose from does not count as contained. `format_rule` selects the formula (see the module's
    docstring).

        format_score(question="Who built it?", answer="Orsolya Venn", hops=2, num_turns=2, num_planned_turns=1,
                     num_valid_calls=1, num_responses=1, sources=["Orsolya Venn built it."])
        -> FormatScore(think=0.5, tool=1.0, answer=1.0, valid=True, total=0.875)
    """
    think = think_score(num_turns, num_planned_turns)
    tool = tool_score(hops, num_valid_calls, num_responses, format_rule=format_rule)
    if not normalise_answer(question) or not normalise_answer(answer):
        return FormatScore(think=think, tool=tool, answer=0.0, valid=False, total=0.0)
    support = answer_score(answer, sources, containment=containment)
    leaks = (gives_away if choices else contains)(question, answer, containment=containment)
    leaked = leaks and invalid_rule == "text"
    total = 0.0 if leaks and format_rule == "released" else (1 + think + tool + support) / 4
    return FormatScore(think=think, tool=tool, answer=support, valid=not leaked, total=total, leaked=leaked)


def think_score(num_turns: int, num_planned_turns: int) -> float:
    """Share of the policy's turns that open with a plan.

    think_score(num_turns=4, num_planned_turns=3) -> 0.75
    """
    if not 0 <= num_planned_turns <= num_turns:
        raise ValueError(f"num_planned_turns must be from 0 to num_turns ({num_turns}), not {num_planned_turns}")
    return num_planned_turns / max(1, num_turns)


def tool_score(hops: int, num_valid_calls: int, num_responses: int, *, format_rule: FormatRule = "eve") -> float:
    """min((1 + calls) / hops, 1): whether the proposer searched as often as its hops need.

    One hop needs no search and scores 1. If calls and responses differ in number, the score is 0. Several hops without
    any search score 1 / hops by EVE's rule and 0 by the released one.

        tool_score(hops=3, num_valid_calls=1, num_responses=1) -> 0.667
        tool_score(hops=3, num_valid_calls=0, num_responses=0) -> 0.333; 0.0 with format_rule="released"
    """
    if hops < 1:
        raise ValueError(f"hops must be at least 1, not {hops}")
    if num_valid_calls < 0 or num_responses < 0:
        raise ValueError(f"counts must be 0 or more: got {num_valid_calls} calls and {num_responses} responses")
    if hops == 1:
        return 1.0
    if num_valid_calls != num_responses or (format_rule == "released" and not num_valid_calls):
        return 0.0
    return min((1 + num_valid_calls) / hops, 1.0)


def answer_score(answer: str, sources: Sequence[str], *, containment: Containment = "words") -> float:
    """1 for yes, no, or up to 5 words found in a source; 0.5 for 6 to 10 words found in a source; else 0.

    Each source is searched separately, so that no answer matches across the border of two.

        answer_score("Orsolya Venn", ["The bridge was built by Orsolya Venn."]) -> 1.0
    """
    normalised = normalise_answer(answer)
    if normalised in ("yes", "no"):
        return 1.0
    num_words = len(normalised.split())
    if num_words > LONG_WORDS or not any(contains(source, answer, containment=containment) for source in sources):
        return 0.0
    return 1.0 if num_words <= SHORT_WORDS else 0.5


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
    """0 if words[start:middle] is the answer, 1 if words[middle + 1:end] is; None if neither, or not alternatives."""
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
    bare = [word.strip(".,:;!?()\"'").replace("-", "") for word in words if word.lower() not in _ARTICLES]
    if not is_description or len(bare) < 3:
        return not _EVASIVE & {word.lower() for word in bare}
    return not _EVASIVE & {bare[0].lower(), bare[-1].lower(), *bare}


def _kinds(words: Sequence[str]) -> set[str]:
    """{"number"}, {"name"} or {"word"}, by the first word of a phrase; {"number", "name"} for "45 Fathers"."""
    first, *rest = [word.lstrip("\"'(") for word in words if word.lower() not in _ARTICLES] or [""]
    if first[:1].isdigit():
        return {"number", "name"} if any(word[:1].isupper() for word in rest) else {"number"}
    return {"name" if first[:1].isupper() else "word"}
