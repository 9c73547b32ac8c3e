"""Vehicles find their trips, and what real feeds do wrong makes no false event."""

from dataclasses import replace

import numpy as np
import pytest

from evenline.city.model import City, Clock, Origin
from evenline.live.events import ARRIVES, Event, Tracks
from evenline.live.feed import Position
from evenline.live.frame import frame_of
from evenline.live.match import Matcher
from on_the_road import Road


@pytest.fixture(scope="module")
def road(town: City) -> Road:
    """The town in Zurich, on the night when summer time ends, with blocks: a day past midnight."""
    blocks = [
        replace(t, duty=f"B{i % 20}", source=f"gtfs-{t.id}") for i, t in enumerate(town.trips)
    ]
    clock = Clock("2026-10-24", 23 * 3600, "Europe/Zurich")
    return Road(replace(town, trips=tuple(blocks), origin=Origin(47.37, 8.54), clock=clock))


def tracks_of(road: Road) -> Tracks:
    matcher = Matcher(road.city, road.frame, road.courses, road.due_s)
    return Tracks(road.city, matcher, [float(due[0]) for due in road.due_s], 12.0)


def arrivals(events: list[Event]) -> dict[tuple[int, int], float]:
    calls = [(e.trip, e.stop) for e in events if e.kind == ARRIVES]
    assert len(calls) == len(set(calls)), "a stop is reached once"
    return {(e.trip, e.stop): e.at_s for e in events if e.kind == ARRIVES}


def follow(
    road: Road, spoil=lambda second, reports: reports, end: float = 1500.0
) -> tuple[Tracks, list[Event]]:
    tracks, events = tracks_of(road), []
    for second in np.arange(0.0, end, 20.0):
        reports = tuple(spoil(second, list(road.snapshot(second).positions)))
        events += tracks.take(reports, second)
    return tracks, events


def errors(road: Road, events: list[Event]) -> np.ndarray:
    return np.array([at - road.due_s[trip][stop] for (trip, stop), at in arrivals(events).items()])


def test_a_day_past_midnight_and_past_the_change_of_clocks_is_one_day(road: Road) -> None:
    frame = frame_of(road.city)
    assert frame.clock(0) == "23:00:00" and frame.clock(3600) == "00:00:00"
    assert frame.clock(4 * 3600 + 1) == "02:00:01", "the hour from two to three happens twice"
    x_m, y_m = frame.metres(*frame.degrees(1234.0, -567.0))
    assert (x_m, y_m) == pytest.approx((1234.0, -567.0))


def test_buses_with_trip_ids_are_followed_to_a_few_seconds(road: Road) -> None:
    tracks, events = follow(road)
    off_s = errors(road, events)
    assert len(off_s) > 130
    assert np.percentile(np.abs(off_s), 95) < 10
    assert set(tracks.counts()) <= {"trip", "same"}
    assert min(event.sure for event in events) >= 0.9


def test_unknown_trip_ids_are_found_by_route_place_and_time_but_less_sure(road: Road) -> None:
    _, events = follow(
        road, lambda _, seen: [p._replace(trip="x", vehicle=p.vehicle) for p in seen]
    )
    right = arrivals(events)
    assert len(right) > 100
    assert np.percentile(np.abs(errors(road, events)), 90) < 20, "the right trips"
    assert max(event.sure for event in events) <= 0.5


def test_a_vehicle_that_loses_its_trip_id_goes_on_with_its_duty(road: Road) -> None:
    def spoil(second: float, seen: list[Position]) -> list[Position]:
        named = [p._replace(vehicle=road.city.trips[_trip(road, p)].duty) for p in seen]
        return named if second < 300 else [p._replace(trip="", route="") for p in named]

    tracks, events = follow(road, spoil, 600.0)
    assert {track.how for track in tracks.running.values()} == {"block"}
    assert all(event.sure <= 0.8 for event in events if event.at_s > 330)


def _trip(road: Road, position: Position) -> int:
    return next(i for i, t in enumerate(road.city.trips) if t.source == position.trip)


