"""Constant answers: closed questions (yes/no, a choice of two) that a model answers by saying nearly always the same.

    find_constants(items) -> (Constant(set="2wiki", kind="yes/no", option="no", share=0.98, right_share=0.2, ...),)

Such a model has read nothing, and its score on these questions is the share of those whose answer is the constant. If
training turns the constant over, the score jumps, and nothing about reading was learned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from quaere.evaluation.qa.answer_kinds import CLOSED
from quaere.evaluation.qa.items import Item

_CONSTANT = 0.9
_MIN_QUESTIONS = 8  # of fewer, all answers may be alike by chance: 1 in 128 for fair coins


class Constant(Struct, frozen=True):
    """The option a model takes most often among the `num` questions of a closed kind in a set.

    `share` is the share of the questions it is said to, `right_share` of those it is right for.

        Constant(set="2wiki", kind="yes/no", option="no", share=0.98, right_share=0.2, num=45, is_constant=True)
    """

    set: str
    kind: str
    option: str  # "yes", "no", "first" or "second"
    share: float
    right_share: float
    num: int
    is_constant: bool  # said to at least 90 % of the questions, though right for fewer than 90 %


def find_constants(items: Iterable[Item]) -> tuple[Constant, ...]:
    """For each set and closed kind whose right options are known, the most frequent option.

    By set, because sets word their questions differently: a model may say "no" to every one of 2Wiki's alone.
    """
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        if item.kind in CLOSED and item.right_option:
            groups.setdefault((item.set, item.kind), []).append(item)
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
