"""Running times from a timetable keep to it, and vary as declared."""

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.city.demand import Cell, service_stop_offsets
from evenline.city.model import City, visit_offsets
from evenline.importing.gtfs import read_gtfs
from evenline.importing.timetable import Wanted
from evenline.support.errors import InputError
from evenline.worlds.calibration import load_calibration, save_calibration
from evenline.worlds.open import OpenCity
from evenline.worlds.timetable import FASTEST_MPS, _running, timetable_calibration
from feeds import EXAMPLE


@pytest.fixture(scope="module")
def city() -> City:
    return read_gtfs(EXAMPLE, Wanted(("10", "11"), datetime.date(2026, 3, 3))).city


def test_a_trip_takes_as_long_as_scheduled(city: City) -> None:
    """Means and dwells of a service add up to the time from its first departure to its end."""
    found, first = timetable_calibration(city), service_stop_offsets(city)
    ends, due = visit_offsets(city), city.due_s
    assert due is not None
    for number, service in enumerate(city.services):
        trip = city.trips_of[number][0]
        scheduled = due[ends[trip + 1] - 1] - due[ends[trip]]
        runs = found.mean_s[first[number] : first[number + 1] - 1, 1].sum()
        assert runs + 12 * (len(service.stops) - 2) == pytest.approx(scheduled, abs=2)


@pytest.mark.parametrize("sections", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_a_bus_keeps_to_its_times_as_well_as_it_can(seed: int, sections: int) -> None:
    rng = np.random.default_rng(seed)
    stands_s = np.append(rng.uniform(0, 40, 7), 0.0)
    due_s, least_s = np.cumsum(rng.uniform(0, 90, 9)), rng.uniform(10, 50, 8)
    runs_s = _running(due_s, stands_s, least_s, sections)
    assert (runs_s >= least_s - 1e-9).all()
    shortest_s = (least_s + stands_s).sum()
    assert (runs_s + stands_s).sum() == pytest.approx(max(due_s[-1] - due_s[0], shortest_s))
    easy = due_s + np.append(0, np.cumsum(least_s + stands_s))
    assert _running(easy, stands_s, least_s, sections) == pytest.approx(np.diff(easy) - stands_s)


def test_where_a_timetable_is_too_fast_sections_keep_their_times_if_they_can() -> None:
    """The sixth run has half the time it needs. Early by it, the first two thirds miss theirs."""
    least_s, stands_s = np.full(9, 60.0), np.zeros(9)
    wanted_s = np.array([70, 70, 70, 90, 90, 60, 30, 90, 300.0])
    due_s = np.append(0.0, np.cumsum(wanted_s))

    def missed(sections: int) -> float:
        thirds_s = _running(due_s, stands_s, least_s, sections).reshape(3, 3).sum(axis=1)
        return float(np.abs(thirds_s / wanted_s.reshape(3, 3).sum(axis=1) - 1.0).max())

    assert missed(1) > 0.05 and missed(3) < 0.03


def test_without_variation_buses_keep_to_the_schedule(city: City) -> None:
    opened = OpenCity("small", city, timetable_calibration(city, 0.0))
    world = opened.fast_world()
    world.run_day(Cell(1, 1), lambda batch: [0.0] * len(batch.trips))
    ends, due = visit_offsets(city), city.due_s
    assert due is not None
    late = world.arrivals_s[ends[1:] - 1] - due[ends[1:] - 1]
    assert np.abs(late - 12).max() <= 12  # a bus also stands at its first stop


def test_times_in_whole_minutes_are_spread_along_the_way(city: City) -> None:
    assert city.due_s is not None
    rough = replace(city, due_s=(city.due_s // 60 * 60).astype(np.int32))
    fine, coarse = (timetable_calibration(c).mean_s[:6, 1] for c in (city, rough))
    assert (coarse > 0).all() and coarse.sum() == pytest.approx(fine.sum(), abs=60)


def test_nobody_drives_faster_than_a_bus_can(city: City) -> None:
    assert city.due_s is not None
    starts = np.repeat([trip.departure_s for trip in city.trips],
                       np.diff(visit_offsets(city)))  # fmt: skip
    found = timetable_calibration(replace(city, due_s=starts.astype(np.int32)))
    gaps = np.diff(city.services[0].distance_m)
    assert (found.mean_s[:6, 1] >= gaps / FASTEST_MPS).all()


def test_pace_and_noise_have_the_declared_variation(city: City) -> None:
    found = timetable_calibration(city, 0.2)
    middle = 0.5 * (found.pace[1:] + found.pace[:-1])
    assert middle.mean() == pytest.approx(0.0, abs=1e-3) and middle.std() == pytest.approx(
        0.2, rel=0.05
    )
    assert found.noise_s[0].std() / found.mean_s[0].mean() == pytest.approx(0.2, rel=0.1)
    assert "declared variation of 20 %" in found.note


def test_the_note_is_kept_in_the_file(city: City, tmp_path: Path) -> None:
    found = timetable_calibration(city)
    save_calibration(tmp_path / "c.json", found)
    opened = OpenCity("small", city, load_calibration(tmp_path / "c.json", city))
    assert opened.notes("fast") == (*city.notes, found.note)
    assert opened.notes("sumo") == city.notes


def test_a_city_without_schedule_or_a_wild_variation_is_refused(city: City, town: City) -> None:
    with pytest.raises(InputError, match="has no schedule"):
        timetable_calibration(town)
    with pytest.raises(InputError, match=r"variation 3: must be from 0 to 1"):
        timetable_calibration(city, 3)
