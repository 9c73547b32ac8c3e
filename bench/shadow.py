"""The load of a shadow: many buses, short polls, one core.

Copies of `city` run a simulated day without holding. Another process serves the positions over
HTTP on loopback; this one polls them and runs a shadow with the look-ahead, all lines on, a log on
disk and the page, to which a third process listens. Polls follow each other faster than in reality.
"""

import gc
import multiprocessing
import resource
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from bench.cities import copied_calibration, copied_city
from bench.meter import Figures, print_figures
from evenline.city.cells import demo_cell
from evenline.city.model import City, Floats
from evenline.control.visits import Visit
from evenline.control.world import run_episode
from evenline.live.courses import Course, courses_of
from evenline.live.feed import Position, Snapshot, write_message
from evenline.live.frame import frame_of
from evenline.live.poll import Poller
from evenline.live.polls import FeedClock, url_polls
from evenline.live.record import Polled
from evenline.live.running import Running
from evenline.live.serve import serving
from evenline.live.server import feed_route, shadow_app
from evenline.live.shadow import Shadow
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.progress import progress_bar
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity, open_city
from reproduce.door import run

NAME, MOST_COPIES = "city", 20
PAUSE_S = 0.25  # between two polls, so that the page gets each one
BusPath = tuple[Floats, Floats]  # seconds, and metres along the line


