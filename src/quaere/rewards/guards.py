"""Guards against reward hacking: rules on the texts of a triple (question, answer, evidence span).

The published reward sees a span only through the solver's accuracy with it, and a question only through its pass rate.
Each guard closes one way of earning reward without evidence. A triple that a guard refuses is treated like any invalid
proposal: it earns its format part only and is not used for training.

    refusals(Triple(question="Who built the Halm bridge?", answer="Orsolya Venn", span="Orsolya Venn", ...))
    -> ("says_more",)

The paper has no guards (`PAPER`); by default all of them are on (`OURS`). Guards detect known tricks, not truth: a span
can pass all of them and still prove nothing, so the verifier is needed as well.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from quaere.errors import BadInput
from quaere.rewards.answers import names_alternatives, normalise_answer
from quaere.rewards.proposer import FormatScore
from quaere.whole_words import UNSPACED, find_whole

MAX_SPAN_TOKENS = 128
# Spans up to this length may be any share of their text: in a short text, one sentence can be more than half.
MAX_SENTENCE_WORDS = 40
MAX_SHARE = 0.5
MIN_EXTRA_WORDS = 3
MIN_QUESTION_WORDS = 4
MIN_THOUGHT_WORDS = 3
CONTENT_LETTERS = 4


class Triple(Struct, frozen=True):
    """A question, its answer and its evidence span, with the facts about the episode that guards need.

    `span` is the document's own text if it was located there, else as it was written. `returned` are the texts of the
    search results, `thoughts` the content of each turn's thought, and `num_earlier` is the number of equal questions
    before this one in the batch. `chance_with` and `chance_without` are the verifier's results; both are 0 before it
    has run.

        Triple(question="Who built the Halm bridge?", answer="Orsolya Venn",
               span="Orsolya Venn built the Halm bridge in 1702.", num_span_tokens=11,
               document="The Halm bridge ... Orsolya Venn built the Halm bridge in 1702.", hops=1,
               thoughts=("The builder is named here.",))
    """

    question: str
    answer: str
    span: str
    num_span_tokens: int
    document: str
    hops: int
    returned: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    chance_with: float = 0.0
    chance_without: float = 0.0
    num_earlier: int = 0

    @property
    def shown(self) -> tuple[str, ...]:
        """All texts the proposer was shown."""
        return (self.document, *self.returned)


# --------------------------------------------------------------------------------------------------------- the span


def verbatim(triple: Triple) -> bool:
    """True if the span is not empty and occurs verbatim, in whole words and numbers, in a text shown."""
    return bool(triple.span.strip()) and any(find_whole(triple.span, text) >= 0 for text in triple.shown)


def focused(triple: Triple) -> bool:
    """True if the span is at most 128 tokens long."""
    return triple.num_span_tokens <= MAX_SPAN_TOKENS


def partial(triple: Triple) -> bool:
    """True if a span of more than 40 words is at most half of every text that contains it."""
    num_words, homes = len(_words(triple.span)), (text for text in triple.shown if triple.span in text)
    return num_words <= MAX_SENTENCE_WORDS or all(num_words <= MAX_SHARE * len(_words(home)) for home in homes)


def holds_answer(triple: Triple) -> bool:
    """True if the span contains the answer, unless the answer is yes or no."""
    return normalise_answer(triple.answer) in ("yes", "no") or _is_within(_words(triple.answer), _words(triple.span))


def says_more(triple: Triple) -> bool:
    """True if the span has at least 3 words beyond those of the answer."""
    return (Counter(_words(triple.span)) - Counter(_words(triple.answer))).total() >= MIN_EXTRA_WORDS


def needed(triple: Triple) -> bool:
    """True if the solver is more often right with the span than without it, or never right without it."""
    return triple.chance_without == 0 or triple.chance_with > triple.chance_without


# ------------------------------------------------------------------------------------------- the question and answer


def specific(triple: Triple) -> bool:
    """True if the question has at least 4 words."""
    return len(_words(triple.question)) >= MIN_QUESTION_WORDS


def grounded(triple: Triple) -> bool:
    """True if the question shares a word of 4 or more letters with a text the proposer was shown."""
    known = {word for text in triple.shown for word in _words(text)}
    return any(word in known for word in _words(triple.question) if _CONTENT.match(word))


def own_words(triple: Triple) -> bool:
    """True if the question is not copied from a text the proposer was shown."""
    asked = _words(triple.question)
    return not any(_is_within(asked, _words(text)) for text in triple.shown)


def stands_alone(triple: Triple) -> bool:
    """True if the question does not refer to a passage that its reader cannot see ("in the text")."""
    return not _POINTER.search(" ".join(_words(triple.question)))


def unspoken(triple: Triple) -> bool:
    """True if the question lacks the answer's words side by side in any order, except as one of two alternatives.

    Words are compared without possessive 's and hidden characters.
    """
    if names_alternatives(triple.question, triple.answer):
        return True
    wanted = sorted(word for word in _words(triple.answer) if word not in _ARTICLES)
    asked = _words(triple.question)
    starts = range(len(asked) - len(wanted) + 1) if wanted else ()
    return not any(sorted(asked[start : start + len(wanted)]) == wanted for start in starts)


def telling(triple: Triple) -> bool:
    """True if the answer has a word other than function words such as "of" or "it"."""
    return not all(word in _SMALL_WORDS for word in _words(triple.answer))


def untagged(triple: Triple) -> bool:
    """True if question, answer and span contain no tag of the protocol and no control token."""
    return not any(_TAG.search(text) for text in (triple.question, triple.answer, triple.span))


def new(triple: Triple) -> bool:
    """True if no earlier question of the batch has the same words."""
    return triple.num_earlier == 0


# ------------------------------------------------------------------------------------------------------ the episode


def thoughtful(triple: Triple) -> bool:
    """True if every thought has at least 3 different words."""
    return all(len(set(_words(thought))) >= MIN_THOUGHT_WORDS for thought in triple.thoughts)


def searched(triple: Triple) -> bool:
    """True if the number of different queries is at least the number of hops minus one."""
    return len({" ".join(_words(query)) for query in triple.queries} - {""}) >= triple.hops - 1


def travelled(triple: Triple) -> bool:
    """True if the question has one hop, or the span is in a passage that a search returned."""
    return triple.hops == 1 or any(triple.span in text for text in triple.returned)


# ----------------------------------------------------------------------------------------------------------- all guards

GUARDS: dict[str, Callable[[Triple], bool]] = {
    rule.__name__: rule
    for rule in (
        verbatim,
        focused,
        partial,
        holds_answer,
        says_more,
        needed,
        specific,
        grounded,
        own_words,
        stands_alone,
        unspoken,
        telling,
        untagged,
        new,
        thoughtful,
        searched,
        travelled,
    )
}
PAPER: tuple[str, ...] = ()
OURS: tuple[str, ...] = tuple(GUARDS)


def refusals(triple: Triple, guards: Sequence[str] = OURS) -> tuple[str, ...]:
    """Names of the guards that the triple does not pass; empty if it passes all.

    refusals(Triple(..., span=""), ["verbatim", "new"]) -> ("verbatim",)
    """
    for name in guards:
        if name not in GUARDS:
            raise BadInput(f"there is no guard {name!r}; choose from {', '.join(GUARDS)}")
    return tuple(name for name in guards if not GUARDS[name](triple))


def guarded(score: FormatScore, refused: Sequence[str]) -> FormatScore:
    """The format score, marked invalid if any guard refused the triple.

    guarded(FormatScore(1.0, 1.0, 1.0, True, total=1.0), ("verbatim",)).valid -> False
    """
    return structs.replace(score, valid=score.valid and not refused)


def count_earlier(questions: Sequence[str]) -> list[int]:
    """For each question of a batch, the number of earlier questions with the same words.

    count_earlier(["Who built it?", "When?", "who built  it"]) -> [0, 0, 1]
    """
    seen: Counter[str] = Counter()
    counts = []
    for question in questions:
        words = " ".join(_words(question))
        counts.append(seen[words])
        seen[words] += 1
    return counts


# -------------------------------------------------------------------------------------------------------------- words

# Ideographs, kana and Thai letters count as one word each.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_CONTENT = re.compile(rf"[{UNSPACED}]|.{{{CONTENT_LETTERS}}}", re.DOTALL)
_MOST_MARKS = 30  # as in Unicode's Stream-Safe Text Format
_ARTICLES = {"a", "an", "the"}
_SMALL_WORDS = _ARTICLES | set(
    "and or but of in on at to by for from with as is are was were be it its he she they this that their".split()
)
_POINTER = re.compile(
    r"\b(?:this|given|above|following|provided|according to the|in the|from the)"
    r" (?:passage|text|document|article|excerpt|snippet|evidence|sentence)\b"
)
_TAG = re.compile(r"</?(?:think|tool_call|tool_response|question|answer|evidence)>|<\|[^|<>]*\|>")


def _words(text: str) -> list[str]:
    """The words of a text with case, width and hidden characters folded; punctuation separates words.

    _words("Venn’s pre-1702 bridge") -> ["venn", "s", "pre", "1702", "bridge"]
    """
    folded = unicodedata.normalize("NFKC", _with_few_marks(text)).casefold()
    return _WORD.findall("".join(character for character in folded if unicodedata.category(character) != "Cf"))


def _with_few_marks(text: str) -> str:
    """The text with at most 30 combining marks per letter: normalisation is quadratic in the marks of a letter."""
    if text.isascii():
        return text
    kept, num_marks = [], 0
    for character in text:
        num_marks = num_marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if num_marks <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def _is_within(words: Sequence[str], others: Sequence[str]) -> bool:
    return bool(words) and f" {' '.join(words)} " in f" {' '.join(others)} "
