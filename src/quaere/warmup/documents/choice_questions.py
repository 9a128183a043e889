"""A checked fact asked in two other ways: which of two answers is right, and whether an answer is right.

    ask_choice(worded, "--keep-going", "--force")  -> "Which option skips damaged volumes, --keep-going or --force?"
    balance([(one, other), ...])                   -> the first answer as often right as the second, yes as often as no

The wrong answer is a span of the same kind from the same document. Both variants of a question (the other order; the
wrong answer proposed) must be read right, so that a model that always says "yes" or takes the first proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quaere.records import Passage
from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.askable_facts import find_facts
from quaere.warmup.documents.drafts import Draft, QuestionKind, Worded
from quaere.worlds.dice import Dice

_YES_NO = frozenset("Is Are Was Were Do Does Did Can Has Have Will Must Should May".split())
_OPENINGS = ("which ", "what ", "who ", "in which ", "where ", "when ", "how many ", "how much ", "how long ")


Pair = tuple[Worded, Worded]  # two variants of one question, of which one is kept


def find_wrong_answer(worded: Worded, document: Sequence[Passage], dice: Dice) -> str:
    """Another span of the answer's kind in its document, with no word of question or answer; "" if there is none."""
    used = set(normalise_answer(" ".join((worded.question, *worded.answers))).split())
    length = len(worded.fact.answer.split())
    others = {
        fact.answer
        for passage in document
        for fact in find_facts(passage)
        if fact.kind == worded.fact.kind and abs(len(fact.answer.split()) - length) <= 1
    }
    apart = sorted(other for other in others if not used & set(normalise_answer(other).split()))
    return dice.pick(apart) if apart else ""


def ask_choice(worded: Worded, one: str, other: str) -> str:
    """The question with two answers to choose from; "" if it does not ask for a thing.

    ask_choice(Worded(..., "Who built Halm?"), "Venn", "Oleen") == "Who built Halm, Venn or Oleen?"
    """
    if not worded.question.lower().startswith(_OPENINGS):
        return ""
    return f"{worded.question.removesuffix('?')}, {one} or {other}?"


def make_choice(worded: Worded, wrong: str) -> Pair | None:
    """The question as a choice, with the right answer first and second."""
    right = worded.fact.answer
    if not wrong or not ask_choice(worded, right, wrong):
        return None
    first, second = ask_choice(worded, right, wrong), ask_choice(worded, wrong, right)
    return (_variant(worded, "choice", first, worded.answers), _variant(worded, "choice", second, worded.answers))


def make_yes_no(worded: Worded, yes: str, no: str) -> Pair | None:
    """The yes/no questions that a model worded for the right and the wrong answer; None if one is no such question."""
    if not (_is_yes_no(yes) and _is_yes_no(no)) or yes == no:
        return None
    return (_variant(worded, "yes-no", yes, ("yes",)), _variant(worded, "yes-no", no, ("no",)))


def _is_yes_no(line: str) -> bool:
    return line.endswith("?") and line.split(" ")[0] in _YES_NO


def _variant(worded: Worded, kind: QuestionKind, question: str, answers: tuple[str, ...]) -> Worded:
    draft = Draft(f"{worded.draft.id}:{kind}", kind, worded.draft.facts, answers)
    return Worded(draft, question, worded.scores)


def balance(pairs: Iterable[Pair]) -> list[Worded]:
    """One of each pair, in turns."""
    return [pair[number % 2] for number, pair in enumerate(pairs)]
