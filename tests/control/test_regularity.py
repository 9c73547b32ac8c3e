"""Regularity has one definition, and it holds for timetables as they are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_cities
from evenline.city.model import City, visit_offsets
from evenline.control.regularity import (
    bunched_share,
    expected_by_timetable_s,
    expected_s,
    headway_cv,
    headways_of,
    line_of,
    random_wait_s,
)
from evenline.figures.measure import regularity
from evenline.records.measures import level, measured
from evenline.records.patterns import Driven
from evenline.records.today import waiting_today

EVEN_S = np.arange(30) * 480.0


def timetabled(departures_s: np.ndarray) -> City:
    """One service whose buses leave at these seconds."""
    last_s = max(int(departures_s[-1]), 600 * len(departures_s))
    city = small_cities.streets(1, len(departures_s), 600, last_s + 3600)
    times_s = departures_s.astype(int).tolist()
    trips = [replace(t, departure_s=at) for t, at in zip(city.trips, times_s, strict=True)]
    return replace(city, trips=tuple(trips))


def arrivals_of(city: City, departed_s: np.ndarray) -> np.ndarray:
    """Buses that reach each stop a minute after the one before."""
    stops = len(city.services[0].stops)
    return (departed_s[:, None] + 60 * np.arange(stops)).ravel().astype(np.int32)


def recorded(city: City, arrivals_s: np.ndarray) -> Driven:
    """The same day as records have it."""
    count, trips = len(arrivals_s), len(city.trips)
    none, zeros = np.full(count, np.nan), np.zeros(count, np.int32)
    trip = np.repeat(np.arange(trips, dtype=np.int32), count // trips)
    position = np.tile(np.arange(count // trips, dtype=np.int32), trips)
    return Driven(
        zeros, trip, zeros, position, arrivals_s.astype(float), none, none, none, none, none
    )


def starts(seed: int, hours: float = 8.0, headway_s: float = 480.0) -> np.ndarray:
    """When the buses of a day leave whose headways vary by 0.6."""
    gap = np.random.default_rng(seed).gamma(1 / 0.36, 0.36 * headway_s, round(hours * 7.5))
    return np.cumsum(gap)


def test_of_even_headways_each_is_expected_to_the_bit() -> None:
    assert np.array_equal(expected_s(EVEN_S), np.full(29, 480.0))
    found = headways_of(EVEN_S, np.zeros(30, np.int32))
    assert headway_cv(found.deviation) == 0.0 and bunched_share(found.ratio) == 0.0
    assert random_wait_s(found.gap_s) == random_wait_s(found.expected_s) == 240.0


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
def test_an_expected_headway_is_none_of_the_extremes(gaps: list[int]) -> None:
    times_s = np.cumsum([0, *gaps]).astype(float)
    expected = expected_s(times_s)
    known = np.isfinite(expected)
    if known.any():
        kept = np.diff(times_s)[known]
        assert kept.min() <= expected[known].min() and expected[known].max() <= kept.max()


def test_a_trip_planned_seconds_after_another_is_expected_at_the_headway_around() -> None:
    times_s = np.array([0, 600, 1200, 1210, 1800, 2400, 3000.0])
    assert expected_s(times_s).min() > 400
    assert expected_s(np.array([0.0, 900.0])).tolist() == [900.0]
    assert len(expected_s(np.array([0.0]))) == len(expected_s(np.zeros(0))) == 0


def test_a_break_in_service_is_no_headway() -> None:
    times_s = np.concatenate([EVEN_S, 4 * 3600 + EVEN_S[-1] + EVEN_S])
    expected = expected_s(times_s)
    assert np.isnan(expected[29]) and set(np.delete(expected, 29).tolist()) == {480.0}
    city = timetabled(times_s)
    assert np.isnan(expected_by_timetable_s(city)).sum() == 2  # also of the first trip
    found = regularity(city, arrivals_of(city, times_s))
    assert (found.headway_cv, found.bunched_share, found.excess_wait_s) == (0.0, 0.0, 0.0)


def test_buses_that_keep_an_uneven_timetable_are_regular() -> None:
    uneven = np.cumsum([0, 900, 300, 900, 300, 600, 600, 900, 300.0])
    city = timetabled(uneven)
    found = regularity(city, arrivals_of(city, uneven))
    assert (found.headway_cv, found.bunched_share, found.excess_wait_s) == (0.0, 0.0, 0.0)


def test_a_timetable_of_averages_measures_the_headways_and_not_itself() -> None:
    """Starts averaged over days, as a city from records has them, are seconds apart by chance."""
    day, chance = starts(1), np.random.default_rng(7)
    planned_at = np.sort((day + chance.normal(0, 300, len(day))).round().clip(0))
    city, planned = timetabled(planned_at), np.maximum(np.diff(planned_at), 1.0)
    against_each = np.diff(day) / planned
    assert planned.min() < 10 and against_each.std() / against_each.mean() > 3, "as it was"
    found = regularity(city, arrivals_of(city, day))
    assert 0.3 < found.headway_cv < 1.0
    own = headways_of(day, np.zeros(len(day), np.int32)).ratio
    assert found.bunched_share == pytest.approx(bunched_share(own), abs=0.05)
    assert np.mean(against_each < 0.25) < 0.6 * bunched_share(own), "as it was"


def test_comparisons_audits_and_records_measure_the_same_day_alike() -> None:
    departed_s = np.sort(EVEN_S + np.random.default_rng(4).normal(0, 150, len(EVEN_S)).round())
    city = timetabled(EVEN_S)
    arrivals_s = arrivals_of(city, departed_s)
    simulated, driven = regularity(city, arrivals_s), recorded(city, arrivals_s)
    tables = measured(city, driven)
    (line,) = waiting_today(city, "2026-03-02", driven)
    assert 0.02 < line.bunched < 0.2
    for bunched in (level(tables["share bunched"]), line.bunched):
        assert bunched == pytest.approx(simulated.bunched_share, abs=0.035)  # one bus of 29
    for cv in (level(tables["headway CV by stop"]), line.cv):
        assert cv == pytest.approx(simulated.headway_cv, abs=0.05)
    assert line.excess_s == pytest.approx(simulated.excess_wait_s, abs=5)
    assert line.wait_s == pytest.approx(level(tables["wait that headways imply"]))


def test_trips_that_did_not_come_leave_a_gap() -> None:
    city = timetabled(EVEN_S)
    arrivals_s = arrivals_of(city, EVEN_S)
    first = visit_offsets(city)
    arrivals_s[first[10] : first[11]] = -1
    found = regularity(city, arrivals_s)
    assert found.headway_cv > 0.1 and found.excess_wait_s > 10


def variants(city: City) -> City:
    """Every second trip of a line is one of a variant that leaves out a stop."""
    (service,) = city.services
    lines = (
        replace(service, id="7-0", source="7 0"),
        replace(
            service,
            id="7-0a",
            source="7 0a",
            stops=service.stops[:1] + service.stops[2:],
            distance_m=service.distance_m[:1] + service.distance_m[2:],
        ),
    )
    trips = [replace(trip, service=number % 2) for number, trip in enumerate(city.trips)]
    every = city.due_s.reshape(len(trips), -1) if city.due_s is not None else None
    assert every is not None
    due_s = [np.delete(row, 1) if number % 2 else row for number, row in enumerate(every)]
    return replace(city, services=lines, trips=tuple(trips), due_s=np.concatenate(due_s))


def test_headways_are_those_of_a_line_at_a_stop_whichever_way_its_buses_go() -> None:
    """A variant's own headways are twice those of the line: too long for any bus to be bunched."""
    departed_s = np.sort(EVEN_S + np.random.default_rng(4).normal(0, 300, len(EVEN_S)).round())
    departed_s = departed_s.clip(0)
    city = timetabled(EVEN_S)
    due_s = arrivals_of(city, EVEN_S)
    line = replace(city, due_s=due_s)
    city, stops = variants(line), len(line.services[0].stops)
    every = arrivals_of(line, departed_s).reshape(-1, stops)
    arrivals_s = np.concatenate(
        [np.delete(row, 1) if number % 2 else row for number, row in enumerate(every)]
    ).astype(np.int32)
    trip = np.concatenate([[n] * (stops - n % 2) for n in range(len(every))]).astype(np.int32)
    position = np.concatenate([np.arange(stops - n % 2) for n in range(len(every))])
    none = np.full(len(trip), np.nan)
    driven = Driven(
        np.zeros(len(trip), np.int32), trip, (trip % 2).astype(np.int32),
        position.astype(np.int32), arrivals_s.astype(float), none, none, none, none, none,
    )  # fmt: skip
    later = Driven(*(values[position > 0] for values in vars(driven).values()))
    compared, tables = regularity(city, arrivals_s), measured(city, later)
    lines = [replace(s, source=s.id) for s in city.services]
    alone = regularity(replace(city, services=tuple(lines)), arrivals_s)
    assert alone.bunched_share < 0.5 * compared.bunched_share, "as it was"
    assert compared.bunched_share > 0.1
    assert level(tables["share bunched"]) == pytest.approx(compared.bunched_share, abs=0.024)
    assert level(tables["headway CV by stop"]) == pytest.approx(compared.headway_cv, abs=0.05)
    (today,) = waiting_today(city, "2026-03-02", later)
    assert today.line == "7 0"
    assert today.bunched == pytest.approx(compared.bunched_share, abs=0.024)  # one bus of 43


def test_a_line_is_told_from_its_variants_and_from_other_lines() -> None:
    def line(id: str, source: str) -> str:
        return line_of(replace(timetabled(EVEN_S).services[0], id=id, source=source))

    assert line("7-0", "7 0") == line("7-0a", "7 0a") == line("7-0b", "7 0b") == "7 0"
    assert line("Line_7a.0", "Line 7a") == "Line 7a", "a route may have a letter of its own"
    assert line("1E", "") == "1E"
