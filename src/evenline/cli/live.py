"""Commands for live feeds: record and simulate them, and run a shadow beside them."""

import contextlib
import gc
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenline.cli.options import CalibrationOption, CityOption, ForceOption
from evenline.support.errors import InputError
from evenline.support.terminal import stderr, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenline.city.model import City
    from evenline.live.record import Polled
    from evenline.live.running import Running

app = typer.Typer(
    no_args_is_help=True, help="Run a policy beside a live feed, and record or simulate feeds."
)

EveryOption = Annotated[float, typer.Option("--every", help="Seconds between two polls.")]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", help="Header of each request, as NAME: VALUE."),
]
HostOption = Annotated[str, typer.Option("--host", help="Address to serve on.")]
PolicyOption = Annotated[
    str, typer.Option("--policy", help="A policy: a name, a bundle's folder, or FILE.py:FUNCTION.")
]


def headers_of(given: list[str] | None) -> dict[str, str]:
    """Headers from texts such as `api_key: 123`."""
    headers = {}
    for text in given or []:
        name, colon, value = text.partition(":")
        if not colon or not name.strip() or not text.isprintable():
            raise InputError(f"header {name!r}: write it as NAME: VALUE")
        headers[name.strip()] = value.strip()
    return headers


@app.command("record")
def feed_record(
    url: Annotated[str, typer.Argument(help="Address of a GTFS-Realtime feed.")],
    out: Annotated[Path, typer.Option(help="Folder for the recording.")],
    every: EveryOption = 15.0,
    for_hours: Annotated[float, typer.Option(min=0, help="How long to record.")] = 24.0,
    speed: Annotated[float, typer.Option(min=0.1, help="Speed of a simulated feed.")] = 1.0,
    header: HeaderOption = None,
) -> None:
    """Poll a feed and keep every message, hashed. Run it again to continue in the same folder."""
    from evenline.live.poll import Poller
    from evenline.live.polls import record

    poller, ended = Poller(url, every, headers_of(header)), threading.Event()
    timer = threading.Timer(3600 * for_hours, ended.set)
    timer.daemon = True
    timer.start()
    with stderr.status(url) as status, contextlib.suppress(KeyboardInterrupt):
        record(poller, out, ended, lambda line: status.update(words(f"{url}: {line}")), speed)
    print(out)


@app.command("serve")
def feed_serve(
    city: CityOption = "town",
    world: Annotated[str, typer.Option(help="fast or sumo.")] = "fast",
    seed: Annotated[int, typer.Option(help="Random seed of the day.")] = 1,
    speed: Annotated[float, typer.Option(min=0.1, help="Times as fast as real time.")] = 1.0,
    begin: Annotated[float, typer.Option(min=0, help="Second of the day to begin at.")] = 0.0,
    noise: Annotated[float, typer.Option(min=0, max=1000, help="Noise of places, metres.")] = 5.0,
    loss: Annotated[float, typer.Option(min=0, max=1, help="Share of reports lost.")] = 0.0,
    delay: Annotated[float, typer.Option(min=0, max=600, help="Delay of reports, s.")] = 0.0,
    unknown: Annotated[
        float, typer.Option(min=0, max=1, help="Share of buses whose trip id is unknown.")
    ] = 0.0,
    twice: Annotated[
        float, typer.Option(min=0, max=1, help="Share of buses that report under two ids.")
    ] = 0.0,
    silent: Annotated[
        str, typer.Option(help="Seconds of the day in which the feed is silent, such as 1200-1500.")
    ] = "",
    occupancy: Annotated[
        bool, typer.Option("--occupancy", help="Report how full the buses are.")
    ] = False,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on.")] = 8701,
    token: Annotated[str, typer.Option(help="Token to hold a bus (default: random).")] = "",
    calibration: CalibrationOption = None,
) -> None:
    """Serve a simulated day as a GTFS-Realtime feed. Its clock starts at the first request."""
    import numpy as np

    from evenline.city.cells import demo_cell
    from evenline.live.serve import refuse_other_hosts, serve_street
    from evenline.live.street import Faults, StreetFeed, open_street
    from evenline.worlds.open import open_city

    faults = Faults(
        noise_m=noise, loss=loss, delay_s=delay, unknown=unknown, twice=twice,
        occupancy=occupancy, silent=_span(silent),
    )  # fmt: skip
    refuse_other_hosts(host)  # before a world is made, which may take a minute
    street = open_street(world, open_city(city, calibration), demo_cell(seed))
    feed = StreetFeed(street, faults, np.random.default_rng(seed))
    serve_street(feed, host, port, speed, begin, token, _say)


def _span(text: str) -> tuple[float, float]:
    """Two seconds of the day from a text such as 1200-1500."""
    begin, dash, end = text.partition("-")
    if not text:
        return 0.0, 0.0
    if not (dash and begin.isdecimal() and end.isdecimal() and int(begin) < int(end)):
        raise InputError(f"silent {text!r}: write two seconds of the day, such as 1200-1500")
    return float(begin), float(end)


