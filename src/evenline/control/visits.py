"""The stop-visit table of a day in any world: one row each time a bus serves a stop.

The columns follow the shape of TIDES `stop_visits`, so that recorded days can be read in the same
form.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from evenline.city.model import City
from evenline.support.errors import InputError


class Visit(NamedTuple):
    """A served stop. Times are whole seconds of the day."""

    trip: int
    position: int
    arrival_s: int
    departure_s: int
    load: int  # on board at arrival
    alighted: int
    boarded: int
    left_behind: int
    base_dwell_s: int
    hold_s: float


def visit_table(city: City, visits: Iterable[Visit]) -> pa.Table:
    """The table of a day, sorted by service, trip and stop."""
    rows: Sequence[Visit] = sorted(visits)
    trips = [city.trips[row.trip] for row in rows]
    services = [city.services[trip.service] for trip in trips]
    whole = pa.int32()
    columns: dict[str, pa.Array] = {
        "service": pa.array([service.id for service in services]).dictionary_encode(),
        "trip": pa.array([trip.id for trip in trips]).dictionary_encode(),
        "stop_sequence": pa.array([row.position for row in rows], whole),
        "stop": pa.array(
            [city.stops[s.stops[r.position]].id for s, r in zip(services, rows, strict=True)]
        ).dictionary_encode(),
        "distance_m": pa.array(
            [s.distance_m[r.position] for s, r in zip(services, rows, strict=True)], pa.float64()
        ),
        "scheduled_start_s": pa.array([trip.departure_s for trip in trips], whole),
    }
    for name in Visit._fields[2:-1]:
        columns[name] = pa.array([getattr(row, name) for row in rows], whole)
    columns["hold_s"] = pa.array([row.hold_s for row in rows], pa.float64())
    return pa.table(columns)


def read_visits(path: Path) -> pa.Table:
    """Read a stop-visit table, or raise an error with the reason."""
    try:
        return pq.read_table(path, use_threads=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a stop-visit table ({error})") from None