@pytest.mark.parametrize(
    ("spoil", "state"),
    [
        (lambda p: p._replace(date="20261023"), "another day"),
        (lambda p: p._replace(lat=p.lat + 0.05), "off the line"),
        (lambda p: p._replace(trip="x", route="nowhere"), "unknown trip"),
        (lambda p: p._replace(at_s=p.at_s + 4000), "clock ahead"),
        (lambda p: p._replace(at_s=p.at_s - 4000), "old report"),
    ],
    ids=["day", "detour", "trip", "future", "past"],
)
def test_a_report_that_cannot_be_used_says_why_and_makes_no_event(road, spoil, state) -> None:  # type: ignore[no-untyped-def]
    tracks, events = follow(road, lambda _, seen: [spoil(p) for p in seen], 400.0)
    assert events == []
    assert set(tracks.counts()) == {state}


def test_ghosts_duplicates_and_repeats_change_no_event(road: Road) -> None:
    _, plain = follow(road)

    def spoil(second: float, seen: list[Position]) -> list[Position]:
        ghosts = [p._replace(vehicle=f"ghost-{p.vehicle}", lat=p.lat + 0.0002) for p in seen]
        return [*seen, *seen, *ghosts] if second > 0 else seen

    tracks, events = follow(road, spoil)
    assert {key: round(at, 6) for key, at in arrivals(events).items()} == {
        key: round(at, 6) for key, at in arrivals(plain).items()
    }
    assert tracks.counts()["second bus of a trip"] > 0
    assert all(event.sure <= 0.7 for event in events if event.at_s > 100), "and nobody is sure"


def test_a_jump_there_and_back_is_ignored(road: Road) -> None:
    def spoil(second: float, seen: list[Position]) -> list[Position]:
        away = second == 300
        return [p._replace(lat=road.report(0, 900).lat, lon=road.report(0, 900).lon)
                if away and p.trip == road.city.trips[0].source else p for p in seen]  # fmt: skip

    _, events = follow(road, spoil)
    _, plain = follow(road)
    ours = {stop: at for (trip, stop), at in arrivals(events).items() if trip == 0}
    assert ours.keys() == {stop for trip, stop in arrivals(plain) if trip == 0}
    assert all(abs(at - road.due_s[0][stop]) < 20 for stop, at in ours.items())


def test_a_bus_that_freezes_on_the_road_is_not_believed(road: Road) -> None:
    stuck = road.report(0, float(road.due_s[0][3] + 40))
    tracks, _ = follow(
        road,
        lambda second, seen: [
            stuck._replace(at_s=road.frame.moment(second)) if p.trip == stuck.trip else p
            for p in seen
            if second <= road.due_s[0][3] + 40 or p.trip == stuck.trip
        ],
        float(road.due_s[0][3] + 400),
    )
    assert tracks.counts()["frozen"] == 1
    assert tracks.running[0].sure < 0.4


def test_a_silence_of_five_minutes_lowers_how_sure_the_events_are(road: Road) -> None:
    _, events = follow(road, lambda second, seen: [] if 400 < second < 540 else seen)
    within = [event for event in events if 410 < event.at_s < 530]
    assert within and all(event.sure < 0.7 for event in within)
    assert all(event.sure >= 0.9 for event in events if event.at_s > 700)


def by_block(road: Road) -> tuple[int, int]:
    """A trip of the first service and a later one of another direction, both of one duty."""
    first = road.city.trips_of[0][2]
    after = next(t for t in road.city.trips_of[1] if road.due_s[t][0] > road.due_s[first][-1] + 60)
    return first, after


