"""Questions split by document, so that those held back share no document and no question with those practised on.

held = choose_documents(questions, num=100)
practice, exam, num_left_out = split_by_document(questions, list_documents, list_contents, held.__contains__)
"""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TypeVar

from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.whole_words import UNSPACED, find_whole

Row = TypeVar("Row")

# Least length of a sentence that says by itself what it is about: "Venn built it." may be on many pages. In a script
# without spaces, about three letters are a word.
_LEAST_WORDS, _LEAST_LETTERS = 4, 12
_LETTER = re.compile(f"[{UNSPACED}]")


def split_by_document(
    rows: Iterable[Row],
    documents: Callable[[Row], Collection[str]],
    contents: Callable[[Row], Collection[str]],
    is_held: Callable[[str], bool],
) -> tuple[list[Row], list[Row], int]:
    """The questions to practise on, those held back, and the number of others.

    In neither list are questions about documents of both sides, those whose documents are not known, and those to
    practise on whose text or sentences (`contents`) repeat those of one that is held back: documents repeat each other.
    """
    sides: dict[bool, list[Row]] = {False: [], True: []}
    rows = list(rows)
    for row in rows:
        found = {is_held(name) for name in documents(row)}
        if len(found) == 1:
            sides[found.pop()].append(row)
    held = Contents(text for row in sides[True] for text in contents(row))
    practice = [row for row in sides[False] if not any(map(held.is_repeated_by, contents(row)))]
    return practice, sides[True], len(rows) - len(practice) - len(sides[True])


class Contents:
    """Texts and sentences of questions (`find_contents`), which others may repeat.

    Contents(["halm bridge was built by venn"]).is_repeated_by("in 1702 halm bridge was built by venn") == True
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts)
        self._telling = [*filter(tells, self.texts)]  # others may be part of any text
        self._joined = "\n".join(self._telling)

    def is_repeated_by(self, text: str) -> bool:
        """True if the text is one of these, has one in it, or is part of one."""
        if text in self.texts:
            return True
        return tells(text) and (find_whole(text, self._joined) >= 0 or bool(self.find_in(text)))

    def find_in(self, text: str) -> list[str]:
        """The texts and sentences in a normalised text that are long enough to say what they are about (`tells`)."""
        return [one for one in self._telling if one in text and find_whole(one, text) >= 0]


def tells(text: str) -> bool:
    """True if a normalised text is long enough to say by itself what it is about.

    tells("venn built it") == False; tells("halm was built by venn") == True
    """
    return len(text.split()) >= _LEAST_WORDS or len(_LETTER.findall(text)) >= _LEAST_LETTERS


def list_documents(question: CheckedQuestion) -> list[str]:
    """The ids of the documents that a question is about."""
    return find_documents(question.id, [span.doc_id for span in question.evidence])


def find_documents(question_id: str, proven_by: list[str]) -> list[str]:
    """The documents of a question's evidence; without evidence, the document that the question's id begins with.

    find_documents("halm.md#0:16-unanswerable", []) == ["halm.md"]
    """
    return proven_by or [name for name in [question_id.rpartition("#")[0]] if name]


def list_contents(question: CheckedQuestion) -> list[str]:
    """A question's text and the sentences that prove its answer (`find_contents`)."""
    return find_contents(question.question, [span.text for span in question.evidence])


def find_contents(text: str, sentences: Iterable[str]) -> list[str]:
    """A question's text and sentences, normalised, without those that are too short to say what they are about.

    find_contents("Who built Halm?", ["Venn built it.", "Halm was built by Venn."]) == [
        "who built halm", "halm was built by venn"]
    """
    asked, *said = map(normalise_answer, [text, *sentences])
    return [*filter(None, [asked]), *filter(tells, said)]


def choose_documents(questions: Sequence[CheckedQuestion], num: int) -> frozenset[str]:
    """Documents with about `num` questions about them alone, in an order that depends on nothing but their ids.

    At least one document is chosen and at least one is not.
    """
    named = [set(list_documents(question)) for question in questions]
    documents = sorted(set().union(*named), key=lambda name: hashlib.sha256(name.encode()).digest())
    alone = Counter(name for names in named if len(names) == 1 for name in names)
    before = itertools.accumulate((alone[name] for name in documents), initial=0)
    num_chosen = max(1, sum(count < num for count, _ in zip(before, documents, strict=False)))
    return frozenset(documents[: min(num_chosen, len(documents) - 1)])


def find_clusters(questions: Iterable[CheckedQuestion]) -> dict[str, Hashable]:
    """The cluster of each question by its id: questions are dependent if documents, texts or sentences link them."""
    links = {one.id: [(text,) for text in (one.id, *list_contents(one))] + list_documents(one) for one in questions}
    cluster_of = link(links.values())
    return {name: cluster_of[items[0]] for name, items in links.items()}


def link(links: Iterable[Sequence[Hashable]]) -> dict[Hashable, Hashable]:
    """A representative of each item; items of one link have the same one.

    link([["a", "b"], ["b", "c"], ["d"]]) == {"a": "a", "b": "a", "c": "a", "d": "d"}
    """
    found: dict[Hashable, Hashable] = {}

    def follow(item: Hashable) -> Hashable:
        while (above := found.setdefault(item, item)) != item:
            found[item] = item = found[above]  # halves the path: without it, long chains take quadratic time
        return item

    for items in links:
        for item in items:
            found[follow(item)] = follow(items[0])
    return {item: follow(item) for item in found}
