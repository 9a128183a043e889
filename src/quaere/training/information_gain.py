"""Information gain of searches: how much likelier the right answer is to the learner after what a search returned.

    measure_gains(learner, renderer, protocol, episodes) -> [{0: 2.31, 1: -0.04}, {}]

The gain of a search is the mean log-prob of the tokens of the known answer, written right after the search's result,
minus the higher of two values: the same at the end of the previous result (or of the prompt), and after the turn that
searches, as if it had found nothing. So nothing that the policy writes in its thought or query raises a gain: neither a
right guess, which IGPO and TIPS reward, since they compare with the previous result alone, nor a wrong one, which would
lower the value after the turn. Like theirs, it needs neither a judge nor evidence.

All contexts of a step are scored without gradients, before the update. Each is a sequence of its own, because the GPU
kernel for packed sequences does not support shared prefixes: an episode with K searches costs about K forward passes of
the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from msgspec import structs

from quaere.chat.protocol import Acted, Message, Protocol, was_searched
from quaere.chat.renderer import Renderer
from quaere.records import Episode, SolveTask, Turn
from quaere.training.batches import Sample
from quaere.training.step import mean_of

if TYPE_CHECKING:
    from quaere.training.learner import Learner
    from quaere.training.tinker_learner import TinkerLearner

Context = tuple[int, ...]  # ids of an episode's first tokens

OPENING, CLOSING = "<answer>", "</answer>"


def measure_gains(
    learner: Learner | TinkerLearner, renderer: Renderer, protocol: Protocol, episodes: Sequence[Episode]
) -> list[dict[int, float]]:
    """The gain of each search of every episode, by turn index; {} without a search or an accepted answer."""
    numbers: dict[Sample, int] = {}
    places: list[dict[int, list[int]]] = []  # by episode and turn: the numbers of the samples of its contexts
    for episode in episodes:
        samples = {
            turn: [answer_sample(episode, context, renderer) for context in contexts]
            for turn, contexts in find_contexts(episode, renderer, protocol).items()
        }
        places.append({turn: [numbers.setdefault(one, len(numbers)) for one in some] for turn, some in samples.items()})
    scores = [sum(values) / len(values) for values in learner.score(list(numbers))] if numbers else []
    return [
        {turn: scores[after] - max(scores[before], scores[written]) for turn, (before, written, after) in found.items()}
        for found in places
    ]


def find_contexts(episode: Episode, renderer: Renderer, protocol: Protocol) -> dict[int, tuple[Context, ...]]:
    """Three contexts of each search by turn index, each up to where a new turn begins: the ids of its tokens.

    They end with the previous result (or the prompt), with the turn and the reply to a search that finds nothing, and
    with the turn and its result. {} without a search whose result was shown, or without an accepted answer.
    """
    assert isinstance(episode.task, SolveTask)
    if not any(answer.strip() for answer in episode.task.question.answers):
        return {}
    ids, turns = episode.token_ids, episode.turns
    # The reply to a turn is a segment of its own, as the prompt is. What opens the next turn comes after it.
    ends = dict(pairwise(accumulate((len(segment.token_ids) for segment in episode.segments), initial=0)))
    found: dict[int, tuple[Context, ...]] = {}
    before = ids[: ends[0]]
    for place, turn in enumerate(turns):
        if was_searched(turn):
            end = turn.start + turn.num_tokens
            reply = renderer.reply(_reply_nothing(turn, turns[:place], protocol), ids[end - 1])
            found[place] = before, (*ids[:end], *reply), ids[: ends[end]]
            before = ids[: ends[end]]
    return found


def _reply_nothing(turn: Turn, earlier: Sequence[Turn], protocol: Protocol) -> Message:
    """The reply to the turn's search as if it had found nothing, with the note of a last search if that was shown."""
    nothing = Acted(turn.action, tuple(structs.replace(result, hits=()) for result in turn.results))
    final = protocol.reply(nothing, earlier, final=True)
    # Without the note "now answer", the answer would be likelier after the result for the note's sake.
    return final if turn.reply.endswith(final.note) else protocol.reply(nothing, earlier)


def answer_sample(episode: Episode, context: Context, renderer: Renderer) -> Sample:
    """The context and a turn with the right answer after it; the answer's tokens alone carry loss."""
    assert isinstance(episode.task, SolveTask)
    answer = next(answer for answer in episode.task.question.answers if answer.strip())
    context = (*context, *renderer.encode_parts((renderer.begin_turn(OPENING),)))
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
