"""Stop-visit tables small enough to check by hand."""

import pyarrow as pa

CAPACITY = 50


def visit(
    service: str,
    trip: int,
    stop: int,
    start_s: int,
    arrival_s: int,
    hold_s: float = 0.0,
    left_behind: int = 0,
) -> dict[str, object]:
    """One row of a stop-visit table; a bus stands 12 s and then the hold."""
    return {
        "service": service,
        "trip": f"{service}.{trip:02d}",
        "stop_sequence": stop,
        "stop": f"s{stop}",
        "distance_m": 500.0 * stop,
        "scheduled_start_s": start_s,
        "arrival_s": arrival_s,
        "departure_s": int(arrival_s + 12 + hold_s),
        "load": 10,
        "alighted": 0,
        "boarded": 0,
        "left_behind": left_behind,
        "base_dwell_s": 12,
        "hold_s": hold_s,
    }


def two_services() -> pa.Table:
    """Three buses of A every 600 s, the third bunched at the last stop; two of B, one held."""
    rows = []
    for trip, arrivals in enumerate([(0, 100, 200), (600, 700, 900), (1200, 1150, 1000)]):
        rows += [visit("A", trip, stop, 600 * trip, at) for stop, at in enumerate(arrivals)]
    rows += [visit("B", 0, 0, 0, 0), visit("B", 0, 1, 0, 100, left_behind=2)]
    rows += [visit("B", 1, 0, 300, 300, hold_s=30.0), visit("B", 1, 1, 300, 3650, left_behind=3)]
    return pa.Table.from_pylist(rows)
