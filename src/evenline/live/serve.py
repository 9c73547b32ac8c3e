"""Run the servers: a shadow with its page, and a simulated street, both on loopback by default."""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from evenline.live.polls import LOOPBACK
from evenline.live.record import Polled
from evenline.live.running import Running
from evenline.live.street import StreetFeed
from evenline.support.errors import InputError
from evenline.support.extras import extra


def server_of(app: Any, host: str, port: int) -> Any:
    """A web server that is ready to run."""
    with extra("live"):
        import uvicorn

        from evenline.live.connections import Connection
    config = uvicorn.Config(
        app, host=host, port=port, log_level="error", access_log=False, server_header=False,
        http=Connection, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return uvicorn.Server(config)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address of a server on a free port of this machine; it ends with the block."""
    server = server_of(app, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(timeout=5)


def check_host(host: str, token: str) -> None:
    """Refuse to serve beyond this machine without a token."""
    if host not in LOOPBACK and len(token) < 16:
        raise InputError(
            f"host {host}: others can reach it; set --token to at least 16 characters and put a "
            "proxy with TLS in front"
        )


def serve_shadow(
    running: Running,
    polls: Iterator[Polled],
    host: str,
    port: int,
    token: str,
    hosts: Collection[str] = (),
    show: Callable[[str], None] = print,
) -> None:
    """Follow a feed and serve its page until the process is interrupted."""
    from evenline.live.server import shadow_app

    check_host(host, token)
    server = server_of(shadow_app(running, hosts, token), host, port)

    def follow() -> None:
        running.follow(polls)
        if running.error is not None:  # say so now, not when somebody ends the server
            server.should_exit = True

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    show(f"http://{host}:{port}/")
    try:
        server.run()
    finally:
        running.ended.set()
        follower.join(timeout=30)
    running.raise_error()


def refuse_other_hosts(host: str) -> None:
    """Refuse to serve a simulated street to other machines."""
    if host not in LOOPBACK:
        raise InputError(f"host {host}: a simulated street is served on this machine only")


def serve_street(
    feed: StreetFeed,
    host: str,
    port: int,
    speed: float,
    begin_s: float,
    token: str = "",
    show: Callable[[str], None] = print,
) -> None:
    """Serve a simulated street; its time runs from the first request on."""
    from evenline.live.server import street_app

    refuse_other_hosts(host)
    token = token or secrets.token_urlsafe(16)
    server = server_of(street_app(feed, street_clock(speed, begin_s), token), host, port)
    show(f"http://{host}:{port}/vehicle_positions.pb")
    show(f"token {token}")
    try:
        server.run()
    finally:
        feed.street.close()


def street_clock(speed: float, begin_s: float) -> Callable[[], float]:
    """The second of a street's day, which begins when it is first asked."""
    began: list[float] = []

    def second() -> float:
        if not began:
            began.append(time.monotonic())
        return begin_s + speed * (time.monotonic() - began[0])

    return second
