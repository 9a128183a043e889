"""Connections with deadlines, of which there are never more than the process has descriptors for.

uvicorn waits forever for the head and the body of a request, and for a client that does not read its answer. Here
every connection notes until when its client must act (`due`), and the server's tick drops, once a second, whoever is
late. A new connection beyond the limit takes the place of one that waits for its client, those that never completed
a request first; so half-open connections cannot keep others out.
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
# Descriptors kept free: connections pass three turns of the loop between being accepted and being counted or closed,
# and the application opens a file now and then.
SPARE_DESCRIPTORS = 4 * ACCEPTED_AT_ONCE
MIN_CONNECTIONS = 8

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"

log = logging.getLogger("quaere.serving")


class Patience(Struct, frozen=True):
    """How long and how much a connection may take.

    Patience(max_connections=1024, head_s=10.0, transfer_s=30.0, max_message_bytes=33554432)

    `head_s` is for a whole request head and for an idle connection, `transfer_s` for a whole body, and for an answer
    that is not being read.
    """

    max_connections: int
    head_s: float
    transfer_s: float
    max_message_bytes: int


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn's types are not followed
    """A client's connection. `due` is when it is dropped; infinite while the client has nothing to do."""

    def __init__(self, *args: Any, patience: Patience, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patience = patience
        self.due = math.inf
        self.since = 0.0  # when it began to wait for its client
        self.num_requests = 0  # whose head was complete
        self._reading_head = False
        self._reading_body = False
        self._num_bytes = 0  # of the request being read

    # ------------------------------------------------------------------------------------------- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection; beyond the limit, one that waits for its client goes, or else this one."""
        super().connection_made(transport)
        self._expect(self.patience.head_s)
        if len(self.connections) > self.patience.max_connections:
            others = (other for other in self.connections if other is not self and other.due < math.inf)
            oldest = min(others, key=lambda other: (other.num_requests > 0, other.since), default=self)
            if oldest is self:
                transport.write(_BUSY)
            oldest.drop("all connections are taken")

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self.due = math.inf
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless it is more than any request may be."""
        super().data_received(data)
        self._num_bytes += len(data)
        limit = MAX_HEAD_BYTES if self._reading_head else self.patience.max_message_bytes
        if (self._reading_head or self._reading_body) and self._num_bytes > limit:
            self.drop(f"a request of more than {limit} bytes")

    def send_400_response(self, msg: str) -> None:
        """Say in one line that this was not HTTP."""
        log.info("%s - 400 not HTTP", self._address())
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """A request begins: its head is waited for."""
        super().on_message_begin()
        self._reading_head, self._num_bytes = True, 0
        self._expect(self.patience.head_s)

    def on_headers_complete(self) -> None:
        """The head is there: the body is waited for."""
        self._reading_head, self._reading_body = False, True
        self.num_requests += 1
        self._expect(self.patience.transfer_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is there: now it is the application's turn, unless that has answered already."""
        self._reading_body = False
        super().on_message_complete()
        self._expect(self.patience.head_s if self.cycle.response_complete else math.inf)

    def on_response_complete(self) -> None:
        """The answer is written: it is still to be read, and another request may come."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._reading_body:
            unread = self.transport.get_write_buffer_size() > 0
            self._expect(self.patience.transfer_s if unread else self.patience.head_s)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        super().pause_writing()
        self._expect(self.patience.transfer_s)

    def resume_writing(self) -> None:
        """The client has read on."""
        super().resume_writing()
        is_busy = self.cycle is not None and not self.cycle.response_complete
        self._expect(math.inf if is_busy else self.patience.head_s)

    # -------------------------------------------------------------------------------------------------- what we call

    def drop(self, why: str) -> None:
        """Close at once; what was not sent yet is lost."""
        log.info("%s dropped: %s", self._address(), why)
        self.due = math.inf
        self.transport.abort()

    def _expect(self, seconds: float) -> None:
        self.since = self.loop.time()
        self.due = self.since + seconds

    def _address(self) -> str:
        return self.client[0] if self.client else "-"


def drop_late(connections: Iterable[Connection], now: float) -> None:
    """Drop every connection whose client should have acted by now."""
    for connection in [connection for connection in connections if connection.due < now]:
        connection.drop(f"too slow, {now - connection.since:.0f} s")


# ------------------------------------------------------------------------------------------------------- descriptors


class Listener(socket.socket):
    """A listening socket that accepts a few connections in a turn of the event loop.

    asyncio accepts as many as the queue holds before any of them can be counted: a burst would take all descriptors.
    The rest of a burst waits in the queue for the next turn.
    """

    num_accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; BlockingIOError, as if there were none, when this turn has had its share."""
        if self.num_accepted >= ACCEPTED_AT_ONCE:
            raise BlockingIOError
        if not self.num_accepted:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self.num_accepted += 1
        try:
            return super().accept()
        except OSError:
            self.num_accepted = ACCEPTED_AT_ONCE  # out of descriptors, say: asyncio would ask again at once
            raise

    def _begin_turn(self) -> None:
        self.num_accepted = 0


def connection_limit(wanted: int) -> int:
    """How many connections the process has descriptors for, at most `wanted`.

    With `ulimit -n 128` and 10 files open, connection_limit(1024) == 54.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = soft - len(os.listdir("/dev/fd")) - SPARE_DESCRIPTORS
    if room < MIN_CONNECTIONS:
        said = f"a process may open only {soft} files here, too few for a server"
        raise BadInput(said, hint="ulimit -n 1024")
    return min(wanted, room)
