"""The page of a shadow, on loopback: what happens now, and a button for each advice.

Nothing is fetched from elsewhere. A request must name this host, come from this page, and carry the
token if one is set; other sites can neither read nor press buttons. Behind a proxy with TLS, set a
token and name the public host.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup

from evenline.figures.page import rendered
from evenline.live.feed import write_message
from evenline.live.polls import LOOPBACK
from evenline.live.running import Running
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.files import from_json
from evenline.support.records import Record, convert

with extra("live"):
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import (
        HTMLResponse,
        JSONResponse,
        RedirectResponse,
        Response,
        StreamingResponse,
    )
    from starlette.routing import Route

if TYPE_CHECKING:
    from evenline.live.street import StreetFeed

_COOKIE = "evenline"
_MOST_BODY = 4096
_LOOK_S = 0.2  # how often a listener looks for news
_ALIVE_S = 15.0
_Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


def _page(running: Running, nonce: str) -> str:
    """The whole page as text."""
    style, script = (
        Markup((files("evenline.live") / "assets" / name).read_text())
        for name in ("page.css", "page.js")
    )
    return rendered(
        "live/assets",
        title=f"Shadow of {running.shadow.city.name}",
        nonce=nonce,
        style=style,
        script=script,
        data=running.fixed | {"view": running.view(-1e9)},
    )


class _Guard:
    """Who may ask: the right host, no other site, the token if there is one."""

    def __init__(self, hosts: Collection[str], token: str) -> None:
        self.hosts, self.token = {*LOOPBACK, *hosts}, token

    def refusal(self, request: Request) -> str:
        """Why a request is refused, or nothing."""
        host = request.headers.get("host", "")
        if _name(host) not in self.hosts:
            return "this host is not served; name it with --public-host"
        if request.method == "POST":
            origin = request.headers.get("origin")
            if origin is not None and origin.partition("://")[2] != host:
                return "another site may not send this"
            if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return "another site may not send this"
            if request.headers.get("content-type", "").partition(";")[0] != "application/json":
                return "send JSON"
        if self.token and not self._has_token(request):
            return "open the page once with ?token=TOKEN"
        return ""

    def _has_token(self, request: Request) -> bool:
        given = [
            request.cookies.get(_COOKIE, ""),
            request.headers.get("authorization", "").removeprefix("Bearer "),
            request.query_params.get("token", ""),
        ]
        return any(secrets.compare_digest(text.encode(), self.token.encode()) for text in given)


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _secured(guard: _Guard, handler: _Handler) -> _Handler:
    """A handler behind the guard, with the headers that keep a page to itself."""

    async def guarded(request: Request) -> Response:
        why = guard.refusal(request)
        response: Response = JSONResponse({"error": why}, 403)
        if not why:
            try:
                response = await handler(request)
            except InputError as error:
                response = JSONResponse({"error": str(error)}, 400)
            except ClientDisconnect:  # nobody hears the answer
                response = JSONResponse({"error": "the request is not whole"}, 400)
        for name, value in (
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            response.headers.setdefault(name, value)
        return response

    return guarded


class _Answer(Record):
    number: int
    accept: bool
    why: str


class _Switch(Record):
    service: str
    on: bool


class _Hold(Record):
    trip: str
    stop: int
    until_s: float  # 0: no longer


async def _body_of(request: Request, kind: type[T]) -> T:
    """A small JSON body, or an `InputError`."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MOST_BODY:
            raise InputError(f"the request has over {_MOST_BODY} bytes")
    try:
        return convert(kind, from_json(content), "the request")
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None


def shadow_app(running: Running, hosts: Collection[str] = (), token: str = "") -> Starlette:
    """The application that serves a shadow's page."""
    guard = _Guard(hosts, token)

    async def home(request: Request) -> Response:
        if "token" in request.query_params:
            response: Response = RedirectResponse("/", 303)
            secure = request.headers.get("x-forwarded-proto") == "https"
            response.set_cookie(_COOKIE, token, httponly=True, samesite="strict", secure=secure)
            return response
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        text = _page(running, nonce)
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    async def state(request: Request) -> Response:
        return JSONResponse(running.view(_since(request)))

    async def news(request: Request) -> Response:
        stream = _news(running, _since(request))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def answer(request: Request) -> Response:
        body = await _body_of(request, _Answer)
        advice = await asyncio.to_thread(running.answer, body.number, body.accept, body.why)
        return JSONResponse({"state": advice.state})

    async def switch(request: Request) -> Response:
        body = await _body_of(request, _Switch)
        await asyncio.to_thread(running.switch, body.service, body.on)
        return JSONResponse({"on": body.on})

    return Starlette(
        routes=[
            Route("/", _secured(guard, home)),
            Route("/state", _secured(guard, state)),
            Route("/news", _secured(guard, news)),
            Route("/answer", _secured(guard, answer), methods=["POST"]),
            Route("/switch", _secured(guard, switch), methods=["POST"]),
        ]
    )


def _since(request: Request) -> float:
    try:
        return float(request.query_params.get("since", "-1e9"))
    except ValueError:
        raise InputError("since: write a number of seconds") from None


async def _news(running: Running, since_s: float) -> AsyncIterator[bytes]:
    """Server-sent events: the view whenever it has changed."""
    shown, silent_s = -1, 0.0
    while True:
        if running.version != shown:
            view = await asyncio.to_thread(running.view, since_s)
            shown, silent_s = view["version"], 0.0
            since_s = max(since_s, view["now"] - 120)  # reports come late
            yield f"data: {json.dumps(view, separators=(',', ':'))}\n\n".encode()
        if running.ended.is_set():
            yield b"event: end\ndata: {}\n\n"
            return
        if silent_s >= _ALIVE_S:
            silent_s = 0.0
            yield b": alive\n\n"
        await asyncio.sleep(_LOOK_S)
        silent_s += _LOOK_S


# -- the simulated street -------------------------------------------------------------------------


def feed_route(message: Callable[[], bytes]) -> Route:
    """Serves a message as a feed."""

    async def positions(request: Request) -> Response:
        return Response(message(), media_type="application/x-protobuf")

    return Route("/vehicle_positions.pb", _secured(_Guard((), ""), positions))


def street_app(feed: "StreetFeed", clock: Callable[[], float], token: str) -> Starlette:
    """The application that serves a simulated street: its feed, and a way to hold its buses."""
    street, guard = feed.street, _Guard((), "")
    trips = {trip.id: number for number, trip in enumerate(street.city.trips)}

    async def holds(request: Request) -> Response:
        if not _Guard((), token)._has_token(request):
            return JSONResponse({"error": "a hold needs the street's token"}, 403)
        hold = await _body_of(request, _Hold)
        if hold.trip not in trips:
            raise InputError(f"the street has no trip {hold.trip!r}")
        call = trips[hold.trip], hold.stop
        if hold.until_s > 0:
            street.holds[call] = hold.until_s
        else:
            street.holds.pop(call, None)
        return JSONResponse({"held": hold.until_s > 0})

    async def state(request: Request) -> Response:
        outcome = street.outcome().as_dict() if street.over else None
        return JSONResponse({"second": clock(), "over": street.over, "outcome": outcome})

    return Starlette(
        routes=[
            feed_route(lambda: write_message(feed.at(clock()))),
            Route("/holds", _secured(guard, holds), methods=["POST"]),
            Route("/state", _secured(guard, state)),
        ]
    )