def _say(line: str) -> None:
    print(line)
    sys.stdout.flush()


@app.command("run")
def shadow_run(
    city: CityOption,
    feed: Annotated[str, typer.Option(help="Address, recorded folder or table of positions.")],
    policy: PolicyOption = "lookahead",
    lines: Annotated[str, typer.Option(help="Lines to advise, as in A,B (default: none).")] = "",
    stops: Annotated[str, typer.Option(help="Stops to advise at (default: every stop).")] = "",
    log: Annotated[Path | None, typer.Option(help="Log file, continued if it exists.")] = None,
    every: EveryOption = 15.0,
    speed: Annotated[float, typer.Option(min=0, help="Speed of a recording; 0: at once.")] = 1.0,
    lead: Annotated[
        float | None, typer.Option(help="Decide this many seconds before a bus reaches a stop.")
    ] = None,
    page: Annotated[bool, typer.Option(help="Serve the page.")] = True,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page.")] = 8700,
    token: Annotated[
        str, typer.Option(envvar="EVENLINE_TOKEN", help="Token required to open the page.")
    ] = "",
    public_host: Annotated[list[str] | None, typer.Option(help="Host name of a proxy.")] = None,
    header: HeaderOption = None,
    updates: Annotated[str, typer.Option(help="Address of trip updates, if separate.")] = "",
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Repeat advice at the next stop if nobody answered it.")
    ] = False,
    street: Annotated[str, typer.Option(help="Simulated street that accepts holds.")] = "",
    street_token: Annotated[str, typer.Option(help="Token of the simulated street.")] = "",
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept all advice; for a simulated street only.")
    ] = False,
    calibration: CalibrationOption = None,
) -> None:
    """Follow a feed, show advice on a page and log everything. No bus is held. Ctrl-C ends it."""
    from evenline.live.running import Running
    from evenline.live.serve import check_host, serve_shadow
    from evenline.live.shadow import Shadow, rules_for
    from evenline.worlds.open import open_city

    check_host(host, token)
    opened = open_city(city, calibration)
    rules = replace(rules_for(every), repeat=repeat, stops=_control_points(opened.city, stops))
    if lead is not None:
        rules = replace(rules, lead_s=lead)
    path = log or Path("results") / "shadow" / f"{opened.name}.jsonl"
    shadow = Shadow(opened, policy, [name for name in lines.split(",") if name], rules, path)
    running = Running(shadow, street, street_token, accept)
    gc.freeze()  # the city lives as long as the command: the collector need not look at it
    try:
        polls = _polls(running, feed, every, speed, headers_of(header), updates)
        if page:
            serve_shadow(running, polls, host, port, token, public_host or (), _say)
        else:
            running.follow(polls)
            running.raise_error()
    except KeyboardInterrupt:
        running.ended.set()
    finally:
        with running.lock:
            shadow.close()
    print(path)


def _control_points(city: "City", text: str) -> frozenset[str]:
    """The stops of a city that a text such as A,B names."""
    points = frozenset(name for name in text.split(",") if name)
    for name in sorted(points - {stop.id for stop in city.stops}):
        raise InputError(f"stop {name!r} is not in {city.name}; name stops by their ids")
    return points


def _polls(
    running: "Running", feed: str, every: float, speed: float, sent: dict[str, str], updates: str
) -> "Iterator[Polled]":
    """The polls of an address, or those of a recording that the shadow has not seen yet."""
    from evenline.live.poll import Poller
    from evenline.live.polls import Updates, paced, unheard, url_polls, with_silence
    from evenline.live.record import played

    if "://" in feed:
        if speed == 0:
            raise InputError("speed 0: only a recorded feed can be played at once")
        apart = Updates(Poller(updates, every, sent)) if updates else None
        return url_polls(Poller(feed, every, sent), speed, running.ended, apart)
    if updates:
        raise InputError(f"updates {updates!r}: a recorded feed has its own; leave it out")
    shadow = running.shadow
    left = unheard(lambda: played(Path(feed), every), shadow.heard, shadow.heard_s)
    silence = with_silence(left, every, shadow.heard_s if shadow.heard else None)
    return paced(silence, speed, running.ended.wait)


@app.command("report")
def shadow_report(
    log: Annotated[Path, typer.Argument(help="The log of a shadow.")],
    city: CityOption,
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("shadow.html"),
    calibration: CalibrationOption = None,
    force: ForceOption = False,
) -> None:
    """Write what a shadow saw and advised as one page that works offline."""
    from evenline.report.shadow import write_shadow_report
    from evenline.worlds.open import open_city

    print(write_shadow_report(log, open_city(city, calibration), out, force))
