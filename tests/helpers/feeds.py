"""GTFS feeds made by us: a small one, which is `examples/feed`, and one from any city.

`python tests/helpers/feeds.py` writes the small one to `examples/feed` again.
"""

import csv
import io
import math
import zipfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from evenline.city.geometry import Origin
from evenline.city.model import City, road_ways
from evenline.importing.calendars import WEEKDAYS

EXAMPLE = Path(__file__).parents[2] / "examples" / "feed"
LAT, LON = 46.5, 7.2
DATE = "2026-03-03"  # a Tuesday
Tables = dict[str, str]

PLACES = {  # metres east and north of the station
    "station": ("Station", 0, 0),
    "market": ("Market", 420, 160),
    "hall": ("Town Hall", 830, 210),
    "bridge": ("Bridge", 1280, 120),
    "clinic": ("Clinic", 1760, 260),
    "school": ("School", 2210, 480),
    "lake": ("Lake", 2700, 510),
    "mill": ("Mill", -60, 520),
    "park": ("Park", 380, 640),
}
LONG = ("station", "market", "hall", "bridge", "clinic", "school", "lake")
EXPRESS = ("station", "hall", "clinic", "lake")
LOOP = ("station", "mill", "park", "market", "station")
SECONDS_PER_M = 1 / 6.5  # standing included


def written(head: str, rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head.split(","))
    writer.writerows(rows)
    return out.getvalue()


def degrees(x_m: float, y_m: float) -> tuple[str, str]:
    """Latitude and longitude of a place in metres."""
    lat, lon = Origin(LAT, LON).degrees(x_m, y_m)
    return f"{lat:.7f}", f"{lon:.7f}"


def time_of(second: float) -> str:
    whole = round(second)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def small_feed() -> Tables:
    """Line 10 there and back with three express trips, and line 11, a loop; blank times between."""
    trips, calls = [], []
    for name, route, direction, stops, starts, shape in (
        ("out", "r10", 0, LONG, range(21_600, 36_000, 600), "s10"),
        ("back", "r10", 1, LONG[::-1], range(22_200, 36_600, 600), "s10b"),
        ("fast", "r10", 0, EXPRESS, range(25_500, 29_000, 1_200), "s10"),
        ("ring", "r11", 0, LOOP, range(21_600, 36_000, 900), ""),
    ):
        for number, start in enumerate(starts):
            trip = f"{name}-{number + 1}"
            block = "" if name == "fast" else f"{route}-{1 if name == 'ring' else number % 2 + 1}"
            trips.append((route, "week", trip, direction, block, shape))
            calls += _calls(trip, stops, start)
    shapes = [
        (shape, *degrees(*point), number)
        for shape, way in (("s10", LONG), ("s10b", LONG[::-1]))
        for number, point in enumerate(_curved(way))
    ]
    return {
        "agency.txt": written(
            "agency_id,agency_name,agency_url,agency_timezone",
            [("made", "A made-up town", "https://example.org", "Europe/Zurich")],
        ),
        "calendar.txt": written(
            f"service_id,{','.join(WEEKDAYS)},start_date,end_date",
            [("week", 1, 1, 1, 1, 1, 0, 0, 20260101, 20261231)],
        ),
        "routes.txt": written(
            "route_id,agency_id,route_short_name,route_long_name,route_type",
            [("r10", "made", "10", "Station - Lake", 3), ("r11", "made", "11", "Ring", 3)],
        ),
        "stops.txt": written(
            "stop_id,stop_name,stop_lat,stop_lon",
            [(stop, name, *degrees(x, y)) for stop, (name, x, y) in PLACES.items()],
        ),
        "trips.txt": written("route_id,service_id,trip_id,direction_id,block_id,shape_id", trips),
        "stop_times.txt": written(
            "trip_id,arrival_time,departure_time,stop_id,stop_sequence", calls
        ),
        "shapes.txt": written("shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence", shapes),
    }


def _calls(trip: str, stops: Sequence[str], start: int) -> list[tuple[object, ...]]:
    """The stop times of a trip; every second time between the ends is blank."""
    at, rows = float(start), []
    for number, stop in enumerate(stops):
        if number:
            at += math.dist(PLACES[stops[number - 1]][1:], PLACES[stop][1:]) * SECONDS_PER_M
        time = "" if number % 2 and number < len(stops) - 1 else time_of(at)
        rows.append((trip, time, time, stop, number + 1))
    return rows


def _curved(stops: Sequence[str]) -> list[tuple[float, float]]:
    """A way that bends between stops."""
    points: list[tuple[float, float]] = []
    for first, second in pairwise(stops):
        (_, x, y), (_, x2, y2) = PLACES[first], PLACES[second]
        points += [(x, y), ((x + x2) / 2 + (y - y2) / 8, (y + y2) / 2 + (x2 - x) / 8)]
    return [*points, (float(PLACES[stops[-1]][1]), float(PLACES[stops[-1]][2]))]


def feed_of(city: City) -> Tables:
    """The feed of a city: shapes along its roads, times at 8 m/s, directions in their order."""
    ways, directions = road_ways(city), dict[str, list[str]]()
    for service in city.services:
        directions.setdefault(service.route, []).append(service.id)
    trips, calls, shapes = [], [], []
    for service in city.services:
        points = [point for road in service.roads for point in ways[road]]
        shapes += [(service.id, *degrees(*p), n) for n, p in enumerate(points)]
    for trip in city.trips:
        service = city.services[trip.service]
        direction = directions[service.route].index(service.id)
        trips.append((service.route, "week", trip.id, direction, service.id))
        for number, (stop, at_m) in enumerate(zip(service.stops, service.distance_m, strict=True)):
            time = time_of(trip.departure_s + (at_m - service.distance_m[0]) / 8)
            calls.append((trip.id, time, time, city.stops[stop].id, number))
    return {
        **{name: small_feed()[name] for name in ("agency.txt", "calendar.txt")},
        "routes.txt": written("route_id,route_short_name", [(r, r) for r in directions]),
        "stops.txt": written(
            "stop_id,stop_name,stop_lat,stop_lon",
            [(stop.id, stop.name, *degrees(stop.x_m, stop.y_m)) for stop in city.stops],
        ),
        "trips.txt": written("route_id,service_id,trip_id,direction_id,shape_id", trips),
        "stop_times.txt": written(
            "trip_id,arrival_time,departure_time,stop_id,stop_sequence", calls
        ),
        "shapes.txt": written("shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence", shapes),
    }


def write_feed(path: Path, tables: Tables) -> Path:
    """A feed as a zip file, or as a folder if the path has no ending."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in tables.items():
                archive.writestr(name, text)
    else:
        path.mkdir(parents=True, exist_ok=True)
        for name, text in tables.items():
            (path / name).write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    print(write_feed(EXAMPLE, small_feed()))
