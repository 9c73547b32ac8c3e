"""Stop counts become rides that have these counts, wherever rides can have them."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from evenline.city.model import City, Clock
from evenline.importing.demand import NewPeople, demand_from
from evenline.importing.fitting import fitted, rounded
from evenline.support.errors import InputError
from on_time import door_counts, timed_cities
from random_cities import small_city

Row = tuple[object, ...]


def table(rng: np.random.Generator, least: int) -> tuple[np.ndarray, ...]:
    """A random sparse table of whole numbers: cells, their rows and columns, and the sums."""
    rows, columns = rng.integers(1, 7, 2)
    row, column = np.nonzero(rng.random((rows, columns)) < 0.7)
    cells = rng.integers(least, 6, len(row)).astype(float)
    sums = np.bincount(row, cells, rows), np.bincount(column, cells, columns)
    return cells, row, column, *sums


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_fitting_meets_both_sums_and_keeps_the_odds_of_the_prior(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, row, column, rows, columns = table(rng, least=1)
    prior = rng.uniform(0.5, 2, len(cells))
    found = fitted(prior, row, column, rows, columns)
    assert np.bincount(row, found, len(rows)) == pytest.approx(rows, abs=1e-4)
    assert np.bincount(column, found, len(columns)) == pytest.approx(columns, abs=1e-4)
    share = {(i, j): x for i, j, x in zip(row, column, found / prior, strict=True)}
    for i, j in share:  # the odds of any four cells in a square are those of the prior
        for k, m in share:
            if (i, m) in share and (k, j) in share:
                assert share[i, j] * share[k, m] == pytest.approx(share[i, m] * share[k, j])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rounding_keeps_whole_sums_and_moves_no_cell_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, row, column, rows, columns = table(rng, least=1)
    found = fitted(rng.uniform(0.5, 2, len(cells)), row, column, rows, columns)
    whole = rounded(found, row, column, rows, columns, rng)
    assert (np.abs(whole - found) < 1).all() and (whole % 1 == 0).all()
    assert (np.bincount(row, whole, len(rows)) == rows).all()
    assert (np.bincount(column, whole, len(columns)) == columns).all()


# -- from tables ----------------------------------------------------------------------------------


def written(path: Path, rows: Iterable[Row], header: str) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


HEADER = "service_id,stop_id,from_s,boardings,alightings"


def from_counts(folder: Path, city: City, rows: Iterable[Row], seed: int = 1) -> NewPeople:
    path = written(folder / "counts.csv", rows, HEADER)
    return demand_from(str(path), city, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts")


@settings(max_examples=30, deadline=None)
@given(timed_cities(), st.integers(0, 2**32 - 1))
def test_counts_of_journeys_become_journeys_with_these_counts(
    folder: Path, city: City, seed: int
) -> None:
    try:
        made = demand_from("gravity", city, np.random.default_rng(seed), passengers=40)
    except InputError:
        reject()  # no bus leaves before the day ends
    on, off = door_counts(city, made.journeys)
    keys = sorted(on.keys() | off.keys())
    rows = [(s, stop, 1800 * half, on[s, stop, half], off[s, stop, half]) for s, stop, half in keys]
    found = from_counts(folder, city, rows, seed)
    assert door_counts(city, found.journeys) == (on, off)
    assert found.report.boardings == found.report.alightings == (on.total(), on.total(), 0, 0)
    assert not found.report.left_out


LINE = small_city([[0, 1, 2, 3], [3, 2, 1, 0]], [(0, 0), (0, 900), (1, 0), (1, 900)])


def test_boardings_are_kept_and_alightings_come_as_near_as_the_line_allows(tmp_path: Path) -> None:
    """Ten board and five leave, at a stop that only four of the ten can reach."""
    rows = [("S0", "s0", 0, 4, 0), ("S0", "s1", 0, 0, 5), ("S0", "s2", 0, 6, 0)]
    rows.append(("S0", "s3", 0, 0, 0.0001))
    found = from_counts(tmp_path, LINE, rows)
    boardings, alightings = found.report.boardings, found.report.alightings
    assert boardings is not None and alightings is not None
    assert (boardings.counted, boardings.made, boardings.largest) == (10, 10, 0)
    assert (alightings.made, alightings.largest) == (10, pytest.approx(5.9999))
    assert alightings.mean == pytest.approx((1 + 5.9999) / 4)


def test_boardings_that_no_bus_explains_are_listed(tmp_path: Path) -> None:
    rows = [("S0", "s0", 0, 3, 0), ("S0", "s3", 0, 2, 3), ("S0", "s1", 3600, 7, 0)]
    found = from_counts(tmp_path, LINE, rows)
    lost = [(each.origin, each.from_s, each.passengers) for each in found.report.left_out]
    assert lost == [("s3", 0, 2), ("s1", 3600, 7)]
    assert found.report.passengers == 3
    assert found.notes[1:] == (
        "demand has no counts of S1",
        "demand leaves out 9 passengers whom no bus can carry",
    )


def test_counts_of_services_and_stops_that_the_city_lacks_are_listed(tmp_path: Path) -> None:
    rows = [
        ("S0", "s0", 0, 3, 0),
        ("S0", "s3", 0, 0, 3),
        ("S9", "s0", 0, 8, 1),
        ("S1", "x", 0, 0, 2),
    ]
    found = from_counts(tmp_path, LINE, rows)
    assert [(each.ends, each.passengers, each.why) for each in found.report.left_out] == [
        ("from s0", 8, "s0 is not a stop of S9 in the city"),
        ("to s0", 1, "s0 is not a stop of S9 in the city"),
        ("to x", 2, "x is not a stop of S1 in the city"),
    ]


@pytest.mark.parametrize(
    ("ids", "direction", "service"),
    [
        (("S0", "S1"), 0, 0),
        (("S0", "S1"), 1, 1),
        (("7.1", "7.0"), 0, 1),  # ids of imported services tell their direction
        (("7.0.2", "7.1"), 0, 0),
    ],
)
def test_counts_by_route_and_direction_are_those_of_its_service(
    tmp_path: Path, ids: tuple[str, str], direction: int, service: int
) -> None:
    lines = zip(LINE.services, ids, strict=True)
    services = tuple(replace(line, id=own, route="7", source="r/7") for line, own in lines)
    city = replace(LINE, services=services)
    ends = ("s0", "s3") if service == 0 else ("s3", "s0")
    header = "route_id,direction_id,stop_id,from_time,boardings,alightings"
    rows = [(7, direction, ends[0], "00:00", 2, 0), ("r/7", direction, ends[1], "00:00:00", 0, 2)]
    path = written(tmp_path / "counts.csv", rows, header)
    found = demand_from(str(path), city, np.random.default_rng(1))
    assert found.report.passengers == 2
    assert found.journeys.carriers == ((service,),)


def test_a_direction_with_two_patterns_must_be_counted_by_service(tmp_path: Path) -> None:
    ids = ("7.0", "7.0.2")
    services = tuple(replace(s, id=i, route="7") for s, i in zip(LINE.services, ids, strict=True))
    header = "route_id,direction_id,stop_id,from_s,boardings,alightings"
    path = written(tmp_path / "counts.csv", [(7, 0, "s0", 0, 1, 0)], header)
    with pytest.raises(InputError, match="row 2: route 7 has 2 services in direction 0; count by"):
        demand_from(str(path), replace(LINE, services=services), np.random.default_rng(1))


def test_half_hours_of_the_clock_may_begin_anywhere_in_the_day(tmp_path: Path) -> None:
    """The day begins at 05:10, so that 05:30 is its second 1,200."""
    clock = Clock("2026-03-03", 5 * 3600 + 600, "UTC")
    header = "service_id,stop_id,from_time,boardings,alightings"
    rows = [("S0", "s0", "05:00", 2, 0), ("S0", "s1", "05:00", 0, 2), ("S0", "s0", "05:30", 9, 0)]
    path = written(tmp_path / "counts.csv", rows, header)
    found = demand_from(str(path), replace(LINE, clock=clock), np.random.default_rng(1))
    assert [(each.from_s, each.passengers) for each in found.report.left_out] == [(1200, 9)]
    assert found.report.passengers == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("S0", "s0", 0, 1, 0), ("S0", "s0", 0, 2, 0)], "row 3: s0 was counted above"),
        ([("S0", "s0", 0, 1, 0), ("S0", "s1", 900, 2, 0)], "row 3: must begin a number of half"),
        ([("S0", "s0", 0, -1, 0)], "row 2: boardings '-1' must be a number from 0"),
        ([("S0", "s0", 0, 1, 0)], "carries any of these people; the first go from s0: no bus of"),
        ([], "has no rows"),
    ],
)
def test_wrong_counts_are_refused(tmp_path: Path, rows: list[Row], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        from_counts(tmp_path, LINE, rows)
