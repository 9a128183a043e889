"""Rewards of solvers that assess their searches: EvalAct's gated F1, and the note bonus of Eval-RAR and AutoRefine.

    R = R_answer if R_answer > 0, else 0.1 if the notes contain an accepted answer, else 0

Eval-RAR's R_answer is exact match (Eq. 2-5), AutoRefine's is F1. Notes are the policy's own text about the passages it
found; the caller has extracted them. As published, any note counts: one before any search, a list of guesses, "no" in
"no information". `is_grounded` accepts only notes that repeat an answer the policy was shown.

The module also measures how good such assessments are: the calibration of the scores, and the value of each search,
with which its score should agree.
"""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from quaere.grouping import group_by
from quaere.records import Evidence, Passage, Question
from quaere.rewards.answers import contains, f1_score, normalise_answer

NoteMatch = Literal["normalised", "raw"]

BONUS = 0.1
MAX_PROOF_WORDS = 40
MIN_COPY_WORDS = 4
NUM_BINS = 10

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s|\n")
_PLACE = re.compile(r"\b[Pp]assages?\s+[0-9]+(?:\s*(?:,|and|or)\s*[0-9]+)*")
# Words of notes that name nothing: function words, and words about what was found.
_PLAIN = frozenset(
    """about after all also and any are as at be been before but by did do does for from had has have he her here him
    his i in into is it its my neither no none nor not nothing of on only one or she so some than that their them then
    there these they this those to was were what when where which who whom whose why will with yet
    answer answers document documents evidence fact found gives information is mentioned mentions missing named names
    needed page passage passages question result results said say says search sentence shown shows stated states still
    tells text texts thus unknown""".split()
)


class NotedReward(Struct, frozen=True):
    """A reward and its parts: for the answer, for the notes (also where it is not part of the total), and the total.

    NotedReward(answer=0.0, note=0.1, total=0.1)
    """

    answer: float
    note: float
    total: float


def noted_reward(
    answer_score: float,
    notes: str | Sequence[str],
    accepted: Iterable[str],
    *,
    bonus: float = BONUS,
    contain: NoteMatch = "normalised",
) -> NotedReward:
    """The answer's score if it is above 0, else a bonus if the notes contain an accepted answer.

    All notes are joined to one text. `contain="normalised"` looks for the answer as whole words, ignoring case and
    punctuation; `contain="raw"` looks for its exact characters. An answer of white space only is never found. A missing
    answer has the score 0, and its notes can still earn the bonus.

        noted_reward(0.0, ["Passage 2: orsolya venn."], ["Orsolya Venn"]) -> NotedReward(0.0, 0.1, 0.1)
        noted_reward(0.0, ["Passage 2: orsolya venn."], ["Orsolya Venn"], contain="raw") -> NotedReward(0.0, 0.0, 0.0)
        noted_reward(0.04, ["Orsolya Venn"], ["Orsolya Venn"]) -> NotedReward(0.04, 0.1, 0.04)
    """
    if not 0 <= answer_score <= 1:
        raise ValueError(f"an answer's score must be from 0 to 1, not {answer_score}")
    text = notes if isinstance(notes, str) else "\n".join(notes)
    note = bonus if any(_stands_in(text, answer, contain) for answer in accepted) else 0.0
    return NotedReward(answer=answer_score, note=note, total=answer_score if answer_score > 0 else note)


def _stands_in(text: str, answer: str, contain: NoteMatch) -> bool:
    return contains(text, answer) if contain == "normalised" else bool(answer.strip()) and answer in text


