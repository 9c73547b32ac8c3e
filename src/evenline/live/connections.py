"""Connections of the web server, which no client can use up.

A client that opens connections and stays silent, or sends a request byte by byte, loses them after
a while; when there are too many, the one that has waited longest is closed for the new one.
"""

import asyncio
from typing import cast

from evenline.support.extras import extra

with extra("live"):
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_OPEN = 200
_REQUEST_S = 10.0  # for a whole request
_LAST_S = 0.5  # for an answer, when the server ends


class Connection(H11Protocol):
    """A connection that ends if its client does not send a whole request in time."""

    _since_s = 0.0  # when it was opened, or its last answer ended
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MOST_OPEN:
            others = {cast(Connection, other) for other in self.connections} - {self}
            min(others, key=lambda other: (not other.waits, other._since_s)).transport.abort()

    def on_response_complete(self) -> None:
        self._wait()  # first: the next request may have come already
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(_LAST_S, self.transport.abort)  # a page listens for ever

    @property
    def waits(self) -> bool:
        """Whether its client has a request to send, or the rest of one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY, h11.ERROR)

    def _wait(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._since_s = self.loop.time()
        self._limit = self.loop.call_later(_REQUEST_S, self._end)

    def _end(self) -> None:
        if self.waits:
            self.transport.abort()
