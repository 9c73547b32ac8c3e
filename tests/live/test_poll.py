"""A server is asked politely, and whatever it answers ends soon and in bounds."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evenline.live.feed import FeedError
from evenline.live.poll import MOST_WAIT_S, Poller
from evenline.support.errors import InputError
from feed_server import Served, serving


def test_a_feed_is_fetched_once_and_then_only_if_it_changed() -> None:
    served = Served(b"one", headers={"ETag": '"1"'}, packed=True)
    with serving(served) as url:
        poller = Poller(url, headers={"api_key": "secret"})
        assert poller.poll() == b"one"
        assert poller.poll() is None
        served.content, served.headers = b"two", {"ETag": '"2"'}
        assert poller.poll() == b"two"
    assert [asked.get("if-none-match") for asked in served.asked] == [None, '"1"', '"1"']
    assert all(asked["api_key"] == "secret" for asked in served.asked)


def test_failures_double_the_wait_and_a_success_ends_it() -> None:
    served = Served(b"ok", status=503)
    with serving(served) as url:
        poller = Poller(url, every_s=15)
        waits = []
        for _ in range(7):
            with pytest.raises(FeedError, match="503"):
                poller.poll()
            waits.append(poller.wait_s)
        assert waits == [30, 60, 120, 240, MOST_WAIT_S, MOST_WAIT_S, MOST_WAIT_S]
        served.headers["Retry-After"] = "99"
        poller.failures = 0
        with pytest.raises(FeedError):
            poller.poll()
        assert poller.wait_s == 99
        served.status = 200
        assert poller.poll() == b"ok"
        assert poller.wait_s == 15


@pytest.mark.parametrize(
    ("served", "word"),
    [
        (Served(bytes(5_000)), "over 1,000 bytes"),
        (Served(bytes(5_000_000), packed=True), "over 1,000 bytes"),
        (Served(b"slow" * 100, pause_s=0.05), "took over|timed out"),
        (Served(status=302, headers={"Location": "http://elsewhere.example/"}), "redirects"),
        (Served(status=302, headers={"Location": "file:///etc/passwd"}), "redirects|answers 302"),
        (Served(status=302, headers={"Location": "/feed.pb"}), "redirects"),
        (Served(status=302), "answers 302"),
    ],
    ids=["huge", "a bomb", "slow", "elsewhere", "a file", "a circle", "nowhere"],
)
def test_an_answer_is_bounded_in_bytes_seconds_and_place(served: Served, word: str) -> None:
    with serving(served) as url:
        poller = Poller(url, timeout_s=0.4, most_bytes=1_000)
        began = time.monotonic()
        with pytest.raises(FeedError, match=word):
            poller.poll()
        assert time.monotonic() - began < 2


def zipped(content: bytes) -> Served:
    return Served(content, headers={"Content-Encoding": "gzip"})


def test_a_gzip_stream_may_have_several_members() -> None:
    whole = b"".join(gzip.compress(bytes([letter]) * 70_000) for letter in b"abc")
    with serving(zipped(whole)) as url:
        assert Poller(url).poll() == b"a" * 70_000 + b"b" * 70_000 + b"c" * 70_000


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (gzip.compress(bytes(range(256)) * 9)[:-30], "ended early"),
        (gzip.compress(b"one")[:-1], "ended early"),
        (gzip.compress(b"one") + gzip.compress(b"two")[:-9], "ended early"),
        (gzip.compress(b"one") + b"\x1f", "ended early"),
        (gzip.compress(b"one") + b"two", "incorrect header"),
        (gzip.compress(b"one")[:-8] + bytes(8), "incorrect data check"),
        (b"one", "incorrect header"),
        (gzip.compress(b"") * 1_001, "over 1,000 members"),
        (gzip.compress(b"one") + gzip.compress(bytes(10_000)), "over 9,000 bytes"),
        (b"", "ended early"),
    ],
    ids=["cut", "cut in its sum", "second cut", "half a header", "junk", "sum", "plain", "many",
         "swells", "empty"],
)  # fmt: skip
def test_a_gzip_stream_that_is_not_whole_is_a_failure(content: bytes, word: str) -> None:
    with serving(zipped(content)) as url, pytest.raises(FeedError, match=word):
        Poller(url, most_bytes=30_000 if "members" in word else 9_000).poll()


def test_a_server_that_is_not_there_is_a_failure_of_one_line() -> None:
    with pytest.raises(FeedError, match=r"127\.0\.0\.1:9/x: .*refused"):
        Poller("http://127.0.0.1:9/x").poll()


@pytest.mark.parametrize("url", ["ftp://host/x", "file:///etc/passwd", "feed.pb", "http://"])
def test_only_web_addresses_are_polled(url: str) -> None:
    with pytest.raises(InputError, match="https://HOST"):
        Poller(url)


def test_polls_have_a_least_interval() -> None:
    with pytest.raises(InputError, match="at least 1 s"):
        Poller("http://host/x", every_s=0.1)


@contextmanager
def dripping(*parts: bytes, pause_s: float = 0.05) -> Iterator[str]:
    """A server that sends an answer in parts and then hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            connection, _ = listening.accept()
            with connection:
                connection.recv(2**16)
                for part in parts:
                    connection.sendall(part)
                    time.sleep(pause_s)
        except OSError:
            return

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/x"
    listening.close()


def test_dripped_headers_end_with_the_limit_and_are_a_failure() -> None:
    parts = [b"HTTP/1.1 200 OK\r\n", *(b"X-%d: y\r\n" % n for n in range(80))]
    with dripping(*parts) as url:
        poller, began = Poller(url, timeout_s=0.4), time.monotonic()
        with pytest.raises(FeedError, match=r"took over 0\.4 s"):
            poller.poll()
        assert time.monotonic() - began < 1.5
        assert poller.failures == 1


@pytest.mark.parametrize("sent", [b"", b"half"])
def test_an_answer_that_ends_early_is_a_failure(sent: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + sent
    with dripping(answer, pause_s=0) as url, pytest.raises(FeedError, match="ended early"):
        Poller(url).poll()
