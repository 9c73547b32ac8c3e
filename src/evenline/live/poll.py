"""Ask a server for its feed, politely: only if it has changed, not too often, never for long.

Every answer is bounded in bytes and seconds, however slowly a server talks. After a failure the
next try waits twice as long, up to five minutes, or as long as the server asks.
"""

import asyncio
import os
import ssl
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from evenline.live.feed import MOST_BYTES, FeedError
from evenline.support.errors import InputError
from evenline.support.extras import extra

with extra("live"):
    import httpx2

MOST_WAIT_S = 300.0
_LEAST_EVERY_S = 1.0
_TIMEOUT_S = 10.0
_MOST_MEMBERS = 1_000  # of a gzip stream
_ASK_AGAIN = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}


@cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class _Unzip:
    """Unpacks a gzip stream of one member or more, piece by piece."""

    def __init__(self) -> None:
        self._member, self._members = zlib.decompressobj(wbits=31), 1

    @property
    def whole(self) -> bool:
        """Whether the last member has come to its end."""
        return self._member.eof

    def more(self, content: bytes, most: int) -> bytes:
        """What a piece contains, as far as it is not more than `most` bytes."""
        parts: list[bytes] = []
        while content and most > 0:
            if self._member.eof:
                self._member, self._members = zlib.decompressobj(wbits=31), self._members + 1
                if self._members > _MOST_MEMBERS:
                    raise zlib.error(f"gzip stream of over {_MOST_MEMBERS:,} members")
            parts.append(self._member.decompress(content, most))
            most -= len(parts[-1])
            content = self._member.unused_data
        return b"".join(parts)


@dataclass
class Poller:
    """A feed behind an address, and when to ask again."""

    url: str
    every_s: float = 15.0
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = _TIMEOUT_S
    most_bytes: int = MOST_BYTES
    failures: int = 0
    _asked_to_wait_s: float = 0.0
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"feed {self.url!r}: write an address as https://HOST/PATH")
        if self.every_s < _LEAST_EVERY_S:
            least = f"{_LEAST_EVERY_S:g} s"
            raise InputError(f"polls every {self.every_s:g} s: choose at least {least}")

    @property
    def wait_s(self) -> float:
        """How long to wait before the next try."""
        doubled = self.every_s * 2.0 ** min(self.failures, 10)
        return min(max(doubled, self._asked_to_wait_s), max(MOST_WAIT_S, self.every_s))

    def poll(self, read: Callable[[bytes], Any] = bytes) -> Any:
        """What `read` makes of the feed's bytes, None if they have not changed, or a `FeedError`.

        Bytes that `read` refuses with a `FeedError` are a failure too.
        """
        self._asked_to_wait_s = 0.0
        try:
            content, known = asyncio.run(self._fetched())
            result = None if content is None else read(content)
        except Exception as error:
            self.failures += 1
            if isinstance(error, FeedError):
                raise
            raise FeedError(f"{self.url}: {_reason(error)}") from None
        self.failures, self._known = 0, known
        return result

    async def _fetched(self) -> tuple[bytes | None, dict[str, str]]:
        """The feed's bytes, None if they have not changed, and how to ask for the next ones."""
        headers = {**self.headers, **self._known, "Accept-Encoding": "gzip"}
        headers["User-Agent"] = "evenline"
        client = httpx2.AsyncClient(
            verify=_trusted(),
            follow_redirects=True,
            event_hooks={"request": [self._check_place]},
            timeout=None,  # the limit is for the whole answer: a server may drip it for ever
        )
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                client,
                client.stream("GET", self.url, headers=headers) as answer,
            ):
                if answer.status_code == 304:
                    return None, self._known
                if not answer.is_success:
                    wait = answer.headers.get("Retry-After", "").strip()
                    if wait.isdecimal() and len(wait) < 8:
                        self._asked_to_wait_s = float(wait)
                    raise FeedError(f"{self.url}: the server answers {answer.status_code}")
                content = await self._body(answer)
                known = {ask: answer.headers.get(name, "") for name, ask in _ASK_AGAIN.items()}
                return content, {ask: value for ask, value in known.items() if value}
        except TimeoutError:
            raise FeedError(f"{self.url}: the answer took over {self.timeout_s:g} s") from None

    async def _check_place(self, request: httpx2.Request) -> None:
        """Refuse a redirection to another host: headers may carry a key."""
        asked, named = request.url, httpx2.URL(self.url)
        if (asked.scheme, asked.netloc) != (named.scheme, named.netloc):
            raise FeedError(f"{self.url} redirects to {asked}; name that address instead")

    async def _body(self, answer: httpx2.Response) -> bytes:
        """Read an answer in pieces, and stop when it is too long."""
        unpack = _Unzip() if answer.headers.get("Content-Encoding", "").lower() == "gzip" else None
        parts: list[bytes] = []
        size = came = 0
        try:
            async for chunk in answer.aiter_raw():
                came += len(chunk)
                part = chunk if unpack is None else unpack.more(chunk, self.most_bytes - size + 1)
                parts.append(part)
                size += len(part)
                if max(size, came) > self.most_bytes:
                    raise FeedError(f"{self.url}: the answer has over {self.most_bytes:,} bytes")
            whole = size and (unpack is None or unpack.whole)
        except httpx2.RemoteProtocolError:
            whole = False
        if not whole:
            raise FeedError(f"{self.url}: the answer ended early")
        return b"".join(parts)


def _reason(error: BaseException) -> str:
    """What the system said of a failure, below what the library says."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
        if isinstance(error, BaseExceptionGroup):  # one for each address of a host
            error = error.exceptions[0]
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
