"""What the page shows of a shadow, as plain data: buses, paths, advice, the state of the feed."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from evenline.control.regularity import BUNCHED
from evenline.live.events import Track
from evenline.live.shadow import KNOWN_S, MATCHED, Shadow
from evenline.live.situation import KEPT_S, Queue

_SHOWN = 40  # answered or withdrawn advice that stays on the page
_Point = tuple[float, float]  # second, metres along the line
GAPPED = 1.5  # of the target headway


def fixed_view(shadow: Shadow) -> dict[str, Any]:
    """What does not change: lines, stops and streets."""
    city = shadow.city
    services = []
    for service, course in zip(city.services, shadow.situation.courses, strict=True):
        named = [city.stops[stop].name or city.stops[stop].id for stop in service.stops]
        services.append(
            {
                "id": service.id,
                "name": service.name or service.id,
                "stops": list(zip(named, [round(m, 1) for m in course.stops_m], strict=True)),
                "x": [round(x, 1) for x in course.x_m.tolist()],
                "y": [round(y, 1) for y in course.y_m.tolist()],
            }
        )
    return {
        "city": city.name,
        "policy": shadow.policy.policy.name,
        "services": services,
        "midnight": shadow.frame.start_s,
        "begin": round(shadow.frame.begin_s),
        "bunched": BUNCHED,
        "gapped": GAPPED,
        "kept_s": KEPT_S,
        "notes": list(city.notes),
    }


def moving_view(shadow: Shadow, since_s: float) -> dict[str, Any]:
    """What changed after a second of the day, and everything that is short."""
    queues = shadow.situation.queues()
    running = shadow.situation.tracks.running.values()
    latest = [shadow.advice[n] for n in range(len(shadow.advice), 0, -1)[: 4 * _SHOWN]]
    current = [advice for advice in reversed(latest) if advice.applies]
    closed = [advice for advice in reversed(latest) if not advice.applies][-_SHOWN:]
    return {
        "now": round(shadow.now_s, 1),
        "clock": shadow.frame.clock(shadow.now_s) if shadow.now_s > KNOWN_S else "",
        "on": [shadow.city.services[i].id for i in sorted(shadow.on)],
        "vehicles": [_vehicle(shadow, track, queues) for track in running],
        "advice": [_advice(shadow, advice) for advice in (*closed, *current)],
        "paths": _paths(shadow, since_s),
        "feed": _feed(shadow),
    }


def _paths(shadow: Shadow, since_s: float) -> dict[str, Any]:
    oldest_s, paths = max(since_s, shadow.now_s - KEPT_S), {}
    for trip, path in shadow.situation.paths.items():
        points = []
        for at_s, along_m in reversed(path):
            if at_s <= oldest_s:
                break
            points.append([round(at_s), round(along_m)])
        if points:
            planned = shadow.city.trips[trip]
            paths[planned.id] = {"service": planned.service, "points": points[::-1]}
    return paths


def _headway_s(shadow: Shadow, track: Track, queues: Mapping[int, Queue]) -> float | None:
    """How long ago the bus ahead was where a bus is now."""
    service, here_m = shadow.city.trips[track.trip].service, track.fix.along_m
    ahead, paths = queues[service].ahead_of(track), shadow.situation.paths
    trips = [ahead.trip] if ahead is not None else _just_before(shadow, service, track.trip)
    passed = [_passed_s(paths[trip], here_m) for trip in trips if trip in paths]
    times = [at_s for at_s in passed if at_s is not None and at_s <= track.fix.at_s]
    return track.fix.at_s - max(times) if times else None


def _just_before(shadow: Shadow, service: int, trip: int) -> list[int]:
    """The trips before one in the timetable, which may have ended."""
    trips = shadow.city.trips_of[service]
    index = trips.index(trip)
    return list(trips[max(index - 2, 0) : index])


def _passed_s(path: deque[_Point], here_m: float) -> float | None:
    """When a bus passed a place, looking back from its last report."""
    after: _Point | None = None
    for at_s, along_m in reversed(path):
        if along_m < here_m and after is not None:
            share = (here_m - along_m) / max(after[1] - along_m, 1e-9)
            return at_s + share * (after[0] - at_s)
        if along_m < here_m:
            return None
        after = (at_s, along_m)
    return after[0] if after is not None and after[1] - here_m < 50 else None


def _vehicle(shadow: Shadow, track: Track, queues: Mapping[int, Queue]) -> dict[str, Any]:
    city, day = shadow.city, shadow.situation
    planned = city.trips[track.trip]
    service, course = city.services[planned.service], day.courses[planned.service]
    stop = min(track.next_stop, course.last)
    place = city.stops[service.stops[stop]]
    ahead_s = _headway_s(shadow, track, queues)
    x_m, y_m = course.place(track.fix.along_m)
    return {
        "vehicle": track.vehicle,
        "trip": planned.id,
        "service": planned.service,
        "along": round(track.fix.along_m),
        "x": round(x_m),
        "y": round(y_m),
        "age": round(shadow.now_s - track.fix.at_s),
        "sure": round(track.sure, 2),
        "how": track.how,
        "next": place.name or place.id,
        "headway": None if ahead_s is None else round(ahead_s),
        "target": round(day.targets_s[track.trip][0]),
        "load": round(day.load(track)),
    }


def _advice(shadow: Shadow, advice: Any) -> dict[str, Any]:
    planned = shadow.city.trips[advice.trip]
    service = shadow.city.services[planned.service]
    place = shadow.city.stops[service.stops[advice.stop]]
    return {
        "number": advice.number,
        "trip": planned.id,
        "vehicle": advice.vehicle,
        "service": planned.service,
        "line": service.name or service.id,
        "stop": advice.stop,
        "place": place.name or place.id,
        "until": shadow.frame.clock(advice.until_s),
        "until_s": advice.until_s,
        "hold": round(advice.hold_s),
        "made": shadow.frame.clock(advice.made_s),
        "made_s": round(advice.made_s),
        "reason": advice.reason,
        "state": advice.state,
        "why": advice.why,
    }


def _feed(shadow: Shadow) -> dict[str, Any]:
    states, fed_s = shadow.situation.tracks.counts(), shadow.situation.fed_s
    total = sum(states.values())
    matched = sum(states[name] for name in MATCHED)
    recent = [(ms, events) for at, ms, events in shadow.polls if at > shadow.now_s - 300]
    times = [ms for ms, _ in recent]
    return {
        "age": round(shadow.now_s - fed_s) if fed_s > KNOWN_S else None,
        "vehicles": total,
        "matched": round(matched / total, 3) if total else None,
        "states": dict(states),
        "dropped": shadow.dropped,
        "events_per_min": round(sum(events for _, events in recent) / 5, 1),
        "decision_ms": round(float(np.percentile(times, 99)), 1) if times else None,
        "failure": shadow.failure,
    }
