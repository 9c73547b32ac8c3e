"""Speed of the fast world on one core: in the kernel, with states, as a fleet, and against SUMO.

Every figure includes making the day. The best of the repeats counts, because other work can only
slow a run down. `scale_up` measures how time grows with the size of a city, and how long this
machine takes to read from memory of that size.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import City, Ints, Journeys, Service, Stop, Trip
from evenline.control.world import run_episode
from evenline.rules.policy import BEHAVIOURS
from evenline.support.compiled import compiled
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld, Fleet
from evenline.worlds.open import open_city

FLEET = 64
SIZES = (1, 3, 10, 30, 100)
ROUNDS = 5
RULE = BEHAVIOURS["headway-1.0"]


def _best(run: Callable[[], int], repeats: int) -> float:
    """Most decisions per second over the repeats."""
    rate = 0.0
    for _ in range(repeats):
        began = time.perf_counter()
        decisions = run()
        rate = max(rate, decisions / (time.perf_counter() - began))
    return rate


def _days(seed: int, count: int) -> list[Cell]:
    first = PURPOSES["demo"]
    return [Cell(first.sumo_seed + i, first.demand_seed + i + seed, 1.0) for i in range(count)]


def bench_fast(
    city_name: str, repeats: int, with_sumo: bool, with_scale: bool, document: Path | None
) -> dict[str, Any]:
    """Measure decisions per second, memory per world, the ratio to SUMO, and growth with city
    size.
    """
    opened = open_city(city_name)
    city, calibration = opened.city, opened.fitted()
    found = _rates(city, calibration, repeats)
    if with_sumo:
        found |= _against_sumo(city, FastWorld(city, calibration))
    if with_scale:
        found["scale"] = scale_up(city, calibration, SIZES)
        found["scale_exponent"] = exponent(found["scale"])
    if document is not None:
        _write(document, city_name, found)
    return found


def _rates(city: City, calibration: Calibration, repeats: int) -> dict[str, Any]:
    world = FastWorld(city, calibration)
    fleet = Fleet(city, calibration, FLEET)
    cells = _days(0, 10)

    def kernel(states: bool) -> int:
        return sum(world.run_day(cell, RULE, states).decisions for cell in cells)

    def stepped() -> int:
        states, decisions = fleet.reset(_days(1, FLEET)), 0
        while not fleet.over.all():
            decisions += len(fleet) - int(fleet.over.sum())
            states = fleet.step(np.where(states[:, 8] > 0.5, 10.0, 0.0))
        return decisions

    kernel(False), kernel(True), stepped()  # compilation
    result: dict[str, Any] = {
        "city": city.name,
        "kernel_per_s": round(_best(lambda: kernel(False), repeats)),
        "state_per_s": round(_best(lambda: kernel(True), repeats)),
        "fleet_per_s": round(_best(stepped, max(1, repeats // 2))),
        "mib_per_world": round(fleet.world_bytes / 2**20, 3),
    }
    result["day_cpu_ms"] = round(1000 * min(_day_cpu_s(world, cell) for cell in cells * repeats), 3)
    result["episode_ms"] = round(1000 * city.decisions / result["kernel_per_s"], 3)
    return result


def _day_cpu_s(world: FastWorld, cell: Cell) -> float:
    """The processor time of one day, which other work on the machine does not lengthen much."""
    began = time.process_time()
    world.run_day(cell, RULE)
    return time.process_time() - began


def _against_sumo(city: City, world: FastWorld) -> dict[str, float]:
    """Time one day of the same cell with zero hold in each world, including SUMO's files and
    loading.
    """
    from evenline.worlds.sumo.world import SumoWorld

    cell, zero = _days(0, 1)[0], BEHAVIOURS["zero"]
    with SumoWorld(city) as sumo:
        began = time.perf_counter()
        run_episode(sumo, cell, zero)
        sumo_s = time.perf_counter() - began
    fast_s = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        world.run_day(cell, zero)
        fast_s = min(fast_s, time.perf_counter() - began)
    return {"sumo_s": round(sumo_s, 2), "sumo_ratio": round(sumo_s / fast_s)}


def legs_of(journeys: Journeys, person: Ints) -> tuple[Ints, Ints]:
    """Where the legs of chosen passengers start in their own table, and which legs they are."""
    legs = np.diff(journeys.leg_start)[person]
    starts = np.concatenate([[0], np.cumsum(legs)]).astype(np.int32)
    return starts, np.repeat(journeys.leg_start[person] - starts[:-1], legs) + np.arange(starts[-1])


def copies(city: City, count: int) -> City:
    """A city made of `count` copies of this one."""
    if count == 1:
        return city
    journeys, stops = city.journeys, len(city.stops)
    order = np.argsort(np.tile(journeys.departure_s, count), kind="stable")
    copy, person = np.divmod(order, len(journeys))
    starts, leg = legs_of(journeys, person)
    shift = np.repeat(copy, np.diff(starts))
    sets = len(journeys.carriers)
    services = len(city.services)
    return replace(
        city,
        name=f"{city.name} x {count}",
        stops=tuple(
            Stop(f"{s.id}.{i}", s.road, s.pos_m, s.x_m, s.y_m)
            for i in range(count)
            for s in city.stops
        ),
        services=tuple(
            Service(
                f"{s.id}.{i}",
                s.route,
                tuple(stop + i * stops for stop in s.stops),
                s.distance_m,
                s.roads,
                s.length_m,
            )
            for i in range(count)
            for s in city.services
        ),
        trips=tuple(
            Trip(f"{t.id}.{i}", t.service + i * services, t.departure_s)
            for i in range(count)
            for t in city.trips
        ),
        journeys=Journeys(
            departure_s=journeys.departure_s[person],
            min_demand=journeys.min_demand[person],
            leg_start=starts,
            leg_board=(journeys.leg_board[leg] + shift * stops).astype(np.int32),
            leg_alight=(journeys.leg_alight[leg] + shift * stops).astype(np.int32),
            leg_carriers=(journeys.leg_carriers[leg] + shift * sets).astype(np.int32),
            carriers=tuple(
                tuple(service + i * services for service in row)
                for i in range(count)
                for row in journeys.carriers
            ),
        ),
    )


def scale_up(city: City, calibration: Calibration, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Milliseconds of a day in cities of growing size; the sizes take turns.

    Each day runs three times in a row, so that a small city is measured with its tables in the
    caches. Just after a large city it would seem slower, and growth smaller.
    """
    worlds = {size: _copied_world(city, calibration, size) for size in sizes}
    cell, best = _days(0, 1)[0], dict.fromkeys(sizes, float("inf"))
    for size, world in list(worlds.items()) * ROUNDS:
        for _ in range(3):
            began = time.perf_counter()
            world.run_day(cell, RULE)
            best[size] = min(best[size], time.perf_counter() - began)
    return [_size_row(size, world, best[size]) for size, world in worlds.items()]


