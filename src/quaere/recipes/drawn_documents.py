"""The documents that a proposer's tasks are drawn from, without those that the solver is measured on.

Documents(index, ProposerConfig(held_back="held.jsonl")).draw(range(64), seed=7, name="i0p", step_seed=3)
-> [ProposeTask("i0p-000000", Passage(...), hops=2), ...]
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from quaere.chat.spans import shown_passages
from quaere.errors import BadInput
from quaere.recipes.passage_clusters import Mask
from quaere.recipes.selector import Choice, Selector
from quaere.records import Passage, ProposeTask, Question
from quaere.rewards.answers import contains, normalise_answer
from quaere.rollout.policy import derive_seed
from quaere.rollout.question_files import read_questions
from quaere.search.searcher import Searcher
from quaere.training.proposals import Proposed, ProposerConfig
from quaere.training.rollouts import Passages, draw_hops, draw_tasks
from quaere.warmup.documents.held_back import Contents, find_contents, find_documents


class Shard:
    """Some of the passages that `read` returns by their numbers, renumbered from 0.

    Shard(index.passage, [4, 17]).passage(0)      # passage 4 of the index
    """

    def __init__(self, read: Callable[[int], Passage], numbers: Sequence[int]) -> None:
        self._read = read
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def passage(self, number: int) -> Passage:
        """The passage with this number in the shard."""
        return self._read(self._numbers[number])


class Documents:
    """Documents that a proposer's tasks are drawn from: those of `among`, uniformly or by a selector's choice.

    Those with questions that are held back are left out; `held` are their ids. Others may repeat what they say
    (`repeats_held`).
    """

    def __init__(
        self, passages: Passages, config: ProposerConfig, among: Mask | None = None, selector: Selector | None = None
    ) -> None:
        asked = read_held(config.held_back)
        self.held = list_held(asked)
        self._known = Contents(
            text for one in asked for text in find_contents(one.text, [span.text for span in one.evidence])
        )
        if self.held:
            among = leave_out(passages, self.held, among)
        self._passages, self._config, self._among, self._selector = passages, config, among, selector
        self._shard = passages if among is None else Shard(passages.passage, among.nonzero()[0].tolist())
        self.chosen: dict[str, Choice] = {}  # the selector's choices in the last draw, by task id

    def draw(self, numbers: Sequence[int], *, seed: int, name: str, step_seed: int) -> list[ProposeTask]:
        """The tasks with these numbers, equal for equal seeds; `name` begins their ids.

        A selector chooses documents anew for the step, by `step_seed`; the numbers then determine only the hops.
        """
        config, passages = self._config, self._passages
        if self._selector is None:
            return draw_tasks(self._shard, numbers, config.hop_ratio, seed=seed, name=name, document=config.document)
        choices = self._selector.draw(len(numbers), derive_seed(step_seed, "selector"), self._among)
        self.chosen = dict(zip([f"{name}-{number:06d}" for number in numbers], choices, strict=True))
        return [
            ProposeTask(
                task, passages.passage(choice.passage), draw_hops(number, config.hop_ratio, seed), choice.question_type
            )
            for number, (task, choice) in zip(numbers, self.chosen.items(), strict=True)
        ]

    def holds(self, question: Question) -> bool:
        """True if a given question is one that is held back, or rests on the same sentences."""
        said = find_contents(question.text, [span.text for span in question.evidence])
        return bool(self._known.texts) and any(map(self._known.is_repeated_by, said))

    def repeats_held(self, proposed: Proposed) -> bool:
        """True if a proposal asks a question that is held back, or for what its sentences say.

        For those that a text shown has as well, where they have the answer: without evidence, a proposal does not say
        which sentence it is about.
        """
        question = proposed.question
        if question is None or not self._known.texts:
            return False
        said = find_contents(question.text, [proposed.evidence.text] if proposed.evidence else [])
        shown = (normalise_answer(passage.text) for passage in shown_passages(proposed.episode))
        return any(map(self._known.is_repeated_by, said)) or any(
            contains(sentence, answer)
            for text in shown
            for sentence in self._known.find_in(text)
            for answer in question.answers
        )


def read_held(file: str) -> list[Question]:
    """The questions of a file that are held back; none without a file. BadInput if none names its documents."""
    asked = read_questions(file) if file else []
    if asked and not list_held(asked):
        raise BadInput(f"{file}: no question names its documents", hint='they are in "evidence" or "gold_ids"')
    return asked


def list_held(questions: Sequence[Question]) -> frozenset[str]:
    """The ids of the documents that the questions are about."""
    spans = ((one, [span.doc_id for span in one.evidence] or list(one.gold_ids)) for one in questions)
    return frozenset(name for one, proven_by in spans for name in find_documents(one.id, proven_by))


def leave_out(passages: Passages, held: Collection[str], among: Mask | None) -> Mask:
    """A mask of the passages of `among` that are of other documents; BadInput if there is none."""
    kept = np.array([passages.passage(number).doc_id not in held for number in range(len(passages))], dtype=bool)
    kept = kept if among is None else kept & among
    if not kept.any():
        raise BadInput("the questions of proposer.held_back are about all documents: none is left to ask about")
    return kept


def split_documents(passages: Passages, held_out_share: float, seed: int) -> tuple[Mask, Mask]:
    """Masks of the passages the proposer learns from and of those held out; a document is never split.

    first, held_out = split_documents(index, 0.2, seed=7)      # first[17] != held_out[17]
    """
    limit = int(held_out_share * 2**63)
    sides: dict[str, bool] = {}
    held_out = np.zeros(len(passages), dtype=bool)
    for number in range(len(passages)):
        document = passages.passage(number).doc_id
        if document not in sides:
            sides[document] = derive_seed(seed, "shard", document) % 2**63 < limit
        held_out[number] = sides[document]
    if held_out.all() or not held_out.any():
        raise BadInput(
            f"{len(sides)} documents cannot be split into two shards with held_out_share={held_out_share:g}",
            hint="--set phase_b_documents=same",
        )
    return ~held_out, held_out


async def find_passages(questions: str | Path, searcher: Searcher) -> list[Passage]:
    """The best hit for each question of a file or data set, without duplicates."""
    found = await searcher.search([question.text for question in read_questions(questions)], 1)
    passages = dict.fromkeys(hits[0].passage for hits in found if hits)
    if not passages:
        raise BadInput(f"no question of {questions} finds a passage of the index", hint="check --index and the file")
    return list(passages)