def measure(buses: int, polls: int, every_s: float, on_poll: Callable[[], object]) -> Figures:
    """Run polls around the busiest time, and measure each."""
    one = open_city(NAME)
    paths = _paths(one)
    seconds = np.arange(0, one.city.horizon_s, 300.0)
    running = np.array([sum(at[0] <= s <= at[-1] for at, _ in paths.values()) for s in seconds])
    count = -(-buses // int(running.max()))
    if count > MOST_COPIES:
        raise InputError(f"{buses} buses: choose at most {MOST_COPIES * int(running.max()):,}")
    middle_s = float(seconds[running.argmax()])
    begin_s = max(0.0, min(middle_s - polls * every_s / 2, one.city.horizon_s - polls * every_s))
    feed = Feed(one.city, courses_of(one.city, None), paths, count)
    city = copied_city(one.city, count)
    calibration = copied_calibration(one.fitted(), count)
    opened = OpenCity(city.name, city, calibration)
    with tempfile.TemporaryDirectory() as folder, _served(feed, begin_s, every_s) as url:
        names = [service.id for service in city.services]
        shadow = Shadow(opened, "lookahead", names, log=Path(folder) / "log.jsonl")
        gc.freeze()  # as `shadow run` does
        try:
            shown = Running(shadow)
            with serving(shadow_app(shown)) as page, _listener(page):
                return _measure(shown, url, polls, every_s, on_poll)
        finally:
            gc.unfreeze()
            shadow.close()


def _paths(one: OpenCity) -> dict[int, BusPath]:
    """The path of every bus of a day."""
    world = FastWorld(one.city, one.fitted(), keep_visits=True)
    run_episode(world, demo_cell(1), BEHAVIOURS["zero"])
    rows: dict[int, list[Visit]] = {}
    for visit in world.visits:
        rows.setdefault(visit.trip, []).append(visit)
    paths = {}
    for trip, calls in rows.items():
        calls.sort(key=lambda visit: visit.position)
        metres = np.array(one.city.services[one.city.trips[trip].service].distance_m)
        at = np.array([(v.arrival_s, max(v.departure_s, v.arrival_s)) for v in calls], float)
        along = np.repeat(metres[[v.position for v in calls]], 2)
        paths[trip] = (at.ravel(), along)
    return paths


class Feed(NamedTuple):
    """The positions of the buses of all copies; copies of a bus are at the same place."""

    city: City
    courses: tuple[Course, ...]
    paths: dict[int, BusPath]
    copies: int

    def message(self, second: float) -> tuple[bytes, int]:
        """What a server would answer, and the number of buses."""
        frame, reports = frame_of(self.city), []
        for trip, (at, along) in self.paths.items():
            if not at[0] <= second <= at[-1]:
                continue
            planned = self.city.trips[trip]
            here_m = float(np.interp(second, at, along))
            lat, lon = frame.degrees(*self.courses[planned.service].place(here_m))
            for i in range(self.copies):
                name = planned.id + (f".{i}" if self.copies > 1 else "")
                reports.append(Position(f"bus-{name}", frame.moment(second), lat, lon, name))
        return write_message(Snapshot(frame.moment(second), tuple(reports))), len(reports)


class _Ahead:
    """The messages of a feed, one a request; the next one is made while the last one is used."""

    def __init__(self, feed: Feed, begin_s: float, every_s: float) -> None:
        self._feed, self._begin_s, self._every_s, self._number = feed, begin_s, every_s, 0
        self._maker = ThreadPoolExecutor(1)
        self._next = self._maker.submit(self._make)

    def _make(self) -> bytes:
        return self._feed.message(self._begin_s + self._number * self._every_s)[0]

    def __call__(self) -> bytes:
        message = self._next.result()
        self._number += 1
        self._next = self._maker.submit(self._make)
        return message


def _serve(feed: Feed, begin_s: float, every_s: float, pipe: Connection) -> None:
    with extra("live"):
        from starlette.applications import Starlette

    with serving(Starlette(routes=[feed_route(_Ahead(feed, begin_s, every_s))])) as url:
        pipe.send(url)
        pipe.recv()  # until the meter ends


def _listen(url: str) -> None:
    with urllib.request.urlopen(url) as news:
        while news.read1(2**16):
            pass


@contextmanager
def _served(feed: Feed, begin_s: float, every_s: float) -> Iterator[str]:
    """The address of a feed that another process serves."""
    ours, theirs = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    server = spawn.Process(target=_serve, args=(feed, begin_s, every_s, theirs), daemon=True)
    server.start()
    try:
        yield f"{ours.recv()}vehicle_positions.pb"
        ours.send(None)
    finally:
        server.join(timeout=5)
        server.terminate()


@contextmanager
def _listener(page: str) -> Iterator[None]:
    """A process that listens to a page."""
    listener = multiprocessing.get_context("spawn").Process(
        target=_listen, args=(f"{page}news",), daemon=True
    )
    listener.start()
    try:
        yield
    finally:
        listener.terminate()


class _Timed(Poller):
    """A poller that notes when it began to ask."""

    began: tuple[float, float] = (0.0, 0.0)

    def poll(self, read: Callable[[bytes], Any] = bytes) -> Any:
        self.began = time.perf_counter(), time.process_time()
        return super().poll(read)


def _measure(
    running: Running, url: str, polls: int, every_s: float, on_poll: Callable[[], object]
) -> Figures:
    rows: list[tuple[int, float, float]] = []  # buses, seconds by the clock and of the processor
    poller, used_s = _Timed(url, every_s), 0.0

    def timed(answers: Iterator[Polled]) -> Iterator[Polled]:
        nonlocal used_s
        for polled in answers:
            if polled.failure:
                raise InputError(f"the feed failed: {polled.failure}")
            yield polled
            ended, used = time.perf_counter(), time.process_time()  # the advice is logged
            if not rows:
                used_s = used  # the first poll compiles
            buses = sum(running.shadow.situation.tracks.counts().values())
            rows.append((buses, ended - poller.began[0], used - poller.began[1]))
            if len(rows) > 1:
                on_poll()
            if len(rows) > polls:
                running.ended.set()

    clock = FeedClock(1.0, lambda: 0.0, lambda: 0.0)  # of the messages alone
    answers = url_polls(poller, every_s / PAUSE_S, running.ended, clock=clock)
    running.follow(timed(answers))
    if running.error is not None:
        raise running.error
    used_s = time.process_time() - used_s
    buses, took_s, cpu_s = np.array(rows[1:]).T
    figures: Figures = {
        "buses_mean": round(float(buses.mean())),
        "buses_most": int(buses.max()),
        "polls": polls,
        "every_s": every_s,
    }
    for name, seconds in (("", took_s), ("_cpu", cpu_s)):
        for share in (50, 99):
            ms = round(1000 * float(np.percentile(seconds, share)), 1)
            figures[f"poll_to_advice{name}_p{share}_ms"] = ms
    return figures | {
        "cpu_s": round(used_s, 1),
        "share_of_one_core": round(used_s / (polls * every_s), 4),
        "advice": len(running.shadow.advice),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main(
    buses: Annotated[int, typer.Option(min=1, help="Buses on the road at least.")] = 500,
    polls: Annotated[int, typer.Option(min=10, help="Number of polls.")] = 240,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two polls.")] = 15.0,
) -> None:
    """Measure how long a shadow of many buses takes from poll to advice; prints JSON."""
    with progress_bar() as bar:
        task = bar.add_task(f"{buses} buses: polls", total=polls)
        figures = measure(buses, polls, every, lambda: bar.advance(task))
    print_figures(figures)


if __name__ == "__main__":
    run("bench.shadow", main)
