"""Stop counts become rides that have these counts, wherever rides can have them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evenline.city.importers.counts import fitted, residual, rounded
from evenline.city.importers.demand import Found, demand_from
from evenline.city.model import City
from evenline.city.tables import open_city
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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rounding_keeps_whole_sums_and_moves_no_cell_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, row, column, rows, columns = table(rng, least=1)
    found = fitted(rng.uniform(0.5, 2, len(cells)), row, column, rows, columns)
    whole = rounded(found, row, column, rows, columns, rng)
    assert (np.abs(whole - found) < 1).all() and (whole % 1 == 0).all()
    assert (np.bincount(row, whole, len(rows)) == rows).all()
    assert (np.bincount(column, whole, len(columns)) == columns).all()


def test_rounding_is_fair() -> None:
    """One person and two columns at 0.3 and 0.7 whose sums are open."""
    rng = np.random.default_rng(1)
    cells, row, column = np.array([0.3, 0.7]), np.array([0, 0]), np.array([0, 1])
    sums = np.array([1.0]), np.array([0.3, 0.7])
    first = sum(rounded(cells, row, column, *sums, rng)[0] for _ in range(2))
    assert first in (0, 1, 2)


# -- from tables ----------------------------------------------------------------------------------


def written(path: Path, rows: Iterable[Row], header: str) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


HEADER = "service_id,stop_id,from_s,boardings,alightings"


def from_counts(folder: Path, city: City, rows: Iterable[Row], seed: int = 1) -> Found:
    path = written(folder / "counts.csv", rows, HEADER)
    return demand_from(str(path), city, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts")


@settings(max_examples=60, deadline=None)
@given(timed_cities(), st.integers(0, 2**32 - 1))
def test_counts_of_journeys_become_journeys_with_these_counts(
    folder: Path, city: City, seed: int
) -> None:
    made = demand_from("gravity", city, np.random.default_rng(seed), passengers=40)
    on, off = door_counts(city, made.journeys)
    keys = sorted(on.keys() | off.keys())
    rows = [(s, stop, 1800 * half, on[s, stop, half], off[s, stop, half]) for s, stop, half in keys]
    found = from_counts(folder, city, rows, seed)
    assert door_counts(city, found.journeys) == (on, off)
    assert found.report.boardings == found.report.alightings == (on.total(), on.total(), 0, 0)
    assert not found.report.left_out
