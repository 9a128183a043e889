"""HTTP connections with deadlines and a maximum number of open connections.

uvicorn waits forever for the head and the body of a request, and for a client that does not read its response. Here
every connection has a deadline (`due`) by which its client must act, and once a second the server drops those past it.
A connection beyond the limit replaces one that waits for its client, first those that never completed a request.
Half-open connections therefore cannot lock out other clients.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import socket
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quaere.errors import BadInput

MAX_HEAD_BYTES = 64 * 1024
ACCEPTED_AT_ONCE = 16
# File descriptors kept free: three iterations of the event loop pass between accepting a connection and counting or
# closing it, and the application sometimes opens a file.
SPARE_DESCRIPTORS = 4 * ACCEPTED_AT_ONCE
MIN_CONNECTIONS = 8

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"

log = logging.getLogger("quaere.serving")


class Patience(Struct, frozen=True):
    """Time and size limits of a connection.

    Patience(max_connections=1024, head_s=10.0, transfer_s=30.0, max_message_bytes=33554432)

    `head_s` limits a request head and an idle connection, `transfer_s` a request body and a response that is not read.
    """

    max_connections: int
    head_s: float
    transfer_s: float
    max_message_bytes: int


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn's types are not followed
    """A client's connection. `due` is the time at which it is dropped; infinite while it waits for the server."""

    def __init__(self, *args: Any, patience: Patience, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patience = patience
        self.due = math.inf
        self.since = 0.0  # when it started to wait for its client
        self.num_requests = 0  # requests whose head was complete
        self._reading_head = False
        self._reading_body = False
        self._num_bytes = 0  # bytes of the request being read

    # ------------------------------------------------------------------------------------------- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection; beyond the limit, drop one that waits for its client, or this one if there is none."""
        super().connection_made(transport)
        self._expect(self.patience.head_s)
        if len(self.connections) > self.patience.max_connections:
            others = (other for other in self.connections if other is not self and other.due < math.inf)
            oldest = min(others, key=lambda other: (other.num_requests > 0, other.since), default=self)
            if oldest is self:
                transport.write(_BUSY)
            oldest.drop("all connections are taken")

    def connection_lost(self, exc: Exception | None) -> None:
        """Clear the deadline."""
        self.due = math.inf
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; drop the connection if the request exceeds the size limit."""
        super().data_received(data)
        self._num_bytes += len(data)
        limit = MAX_HEAD_BYTES if self._reading_head else self.patience.max_message_bytes
        if (self._reading_head or self._reading_body) and self._num_bytes > limit:
            self.drop(f"a request of more than {limit} bytes")

    def send_400_response(self, msg: str) -> None:
        """Log one line and answer 400: the data was not HTTP."""
        log.info("%s - 400 not HTTP", self._address())
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Start of a request: set the deadline of its head."""
        super().on_message_begin()
        self._reading_head, self._num_bytes = True, 0
        self._expect(self.patience.head_s)

    def on_headers_complete(self) -> None:
        """End of the request head: set the deadline of the body."""
        self._reading_head, self._reading_body = False, True
        self.num_requests += 1
        self._expect(self.patience.transfer_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End of the request: no deadline while the application works, unless it has responded already."""
        self._reading_body = False
        super().on_message_complete()
        self._expect(self.patience.head_s if self.cycle.response_complete else math.inf)

    def on_response_complete(self) -> None:
        """End of the response: set the deadline for reading it and for the next request."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._reading_body:
            unread = self.transport.get_write_buffer_size() > 0
            self._expect(self.patience.transfer_s if unread else self.patience.head_s)

    def pause_writing(self) -> None:
        """The client reads too slowly: set a deadline for reading."""
        super().pause_writing()
        self._expect(self.patience.transfer_s)

    def resume_writing(self) -> None:
        """The client has read on: clear or reset the deadline."""
        super().resume_writing()
        is_busy = self.cycle is not None and not self.cycle.response_complete
        self._expect(math.inf if is_busy else self.patience.head_s)

    # -------------------------------------------------------------------------------------------------- what we call

    def drop(self, why: str) -> None:
        """Close the connection at once; unsent data is lost."""
        log.info("%s dropped: %s", self._address(), why)
        self.due = math.inf
        self.transport.abort()

    def _expect(self, seconds: float) -> None:
        self.since = self.loop.time()
        self.due = self.since + seconds

    def _address(self) -> str:
        return self.client[0] if self.client else "-"


def drop_late(connections: Iterable[Connection], now: float) -> None:
    """Drop every connection whose deadline has passed."""
    for connection in [connection for connection in connections if connection.due < now]:
        connection.drop(f"too slow, {now - connection.since:.0f} s")


# ------------------------------------------------------------------------------------------------------- descriptors


class Listener(socket.socket):
    """A listening socket that accepts a limited number of connections per iteration of the event loop.

    asyncio accepts the whole queue before any connection is counted, so a burst would use up all file descriptors. Here
    the rest of a burst waits in the queue for the next iteration.
    """

    num_accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises BlockingIOError, as if the queue were empty, once this iteration's share is used.
        """
        if self.num_accepted >= ACCEPTED_AT_ONCE:
            raise BlockingIOError
        if not self.num_accepted:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self.num_accepted += 1
        try:
            return super().accept()
        except OSError:
            self.num_accepted = ACCEPTED_AT_ONCE  # e.g. out of descriptors: asyncio would retry at once in a busy loop
            raise

    def _begin_turn(self) -> None:
        self.num_accepted = 0


def connection_limit(wanted: int) -> int:
    """Number of connections the process has file descriptors for, at most `wanted`.

    With `ulimit -n 128` and 10 files open, connection_limit(1024) == 54.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = soft - len(os.listdir("/dev/fd")) - SPARE_DESCRIPTORS
    if room < MIN_CONNECTIONS:
        said = f"the limit of open files is {soft}, too low for a server"
        raise BadInput(said, hint="ulimit -n 1024")
    return min(wanted, room)
