"""A city of ours is simulated, written as bad records, imported and fitted: what made them is found
again within its intervals, and a day that was held out looks like the others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.city.demand import Cell, realise, service_stop_offsets
from evenline.city.model import City
from evenline.experiments.records import Import, audit_records, audit_table, import_records
from evenline.records.audit import verdict
from evenline.records.files import LIMITS, RECORDS, estimates_csv
from evenline.records.fit import observe, resampled
from evenline.records.people import Spread
from evenline.report.recorded import write_records_page
from evenline.support.errors import InputError
from evenline.worlds.open import open_city
from recorded_truth import (
    DAYS,
    DOORS_S,
    EXCHANGE_S,
    JAM,
    MOST_LATE_S,
    RECOVERY_S,
    RICH,
    UNSEEN,
    rich_calibration,
    true_calibration,
    true_city,
    write_records,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("truth")
    write_records(path / "records")
    return path


@pytest.fixture(scope="module")
def made(folder: Path) -> Import:
    days = ",".join(DAYS[:3])
    return import_records(folder / "records", "", "6-12", days, folder / "city", "again")


@pytest.fixture(scope="module")
def truth() -> City:
    return true_city()


def estimate(made: Import, name: str) -> tuple[float, float, float]:
    found = next(each for each in made.fitted.estimates if each.name == name)
    return found.low, found.value, found.high


def test_the_services_and_trips_are_found_again(made: Import, truth: City) -> None:
    city = made.fitted.city
    assert [len(s.stops) for s in city.services] == [len(s.stops) for s in truth.services]
    assert [[city.stops[stop].source for stop in s.stops] for s in city.services] == [
        [truth.stops[stop].id for stop in s.stops] for s in truth.services
    ]
    assert len(city.trips) == len(truth.trips)
    departures = np.array([trip.departure_s for trip in city.trips])
    start = city.clock.start_s if city.clock else 0
    expected = np.array([trip.departure_s for trip in truth.trips]) + 6 * 3600 - start
    assert np.abs(np.sort(departures) - np.sort(expected)).max() <= 30
    assert made.fitted.recorded_share.mean() == pytest.approx(1 - UNSEEN, abs=0.03)


def test_the_bad_rows_are_found(made: Import) -> None:
    found = {each.name: each.count for each in made.found}
    assert found["repeated visit"] > 20
    assert found["unknown trip"] == 0


def test_the_doors_are_found_again(made: Import) -> None:
    assert made.fitted.doors.stamp == "arrival"
    for name in ("boarding_s_per_passenger", "alighting_s_per_passenger"):
        low, value, high = estimate(made, name)
        assert low <= EXCHANGE_S <= high and abs(value - EXCHANGE_S) < 0.15, (low, value, high)
    low, _, high = estimate(made, "opening_s")
    assert low <= 0.0 <= high and made.fitted.city.vehicle.crowding_s_per_passenger == 0.0


@pytest.mark.parametrize("stamp", ["arrival", "departure"])
def test_doors_that_differ_are_found_again(stamp: str, tmp_path: Path) -> None:
    """From recorded dwells, and from stop to stop where only departures are recorded."""
    write_records(tmp_path / "records", stamp, "doors")
    made = import_records(tmp_path / "records", "", "6-12", "", tmp_path / "city", "doors")
    assert made.fitted.doors.stamp == stamp
    for name, truth in DOORS_S.items():
        low, value, high = estimate(made, name)
        if stamp == "arrival":
            assert low <= truth <= high and high - low < 0.25 * truth, (name, low, value, high)
        else:  # boarding includes those who came while the bus stood for others
            near = name == "boarding_s_per_passenger" and abs(value - truth) < 0.2 * truth
            assert near or low <= truth <= high, (name, low, value, high)
    vehicle = open_city(str(tmp_path / "city")).city.vehicle
    assert vehicle == made.fitted.city.vehicle and not vehicle.plain_doors
    known = true_calibration(true_city()).mean_s[:7, 0]
    apart = np.abs(made.fitted.calibration.mean_s[:7, 1:4].mean(axis=1) - known).max()
    assert apart < (2.5 if stamp == "arrival" else 6.0), "a dwell that is not known is less sure"


def test_the_running_times_are_found_again_within_their_intervals(
    made: Import, truth: City
) -> None:
    known = true_calibration(truth).mean_s[:, 0]
    ends = set((service_stop_offsets(truth)[1:] - 1).tolist())
    places = [place for place in range(len(known)) if place not in ends]
    runs = [each for each in made.fitted.estimates if each.name.startswith("run ")]
    assert len(runs) == len(places)
    inside = [run.low <= known[place] <= run.high for run, place in zip(runs, places, strict=True)]
    assert np.mean(inside) >= 0.85, inside
    assert all(run.observations > 60 for run in runs)


def test_the_demand_is_found_again(made: Import, truth: City) -> None:
    again, people = made.fitted.city, realise(truth, Cell(1, 1)).journey
    drawn = [len(realise(again, Cell(1, seed)).journey) for seed in range(20)]
    assert np.mean(drawn) == pytest.approx(len(people), rel=0.06)
    boards = np.bincount(truth.journeys.leg_board[people], minlength=len(truth.stops))
    found = np.zeros(len(truth.stops))
    for stop, count in zip(*np.unique(again.journeys.leg_board, return_counts=True), strict=True):
        found[[s.id for s in truth.stops].index(again.stops[stop].source)] = count
    share, true_share = found / found.sum(), boards / boards.sum()
    assert np.abs(share - true_share).max() < 0.02


def test_every_estimate_has_an_interval_and_a_count(made: Import) -> None:
    for each in made.fitted.estimates:
        if each.sure:
            assert each.low <= each.value <= each.high and each.low < each.high, each
            assert each.observations > 0, each
        else:
            assert each.note.startswith("no interval: "), each
    missing = [each.name for each in made.fitted.estimates if not each.sure]
    assert len(missing) < 0.2 * len(made.fitted.estimates), missing
    assert estimates_csv(made.fitted).count("\n") == len(made.fitted.estimates) + 1


def test_a_held_out_day_is_as_close_as_another_real_day(made: Import, folder: Path) -> None:
    city = folder / "city"
    audit = audit_records(str(city), folder / "records", DAYS[3], folder / "audit")
    ratios = {line.measure: line.ratio for line in audit.lines}
    assert {"trip time", "headway", "load", "dwell", "boardings by stop"} <= set(ratios)
    assert np.median(list(ratios.values())) < 1.25 and ratios["headway"] < 1.3
    said = verdict(audit.lines, audit.held)
    assert audit_table(audit).splitlines()[0].endswith(said)
    note = open_city(str(city)).notes("fast")[-1]
    assert DAYS[3] in note and said in note, "every later result repeats the verdict"


def test_a_day_of_the_fit_and_changed_limits_are_refused(made: Import, folder: Path) -> None:
    city = folder / "city"
    with pytest.raises(InputError, match="the city was fitted to it"):
        audit_records(str(city), folder / "records", DAYS[0], folder / "audit")
    with pytest.raises(InputError, match="not in the records"):
        audit_records(str(city), folder / "records", "2026-04-01", folder / "audit")
    limits = (city / LIMITS).read_text()
    (city / LIMITS).write_text(limits.replace("1.2", "3.2"))
    with pytest.raises(InputError, match="has changed since the city was fitted"):
        audit_records(str(city), folder / "records", DAYS[3], folder / "audit")
    (city / LIMITS).write_text(limits)
    fitted_to = (city / RECORDS).read_text()
    (city / RECORDS).unlink()
    with pytest.raises(InputError, match="city import records"):
        audit_records(str(city), folder / "records", DAYS[3], folder / "audit")
    (city / RECORDS).write_text(fitted_to)


def test_the_page_says_first_what_the_model_was_fitted_to(made: Import, folder: Path) -> None:
    page, document = folder / "page.html", folder / "docs" / "records.md"
    document.parent.mkdir()
    document.write_text("# Records\n<!-- begin report again -->\n<!-- end report again -->\n")
    write_records_page(
        str(folder / "city"),
        folder / "records",
        page,
        ["zero", "headway"],
        blocks=2,
        calibrations=1,
        document=document,
    )
    text = page.read_text()
    assert "| headway | Waiting, s |" in document.read_text()
    assert "fitted to records of records" in document.read_text()
    assert "fitted to records of records" in text.split("<table")[0]
    assert "Excess wait, s" in text and "route 0, direction 0" in text


def test_a_fit_to_trips_drawn_again_differs_a_little(made: Import) -> None:
    rng, seen = np.random.default_rng(1), observe(made.built, made.fitted.doors.stamp)
    spreads = {"day": Spread(0.1, 0.05, 0.6, 2), "line": Spread(0.05, 0.03, 0.2, 4)}
    built = replace(made.built, spreads=spreads)
    city, again = resampled(built, seen, made.fitted.calibration, rng)
    assert again.follow < 0.2, "a trip that is drawn twice is no follower of itself"
    apart = np.abs(again.mean_s - made.fitted.calibration.mean_s)
    assert 0.05 < apart.mean() < 5.0
    own, usual = city.vehicle, made.fitted.city.vehicle
    assert 0 < abs(own.exchange_s_per_passenger - usual.exchange_s_per_passenger) < 0.5
    drawn = city.variation
    assert drawn is not None and 0.02 < drawn.day_sd < 0.51 and 0.01 < drawn.line_sd < 0.3
    assert (again.lateness_s != made.fitted.calibration.lateness_s).any()


def test_times_of_departures_are_recognised(tmp_path: Path) -> None:
    write_records(tmp_path / "records", stamp="departure")
    made = import_records(tmp_path / "records", "", "6-12", "", tmp_path / "city", "late")
    low, value, high = estimate(made, "boarding_s_per_passenger")
    assert made.fitted.doors.stamp == "departure"
    assert low <= EXCHANGE_S <= high, (low, value, high)


def test_what_buses_share_of_long_delays_is_found_again(tmp_path: Path) -> None:
    write_records(tmp_path / "records", kind="jams")
    made = import_records(tmp_path / "records", "", "6-12", "", tmp_path / "city", "jams")
    low, _, high = estimate(made, "share of a long delay right behind it")
    assert low <= JAM["jam_near"] <= high, (low, high)
    low, _, high = estimate(made, "share of a long delay farther behind")
    assert low <= JAM["jam_far"] <= high, (low, high)
    found = made.fitted.calibration
    assert found.jam_near == pytest.approx(JAM["jam_near"], abs=0.15)
    assert found.follow < 0.05, "nothing else is shared"


def test_what_trips_have_beside_their_means_is_found_again(tmp_path: Path) -> None:
    city = write_records(tmp_path / "records", kind="rich")
    made = import_records(tmp_path / "records", "", "6-12", "", tmp_path / "city", "rich")
    found, truth = made.fitted.calibration, rich_calibration(city)
    low, _, high = estimate(made, "extra run right behind another bus, s")
    assert low <= RICH["close_s"] <= high, (low, high)
    low, _, high = estimate(made, "headway at which a bus is close, s")
    assert low <= RICH["close_within_s"] <= high, (low, high)
    low, _, high = estimate(made, "share of a late start that is made up")
    assert low <= RICH["recover"] <= high, (low, high)
    low, _, high = estimate(made, "correlation of lateness with the next trip")
    assert low <= RICH["late_follow"] * (1 - RICH["late_follow"]) <= high, (low, high)
    low, _, high = estimate(made, f"sd of lateness {made.fitted.city.services[0].id}")
    assert low <= RICH["late_s"] <= high, (low, high)
    assert found.pace.std() * found.pace_s.mean() / truth.pace_s.mean() == pytest.approx(
        RICH["pace"], rel=0.4
    )
    assert found.follow == pytest.approx(RICH["follow"], abs=0.12)
    lead = (made.fitted.city.clock.start_s if made.fitted.city.clock else 0) - 6 * 3600
    assert lead == -1800
    hours = [found.mean_s[:7, h].sum() / found.mean_s[:7, 1:4].mean(axis=1).sum() for h in (1, 2)]
    assert hours[1] < hours[0], "the first full hour of the truth is slower than the next"


def test_layovers_are_found_again(tmp_path: Path) -> None:
    truth = write_records(tmp_path / "records", kind="shared")
    made = import_records(tmp_path / "records", "", "6-12", "", tmp_path / "city", "shared")
    city, late = made.fitted.city, made.fitted.calibration.lateness_s
    assert city.operations.duties
    assert sorted(t.duty for t in city.trips) == sorted(t.duty for t in truth.trips)
    _, found, _ = estimate(made, "layover that a vehicle needs, s")
    least = RECOVERY_S + 0.1 * MOST_LATE_S
    assert least - 2 <= found <= least + 8, "with the doors at the first stop"
    assert late is not None
    assert late.std(axis=1) == pytest.approx(MOST_LATE_S / 12**0.5, rel=0.35), (
        "what a late vehicle costs is not the trip's own lateness"
    )
    assert open_city(str(tmp_path / "city")).city.operations == city.operations
