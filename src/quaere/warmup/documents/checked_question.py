"""Records of a question about documents from draft to file, the settings of its writer, and the writer's journal.

draw_drafts(passages, num=6000, seed=7)     # Draft: one fact each, every passage in turn, before the model words it
Worded(draft, "Who built the Halm bridge?")
CheckedQuestion(id="halm#0:16", question="Who built the Halm bridge?", ...).to_question()     # for a solver

journal = Journal(Path("own.jsonl.unfinished"), {"settings": settings, "index": index.fingerprint, "model": "qwen"})
journal.add(Batch(1, kept, dropped))        # an interrupted writer resumes after the last batch
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from quaere.disk import append_whole, explain_errors
from quaere.errors import BadInput
from quaere.grouping import group_by
from quaere.records import Evidence, Passage, Question
from quaere.records.foreign_json import decode_json
from quaere.rewards.answers import contains, normalise_answer
from quaere.setting_types import NonNegativeFloat, PositiveCount, PositiveInt, check_settings
from quaere.warmup.documents.askable_facts import Fact, draw_facts, find_facts, is_drawn
from quaere.worlds.dice import Dice

QuestionKind = Literal["single", "chain", "comparison", "agreement", "choice", "yes-no", "unanswerable"]
"""Kinds of question: one fact; two facts in a row; two facts compared (a name, or yes/no); one fact with two answers to
choose from; one fact with an answer to confirm; what the fact's page does not say."""

_MAX_FOLDERS = 50
_MAX_ROUNDS = 4  # facts of one passage


class Draft(Struct, frozen=True):
    """A question to be worded: its facts, its answers, the names it must contain, and a name it must not contain.

    Draft(id="halm#0:16", kind="single", facts=(Fact(...),), answers=("Orsolya Venn",))
    """

    id: str
    kind: QuestionKind
    facts: tuple[Fact, ...]
    answers: tuple[str, ...]
    names: tuple[str, ...] = ()
    hidden: str = ""

    @property
    def told_by(self) -> tuple[Fact, ...]:
        """The facts that must be read to answer: for a chain only the last, which states the answer; else all."""
        return self.facts[-1:] if self.kind == "chain" else self.facts

    @property
    def is_choice(self) -> bool:
        """True if the answer is no span of the facts: one of two is to be chosen, or there is none."""
        return self.kind not in ("single", "chain")


class Worded(Struct, frozen=True):
    """A draft with the question that the model wrote for it.

    Worded(draft=Draft(...), question="Who built the Halm bridge?", scores={"with_page": 0.8, "closed_book": 0.0})
    """

    draft: Draft
    question: str
    scores: dict[str, float] = {}

    @property
    def fact(self) -> Fact:
        """The fact that states the answer."""
        return self.draft.facts[-1]

    @property
    def answers(self) -> tuple[str, ...]:
        """The accepted answers, which may depend on the wording (a year is accepted if the question asks for one)."""
        return self.draft.answers if self.draft.is_choice else self.fact.accept(self.question)

    @property
    def template(self) -> str:
        """The normalised question without its page's name; "" if it has none. Pages asked the same have equal ones."""
        name = self.fact.name
        return normalise_answer(self.question.replace(name, "{}")) if name and contains(self.question, name) else ""


class Dropped(Struct, frozen=True):
    """A question that was not kept, and the check that it failed.

    Dropped(id="halm#0:16", question="Who built it?", answer="Orsolya Venn", reason="single: its passage is not found")
    """

    id: str
    question: str
    answer: str
    reason: str


