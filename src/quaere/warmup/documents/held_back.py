"""Questions split by document, so that those held back share no document with those practised on.

held = choose_documents(questions, num=100)
practice, exam, num_left_out = split_by_document(questions, list_documents, held.__contains__)
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from quaere.warmup.documents.checked_question import CheckedQuestion

Row = TypeVar("Row")


def split_by_document(
    rows: Iterable[Row], documents: Callable[[Row], Collection[str]], is_held: Callable[[str], bool]
) -> tuple[list[Row], list[Row], int]:
    """The questions to practise on, those held back, and the number of others.

    A question about documents of both sides is in neither list, nor is one whose documents are not known.
    """
    sides: dict[bool, list[Row]] = {False: [], True: []}
    num_left_out = 0
    for row in rows:
        found = {is_held(name) for name in documents(row)}
        if len(found) == 1:
            sides[found.pop()].append(row)
        else:
            num_left_out += 1
    return sides[False], sides[True], num_left_out


def list_documents(question: CheckedQuestion) -> list[str]:
    """The ids of the documents that a question is about."""
    return find_documents(question.id, [span.doc_id for span in question.evidence])


def find_documents(question_id: str, proven_by: list[str]) -> list[str]:
    """The documents of a question's evidence; without evidence, the document that the question's id begins with.

    find_documents("halm.md#0:16-unanswerable", []) == ["halm.md"]
    """
    return proven_by or [name for name in [question_id.rpartition("#")[0]] if name]


def choose_documents(questions: Sequence[CheckedQuestion], num: int) -> frozenset[str]:
    """Documents with about `num` questions about them alone, in an order that depends on nothing but their ids.

    At least one document is chosen and at least one is not, where there are two.
    """
    named = [set(list_documents(question)) for question in questions]
    alone = Counter(names.copy().pop() for names in named if len(names) == 1)
    order = sorted(set().union(*named), key=lambda name: hashlib.sha256(name.encode()).digest())
    before = itertools.accumulate((alone[name] for name in order), initial=0)
    num_chosen = max(1, sum(count < num for count, _ in zip(before, order, strict=False)))
    return frozenset(order[: min(num_chosen, len(order) - 1)])
