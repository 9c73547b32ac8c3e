"""What each column of a city's tables and each key of its manifest may contain, and its type.

`RANGES` states it, table by table. Headers, the values that are read, refusals and the reference in
the documentation come from there. `OPTIONAL` are the tables that a city folder need not have.
"""

import re
from dataclasses import dataclass

from evenline.city.operations import KINDS, LEAST_SLOWNESS, LONGEST_HOLD_S, MOST_SLOW
from evenline.city.starts import MOST_S, RANKS
from evenline.support.errors import choice

DAYS_S = 6 * 86_400  # the longest horizon; the fast world packs seconds into 19 bits
MOST_CAPACITY = 32_767


@dataclass(frozen=True)
class Range:
    """Numbers between two limits, which are allowed too; `whole` excludes fractions, and `blank`
    allows nothing in place of a number, which is read as None.
    """

    low: float
    high: float
    whole: bool = False
    blank: bool = False

    @property
    def kind(self) -> type[float]:
        """The type of its numbers."""
        return int if self.whole else float

    def read(self, text: str) -> float | None:
        """The value of a text, which may still be outside the limits; ValueError if it has none."""
        if not text and self.blank:
            return None
        if not text.isascii() or "_" in text:  # Python would read 1_0 as 10
            raise ValueError
        return self.kind(text)

    def allows(self, text: str) -> bool:
        if not text or not text.isascii() or "_" in text:
            return self.blank and not text
        try:
            number = float(text)
        except ValueError:
            return False
        return self.low <= number <= self.high and not (self.whole and number % 1)

    def __str__(self) -> str:
        limits = f"{'a whole' if self.whole else 'a'} number from {self.low:,} to {self.high:,}"
        return f"{limits}, or nothing" if self.blank else limits


@dataclass(frozen=True)
class Flag(Range):
    """Yes or no, as 1 or 0."""

    low: float = 0
    high: float = 1
    whole: bool = True

    def read(self, text: str) -> bool:
        return bool(super().read(text))


@dataclass(frozen=True)
class Words:
    """Text that matches a pattern; a list has one or more words with spaces between them."""

    pattern: str
    described: str
    list: bool = False
    path: bool = True  # may become part of a path, so that .. is refused

    def read(self, text: str) -> str | tuple[str, ...]:
        """The text, or the words of a list."""
        return tuple(text.split()) if self.list else text

    def allows(self, text: str) -> bool:
        words = text.split() if self.list else [text]
        fits = re.compile(self.pattern).fullmatch
        if self.path and any(".." in word for word in words):
            return False
        return bool(words) and all(word.isprintable() and fits(word) for word in words)

    def __str__(self) -> str:
        return self.described


class Points(Words):
    """Places as `x,y` with spaces between them."""

    def read(self, text: str) -> tuple[tuple[float, float], ...]:  # type: ignore[override]
        pairs = [point.split(",") for point in text.split()]
        return tuple((float(x), float(y)) for x, y in pairs)