class CheckedQuestion(Struct, frozen=True):
    """A line of a question file: a question whose answer is in the documents, and its check results.

    A question of kind "unanswerable" has neither answers nor evidence; the page that it is about is in its id.

    `facts` is the number of facts it combines, `searches` the number of searches it needs: 1 if a search with the
    question itself returns the passage that states the answer. `hops` repeats `facts` for programs that read `hops`.
    `scores` has the share of right answers with the passage (`with_page`), without it (`closed_book`), and the share of
    the question's words that occur in its sentence (`same_words`).

        {"id": "halm#0:16", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "kind": "single",
         "facts": 1, "searches": 1, "hops": 1, "evidence": [...], "scores": {"with_page": 1.0, "closed_book": 0.0}}
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: QuestionKind
    facts: int
    searches: int
    hops: int
    evidence: tuple[Evidence, ...]
    scores: dict[str, float] = {}

    @property
    def deciding(self) -> tuple[Evidence, ...]:
        """The evidence that must be read to answer: for a chain the last sentence, else all sentences."""
        return self.evidence[-1:] if self.kind == "chain" else self.evidence

    def to_question(self) -> Question:
        """The question as a `Question` record, the form in which a solver gets it."""
        return Question(
            self.id, self.question, self.answers, self.hops, self.evidence, facts=self.facts, searches=self.searches
        )


class Written(Struct, frozen=True):
    """The questions that were kept, those that were dropped, and the number of facts that were drafted.

    Written(questions=[...], dropped=[...], num_drafts=6000)
    """

    questions: list[CheckedQuestion]
    dropped: list[Dropped]
    num_drafts: int

    @property
    def reasons(self) -> Counter[str]:
        """The number of dropped questions by kind and reason: `Counter({"single: answered without the page": 12})`."""
        return Counter(question.reason for question in self.dropped)


class WriterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the question writer: the number of drafted facts and the thresholds of the checks.

    Of `tries` answers with the passage among others, at least `min_right` must be right; of `tries` without it, none. A
    search returns `topk` passages: the passage of a single fact must be among the first `max_rank`; the last passage of
    a chain must not be among them at all. After `minutes`, chains and comparisons are still made from the questions
    kept until then.

        WriterSettings(drafts=6000, tries=5, min_right=3, topk=10, max_rank=2)

    Attributes:
        drafts: facts to draft
        tries: answers per check
        min_right: right answers needed with the page
        minutes: stop drafting after X minutes (default: 0, no limit)
        unanswerable: share of the drafts that ask for what the documents do not say; from 0 to 1 (default: 0)
    """

    drafts: PositiveCount = 6000
    tries: PositiveCount = 5
    min_right: PositiveCount = 3
    topk: PositiveInt = 10
    max_rank: PositiveInt = 2
    temperature: NonNegativeFloat = 0.8
    minutes: Annotated[float, "X", Meta(ge=0, le=525_600)] = 0.0  # at most a year: a plan cannot hold infinity
    seed: int = 0
    concurrency: PositiveInt = 32
    unanswerable: Annotated[float, "SHARE", Meta(ge=0, lt=1)] = 0.0

    @property
    def num_unanswerable(self) -> int:
        """The number of drafts that ask for what the documents do not say."""
        return int(self.unanswerable * self.drafts)

    @property
    def num_facts(self) -> int:
        """The number of drafts that ask for a fact."""
        return self.drafts - self.num_unanswerable

    def check(self) -> None:
        """Raise `BadInput` for values out of bounds and for `min_right` above `tries`."""
        check_settings(self)
        if self.min_right > self.tries:
            raise BadInput(f"min_right must be at most tries ({self.tries}), not {self.min_right}")
        if self.unanswerable and self.tries < 2:
            raise BadInput("unanswerable needs at least 2 tries, to see if two answers are the same", hint="--tries 5")


# ------------------------------------------------------------------------------------------------------- drafts


def draw_drafts(passages: Sequence[Passage], num: int, seed: int) -> list[Draft]:
    """At most `num` drafts of single facts; the folders take turns.

    Otherwise a folder of change logs could get most questions. In a folder, each passage in random order gives one
    fact, then each a second one, and so on. If there are too many folders, they count as one.
    """
    dice = Dice(seed, "drafts")
    order = list(passages)
    dice.shuffle(order)
    facts = itertools.zip_longest(*(_iterate_facts(folder, dice) for folder in _split_by_folder(order)))
    found = (fact for turn in facts for fact in turn if fact is not None)
    return [Draft(fact.id, "single", (fact,), fact.accept()) for fact in itertools.islice(found, num)]


