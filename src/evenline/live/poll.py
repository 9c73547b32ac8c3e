"""Ask a server for its feed, politely: only if it has changed, not too often, never for long.

Every answer is bounded in bytes and seconds, however slowly a server talks. After a failure the
next try waits twice as long, up to five minutes, or as long as the server asks.
"""

import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Any
from urllib.parse import urlsplit

from evenline.live.feed import MOST_BYTES, FeedError
from evenline.support.errors import InputError

LEAST_EVERY_S = 1.0
MOST_WAIT_S = 300.0
TIMEOUT_S = 10.0
CHUNK = 2**16
MOST_MEMBERS = 1_000  # of a gzip stream


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirection on the same host only: headers may carry a key."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: http.client.HTTPMessage, newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            raise FeedError(f"{req.full_url} redirects to {newurl}; name that address instead")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections that a timer can end: a server may drip its headers for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.sockets: list[socket.socket] = []

    def _kind(self, kind: type[http.client.HTTPConnection]) -> type[http.client.HTTPConnection]:
        sockets = self.sockets

        class Connection(kind):  # type: ignore[misc, valid-type]
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)

        return Connection

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        kind = self._kind(http.client.HTTPSConnection)
        return self.do_open(kind, req, context=_trusted())

    def end(self) -> None:
        """Make every read end now."""
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _opener(watched: _Watched) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        watched,
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _SameHost(),
    ):
        opener.add_handler(handler)
    return opener


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
                if self._members > MOST_MEMBERS:
                    raise zlib.error(f"gzip stream of over {MOST_MEMBERS:,} members")
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
    timeout_s: float = TIMEOUT_S
    most_bytes: int = MOST_BYTES
    failures: int = 0
    _asked_to_wait_s: float = 0.0
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"feed {self.url!r}: write an address as https://HOST/PATH")
        if self.every_s < LEAST_EVERY_S:
            raise InputError(f"polls every {self.every_s:g} s: choose at least {LEAST_EVERY_S:g} s")

    @property
    def wait_s(self) -> float:
        """How long to wait before the next try."""
        doubled = self.every_s * 2.0 ** min(self.failures, 10)
        return min(max(doubled, self._asked_to_wait_s), max(MOST_WAIT_S, self.every_s))

    def poll(self, read: Callable[[bytes], Any] = bytes) -> Any:
        """What `read` makes of the feed's bytes, None if they have not changed, or a `FeedError`.

        Bytes that `read` refuses with a `FeedError` are a failure too.
        """
        request = urllib.request.Request(self.url, headers={**self.headers, **self._known})
        request.add_header("Accept-Encoding", "gzip")
        request.add_header("User-Agent", "evenline")
        deadline, watched = time.monotonic() + self.timeout_s, _Watched()
        timer = threading.Timer(self.timeout_s, watched.end)
        timer.daemon = True
        timer.start()
        try:
            with _opener(watched).open(request, timeout=self.timeout_s) as response:
                found = read(self._body(response, deadline))
                named = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
                heard = {ask: response.headers.get(said) for said, ask in named.items()}
                self._known = {ask: value for ask, value in heard.items() if value}
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 304:
                self.failures, self._asked_to_wait_s = 0, 0.0
                return None
            self._failed(error.headers.get("Retry-After"))
            raise FeedError(f"{self.url}: the server answers {error.code}") from None
        except FeedError:
            self._failed()
            raise
        except Exception as error:
            self._failed()
            raise FeedError(f"{self.url}: {self._reason(error, deadline)}") from None
        finally:
            timer.cancel()
        self.failures, self._asked_to_wait_s = 0, 0.0
        return found

    def _reason(self, error: Exception, deadline: float) -> object:
        if time.monotonic() > deadline:
            return f"the answer took over {self.timeout_s:g} s"
        if isinstance(error, OSError | ValueError | zlib.error):  # also timeouts and bad headers
            return getattr(error, "reason", None) or error or type(error).__name__
        return type(error).__name__  # http.client has a family of its own

    def _failed(self, retry_after: str | None = None) -> None:
        self.failures += 1
        told = (retry_after or "").strip()
        self._asked_to_wait_s = float(told) if told.isdecimal() and len(told) < 8 else 0.0

    def _body(self, response: Any, deadline: float) -> bytes:
        """Read an answer in pieces, and stop when it is too long or takes too long."""
        packed = response.headers.get("Content-Encoding", "").lower() == "gzip"
        unpack = _Unzip() if packed else None
        parts: list[bytes] = []
        size = came = 0
        while chunk := response.read1(CHUNK):
            came += len(chunk)
            if unpack is not None:
                chunk = unpack.more(chunk, self.most_bytes - size + 1)
            parts.append(chunk)
            size += len(chunk)
            if max(size, came) > self.most_bytes:
                raise FeedError(f"{self.url}: the answer has over {self.most_bytes:,} bytes")
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:  # also if the timer has ended it
            raise FeedError(f"{self.url}: the answer took over {self.timeout_s:g} s")
        if not size or response.length or not (unpack is None or unpack.whole):
            raise FeedError(f"{self.url}: the answer ended early")
        return b"".join(parts)
