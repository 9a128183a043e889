"""Did a proposer keep to the protocol? The format reward of EVE (Eq. 9 and its appendix D), and Dr. Zero's.

    F = (1 + think + tool + answer) / 4, and 0 when question or answer is missing

Dr. Zero's paper names the parts and no formula. Its released code has the one above with two differences, which are
`format_rule="released"`: a question that holds its own answer scores 0, where EVE pays it in full, and more than one
hop without a single search scores 0 in the tool part, where EVE pays 1 / hops.

The caller has read the episode; what arrives here are counts and texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from quaere.rewards.answers import normalise_answer

InvalidRule = Literal["text", "algorithm"]
FormatRule = Literal["released", "eve"]
Containment = Literal["words", "characters"]

SHORT_WORDS = 5
LONG_WORDS = 10

# A comparison names its two alternatives: after one of these and before the verb ("Did A or B ..."), or at the end.
_ASKING = frozenset("did do does is are was were has have had will would can could".split())
_ARTICLES = frozenset(("a", "an", "the"))
# Before an alternative of lower-case words that no comma sets apart.
_BEFORE = _ARTICLES | frozenset("by in at on of to from with for than as into after before between".split())
# No thing of the answer's kind: with one of these beside it, the answer is given away and not compared.
_EVASIVE = frozenset(
    """not no yes none neither nothing nobody never else other others another any anyone anybody anything some someone
    somebody something somewhere elsewhere more less fewer later earlier so both either maybe unknown""".split()
)
_MAX_ALTERNATIVE_WORDS = 8


class FormatScore(Struct, frozen=True):
    """The parts of the format reward, each in [0, 1], and their combination.

    `valid` says whether the proposal is worth trying to answer: one that is not earns its format reward and nothing
    else. `leaked` says that it is not because the question holds its answer.

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
) -> FormatScore:
    """Score how a proposer went about its task. A missing question or answer is the empty string.

    `sources` are the document it was given and every response it got. An answer that normalises to nothing counts as
    missing, because no attempt could be compared with it. `invalid_rule` decides about a question that holds its own
    answer: it is invalid in EVE's text ("text") and not in its algorithm ("algorithm").
    `format_rule` is whose formula it is (see above).

        format_score(question="Who built it?", answer="Orsolya Venn", hops=2, num_turns=2, num_planned_turns=1,
                     num_valid_calls=1, num_responses=1, sources=["Orsolya Venn built it."])
        -> FormatScore(think=0.5, tool=1.0, answer=1.0, valid=True, total=0.875)
    """
    think = think_score(num_turns, num_planned_turns)
    tool = tool_score(hops, num_valid_calls, num_responses, format_rule=format_rule)
    missing = not normalise_answer(question) or not normalise_answer(answer)
    if missing:
        return FormatScore(think=think, tool=tool, answer=0.0, valid=False, total=0.0)
    support = answer_score(answer, sources, containment=containment)
    if invalid_rule not in ("text", "algorithm"):
        raise ValueError(f"invalid_rule is 'text' or 'algorithm', not {invalid_rule!r}")
    leaks = gives_away(question, answer, containment=containment)
    leaked = leaks and invalid_rule == "text"
    total = 0.0 if leaks and format_rule == "released" else (1 + think + tool + support) / 4
    return FormatScore(think=think, tool=tool, answer=support, valid=not leaked, total=total, leaked=leaked)


def think_score(num_turns: int, num_planned_turns: int) -> float:
    """The share of the policy's turns that open with a plan.

    think_score(num_turns=4, num_planned_turns=3) -> 0.75
    """
    if not 0 <= num_planned_turns <= num_turns:
        raise ValueError(f"of {num_turns} turns, {num_planned_turns} cannot be planned")
    return num_planned_turns / max(1, num_turns)


def tool_score(hops: int, num_valid_calls: int, num_responses: int, *, format_rule: FormatRule = "eve") -> float:
    """Did it search as often as its hops need? One hop needs no search; a call without its response earns nothing.

    More hops without any search earn 1 / hops by EVE's rule and nothing by the released one.

        tool_score(hops=3, num_valid_calls=1, num_responses=1) -> 0.667
        tool_score(hops=3, num_valid_calls=0, num_responses=0) -> 0.333; 0.0 with format_rule="released"
    """
    if format_rule not in ("released", "eve"):
        raise ValueError(f"format_rule is 'released' or 'eve', not {format_rule!r}")
    if hops < 1:
        raise ValueError(f"a question has at least 1 hop, not {hops}")
    if num_valid_calls < 0 or num_responses < 0:
        raise ValueError(f"counts are not negative: {num_valid_calls} calls, {num_responses} responses")
    if hops == 1:
        return 1.0
    if num_valid_calls != num_responses or (format_rule == "released" and not num_valid_calls):
        return 0.0
    return min((1 + num_valid_calls) / hops, 1.0)


