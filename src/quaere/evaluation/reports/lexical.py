"""Lexical features of sentences: numbers, names, content words and negations, and known names in them.

    read_numbers("some 1.7 million in 1702")          -> [Number(1700000.0, unit=100000.0), Number(1702.0, ...)]
    find_names("Venn was born in Halm.", frozenset()) -> ["venn", "halm"]
    content_words("The bridges were built of stone.") -> ["bridg", "built", "ston"]
    num_negations("It was never built.")              -> 1
    KnownNames(facts).find("Orsolya Venn built it.")  -> {("orsolya", "venn")}

Function words, endings and negations are English. Numbers, and words of scripts without spaces (Chinese: every pair of
characters), are recognised in any language. Of known names, the longest whole-word match counts; a name followed by
another capitalised word is a different name.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from msgspec import Struct

from quaere.grouping import group_by
from quaere.rewards.answers import normalise_answer
from quaere.search.words import fold, terms
from quaere.worlds.open_questions import KnownFact

# A citation and the space before it: [2], [1, 3]. Possessive quantifiers prevent quadratic backtracking on any text.
MARK = re.compile(r"[ \t]?\[[ \t]*+[0-9]++(?:[ \t]*+,[ \t]*+[0-9]++)*+[ \t]*+\]")
_LEAD = re.compile(r"^\s*(?:#{1,6}|[-*•]|\d{1,3}[.)])\s+")  # the mark of a heading or list item
_TAIL = re.compile(r"(?<!\W)\W+\Z")
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CLAUSE_END = re.compile(
    r"[,;:—。，；：]|[.!?](?=\s|$)|\n|\b(?:and|but|while|although|though|whereas)\b", re.IGNORECASE
)
_NEGATION = re.compile(r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without|untrue)\b|n['’]t\b", re.I)
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.,])(\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.(\d{1,12}))?(?![A-Za-z0-9])"
    r"(?:\s?(thousand|million|billion|trillion|万|亿))?",
    re.IGNORECASE,
)
_SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "万": 1e4, "亿": 1e8}
_NUMBER_WORDS = {
    word: float(value)
    for value, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), start=2)
}
_FUNCTION_WORDS = frozenset(
    """a about above after again all almost along already also although always am among an and another any are around
    as at away be because been before being below between both but by can cannot could did do does done down during
    each either else even ever every few first for from had has have he her here hers him his how however i if in
    indeed into is it its itself just last least less like made many may me might more most much must my near neither
    never no none nor not nothing of off often on once one only onto or other others our out over own per perhaps
    rather said same say says second several shall she should since so some such than that the their them then there
    these they third this those though through thus to too toward towards true under until up upon us very was we well
    were what when where whereas whether which while who whom whose why will with within without would yet you your
    according conclusion finally moreover overall therefore meanwhile both short sum""".split()
)
_ORDINARY_ENDINGS = ("s", "ly", "ing", "ed", "tion")
_STEM_ENDINGS = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("ly", ""), ("s", ""), ("e", ""))
_ROUNDED_SHARE = 0.05  # maximum relative rounding by trailing zeros: 1,900 may stand for 1,923, but 100 not for 140


class Number(Struct, frozen=True):
    """A number and the unit of its last significant digit: 100 for 1,700, 0.1 for 3.5.

    Number(value=1702.0, unit=1.0, is_year=True)
    """

    value: float
    unit: float
    is_year: bool = False


def strip_marks(text: str) -> str:
    """The text without citation marks and without the mark of a heading or list item.

    strip_marks("- The Oss rises at Korrin [2].") -> "The Oss rises at Korrin."
    """
    return _LEAD.sub("", MARK.sub("", text)).strip()


def squeeze(text: str) -> str:
    """The text with single spaces: the key by which a question is looked up."""
    return " ".join(text.split())


def split_sentences(text: str) -> list[str]:
    """Sentences of a text, split at sentence punctuation and line breaks."""
    return [piece.strip() for piece in _SENTENCE_END.split(text) if piece.strip()]


def stands_in(sentence: str, text: str) -> bool:
    """True if the sentence stands in the text word for word, from the beginning of a sentence or line to an end of one.

    stands_in("Venn built it.", "In short: Venn built\\nit.") -> True; "It is false that Venn built it." -> False
    """
    words = r"\s+".join(map(re.escape, _TAIL.sub("", sentence).split()))
    # Not amid a sentence: what precedes might deny it.
    pattern = rf"(?:^|[.!?:;。！？])[^\w\n]{{0,8}}{words}\W{{0,8}}?(?:[.!?:;](?!\w)|[。！？]|$)"
    return bool(words) and re.search(pattern, text, re.MULTILINE) is not None


def split_clauses(text: str) -> list[str]:
    """Clauses of a text: sentences split further at commas and conjunctions."""
    return [piece.strip() for piece in _CLAUSE_END.split(text) if piece.strip()]


# ------------------------------------------------------------------------------------------------------------ numbers


def read_numbers(text: str) -> list[Number]:
    """Numbers of a text, as digits or as words from two to twelve; four bare digits such as 1700 are a year.

    read_numbers("3.5 % of 1,200") -> [Number(3.5, 0.1), Number(1200.0, 100.0)]
    """
    found = [_read_number(match) for match in _NUMBER.finditer(text)]
    words = (word.lower() for word in _WORD.findall(text))
    return found + [Number(_NUMBER_WORDS[word], 1.0) for word in words if word in _NUMBER_WORDS]


def _read_number(match: re.Match[str]) -> Number:
    whole, decimals, scale = match.group(1), match.group(2) or "", _SCALES.get((match.group(3) or "").lower(), 1.0)
    digits = whole.replace(",", "")
    zeros = 0 if decimals or not digits.strip("0") else len(digits) - len(digits.rstrip("0"))
    unit = 10.0 ** (zeros - len(decimals)) * scale
    is_year = len(whole) == 4 and not decimals and scale == 1.0 and 1000 <= int(whole) < 2200
    return Number(float(f"{digits}.{decimals or 0}") * scale, unit, is_year)


def rounds_to(said: Number, known: Number) -> bool:
    """True if `said` equals `known` or is `known` rounded. Years are not rounded.

    rounds_to(Number(1.7e6, 1e5), Number(1.702e6, 1e3)) -> True
    """
    distance = abs(said.value - known.value)
    if distance <= 1e-9 * max(1.0, abs(known.value)):
        return True
    reach = min(said.unit / 2, _ROUNDED_SHARE * abs(said.value)) if said.unit > 1 else said.unit / 2
    return not (said.is_year and known.is_year) and distance <= reach * (1 + 1e-9)


# -------------------------------------------------------------------------------------------------------------- words


def content_words(text: str) -> list[str]:
    """Stems of the content words of a text: no function words, numbers or single letters."""
    return [_stem(word) for word in list_content(text)]


def list_content(text: str) -> list[str]:
    """The content words of a text as they are, in lower case."""
    words = [word for word in terms(text) if word not in _FUNCTION_WORDS and word not in _NUMBER_WORDS]
    return [word for word in words if not word[0].isdigit() and len(word) >= (3 if word.isascii() else 2)]


def _stem(word: str) -> str:
    """The word without its most common ending: crude, but applied to both sides of a comparison."""
    for ending, rest in _STEM_ENDINGS if word.isascii() else ():
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)] + rest
    return word


@lru_cache(maxsize=256)
def lower_words(text: str) -> frozenset[str]:
    """Words written in lower case in a text; these are not names, even where they start a sentence."""
    return frozenset(word for word in _WORD.findall(text) if word[0].islower())


def find_names(text: str, ordinary: Collection[str]) -> list[str]:
    """Words of names, casefolded: capitalised, and not only because a sentence starts there.

    The first word of a sentence counts unless it is a function word, occurs in lower case (`ordinary`), or has the
    ending of an ordinary word.

        find_names("However, Orsolya Venn built it.", frozenset()) -> ["orsolya", "venn"]
    """
    found = []
    for sentence in split_sentences(text):
        for number, word in enumerate(_WORD.findall(sentence)):
            folded = fold(word)
            is_name = _is_capitalised(word) and folded not in _NUMBER_WORDS
            if is_name and (number or not (folded in ordinary or folded.endswith(_ORDINARY_ENDINGS))):
                found.append(folded)
    return found


def _is_capitalised(word: str) -> bool:
    return word[0].isupper() and len(word) > 1 and fold(word) not in _FUNCTION_WORDS


def name_runs(text: str) -> list[tuple[int, int]]:
    """(start, end) of names: sequences of capitalised words that are not function words.

    name_runs("The builder Orsolya Venn died.") -> [(12, 24)]
    """
    runs: list[tuple[int, int]] = []
    for match in (one for one in _WORD.finditer(text) if _is_capitalised(one.group())):
        if runs and text[runs[-1][1] : match.start()] in (" ", "-"):
            runs[-1] = (runs[-1][0], match.end())
        else:
            runs.append(match.span())
    return runs


def number_runs(text: str) -> list[tuple[int, int]]:
    """(start, end) of numbers in digits: number_runs("in 1,702 or 1703") -> [(3, 8), (12, 16)]."""
    return [(match.start(1), match.end(2) if match.group(2) else match.end(1)) for match in _NUMBER.finditer(text)]


def num_negations(text: str) -> int:
    """Number of negation words: num_negations("It was never, not once, seen.") -> 2."""
    return len(_NEGATION.findall(text))


# ---------------------------------------------------------------------------------------------------------- known names

_CHUNK = re.compile(r"[^\s—–/“”„«»…()\[\]{}]+")
_DECIMAL = re.compile(r"(?<=\d)\.(?=\d)")  # replaced first: the normaliser drops full stops, and 1.6 would become 16
_ORDINAL = re.compile(r"\b(?:First|Second|Third|Last)\s+$")  # capitalised, but not part of a name for `name_runs`
_EPITHET = re.compile(r"\s+the\s+(?=[A-Z])")  # "Venn the Tall" is not "Venn"
_PUNCTUATION = ".,;:!?'\"*_`’"  # ends a name

Words = tuple[str, ...]


_Token = tuple[str, int, int]  # a normalised word, and its start and end in the text


def _tokens(text: str) -> list[_Token]:
    """Words of a text, normalised like answers: no case, accents, punctuation, articles or possessive endings."""
    found = []
    for match in _CHUNK.finditer(text):
        word = normalise_answer(fold(_DECIMAL.sub("point", _strip_possessive(match.group()))))
        if word := "".join(character for character in word if character.isalnum()):
            found.append((word, match.start(), match.start() + len(match.group().rstrip(_PUNCTUATION))))
    return found


def _strip_possessive(chunk: str) -> str:
    """A chunk without possessive ending and without apostrophes after its last letter.

    _strip_possessive("Oss's,") == "Oss,"; scanned from the end, so that a run of apostrophes costs linear time.
    """
    end = len(chunk)
    while end and not (chunk[end - 1].isalnum() or chunk[end - 1] == "_"):
        end -= 1
    word = chunk[:end]
    return (word[:-2] if word.endswith(("'s", "’s")) else word) + chunk[end:].replace("'", "").replace("’", "")


def split_words(text: str) -> Words:
    """Normalised words of a name or text.

    split_words("The Oss's mouth") == ("oss", "mouth")
    """
    return tuple(word for word, _, _ in _tokens(text))


class KnownNames:
    """All names and values in the facts of a question, for finding their longest matches in text."""

    def __init__(self, facts: Sequence[KnownFact]) -> None:
        known = {split_words(name) for fact in facts for name in (*fact.names, *fact.answers)}
        longest_first = sorted(known - {()}, key=lambda words: (-len(words), words))
        self._by_first = group_by(longest_first, lambda words: words[0])

    def find(self, text: str) -> frozenset[Words]:
        """Known names in the text that are not part of a longer name, known or capitalised."""
        return self.sort(text)[0]

    def sort(self, text: str) -> tuple[frozenset[Words], frozenset[Words]]:
        """The names that `find` returns, and those it leaves out because they are part of a longer capitalised name."""
        tokens = _tokens(text)
        matches: list[tuple[Words, int, int]] = []
        at = 0
        while at < len(tokens):
            if words := self._longest(tokens, at):
                matches.append((words, tokens[at][1], tokens[at + len(words) - 1][2]))
            at += len(words) or 1
        goes_on = _find_longer(text, [(start, end) for _, start, end in matches])
        longer = frozenset(words for words, start, end in matches if (start, end) in goes_on)
        return frozenset(words for words, _, _ in matches) - longer, longer

    def _longest(self, tokens: Sequence[_Token], at: int) -> Words:
        known = self._by_first.get(tokens[at][0], ())
        return next((one for one in known if tuple(word for word, _, _ in tokens[at : at + len(one)]) == one), ())


def _find_longer(text: str, spans: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Spans that are parts of longer names; words covered by another span do not make a name longer."""
    covered, unfinished = bytearray(len(text)), bytearray(len(text))  # one byte per character, for linear time
    for start, end in spans:
        covered[start:end] = b"\1" * (end - start)
    for first, last in name_runs(text):
        if any(not covered[at] and text[at].isalnum() for at in range(first, last)):
            unfinished[first:last] = b"\1" * (last - first)

    def is_part(start: int, end: int) -> bool:
        epithet = _EPITHET.match(text, end)
        is_ranked = _ORDINAL.search(text[max(0, start - 20) : start]) or (epithet and not covered[epithet.end()])
        return 1 in unfinished[start:end] or bool(text[start].isupper() and is_ranked)

    return {(start, end) for start, end in spans if is_part(start, end)}
