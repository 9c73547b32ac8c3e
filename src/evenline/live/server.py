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
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from evenline.figures.page import rendered
from evenline.live.feed import write_message
from evenline.live.polls import LOOPBACK
from evenline.live.running import Running
from evenline.support.errors import InputError
from evenline.support.extras import extra

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

COOKIE = "evenline"
MOST_BODY = 4096
LOOK_S = 0.2  # how often a listener looks for news
ALIVE_S = 15.0
Handler = Callable[[Request], Awaitable[Response]]


def page(running: Running, nonce: str) -> str:
    """The whole page as text."""
    own = {name: (files("evenline.live") / "assets" / name).read_text() for name in _OWN}
    return rendered(
        "live/assets",
        title=f"Shadow of {running.shadow.city.name}",
        nonce=nonce,
        style=Markup(own["page.css"]),
        script=Markup(own["page.js"]),
        data=running.fixed | {"view": running.view(-1e9)},
    )


_OWN = ("page.css", "page.js")


class Guard:
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
            request.cookies.get(COOKIE, ""),
            request.headers.get("authorization", "").removeprefix("Bearer "),
            request.query_params.get("token", ""),
        ]
        return any(secrets.compare_digest(each.encode(), self.token.encode()) for each in given)


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def secured(guard: Guard, handler: Handler) -> Handler:
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


async def body_of(request: Request, **kinds: type) -> dict[str, Any]:
    """The keys of a small JSON body, each of its type, or an `InputError`."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_BODY:
            raise InputError(f"the request has over {MOST_BODY} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    if not isinstance(found, dict) or found.keys() != kinds.keys():
        raise InputError(f"the request must have exactly these keys: {', '.join(kinds)}")
    for name, kind in kinds.items():
        value = found[name]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            found[name] = float(value)
        elif type(value) is not kind:
            raise InputError(f"{name}: expected {kind.__name__}")
    return found


def shadow_app(running: Running, hosts: Collection[str] = (), token: str = "") -> Starlette:
    """The application that serves a shadow's page."""
    guard = Guard(hosts, token)

    async def home(request: Request) -> Response:
        if "token" in request.query_params:
            response: Response = RedirectResponse("/", 303)
            secure = request.headers.get("x-forwarded-proto") == "https"
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
            return response
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        text = page(running, nonce)
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    async def state(request: Request) -> Response:
        return JSONResponse(running.view(_since(request)))

    async def news(request: Request) -> Response:
        stream = _news(running, _since(request))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def answer(request: Request) -> Response:
        said = await body_of(request, number=int, accept=bool, why=str)
        advice = await asyncio.to_thread(
            running.answer, said["number"], said["accept"], said["why"]
        )
        return JSONResponse({"state": advice.state})

    async def switch(request: Request) -> Response:
        said = await body_of(request, service=str, on=bool)
        await asyncio.to_thread(running.switch, said["service"], said["on"])
        return JSONResponse({"on": said["on"]})

    return Starlette(
        routes=[
            Route("/", secured(guard, home)),
            Route("/state", secured(guard, state)),
            Route("/news", secured(guard, news)),
            Route("/answer", secured(guard, answer), methods=["POST"]),
            Route("/switch", secured(guard, switch), methods=["POST"]),
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
        if silent_s >= ALIVE_S:
            silent_s = 0.0
            yield b": alive\n\n"
        await asyncio.sleep(LOOK_S)
        silent_s += LOOK_S


# -- the simulated street -------------------------------------------------------------------------


def feed_route(message: Callable[[], bytes]) -> Route:
    """Serves a message as a feed."""

    async def positions(request: Request) -> Response:
        return Response(message(), media_type="application/x-protobuf")

    return Route("/vehicle_positions.pb", secured(Guard((), ""), positions))


def street_app(feed: "StreetFeed", clock: Callable[[], float], token: str) -> Starlette:
    """The application that serves a simulated street: its feed, and a way to hold its buses."""
    street, guard = feed.street, Guard((), "")
    trips = {trip.id: number for number, trip in enumerate(street.city.trips)}

    async def holds(request: Request) -> Response:
        if not Guard((), token)._has_token(request):
            return JSONResponse({"error": "a hold needs the street's token"}, 403)
        said = await body_of(request, trip=str, stop=int, until_s=float)
        if said["trip"] not in trips:
            raise InputError(f"the street has no trip {said['trip']!r}")
        call = trips[said["trip"]], said["stop"]
        if said["until_s"] > 0:
            street.holds[call] = said["until_s"]
        else:
            street.holds.pop(call, None)
        return JSONResponse({"held": said["until_s"] > 0})

    async def state(request: Request) -> Response:
        outcome = street.outcome().as_dict() if street.over else None
        return JSONResponse({"second": clock(), "over": street.over, "outcome": outcome})

    return Starlette(
        routes=[
            feed_route(lambda: write_message(feed.at(clock()))),
            Route("/holds", secured(guard, holds), methods=["POST"]),
            Route("/state", secured(guard, state)),
        ]
    )