def answer_score(answer: str, sources: Sequence[str], *, containment: Containment = "words") -> float:
    """1 for yes, no, or up to 5 words found in a source; a half for 6 to 10 words found in a source; else 0.

    Each source is looked at by itself, so that no answer is found astride two of them.

        answer_score("Orsolya Venn", ["The bridge was built by Orsolya Venn."]) -> 1.0
    """
    normalised = normalise_answer(answer)
    if normalised in ("yes", "no"):
        return 1.0
    num_words = len(normalised.split())
    found = any(contains(source, answer, containment=containment) for source in sources)
    if not found or num_words > LONG_WORDS:
        return 0.0
    return 1.0 if num_words <= SHORT_WORDS else 0.5


def contains(text: str, answer: str, *, containment: Containment = "words") -> bool:
    """Does the answer stand in the text, both normalised?

    By whole words unless told otherwise: by characters an answer of "5" would stand in every question about 1950. By
    characters is the choice for scripts that put no space between words. What normalises to nothing stands nowhere.

        contains("Built in 1950.", "5") -> False
        contains("Built in 1950.", "5", containment="characters") -> True
    """
    haystack, needle = normalise_answer(text), normalise_answer(answer)
    if not needle:
        return False
    if containment == "words":
        return f" {needle} " in f" {haystack} "
    if containment == "characters":
        return needle in haystack
    raise ValueError(f"containment is 'words' or 'characters', not {containment!r}")


def gives_away(question: str, answer: str, *, containment: Containment = "words") -> bool:
    """Does the question hold its own answer, other than as one of two alternatives it asks to choose from?

    gives_away("Did Venn build Halm?", "Venn") -> True
    gives_away("Who built Halm, Venn or Brod?", "Venn") -> False
    """
    return contains(question, answer, containment=containment) and not names_alternatives(question, answer)


def names_alternatives(question: str, answer: str) -> bool:
    """Does the question ask which of two things it names, and is the answer one of them and stands nowhere else?

    The two are joined by its only "or" and are of one kind: two names, two numbers or two plain words. They end the
    question, set apart by a comma or colon unless it is one of yes and no, or they are the subject of one such.

        names_alternatives("Which is older, the Halm bridge or the Oss mill?", "Oss mill") -> True
        names_alternatives("Did Venn or Brod build it?", "Venn") -> True
        names_alternatives("Was it built by Venn or not?", "Venn") -> False
        names_alternatives("Who built the bridge that Venn or Brod drew?", "Venn") -> False
    """
    words = question.strip().rstrip("?!. ").split()
    places = [place for place, word in enumerate(words) if word.lower() == "or"]
    if len(places) != 1 or not 0 < places[0] < len(words) - 1:
        return False
    middle = places[0]
    spans = [(_start_of_left(words, middle), len(words))]
    if words[0].lower() in _ASKING:
        spans += [(1, end) for end in range(middle + 2, len(words))]
    return any(_is_choice(words, start, middle, end, answer) for start, end in spans)


def _start_of_left(words: Sequence[str], middle: int) -> int:
    """Where the alternative before "or" begins, if the other one ends the question; `middle` if it cannot be told."""
    for place in range(middle - 1, 0, -1):
        if words[place - 1].endswith((",", ":")):
            return place
    if words[0].lower() not in _ASKING:
        return middle
    start = middle
    if words[middle - 1][:1].isdigit():
        return middle - 1
    if words[middle - 1][:1].isupper():
        while start > 1 and words[start - 1][:1].isupper():
            start -= 1
        return start
    while start > 1 and words[start - 1].lower() not in _BEFORE:
        start -= 1
    return start if start > 1 else middle


def _is_choice(words: Sequence[str], start: int, middle: int, end: int, answer: str) -> bool:
    """Is the answer one of words[start:middle] and words[middle + 1:end], two alternatives, and not given away?"""
    left, right = words[start:middle], words[middle + 1 : end]
    if not left or not right or max(len(left), len(right)) > _MAX_ALTERNATIVE_WORDS or _kind(left) != _kind(right):
        return False
    if end < len(words) and words[end][:1].isupper():  # a name that goes on is another name
        return False
    wanted, found = normalise_answer(answer), [normalise_answer(" ".join(side)) for side in (left, right)]
    if not wanted or wanted not in found:
        return False
    other = found[1 - found.index(wanted)]
    if not other or _EVASIVE & {*other.split(), *wanted.split()} or contains(other, wanted) or contains(wanted, other):
        return False
    return not contains(" ".join([*words[:start], *words[end:]]), answer)


def _kind(words: Sequence[str]) -> str:
    """Number, name or plain word, by how a phrase begins."""
    first = next((word.lstrip("\"'(") for word in words if word.lower() not in _ARTICLES), "")
    return "number" if first[:1].isdigit() else "name" if first[:1].isupper() else "word"
