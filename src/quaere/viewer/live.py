"""Server-sent events: an open page learns that what it shows was written to, and asks for it again.

    event: change
    data: 7

The content is not sent: a page that was opened now and one that was followed for hours are made by the same code. Only
the attributes of a few files are looked at, so following a run costs its training nothing. The first event comes at
once: what was written between the making of the page and the opening of its stream is seen by nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from quaere.viewer.run_folder import Signature

LOOK_EVERY_S = 1.0
_BEAT_EVERY_S = 15.0  # a comment now and then, so that a client that is gone is noticed
MAX_STREAMS = 64


class Streams:
    """The open streams of a server. They end when it stops, since it would otherwise wait for them."""

    def __init__(self, is_stopping: Callable[[], bool]) -> None:
        self._is_stopping = is_stopping
        self._num_open = 0

    def follow(self, look: Callable[[], Signature], every_s: float | None = None) -> Response:
        """An event at once, and whenever `look()`, once a second or as often as given, returns something new."""
        if self._num_open >= MAX_STREAMS:
            return Response("too many pages are being followed", 503, {"Retry-After": "30"}, "text/plain")
        return StreamingResponse(self._events(look, every_s or LOOK_EVERY_S), media_type="text/event-stream")

    async def _events(self, look: Callable[[], Signature], every_s: float) -> AsyncIterator[str]:
        self._num_open += 1
        try:
            seen, number, waited = await run_in_threadpool(look), 0, 0.0
            yield f"retry: 2000\nevent: change\ndata: {number}\n\n"
            while not self._is_stopping():
                await asyncio.sleep(every_s)
                waited += every_s
                found = await run_in_threadpool(look)
                if found != seen:
                    seen, number, waited = found, number + 1, 0.0
                    yield f"event: change\ndata: {number}\n\n"
                elif waited >= _BEAT_EVERY_S:
                    waited = 0.0
                    yield ": still here\n\n"
        finally:
            self._num_open -= 1
