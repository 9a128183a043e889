"""Any function from a query to passages as a `Searcher`.

FunctionSearcher(lambda query: ["The Halm bridge was built in 1702."])
"""

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import msgspec

from quaere.errors import BadInput, QuaereError, SearchFailed
from quaere.records import Hit, Passage
from quaere.search.wire import read_found

Found = str | Mapping[str, Any] | Passage | Hit
SearchFunction = Callable[[str], Iterable[Found] | Awaitable[Iterable[Found]]]
_SHAPES = 'a passage is a text, {"text": ..., "title": ..., "id": ..., "score": ...}, a Passage or a Hit'


class FunctionSearcher:
    """Searches by calling a function with each query; results beyond `topk` are cut off.

    A plain function is called in one thread of its own, one query at a time, so it need not be thread-safe; an `async`
    one is awaited, several at a time. An exception in it is a failed search: recorded in the episode, with a warning.
    What it returns must be passages, or the episode ends with `BadInput`.
    """

    def __init__(self, function: SearchFunction) -> None:
        if not callable(function):
            raise BadInput(f"search must be a function, not {type(function).__name__}", hint=_SHAPES)
        self._function = function
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search-function")

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        return [_read_hits(await self._call(query), topk) for query in queries]

    async def close(self) -> None:
        """Wait for the current call, then end the thread."""
        self._thread.shutdown()

    async def _call(self, query: str) -> object:
        try:
            if inspect.iscoroutinefunction(self._function):
                return await self._function(query)
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._listed, query)
            return await found if inspect.isawaitable(found) else found
        except QuaereError:
            raise
        except Exception as error:
            said = f"the search function failed: {type(error).__name__}: {error}"
            warnings.warn(said, stacklevel=2)
            raise SearchFailed(said, kind="broken") from error

    def _listed(self, query: str) -> object:
        """What the function returns. A generator runs here, so that its errors are those of the function."""
        try:
            found = self._function(query)
            return list(found) if inspect.isgenerator(found) else found
        except StopIteration as error:  # `next()` of nothing; no future can hold it, so the search would never end
            raise RuntimeError(f"StopIteration: {error}") from error


def _read_hits(found: object, topk: int) -> list[Hit]:
    if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
        raise BadInput(f"a search function must return a list of passages, not {type(found).__name__}", hint=_SHAPES)
    # Best first: unless a result has a score of its own, the first is the best.
    return [_read_hit(one, score=-float(place)) for place, one in enumerate(islice(found, topk))]


def _read_hit(found: object, score: float) -> Hit:
    if isinstance(found, Hit):
        return found
    if isinstance(found, Passage):
        return Hit(found, score)
    try:
        return read_found({"text": found} if isinstance(found, str) else found, score)
    except msgspec.ValidationError as error:
        raise BadInput(f"a search function returned what is no passage: {error}", hint=_SHAPES) from error