def is_grounded(
    notes: Sequence[tuple[str, Sequence[str]]],
    question: str,
    accepted: Iterable[str],
    *,
    num_searches: int = 1,
    contain: NoteMatch = "normalised",
) -> bool:
    """True if a note has an accepted answer that a text shown before it contains, and all notes say little else.

    `notes` are those of an episode, each with the texts shown before it. They say little else if they have, all
    together, at most as many `further_words` as the answer has words, times the number of searches. So a list of
    guesses earns nothing, however it is written. "yes", "no" and answers that the question contains, such as its
    alternatives, could be written without reading and therefore ground no note.

        is_grounded([("Venn built it.", ["Venn built Halm."])], "Who built Halm?", ["Venn"]) -> True
        is_grounded([("Venn, Oleen or Brod", ["Venn built Halm."])], "Who built Halm?", ["Venn"]) -> False
    """
    stripped = [(_PLACE.sub(" ", note), texts) for note, texts in notes]
    for answer in accepted:
        if normalise_answer(answer) in ("yes", "no") or contains(question, answer):
            continue
        # The answer must be whole words even with `raw`, because `further_words` counts the rest as whole words.
        found = any(
            contains(note, answer)
            and _stands_in(note, answer, contain)
            and any(contains(text, answer) for text in texts)
            for note, texts in stripped
        )
        most = num_searches * len(normalise_answer(answer).split())
        if found and sum(len(further_words(note, question, answer, texts)) for note, texts in stripped) <= most:
            return True
    return False


def further_words(note: str, question: str, answer: str, shown: Iterable[str] = ()) -> list[str]:
    """The words of a note other than the answer, the question's words and words that name nothing (`_PLAIN`).

    A sentence with the answer that the note quotes in full from a shown text does not count either.

    further_words("It says that Orsolya Venn built it in 1702.", "Who built it?", "Orsolya Venn") -> ["1702"]
    """
    sentences = [one for text in shown for one in _SENTENCE_ENDS.split(text) if contains(one, answer)]
    proofs = [one for one in map(normalise_answer, sentences) if len(one.split()) <= MAX_PROOF_WORDS]
    left = normalise_answer(note)
    for part in (*proofs, normalise_answer(answer)):
        left = re.sub(rf"(?<!\S){re.escape(part)}(?!\S)", " ", left)
    known = _PLAIN.union(normalise_answer(question).split())
    return [word for word in left.split() if word not in known]


def brier_reward(chance: float, outcome: bool, weight: float = 1.0) -> float:
    """-weight * (chance - outcome)**2, which is highest on average for the probability that is true (Brier, 1950).

    brier_reward(0.9, True, 0.2) -> -0.002
    """
    return -weight * (chance - outcome) ** 2


def gated_f1_reward(answer: str, accepted: Iterable[str], fault: str) -> float:
    """F1 of the answer if the format was kept (`fault` is ""), else 0 (EvalAct). An empty answer earns 0.

    gated_f1_reward("Halm bridge", ["old Halm bridge"], "") -> 0.8
    gated_f1_reward("Halm bridge", ["old Halm bridge"], "a search was not evaluated") -> 0.0
    """
    return f1_score(answer, accepted) if answer.strip() and not fault else 0.0


# ------------------------------------------------------------------------------------------- calibration: AUROC and ECE


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Area under the ROC curve, with ties counted as one half; None unless both labels occur.

    auroc([1.0, 2.0, 3.0], [False, True, True]) -> 1.0
    auroc([5.0, 5.0], [False, True]) -> 0.5
    """
    return auroc_within(scores, labels, [0] * len(scores))


def auroc_within(scores: Sequence[float], labels: Sequence[bool], groups: Sequence[int]) -> float | None:
    """Area under the ROC curve over the pairs of a positive and a negative of one group; None if there is no such pair.

    auroc_within([1.0, 2.0, 8.0, 9.0], [True, False, True, False], groups=[0, 0, 1, 1]) -> 0.0
    """
    _check(scores, labels)
    members = group_by(zip(scores, labels, groups, strict=True), lambda item: item[2])
    counted = [_count_wins([(score, bool(label)) for score, label, _ in some]) for some in members.values()]
    num_pairs = sum(pairs for _, pairs in counted)
    return sum(wins for wins, _ in counted) / num_pairs if num_pairs else None


def _count_wins(items: Sequence[tuple[float, bool]]) -> tuple[float, int]:
    """Pairs whose positive has the higher score, ties counted as one half, and the number of pairs."""
    wins, num_good, num_bad = 0.0, 0, 0
    for _, tied in groupby(sorted(items), key=lambda item: item[0]):
        flags = [label for _, label in tied]
        good, bad = flags.count(True), flags.count(False)
        wins += good * (num_bad + bad / 2)
        num_good, num_bad = num_good + good, num_bad + bad
    return wins, num_good * num_bad


def expected_calibration_error(chances: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Expected calibration error (ECE) with ten bins of equal width; None if there are no values.

    The mean over bins, weighted by size, of |mean predicted probability - share of positive labels|. A value on the
    edge of two bins belongs to the upper bin, and 1 to the last.

        expected_calibration_error([0.8, 0.8, 0.2], [True, False, False]) -> 0.267
    """
    _check(chances, labels)
    if any(not 0 <= chance <= 1 for chance in chances):
        raise ValueError("every probability must be in [0, 1]")
    if not chances:
        return None
    pairs = zip(chances, map(bool, labels), strict=True)
    bins = group_by(pairs, lambda pair: min(int(pair[0] * NUM_BINS), NUM_BINS - 1))
    # Bin size times |mean probability - share of positives| equals |sum of probabilities - number of positives|.
    gaps = [abs(math.fsum(chance - label for chance, label in members)) for members in bins.values()]
    return math.fsum(gaps) / len(chances)