@pytest.mark.parametrize("share", [0.3, 0.8, 0.95])
def test_a_bus_that_loses_its_trip_id_late_stays_on_its_trip_and_then_takes_the_next(
    road: Road, share: float
) -> None:
    first, after = by_block(road)
    trips = [
        replace(t, duty="duty" if i in (first, after) else "")
        for i, t in enumerate(road.city.trips)
    ]
    duty = Road(replace(road.city, trips=tuple(trips)))
    begin, end = duty.due_s[first][0], duty.due_s[first][-1]
    tracks, events = tracks_of(duty), []
    lost_s = begin + share * (end - begin)
    for second in np.arange(begin - 20.0, duty.due_s[after][3] + 30, 20.0):
        trip = first if second < end + 25 else after
        named = duty.report(trip, float(second), vehicle="bus", route="")
        report = named if second < lost_s else named._replace(trip="")
        events += tracks.take((report,), float(second))
    calls = arrivals(events)
    course = duty.courses[0]
    assert {stop for trip, stop in calls if trip == first} == set(range(course.last + 1))
    assert {stop for trip, stop in calls if trip == after} >= {0, 1, 2}
    assert {trip for trip, _ in calls} == {first, after}
    assert all(e.sure <= 0.8 for e in events if e.at_s > lost_s + 30)


def test_a_cancelled_trip_is_not_matched_until_it_runs_again(road: Road) -> None:
    tracks, trip = tracks_of(road), 0
    second = float(road.due_s[trip][2])
    tracks.matcher.cancel({road.city.trips[trip].source})
    tracks.take((road.report(trip, second),), second)
    assert tracks.counts() == {"cancelled trip": 1} and not tracks.running
    tracks.matcher.cancel(())
    tracks.take((road.report(trip, second + 20),), second + 20)
    assert trip in tracks.running


def test_a_bus_that_comes_back_from_a_detour_is_followed_on(road: Road) -> None:
    away = (float(road.due_s[0][3] + 20), float(road.due_s[0][6] - 20))

    def spoil(second: float, seen: list[Position]) -> list[Position]:
        off = away[0] < second < away[1]
        return [p._replace(lat=p.lat + 0.005) if off and p.trip == road.city.trips[0].source else p
                for p in seen]  # fmt: skip

    _, events = follow(road, spoil)
    ours = {stop: at for (trip, stop), at in arrivals(events).items() if trip == 0}
    assert {7, 8, 9} <= ours.keys() or len(road.due_s[0]) < 10
    assert all(abs(at - road.due_s[0][s]) < 25 for s, at in ours.items() if s < 4 or s > 6)
    assert all(e.sure < 0.9 for e in events if e.trip == 0 and 4 <= e.stop <= 5)


def test_buses_are_followed_over_midnight(town: City) -> None:
    """From 23:50 on, the service date stays that of the evening."""
    clock = Clock("2026-10-23", 23 * 3600 + 3000, "Europe/Zurich")
    late = Road(replace(town, origin=Origin(47.37, 8.54), clock=clock))
    assert late.frame.clock(0) == "23:50:00" and late.frame.clock(1200) == "00:10:00"
    tracks, events = follow(late, end=1500.0)
    assert np.percentile(np.abs(errors(late, events)), 95) < 10
    assert {e.trip for e in events if e.at_s < 600} & {e.trip for e in events if e.at_s > 900}
    assert set(tracks.counts()) <= {"trip", "same"}
    morning, _ = follow(
        late, lambda s, seen: [p._replace(date="20261024") for p in seen] if s > 600 else seen
    )
    assert set(morning.counts()) == {"another day"}, "trips of the next date are another city"


def test_a_bus_that_waits_for_its_start_begins_then_also_if_its_place_is_noisy(road: Road) -> None:
    rng, tracks, events = np.random.default_rng(3), tracks_of(road), []
    for second in np.arange(7.0, 1500.0, 20.0).tolist():
        seen = road.snapshot(second).positions
        noisy = tuple(p._replace(lat=p.lat + 5e-5 * rng.standard_normal()) for p in seen)
        events += tracks.take(noisy, second)
    begun = {trip: at for (trip, stop), at in arrivals(events).items() if stop == 0}
    off_s = [at - road.due_s[trip][0] for trip, at in begun.items() if road.due_s[trip][0] > 60]
    assert len(off_s) > 10 and np.abs(off_s).max() < 1
