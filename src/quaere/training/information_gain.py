"""Information gain of searches: how much likelier the right answer is to the learner after what a search returned.

    measure_gains(learner, renderer, episodes) -> [{0: 2.31, 1: -0.04}, {}]

The gain of a search is the mean log-prob of the tokens of the known answer, written right after the search's result,
minus the same right before that result: after the turn that searches. So a policy that guesses the answer in its
thought or query gains nothing by the guess. It needs neither a judge nor evidence (information gain as in IGPO and
TIPS).

All contexts of a step are scored without gradients, before the update. Each is a sequence of its own, because the GPU
kernel for packed sequences does not support shared prefixes: an episode with K searches costs about K forward passes of
the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quaere.chat.protocol import was_searched
from quaere.chat.renderer import Renderer
from quaere.records import Episode, SolveTask
from quaere.training.batches import Sample
from quaere.training.step import mean_of

if TYPE_CHECKING:
    from quaere.training.learner import Learner
    from quaere.training.tinker_learner import TinkerLearner

OPENING, CLOSING = "<answer>", "</answer>"


def measure_gains(
    learner: Learner | TinkerLearner, renderer: Renderer, episodes: Sequence[Episode]
) -> list[dict[int, float]]:
    """The gain of each search of every episode, by turn index; {} without a search or an accepted answer."""
    numbers: dict[Sample, int] = {}
    places: list[dict[int, list[int]]] = []  # by episode and turn: the numbers of the samples before and after
    for episode in episodes:
        contexts = find_contexts(episode)
        samples = {turn: [answer_sample(episode, end, renderer) for end in ends] for turn, ends in contexts.items()}
        places.append({turn: [numbers.setdefault(one, len(numbers)) for one in two] for turn, two in samples.items()})
    scores = [sum(values) / len(values) for values in learner.score(list(numbers))] if numbers else []
    return [{turn: scores[after] - scores[before] for turn, (before, after) in found.items()} for found in places]


def find_contexts(episode: Episode) -> dict[int, tuple[int, int]]:
    """The number of tokens before and after the result of each search, by turn index.

    {} without a search whose result was shown, or without an accepted answer.

        find_contexts(episode) -> {0: (231, 391), 2: (418, 640)}
    """
    assert isinstance(episode.task, SolveTask)
    turns = episode.turns
    if not any(answer.strip() for answer in episode.task.question.answers):
        return {}
    starts = [turn.start for turn in turns if turn.num_tokens]
    total = len(episode.token_ids)
    # The result ends where the policy's next turn begins; after the last turn it ends with the episode.
    return {
        place: (turn.start + turn.num_tokens, next((at for at in starts if at > turn.start), total))
        for place, turn in enumerate(turns)
        if was_searched(turn)
    }


def answer_sample(episode: Episode, num_tokens: int, renderer: Renderer) -> Sample:
    """The first tokens of the episode and the right answer after them; the answer's tokens alone carry loss."""
    assert isinstance(episode.task, SolveTask)
    answer = next(answer for answer in episode.task.question.answers if answer.strip())
    context = (*episode.token_ids[:num_tokens], *renderer.encode_parts((renderer.begin_turn(OPENING),)))
    # With the closing tag: else every answer that begins in this way would count.
    target = renderer.encode_parts((answer.strip() + CLOSING,))
    ids = (*context, *target)
    zeros = (0.0,) * len(ids)
    return Sample(ids, (False,) * len(context) + (True,) * len(target), zeros, zeros)


def describe_gains(gains: Sequence[dict[int, float]]) -> dict[str, float]:
    """Mean gain of the searches, and the share that made the answer likelier.

    describe_gains([{0: 2.0, 1: -1.0}]) -> {"gain/mean": 0.5, "gain/positive": 0.5}
    """
    values = [value for found in gains for value in found.values()]
    return mean_of("gain/mean", values) | mean_of("gain/positive", [float(value > 0) for value in values])