def copied(calibration: Calibration, size: int) -> Calibration:
    """The calibration of that many copies of a city."""
    tables: dict[str, Any] = {
        name: np.concatenate([getattr(calibration, name)] * size)
        for name in ("mean_s", "pace_s", "phase_s", "noise_s", "least_s")
    }
    return replace(calibration, **tables)


def _copied_world(city: City, calibration: Calibration, size: int) -> FastWorld:
    return FastWorld(copies(city, size), copied(calibration, size))


def _size_row(size: int, world: FastWorld, seconds: float) -> dict[str, Any]:
    outcome = world.outcome()
    mib = world.all_bytes / 2**20
    return {
        "size": size,
        "services": len(world.city.services),
        "trips": len(world.city.trips),
        "passengers": outcome.departed,
        "decisions": outcome.decisions,
        "ms": round(1000 * seconds, 3),
        "ns_per_decision": round(1e9 * seconds / outcome.decisions, 1),
        "mib": round(mib, 1),
        "read_ns": round(read_ns(mib), 1),
    }


def exponent(rows: list[dict[str, Any]]) -> float:
    """The exponent with which the time of a day grows with the size of a city: 1 if in
    proportion.
    """
    size, ms = ([row[name] for row in rows] for name in ("size", "ms"))
    return round(float(np.polyfit(np.log(size), np.log(ms), 1)[0]), 3)


def read_ns(mib: float, reads: int = 1_000_000) -> float:
    """Time one dependent random read in this much memory."""
    order = np.random.Generator(np.random.PCG64(1)).permutation(max(2, int(mib * 2**20 / 8)))
    chain = np.empty_like(order)
    chain[order] = np.roll(order, -1)
    at, best = _follow(chain, 0, len(chain)), float("inf")
    for _ in range(3):
        began = time.perf_counter()
        at = _follow(chain, at, reads)
        best = min(best, time.perf_counter() - began)
    return 1e9 * best / reads


@compiled
def _follow(chain: npt.NDArray[np.int64], at: int, reads: int) -> int:
    for _ in range(reads):
        at = chain[at]
    return at


def _write(document: Path, city_name: str, found: dict[str, Any]) -> None:
    """Write the figures between their marks in a document, with a plot of growth if measured."""
    from evenline.figures.document import insert
    from evenline.figures.plots import png
    from evenline.support.files import write_bytes

    command = f"evenline bench fast --city {city_name}" + (" --scale" if "scale" in found else "")
    text = [
        f"Made by `{command} --docs {document.name}`.",
        "",
        "| Figure | Value |",
        "| --- | ---: |",
    ]
    text += [f"| {k} | {v:,} |" for k, v in found.items() if isinstance(v, int | float)]
    if "scale" in found:
        image = document.parent / "images" / "fast-scale.png"
        write_bytes(image, png(_growth(found["scale"])))
        heads = "Size | Services | Trips | Passengers | ms a day | ns a decision | MiB | ns a read"
        text += ["", f"| {heads} |", "| ---: " * 8 + "|"]
        names = (
            "size",
            "services",
            "trips",
            "passengers",
            "ms",
            "ns_per_decision",
            "mib",
            "read_ns",
        )
        text += [f"| {' | '.join(f'{row[k]:,}' for k in names)} |" for row in found["scale"]]
        text += ["", f"![Time of a day against the size of the city](images/{image.name})"]
    insert(document, f"bench fast {city_name}", "\n".join(text))


def _growth(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    size, ms = [row["size"] for row in rows], [row["ms"] for row in rows]
    axes.loglog(size, ms, "o-", color="#0072B2", label="measured")
    axes.loglog(size, [ms[0] * s for s in size], "--", color="0.5", label="linear")
    axes.set(xlabel="times the size of the city", ylabel="ms a day")
    axes.legend(frameon=False)
    return figure
