"""Clients that say nothing, too little or hang up: others are served, and nothing is printed."""

import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from evenline.city.model import City
from evenline.live import connections
from evenline.live.running import Running
from evenline.live.serve import serving
from evenline.live.server import shadow_app
from evenline.live.shadow import Shadow
from evenline.worlds.open import OpenCity

HEAD = b"HTTP/1.1\r\nHost: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
MANY = connections.MOST_OPEN + 20
HALVES = {
    "nothing": b"",
    "half of the head": b"GET / " + HEAD,
    "half of the body": b"POST /answer " + HEAD + JSON + b"{",
    "half of a refused body": b"POST /answer " + HEAD + JSON.replace(b"json", b"x") + b"{",
}
WHOLE = {"the page": b"GET / " + HEAD + b"\r\n", "the news": b"GET /news " + HEAD + b"\r\n"}


@pytest.fixture
def address(town: City) -> Iterator[str]:
    running = Running(Shadow(OpenCity("town", town), "zero"))
    with serving(shadow_app(running)) as url:
        yield url


def client(url: str, sent: bytes) -> socket.socket:
    port = int(url.rstrip("/").rpartition(":")[2])
    connected = socket.create_connection(("127.0.0.1", port), timeout=20)
    connected.sendall(sent)
    return connected


def served(url: str) -> bool:
    with urllib.request.urlopen(f"{url}state", timeout=20) as answer:
        return bool(answer.status == 200)


@pytest.mark.parametrize("sent", [*HALVES.values(), WHOLE["the news"]], ids=[*HALVES, "the news"])
def test_many_clients_do_not_lock_others_out(address: str, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(client(address, sent))
        assert served(address)


def test_a_listener_stays_while_others_say_nothing(address: str) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(client(address, WHOLE["the news"]))
        assert listener.recv(4096).startswith(b"HTTP/1.1 200")
        for _ in range(MANY):
            stack.enter_context(client(address, b""))
        assert served(address)
        listener.settimeout(0.5)
        try:
            while listener.recv(2**16):
                pass
            raise AssertionError("the listener has lost its connection")
        except TimeoutError:
            pass


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
def test_a_request_must_be_whole_in_time(
    address: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_REQUEST_S", 0.3)
    with client(address, sent) as connected:
        try:
            while connected.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert served(address)


def test_a_client_that_hangs_up_prints_nothing(
    town: City, capfd: pytest.CaptureFixture[str]
) -> None:
    running = Running(Shadow(OpenCity("town", town), "zero"))
    with serving(shadow_app(running)) as url:
        for sent in (*HALVES.values(), *WHOLE.values(), b"no request\r\n\r\n"):
            for reset in (True, False):
                connected = client(url, sent)
                time.sleep(0.05)
                if reset:
                    now = struct.pack("ii", 1, 0)
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
                connected.close()
        assert served(url)
        listener = client(url, WHOLE["the news"])  # open when the server ends
        listener.recv(4096)
    listener.close()
    assert capfd.readouterr().err == ""