def _check(values: Sequence[float], labels: Sequence[bool]) -> None:
    if len(values) != len(labels):
        raise ValueError(f"scores and labels must have the same length: got {len(values)} and {len(labels)}")
    if not all(map(math.isfinite, values)):
        raise ValueError("every score must be a finite number")


# --------------------------------------------------------------------------------------------- the value of each search


ALL, SOME, PAGE, NOTHING = 10, 8, 5, 1


def is_good(value: int) -> bool:
    """True if a search of this value returned evidence that was missing."""
    return value >= SOME


def value_searches(question: Question, searches: Sequence[Sequence[Passage]]) -> list[int]:
    """The value of every search, in order, from the passages it returned; [] if nothing is known to judge it by.

    The evidence may be found in any order, and each piece counts once: with the first search that returned it.

        10   the search returned all evidence that was still missing
         8   it returned some of it
         5   it returned another passage of a document with missing evidence
         1   it returned none of these

    The evidence is the question's sentences, also where another document repeats them, or, where only documents are
    known (`gold_ids`), these documents. A question with neither is judged by its accepted answers: the first search
    that returned one has the value 10.

        value_searches(question, [[bridge_page], [other_page], [guild_page]]) -> [8, 1, 10]
    """
    if not question.evidence and not question.gold_ids:
        return value_by_answers(question, searches)
    missing: list[Evidence | str] = list(question.evidence or dict.fromkeys(question.gold_ids))
    values = []
    for passages in searches:
        found = [piece for piece in missing if any(holds(passage, piece) for passage in passages)]
        pages = {piece.doc_id for piece in missing if isinstance(piece, Evidence)}
        missing = [piece for piece in missing if piece not in found]
        if found:
            values.append(SOME if missing else ALL)
        else:
            values.append(PAGE if any(passage.doc_id in pages for passage in passages) else NOTHING)
    return values


def value_by_answers(question: Question, searches: Sequence[Sequence[Passage]]) -> list[int]:
    """10 for the first search that returned a passage with an accepted answer, else 1; [] if none can be looked for.

    "yes" and "no" occur in almost any text and so prove nothing. Passages are checked one by one, so that no match
    spans two of them.
    """
    answers = [answer for answer in question.answers if normalise_answer(answer) not in ("yes", "no")]
    if not answers:
        return []
    found = (any(contains(one.titled_text, answer) for one in passages for answer in answers) for passages in searches)
    first = next((number for number, has_answer in enumerate(found) if has_answer), None)
    return [ALL if number == first else NOTHING for number in range(len(searches))]


def holds(passage: Passage, piece: Evidence | str) -> bool:
    """True if the passage has the whole sentence or a copy of it, or is of the document if only that is known.

    Evidence of fewer than four words has no copies: a name or a year is in many texts that do not state the fact.
    """
    if isinstance(piece, str):
        return passage.doc_id == piece
    is_place = passage.doc_id == piece.doc_id and passage.start <= piece.start and piece.end <= passage.end
    is_copied = len(normalise_answer(piece.text).split()) >= MIN_COPY_WORDS
    return is_place or (is_copied and contains(passage.text, piece.text))
