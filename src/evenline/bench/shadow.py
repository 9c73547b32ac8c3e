"""The load of a shadow: many buses, short polls, one core.

Copies of `city` run a simulated day without holding; its positions are fed to a shadow with the
look-ahead and all lines on, through protobuf, with a log on disk and a listener on the page.
"""

import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evenline.bench.fast import copied, copies
from evenline.city.cells import demo_cell
from evenline.city.model import City, Floats
from evenline.control.visits import Visit
from evenline.live.feed import Position, Snapshot, write_message
from evenline.live.frame import frame_of
from evenline.live.lines import lines_of
from evenline.live.record import Polled
from evenline.live.shadow import Shadow
from evenline.live.view import moving_view
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity, open_city

NAME, MOST_COPIES = "city", 20


def bench_shadow(buses: int, polls: int, every_s: float) -> dict[str, Any]:
    """Run polls around the busiest time of the day and measure each."""
    one = open_city(NAME)
    day = _visits(one)
    seconds = np.arange(0, one.city.horizon_s, 300.0)
    running = np.array([sum(a <= s <= b for a, b in _spans(day)) for s in seconds])
    count = -(-buses // int(running.max()))
    if count > MOST_COPIES:
        raise InputError(f"{buses} buses: choose at most {MOST_COPIES * int(running.max()):,}")
    middle_s = float(seconds[running.argmax()])
    begin_s = max(0.0, min(middle_s - polls * every_s / 2, one.city.horizon_s - polls * every_s))
    city = replace(copies(one.city, count), name=f"{NAME}x{count}")
    opened = OpenCity(city.name, city, copied(one.fitted(), count))
    with tempfile.TemporaryDirectory() as folder:
        names = [service.id for service in city.services]
        shadow = Shadow(opened, "lookahead", names, log=Path(folder) / "log.jsonl")
        try:
            return _measure(shadow, city, day, begin_s, polls, every_s)
        finally:
            shadow.close()


def _visits(one: OpenCity) -> dict[int, tuple[Floats, Floats]]:
    """The path of every bus of a day: seconds, and metres along its line."""
    world = FastWorld(one.city, one.fitted(), keep_visits=True)
    from evenline.control.world import run_episode

    run_episode(world, demo_cell(1), BEHAVIOURS["zero"])
    rows: dict[int, list[Visit]] = {}
    for visit in world.visits:
        rows.setdefault(visit.trip, []).append(visit)
    found = {}
    for trip, calls in rows.items():
        calls.sort(key=lambda visit: visit.position)
        metres = np.array(one.city.services[one.city.trips[trip].service].distance_m)
        at = np.array([(v.arrival_s, max(v.departure_s, v.arrival_s)) for v in calls], float)
        along = np.repeat(metres[[v.position for v in calls]], 2)
        found[trip] = (at.ravel(), along)
    return found


def _spans(day: dict[int, tuple[Floats, Floats]]) -> list[tuple[float, float]]:
    return [(float(at[0]), float(at[-1])) for at, _ in day.values()]


def _measure(
    shadow: Shadow, city: City, day: dict[int, tuple[Floats, Floats]], begin_s: float, polls: int,
    every_s: float,
) -> dict[str, Any]:  # fmt: skip
    lines, frame = lines_of(city, None), frame_of(city)
    trips = len(city.trips)
    each = len(city.trips) // (len(city.services) // len(open_city(NAME).city.services))
    took_ms, used_ms, shown_ms, counts, cpu_s = [], [], [], [], 0.0
    for number in range(polls + 1):
        second = begin_s + number * every_s
        reports = []
        for trip in range(trips):
            at, along = day.get(trip % each, (np.zeros(1), np.zeros(1)))
            if at[0] <= second <= at[-1]:
                place = lines[city.trips[trip].service].place(float(np.interp(second, at, along)))
                lat, lon = frame.degrees(*place)
                name = city.trips[trip].id
                reports.append(Position(f"bus-{name}", frame.moment(second), lat, lon, name))
        message = write_message(Snapshot(frame.moment(second), tuple(reports)))
        polled, began_cpu = Polled(frame.moment(second), message), time.process_time()
        began = time.perf_counter()
        shadow.take(polled)
        middle, middle_cpu = time.perf_counter(), time.process_time()
        json.dumps(moving_view(shadow, second - 2 * every_s))
        ended = time.perf_counter()
        if number > 0:  # the first poll compiles
            took_ms.append(1000 * (middle - began))
            used_ms.append(1000 * (middle_cpu - began_cpu))
            shown_ms.append(1000 * (ended - middle))
            counts.append(len(reports))
            cpu_s += time.process_time() - began_cpu
    p50, p99 = np.percentile(took_ms, [50, 99])
    return {
        "buses_mean": round(float(np.mean(counts))),
        "buses_most": max(counts),
        "polls": polls,
        "every_s": every_s,
        "poll_to_advice_p50_ms": round(float(p50), 1),
        "poll_to_advice_p99_ms": round(float(p99), 1),
        "poll_to_advice_cpu_p50_ms": round(float(np.percentile(used_ms, 50)), 1),
        "poll_to_advice_cpu_p99_ms": round(float(np.percentile(used_ms, 99)), 1),
        "view_p99_ms": round(float(np.percentile(shown_ms, 99)), 1),
        "share_of_one_core": round(cpu_s / (polls * every_s), 4),
        "advice": len(shadow.advice),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
