"""Finds the episodes of an earlier evaluation that would be the same again, although documents have changed since.

    known = await find_repeatable(episodes, searcher, limits)

A greedy episode follows from the weights, the question and what its searches find. If they find the same now, it need
not be played again.
"""

from collections.abc import Iterable

from quaere.errors import SearchFailed
from quaere.records import Episode, Search, SearchResult
from quaere.rollout.episode import Limits, find_results
from quaere.search.searcher import Searcher


async def find_repeatable(episodes: Iterable[Episode], searcher: Searcher, limits: Limits) -> list[Episode]:
    """The episodes whose searches find the same passages now; none in which the model or a search failed."""
    return [episode for episode in episodes if await _is_repeatable(episode, searcher, limits)]


async def _is_repeatable(episode: Episode, searcher: Searcher, limits: Limits) -> bool:
    if episode.end == "failed" or episode.search_failed:
        return False
    for turn in episode.turns:
        if not isinstance(turn.action, Search) or not turn.results:  # refused, as no searches were left
            continue
        try:
            found = await find_results(searcher, episode.task, turn.action.queries, limits)
        except SearchFailed:
            return False
        if _texts(found) != _texts(turn.results):  # a shown passage that was cut differs too: its end may have changed
            return False
    return True


def _texts(results: Iterable[SearchResult]) -> list[list[str]]:
    """What the policy is shown of results."""
    return [[hit.passage.titled_text for hit in result.hits] for result in results]