NAME = Words(r"[^/\\]{1,100}", "1 to 100 printable characters without / \\ or ..")
# SUMO refuses these characters, and keeps a leading : for its own junctions.
_ID, _ID_SAID = r"(?![:!])[^\s/\\|;,'\"<>&]{1,100}", "without spaces, .. or / \\ | ; , ' \" < > &"
ID = Words(_ID, f"1 to 100 printable characters {_ID_SAID}, not starting with : or !")
_IDS = Words(_ID, "one or more ids with spaces between them", list=True)
ROAD_M = Range(0.1, 100_000)  # the length of a road, and so the place of a stop on it
_COORDINATE_M = Range(-100_000, 100_000)
SECOND = Range(0, DAYS_S, whole=True)
_NUMBER = Range(0, 2**31 - 1, whole=True)
SLOWNESS = Range(LEAST_SLOWNESS, MOST_SLOW)
_LATE_S = Range(-int(MOST_S), int(MOST_S))
_QUANTILES = tuple(f"p{100 * rank:g}_s" for rank in RANKS)
_HOUR = Range(0, DAYS_S // 3600 - 1, whole=True)
_KIND = Words("stop|service|trip", "stop, service or trip")
SAID = Words(r".{0,200}", "at most 200 printable characters", path=False)
_POINTS = Points(
    r"-?\d{1,7}(\.\d{1,9})?,-?\d{1,7}(\.\d{1,9})?",
    "one or more points such as 12.5,-3 with spaces between them",
    list=True,
)
Column = Range | Words
VEHICLE: dict[str, Column] = {
    "capacity": Range(1, MOST_CAPACITY, whole=True),
    "min_dwell_s": Range(0, 3_600),
    "exchange_s_per_passenger": Range(0, 600),
    "length_m": Range(1, 100),
    "max_speed_mps": Range(0.1, 100),
    "accel_mps2": Range(0.01, 20),
    "decel_mps2": Range(0.01, 20),
}
RANGES: dict[str, dict[str, Column]] = {
    "manifest.json": {
        "name": NAME,
        "horizon_s": Range(1, DAYS_S, whole=True),
        **{f"vehicle.{key}": allowed for key, allowed in VEHICLE.items()},
    },
    "nodes.csv": {
        "node_id": ID,
        "x_m": _COORDINATE_M,
        "y_m": _COORDINATE_M,
        "signal": Flag(),
        "offset_s": Range(-86_400, 86_400, whole=True),
    },
    "roads.csv": {
        "road_id": ID,
        "from_node": ID,
        "to_node": ID,
        "length_m": ROAD_M,
        "bus_lane": Flag(),
    },
    "stops.csv": {
        "stop_id": ID,
        "road_id": ID,
        "pos_m": ROAD_M,
        "x_m": _COORDINATE_M,
        "y_m": _COORDINATE_M,
    },
    "services.csv": {
        "service_id": ID,
        "route_id": NAME,
        "length_m": Range(0.1, 10_000_000),
        "roads": _IDS,
    },
    "service_stops.csv": {
        "service_id": ID,
        "stop_sequence": _NUMBER,
        "stop_id": ID,
        "shape_dist_traveled_m": Range(0, 10_000_000),
    },
    "trips.csv": {"trip_id": ID, "service_id": ID, "departure_s": SECOND},
    "passengers.csv": {
        "passenger_id": _NUMBER,
        "departure_s": SECOND,
        "min_demand": Range(0, 1_000),
    },
    "legs.csv": {
        "passenger_id": _NUMBER,
        "leg": _NUMBER,
        "board_stop_id": ID,
        "alight_stop_id": ID,
        "services": _IDS,
    },
    "names.csv": {"kind": _KIND, "id": ID, "source_id": SAID, "name": SAID},
    "road_shapes.csv": {"road_id": ID, "points": _POINTS},
    "stop_details.csv": {"stop_id": ID, "lane": Range(0, 100, whole=True)},
    "vehicles.csv": VEHICLE,
    "trip_details.csv": {
        "trip_id": ID,
        "vehicle": Range(0, 10_000, whole=True),
        "block_id": SAID,
    },
    "schedule.csv": {"trip_id": ID, "stop_sequence": _NUMBER, "due_s": SECOND},
    "slowness.csv": {
        "service_id": ID,
        "stop_sequence": _NUMBER,
        "hour": _HOUR,
        "factor": SLOWNESS,
    },
    "starts.csv": {"service_id": ID, "hour": _HOUR, **dict.fromkeys(_QUANTILES, _LATE_S)},
    "control_points.csv": {"stop_id": ID, "max_hold_s": Range(0, int(LONGEST_HOLD_S))},
    "disruptions.csv": {
        "kind": Words("|".join(KINDS), choice(KINDS)),
        "id": ID,
        "stop_id": Words(f"({_ID})?", f"nothing or {ID}"),
        "from_s": Range(0, DAYS_S, whole=True, blank=True),
        "until_s": Range(1, DAYS_S, whole=True, blank=True),
        "factor": Range(1, MOST_SLOW, blank=True),
        "day": Range(0, 2**31 - 1, whole=True, blank=True),
    },
    "car_routes.csv": {"weight": Range(0, 1e9), "roads": _IDS},
    "car_volumes.csv": {
        "hour": _HOUR,
        "cars_per_hour": Range(0, 100_000),
    },
}
COLUMNS = {name: tuple(RANGES[name]) for name in RANGES if name.endswith(".csv")}
OPTIONAL = (
    "names.csv",
    "road_shapes.csv",
    "stop_details.csv",
    "vehicles.csv",
    "trip_details.csv",
    "schedule.csv",
    "slowness.csv",
    "starts.csv",
    "control_points.csv",
    "disruptions.csv",
)
