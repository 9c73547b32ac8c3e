"""Compare SUMO's own run of a scenario with our day of its city in which nobody is held.

The plain `sumo` program runs the configuration itself, beside our world on the exact day. Every
arrival of every vehicle at a stop must be the same in both, to the second.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from defusedxml.ElementTree import iterparse

from evenline.city.model import City
from evenline.control.visits import Visit
from evenline.importing.configuration import read_configuration
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder
from evenline.worlds.sumo.carried import exact_cell
from evenline.worlds.sumo.runtime import binary
from evenline.worlds.sumo.world import SumoWorld

Key = tuple[str, str, int]  # vehicle, stop, and how often it has stood there before
SHOWN = 5


@dataclass(frozen=True)
class Agreement:
    """How many arrivals were compared, and the first that differ, in words."""

    vehicles: int
    arrivals: int  # of all vehicles at stops
    of_trips: int  # of those, the arrivals that our world reports as visits
    differences: int
    first: tuple[str, ...]


def compare_with_sumo(
    config: Path, city: City, progress: Callable[[int], None] = lambda now_s: None
) -> Agreement:
    """Run both and compare them."""
    read_configuration(config)  # to refuse in one line what we cannot read
    with ScratchFolder() as name:
        plain, ours = Path(name) / "plain.xml", Path(name) / "ours.xml"
        with _plain_run(config, city, plain, Path(name)) as process:
            try:
                visits = _our_run(city, ours, progress)
            except BaseException:
                process.kill()
                raise
            _, said = process.communicate()
        if process.returncode != 0:
            lines = [line for line in said.splitlines() if line.startswith("Error")]
            raise InputError(f"{config}: SUMO refused: {(lines or ['no message'])[0]}")
        theirs, own = arrivals(plain), arrivals(ours)
    return compared(theirs, own, reported(city, visits))


def compared(theirs: dict[Key, int], own: dict[Key, int], seen: dict[Key, int]) -> Agreement:
    """Compare SUMO's arrivals with those under our control, and with those that we report."""
    wrong = [key for key in sorted(theirs | own) if theirs.get(key) != own.get(key)]
    wrong += [key for key in sorted(seen) if seen[key] != theirs.get(key) and key not in wrong]
    return Agreement(
        vehicles=len({key[0] for key in theirs}),
        arrivals=len(theirs),
        of_trips=len(seen),
        differences=len(wrong),
        first=tuple(
            f"{key[0]} at {key[1]}: {theirs.get(key, 'never')} in SUMO, "
            f"{seen.get(key, own.get(key, 'never'))} in our day"
            for key in wrong[:SHOWN]
        ),
    )


def _plain_run(config: Path, city: City, stops: Path, scratch: Path) -> "subprocess.Popen[str]":
    """SUMO itself on the configuration; only its outputs go elsewhere."""
    assert city.carried is not None
    outputs = re.findall(r"<([\w.-]*output|log|message-log|error-log)\s", config.read_text())
    ends = city.carried.options.get("end")
    command = [
        *(binary("sumo"), "--configuration-file", str(config.resolve())),
        *(w for o in outputs if o != "stop-output" for w in (f"--{o}", str(scratch / f"{o}.xml"))),
        *("--stop-output", str(stops), "--stop-output.write-unfinished", "true"),
        *("--no-step-log", "true", "--no-warnings", "true", "--xml-validation", "never"),
        *("--xml-validation.net", "never", *(("--end", ends) if ends else ())),
    ]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=scratch, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def _our_run(city: City, stops: Path, progress: Callable[[int], None]) -> list[Visit]:
    outputs = ("--stop-output", str(stops), "--stop-output.write-unfinished", "true")
    with SumoWorld(city, outputs) as world:
        batch = world.reset(exact_cell(city))
        while batch is not None:
            progress(batch.time_s)
            batch = world.step([0.0] * len(batch.trips))
        return world.visits


def arrivals(path: Path) -> dict[Key, int]:
    """When each vehicle reached each of its stops, from SUMO's stop output."""
    rows = []
    for _, stop in iterparse(str(path)):
        if stop.tag == "stopinfo":
            place = stop.get("busStop") or stop.get("lane") or ""
            rows.append((stop.get("id") or "", place, round(float(stop.get("started")))))
    return _numbered(sorted(rows, key=lambda row: (row[0], row[2])))


def reported(city: City, visits: Iterable[Visit]) -> dict[Key, int]:
    """When each trip reached each of its stops, as our world reports it, in SUMO's names."""
    assert city.carried is not None
    rows = []
    for visit in sorted(visits):
        trip = city.trips[visit.trip]
        stop = city.stops[city.services[trip.service].stops[visit.position]]
        second = visit.arrival_s + city.carried.begin_s
        rows.append((trip.source or trip.id, stop.source or stop.id, second))
    return _numbered(rows)


def _numbered(rows: Iterable[tuple[str, str, int]]) -> dict[Key, int]:
    before: Counter[tuple[str, str]] = Counter()
    found = {}
    for vehicle, stop, second in rows:
        found[vehicle, stop, before[vehicle, stop]] = second
        before[vehicle, stop] += 1
    return found
