"""A day in SUMO kept by compiled code: day.cpp, compiled once for each SUMO that is installed.

It takes the user's C++ compiler and SUMO's own headers. Where there is no compiler, or it fails,
the plain day of day.py takes its place with the same results. The compiled file lies in the cache,
which can be deleted at any time.
"""

import ctypes as c
import hashlib
import importlib
import shutil
import subprocess
import weakref
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, service_stop_offsets
from evenline.city.model import City
from evenline.control.event import RAW_FEATURES, Batch, new_headways
from evenline.control.visits import Visit
from evenline.support.files import new_folder
from evenline.worlds.sumo.day import Tally, lengthen_stop
from evenline.worlds.sumo.runtime import libsumo_functions, runtime_version
from evenline.worlds.sumo.scenario import cache_folder

SOURCE = Path(__file__).with_name("day.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC")
NUMBERS = (
    *("trips", "services", "stops", "places", "rate_bins", "rate_bin_s"),
    *("capacity", "min_dwell_s", "exchange_s"),
)
NAMES = ("bus", "road")
ARRAYS = (
    *("service", "first_stop", "stop", "first_visit", "target_s", "rate_per_s"),
    *("leg_start", "leg_board", "leg_alight", "leg_carriers", "carries"),
)


class _Fixed(c.Structure):
    _fields_ = (
        *((name, c.c_int32) for name in NUMBERS),
        *((name, c.POINTER(c.c_char_p)) for name in NAMES),
        *((name, c.c_void_p) for name in ARRAYS),
    )


class _Sums(c.Structure):
    _fields_ = tuple((field.name, c.c_int64) for field in fields(Tally))


VISIT = np.dtype(
    [(name, np.float64 if name == "hold_s" else np.int32) for name in Visit._fields], align=True
)


@cache
def _library() -> c.CDLL | None:
    """The compiled library for this process's SUMO, or nothing."""
    sumo = Path(str(libsumo_functions().__file__))
    recipe = f"{runtime_version()} {sumo} {sumo.stat().st_mtime_ns} {FLAGS} {SOURCE.read_text()}"
    folder = cache_folder() / f"day-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    path = folder / "day.so"
    if not path.exists():
        # Where another process was faster, its library is as good.
        with suppress(OSError, subprocess.SubprocessError, ImportError):
            _compile(folder, sumo)
    try:
        library = c.CDLL(str(path))
    except OSError:
        return None
    library.day_begin.restype = library.day_visits.restype = c.c_void_p
    library.day_begin.argtypes = [c.c_void_p] * 4
    library.day_advance.argtypes = [c.c_void_p, c.c_int]
    library.day_hold.argtypes = [c.c_void_p, c.c_int, c.c_double]
    library.day_visits.argtypes = [c.c_void_p, c.c_void_p]
    library.day_end.argtypes = [c.c_void_p]
    library.day_message.argtypes, library.day_message.restype = [c.c_void_p], c.c_char_p
    return library


def _compile(folder: Path, sumo: Path) -> None:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError("no C++ compiler")
    headers = Path(importlib.import_module("sumo").SUMO_HOME) / "include"
    with new_folder(folder) as aside:
        command = [
            *(compiler, *FLAGS, "-I", str(headers)),
            *(str(SOURCE), str(sumo), "-o", str(aside / "day.so")),
        ]
        subprocess.run(command, capture_output=True, check=True, timeout=120)


def native_tables(city: City) -> "NativeTables | None":
    """What a city fixes for all its days, if there is a compiled library to use it."""
    library = _library()
    return None if library is None else NativeTables(city, library)


class NativeTables:
    """What a city fixes for all its days, as flat arrays."""

    def __init__(self, city: City, library: c.CDLL) -> None:
        self.city, self.library = city, library
        self.bus = [trip.id for trip in city.trips]
        headways, journeys = new_headways(city), city.journeys
        carries = np.zeros((len(journeys.carriers), len(city.services)), np.uint8)
        for number, services in enumerate(journeys.carriers):
            carries[number, list(services)] = 1
        self._arrays: dict[str, npt.NDArray[Any]] = {
            "service": headways.service,
            "first_stop": service_stop_offsets(city).astype(np.int32),
            "stop": np.concatenate([s.stops for s in city.services]).astype(np.int32),
            "first_visit": headways.first_visit,
            "target_s": np.ascontiguousarray(np.transpose(city.headway_targets()), np.float64),
            "leg_start": journeys.leg_start.astype(np.int32),
            "leg_board": journeys.leg_board.astype(np.int32),
            "leg_alight": journeys.leg_alight.astype(np.int32),
            "leg_carriers": journeys.leg_carriers.astype(np.int32),
            "carries": carries,
        }
        self._names = {
            "bus": _strings(self.bus),
            "road": _strings([stop.road for stop in city.stops]),
        }

    def begin(self, cell: Cell) -> "NativeDay":
        """A new day."""
        city, vehicle = self.city, self.city.vehicle
        rates = np.ascontiguousarray(arrival_rates(city, cell.demand), np.float64)
        arrays = self._arrays | {"rate_per_s": rates}
        fixed = _Fixed(
            trips=len(city.trips),
            services=len(city.services),
            stops=len(city.stops),
            places=len(arrays["stop"]),
            rate_bins=rates.shape[1],
            rate_bin_s=RATE_BIN_S,
            capacity=vehicle.capacity,
            min_dwell_s=vehicle.min_dwell_s,
            exchange_s=vehicle.exchange_s_per_passenger,
            **self._names,
            **{name: arrays[name].ctypes.data for name in ARRAYS},
        )
        return NativeDay(self, fixed, (self._names, arrays))


def _strings(names: list[str]) -> Any:
    return (c.c_char_p * len(names))(*(name.encode() for name in names))


class NativeDay:
    """A day kept by day.cpp; see `Day`."""

    def __init__(self, tables: NativeTables, fixed: _Fixed, alive: object) -> None:
        self._library, self._bus = tables.library, tables.bus
        self._sums = _Sums()
        self._asking = np.zeros(tables.city.decisions, np.int32)
        self._raw = np.zeros((tables.city.decisions, len(RAW_FEATURES)))
        self._alive = alive  # what the library points to lives as long as this does
        self._asked = 0  # so many of all who will ask
        self._horizon_s = tables.city.horizon_s
        buffers = (c.addressof(self._sums), self._asking.ctypes.data, self._raw.ctypes.data)
        self._day = self._library.day_begin(c.addressof(fixed), *buffers)
        weakref.finalize(self, self._library.day_end, self._day)

    @property
    def tally(self) -> Tally:
        return cast(Tally, self._sums)

    def advance(self) -> Batch | None:
        first = self._asked
        count: int = self._library.day_advance(self._day, self._horizon_s)
        if count < 0:
            raise RuntimeError(self._library.day_message(self._day).decode())
        if count == 0:
            return None
        self._asked = end = first + count
        return Batch(self._sums.now_s, self._asking[first:end], self._raw[first:end])

    def hold(self, trip: int, hold_s: float) -> None:
        base_dwell_s = self._library.day_hold(self._day, trip, hold_s)
        lengthen_stop(self._bus[trip], base_dwell_s + hold_s)

    @property
    def visits(self) -> list[Visit]:
        count = c.c_int64()
        first = self._library.day_visits(self._day, c.addressof(count))
        rows = c.string_at(first, count.value * VISIT.itemsize)
        return [Visit(*row) for row in np.frombuffer(rows, VISIT).tolist()]
