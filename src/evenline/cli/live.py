"""Commands for live feeds: record and simulate them, and run a shadow beside them."""

import contextlib
import gc
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenline.cli.options import CalibrationOption, CityOption, ForceOption, JsonOption, print_table
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.support.terminal import stderr, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenline.live.record import Polled
    from evenline.live.running import Running
    from evenline.live.street import Faults

app = typer.Typer(
    no_args_is_help=True, help="Run a policy beside a live feed, and record or simulate feeds."
)

EveryOption = Annotated[float, typer.Option("--every", help="Seconds between two polls.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", help="A header of the request, as NAME: VALUE.")
]
HostOption = Annotated[str, typer.Option("--host", help="Address to serve on.")]
PolicyOption = Annotated[
    str, typer.Option("--policy", help="A policy: a name, a bundle's folder, or FILE.py:FUNCTION.")
]
NoiseOption = Annotated[float, typer.Option(min=0, max=1000, help="Noise of places, metres.")]
LossOption = Annotated[float, typer.Option(min=0, max=1, help="Share of reports that are lost.")]
DelayOption = Annotated[float, typer.Option(min=0, max=600, help="Seconds that reports are late.")]


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
    speed: Annotated[float, typer.Option(min=0.1, help="Of a simulated feed.")] = 1.0,
    header: HeaderOption = None,
) -> None:
    """Poll a feed and keep every message, hashed. Run it again to go on in the same folder."""
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
    speed: Annotated[float, typer.Option(min=0.1, help="How many times as fast as real.")] = 1.0,
    begin: Annotated[float, typer.Option(min=0, help="Second of the day to begin at.")] = 0.0,
    noise: NoiseOption = 5.0,
    loss: LossOption = 0.0,
    delay: DelayOption = 0.0,
    unknown: Annotated[
        float, typer.Option(min=0, max=1, help="Share of buses whose trip id is unknown.")
    ] = 0.0,
    twice: Annotated[
        float, typer.Option(min=0, max=1, help="Share of buses that report under two names.")
    ] = 0.0,
    silent: Annotated[
        str, typer.Option(help="Seconds of the day without news, such as 1200-1500.")
    ] = "",
    occupancy: Annotated[
        bool, typer.Option("--occupancy", help="Buses say how full they are.")
    ] = False,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on.")] = 8701,
    token: Annotated[str, typer.Option(help="Token for holds (default: a new one).")] = "",
    calibration: CalibrationOption = None,
) -> None:
    """Serve a simulated day as a GTFS-Realtime feed. Its time runs from the first request on."""
    import numpy as np

    from evenline.city.cells import demo_cell
    from evenline.live.serve import refuse_other_hosts, serve_street
    from evenline.live.street import StreetFeed, open_street
    from evenline.worlds.open import open_city

    faults = replace(
        _faults(noise, loss, delay),
        unknown=unknown,
        twice=twice,
        silent=_span(silent),
        occupancy=occupancy,
    )
    refuse_other_hosts(host)  # before a world is made, which may take a minute
    street = open_street(world, open_city(city, calibration), demo_cell(seed))
    feed = StreetFeed(street, faults, np.random.default_rng(seed))
    serve_street(feed, host, port, speed, begin, token, _say)