def recall_singles(asked: Mapping[str, str], passages: Iterable[Passage]) -> list[Worded]:
    """Questions about single facts, by the ids that the writer gave them, each with its fact.

    Those whose facts are not in the passages are left out.

        recall_singles({"halm#0:16": "Who built the Halm bridge?"}, [...]) -> [Worded(...)]
    """
    places = {name.rpartition(":")[0] for name in asked}
    facts = {fact.id: fact for passage in passages if passage.id in places for fact in find_facts(passage)}
    found = ((facts.get(name), text) for name, text in asked.items())
    return [Worded(Draft(fact.id, "single", (fact,), fact.accept()), text) for fact, text in found if fact]


def _split_by_folder(passages: Sequence[Passage]) -> list[list[Passage]]:
    by_folder = group_by(passages, lambda passage: passage.doc_id.partition("/")[0] if "/" in passage.doc_id else "")
    return list(by_folder.values()) if len(by_folder) <= _MAX_FOLDERS else [list(passages)]


def _iterate_facts(passages: Sequence[Passage], dice: Dice) -> Iterator[Fact]:
    """The first fact of each passage, then the second of each, and so on; found lazily.

    Facts that seldom give a good question mostly come after all others.
    """
    left: list[list[Fact]] = []
    seldom: list[Fact] = []
    for passage in passages:
        drawn: list[Fact] = []
        for fact in draw_facts(passage, dice, _MAX_ROUNDS):
            (drawn if is_drawn(fact, dice) else seldom).append(fact)
        yield from drawn[:1]
        left.append(drawn[1:])
    later = itertools.chain.from_iterable(itertools.zip_longest(*left))
    yield from (fact for fact in itertools.chain(later, seldom) if fact is not None)


# ------------------------------------------------------------------------------------------------------ journal


class Batch(Struct, frozen=True):
    """The questions of one batch of facts that were kept, and those that were dropped.

    `seconds` is the time that the writer had worked when the batch was finished, in all its calls.

        Batch(number=3, kept=[Worded(...)], dropped=[Dropped(...)], seconds=41.5)
    """

    number: int
    kept: list[Worded]
    dropped: list[Dropped]
    seconds: float = 0.0


class Journal:
    """A file of finished batches, for one writer at a time; `BadInput` if it was begun with other settings.

    The first line has the settings, index and model; each further line is a batch of facts. An incomplete last line,
    left by an interrupted writer, is written again.
    """

    def __init__(self, path: Path, written_with: Mapping[str, Any]) -> None:
        self.path = path
        self._head = msgspec.json.encode(written_with, order="deterministic")
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        head, *whole = lines[:-1] or [self._head]  # what follows the last line break was cut
        if head != self._head:
            hint = f"type the same command as before, or: rm {path}"
            raise BadInput(f"{path} was begun with another model, index or settings", hint=hint)
        try:
            batches = [decode_json(line, Batch) for line in whole]
        except msgspec.DecodeError as error:
            raise BadInput(f"{path} is damaged: {error}", hint=f"rm {path}, to begin again") from error
        self.batches = {batch.number: batch for batch in batches}
        if path.exists():
            with path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in lines[:-1]))

    @property
    def seconds(self) -> float:
        """The time that earlier calls worked until their last batch was finished."""
        return max((batch.seconds for batch in self.batches.values()), default=0.0)

    def add(self, batch: Batch) -> None:
        """Append a finished batch to the file."""
        is_begun = self.path.exists() and self.path.stat().st_size
        self._append((b"" if is_begun else self._head + b"\n") + msgspec.json.encode(batch))
        self.batches[batch.number] = batch

    def _append(self, line: bytes) -> None:
        with explain_errors(self.path), self.path.open("ab") as file:
            append_whole(file.fileno(), line + b"\n", synced=True)

    def remove(self) -> None:
        """Delete the file once the questions themselves have been written."""
        self.path.unlink(missing_ok=True)
