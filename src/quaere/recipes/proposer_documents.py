"""The documents a proposer writes about: their shard, and how they are drawn (uniformly, by questions, by selector)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quaere.errors import BadInput
from quaere.recipes.selector import Choice, Selector
from quaere.records import Passage, ProposeTask
from quaere.rollout.policy import derive_seed
from quaere.rollout.question_files import read_questions
from quaere.search.searcher import Searcher
from quaere.training.rollouts import Passages, draw_hops, draw_tasks
from quaere.training.self_play_config import ProposerConfig

Mask = NDArray[np.bool_]


class Documents(Protocol):
    """A source of the proposer's tasks, each a document with a number of hops."""

    def draw(self, numbers: Sequence[int], *, seed: int, name: str, step_seed: int) -> list[ProposeTask]:
        """The tasks with these numbers; `name` begins their ids, and a selector chooses documents by `step_seed`."""
        ...


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


class Shard:
    """A subset of the passages, renumbered from 0.

    Shard(index, mask).passage(0)      # the first passage the mask holds
    """

    def __init__(self, passages: Passages, numbers: Sequence[int]) -> None:
        self._passages = passages
        self.numbers = list(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def passage(self, number: int) -> Passage:
        """The passage with this number in the shard."""
        return self._passages.passage(self.numbers[number])


class FoundPassages:
    """A list of passages with the interface of an index.

    FoundPassages([passage]).passage(0)
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = list(passages)

    def __len__(self) -> int:
        return len(self._passages)

    def passage(self, number: int) -> Passage:
        """The passage with this number."""
        return self._passages[number]


async def find_passages(questions: str | Path, searcher: Searcher) -> list[Passage]:
    """The best hit for each question of a file or data set, without duplicates."""
    asked = read_questions(questions)
    found = await searcher.search([question.text for question in asked], 1)
    passages = dict.fromkeys(hits[0].passage for hits in found if hits)
    if not passages:
        raise BadInput(f"no question of {questions} finds a passage of the index", hint="check --index and the file")
    return list(passages)


class UniformDocuments:
    """Tasks on documents of an index or a shard, drawn uniformly."""

    def __init__(self, passages: Passages, config: ProposerConfig) -> None:
        self._passages = passages
        self._config = config

    def draw(self, numbers: Sequence[int], *, seed: int, name: str, step_seed: int) -> list[ProposeTask]:
        """The tasks with these numbers; equal for equal seeds."""
        config = self._config
        return draw_tasks(self._passages, numbers, config.hop_ratio, seed=seed, name=name, document=config.document)


class SelectedDocuments:
    """Tasks on documents of a shard that the selector chose, with a type of question for each."""

    def __init__(self, selector: Selector, passages: Passages, among: Mask | None, hop_ratio: Sequence[int]) -> None:
        self._selector = selector
        self._passages = passages
        self._among = among
        self._hop_ratio = hop_ratio
        self.chosen: dict[str, Choice] = {}  # the choices of the last draw, by task id

    def draw(self, numbers: Sequence[int], *, seed: int, name: str, step_seed: int) -> list[ProposeTask]:
        """New choices of the selector for this step; the numbers only name the tasks and determine the hops."""
        choices = self._selector.draw(len(numbers), derive_seed(step_seed, "selector"), self._among)
        tasks = [
            ProposeTask(
                f"{name}-{number:06d}",
                self._passages.passage(choice.passage),
                draw_hops(number, self._hop_ratio, seed),
                choice.question_type,
            )
            for number, choice in zip(numbers, choices, strict=True)
        ]
        self.chosen = {task.id: choice for task, choice in zip(tasks, choices, strict=True)}
        return tasks