def _faults(noise: float, loss: float, delay: float) -> "Faults":
    from evenline.live.street import Faults

    return Faults(noise_m=noise, loss=loss, delay_s=delay)


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
    lines: Annotated[
        str, typer.Option(help="Lines with advice, such as A,B (default: none).")
    ] = "",
    stops: Annotated[str, typer.Option(help="Control points (default: every stop).")] = "",
    log: Annotated[Path | None, typer.Option(help="The log; an existing one goes on.")] = None,
    every: EveryOption = 15.0,
    speed: Annotated[
        float, typer.Option(min=0, help="Of a recorded or simulated feed; 0: at once.")
    ] = 1.0,
    lead: Annotated[
        float | None, typer.Option(help="Seconds before a stop at which a bus is asked about.")
    ] = None,
    page: Annotated[bool, typer.Option(help="Serve the page.")] = True,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page.")] = 8700,
    token: Annotated[
        str, typer.Option(envvar="EVENLINE_TOKEN", help="Token that the page asks for.")
    ] = "",
    public_host: Annotated[
        list[str] | None, typer.Option(help="Name of the proxy in front of the page.")
    ] = None,
    header: HeaderOption = None,
    updates: Annotated[
        str, typer.Option(help="Address of trip updates, if they are a feed of their own.")
    ] = "",
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Say an advice that nobody took again.")
    ] = False,
    street: Annotated[
        str, typer.Option(help="Simulated street that carries out what is accepted.")
    ] = "",
    street_token: Annotated[str, typer.Option(help="Token of the simulated street.")] = "",
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept everything; for a simulated street only.")
    ] = False,
    calibration: CalibrationOption = None,
) -> None:
    """Follow a feed, show advice on a page, log everything; hold nobody. Ends with Ctrl-C."""
    from evenline.live.measure import lead_for
    from evenline.live.running import Running
    from evenline.live.serve import check_host, serve_shadow
    from evenline.live.shadow import Rules, Shadow
    from evenline.worlds.open import open_city

    check_host(host, token)
    opened = open_city(city, calibration)
    known = {stop.id for stop in opened.city.stops}
    points = frozenset(name for name in stops.split(",") if name)
    for name in sorted(points - known):
        raise InputError(f"stop {name!r} is not in {opened.name}; name stops by their ids")
    rules = Rules(lead or lead_for(every), max(75.0, 3 * every), repeat=repeat, stops=points)
    path = log or Path("results") / "shadow" / f"{opened.name}.jsonl"
    shadow = Shadow(opened, policy, [name for name in lines.split(",") if name], rules, path)
    running = Running(shadow, street, street_token, accept)
    gc.freeze()  # the city lives as long as the command: no need to look there for garbage
    try:
        polls = _polls(running, feed, every, speed, headers_of(header), updates)
        if page:
            serve_shadow(running, polls, host, port, token, public_host or (), _say)
        else:
            running.follow(polls)
            if running.error is not None:
                raise running.error
    except KeyboardInterrupt:
        running.ended.set()
    finally:
        with running.lock:
            shadow.close()
    print(path)


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
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("shadow.html"),
    calibration: CalibrationOption = None,
    force: ForceOption = False,
) -> None:
    """Write what a shadow saw and advised as one page that works without a network."""
    from evenline.report.shadow import write_shadow_report
    from evenline.worlds.open import open_city

    print(write_shadow_report(log, open_city(city, calibration), out, force))


@app.command("measure")
def shadow_measure(
    city: CityOption = "town",
    polls: Annotated[str, typer.Option(help="Polling intervals in seconds.")] = "15,30",
    policy: PolicyOption = "lookahead",
    days: Annotated[int, typer.Option(min=1, max=500, help="Number of days.")] = 5,
    world: Annotated[str, typer.Option(help="fast or sumo.")] = "fast",
    noise: NoiseOption = 5.0,
    loss: LossOption = 0.0,
    delay: DelayOption = 0.0,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a controller behind polls with the same one inside the simulation."""
    from evenline.live.measure import measure
    from evenline.worlds.open import open_city

    try:
        every = [float(text) for text in polls.split(",")]
    except ValueError:
        raise InputError(f"polls {polls!r}: write seconds, such as 15,30") from None
    if min(every) < 1:
        raise InputError(f"polls {polls!r}: choose at least 1 s")
    opened = open_city(city, calibration)
    with progress_bar() as bar:
        task = bar.add_task(f"{city}: days", total=2 + days * len(every))
        faults = _faults(noise, loss, delay)
        measured = measure(opened, policy, every, days, faults, world, lambda: bar.advance(task))
    if as_json:
        print(json.dumps(measured))
        return
    rows = {name: str(value) for name, value in measured.items() if name != "polls"}
    for name, row in measured["polls"].items():
        rows |= {f"{name} s polls, {key}": str(value) for key, value in row.items()}
    print_table("through the shadow", rows)
