"""The calibration against a truth it did not see: logs of a world whose running times are known."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.tables import digest, network_digest
from evenline.control.visits import Visit, visit_table
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.calibration import (
    Calibration,
    calibration_digest,
    fit,
    load_calibration,
    read_runs,
    save_calibration,
)
from evenline.worlds.fast.world import FastWorld
from random_cities import Person, small_city, steady

DAYS, TRIPS = 60, 28
FIRST, SECOND = 12, 10  # stops of the two services
PLACES = FIRST + SECOND
LAST_STOPS = [FIRST - 1, PLACES - 1]
USED = np.delete(np.arange(PLACES), LAST_STOPS)
HOURS = np.array([1.0, 1.3, 0.9, 1.1])


@pytest.fixture(scope="module")
def city() -> City:
    """Two services with a bus every 370 s: each meets another part of the 90 s of the signals."""
    trips = [(service, 300 + 370 * i) for service in (0, 1) for i in range(TRIPS)]
    people = [Person(200 + 90 * i, [(i % 8, 9, (0,))]) for i in range(100)]
    services = [list(range(FIRST)), list(range(FIRST, PLACES))]
    return small_city(services, trips, people, horizon_s=4 * 3600)


@pytest.fixture(scope="module")
def truth(city: City) -> Calibration:
    """Hours, paces, a signal cycle and noise that are not what a fit would find by chance."""
    rng = np.random.Generator(np.random.PCG64(42))
    typical = rng.uniform(40, 120, PLACES)
    phase = rng.uniform(-9, 9, (PLACES, 9))
    return replace(
        steady(city, start_delay_s=17),
        mean_s=typical[:, None] * HOURS,
        pace_s=typical,
        phase_s=phase - phase.mean(axis=1, keepdims=True),
        noise_s=np.outer(rng.uniform(4, 8, PLACES), np.linspace(-1.7, 1.7, 33)),
        pace=np.linspace(-0.15, 0.15, 65),
        least_s=np.full(PLACES, 5.0),
    )


def simulate(city: City, calibration: Calibration, seeds: Sequence[int]) -> list[list[Visit]]:
    world = FastWorld(city, calibration, keep_visits=True)
    days = []
    for seed in seeds:
        world.run_day(Cell(seed, seed), BEHAVIOURS["random-often"])
        days.append(world.visits)
    return days


def write_logs(folder: Path, city: City, days: Sequence[Sequence[Visit]]) -> list[Path]:
    paths = [folder / f"day-{number}.parquet" for number in range(len(days))]
    for path, visits in zip(paths, days, strict=True):
        pq.write_table(visit_table(city, visits), path)
    return paths


@pytest.fixture(scope="module")
def days(city: City, truth: Calibration) -> list[list[Visit]]:
    return simulate(city, truth, range(DAYS))


@pytest.fixture(scope="module")
def logs(
    city: City, days: list[list[Visit]], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    return write_logs(tmp_path_factory.mktemp("logs"), city, days)


@pytest.fixture(scope="module")
def fitted(city: City, logs: list[Path]) -> Calibration:
    return fit(city, logs)


def running_times(days: Sequence[Sequence[Visit]]) -> list[tuple[int, int, int]]:
    """(place, second of setting off, seconds) of every segment that was run to its end."""
    first_place = (0, FIRST)
    rows = []
    for visits in days:
        at = {(visit.trip, visit.position): visit for visit in visits}
        for (trip, position), visit in at.items():
            if (trip, position + 1) in at:
                seconds = at[trip, position + 1].arrival_s - visit.departure_s
                place = first_place[trip >= TRIPS] + position
                rows.append((place, visit.departure_s, seconds))
    return rows


# -- the fit --------------------------------------------------------------------------------------


def test_the_runs_are_those_of_the_logs(
    city: City, days: list[list[Visit]], logs: list[Path]
) -> None:
    runs, delay = read_runs(city, logs)
    found = zip(runs.place.tolist(), runs.leaves_s.tolist(), runs.seconds.tolist(), strict=True)
    assert sorted(found) == sorted(running_times(days))
    assert delay == 17
    assert set(runs.day.tolist()) == set(range(DAYS))
    assert len(set(runs.trip.tolist())) == DAYS * len(city.trips), "a trip of a day is one trip"


def test_the_means_of_every_segment_and_hour_are_found(
    days: list[list[Visit]], truth: Calibration, fitted: Calibration
) -> None:
    rows = np.array(running_times(days))
    count = np.zeros(truth.mean_s.shape, int)
    np.add.at(count, (rows[:, 0], rows[:, 1] // 3600), 1)
    well_known = count >= 400
    assert well_known.sum() > 50
    error = (fitted.mean_s / truth.mean_s - 1)[well_known]
    assert np.abs(error).max() < 0.04
    assert np.abs(error.mean()) < 0.005


def test_the_start_delay_is_found(fitted: Calibration) -> None:
    assert fitted.start_delay_s == 17


def test_the_paces_of_trips_and_what_they_do_to_each_segment_are_found(
    truth: Calibration, fitted: Calibration
) -> None:
    assert fitted.pace_s[USED] == pytest.approx(truth.pace_s[USED] * HOURS.mean(), rel=0.2)
    assert np.corrcoef(fitted.pace_s[USED], truth.pace_s[USED])[0, 1] > 0.97
    spread = fitted.pace.std() * fitted.pace_s[USED].mean()
    assert spread == pytest.approx(truth.pace.std() * truth.pace_s[USED].mean(), rel=0.15)
    assert (np.diff(fitted.pace) >= 0).all(), "quantiles go up"


def test_the_signal_cycle_of_every_segment_is_found(
    truth: Calibration, fitted: Calibration
) -> None:
    found, known = fitted.phase_s[USED], truth.phase_s[USED]
    assert np.corrcoef(found.ravel(), known.ravel())[0, 1] > 0.97
    assert np.abs(found - known).max() < 3


def test_the_noise_of_every_segment_is_found(truth: Calibration, fitted: Calibration) -> None:
    found, known = fitted.noise_s[USED], truth.noise_s[USED]
    assert found.std(axis=1) == pytest.approx(known.std(axis=1), rel=0.3)
    assert np.abs(found.mean(axis=1)).max() < 1
    assert (np.diff(found, axis=1) >= 0).all(), "quantiles go up"


def test_no_segment_is_run_much_faster_than_in_the_logs(
    days: list[list[Visit]], fitted: Calibration
) -> None:
    rows = running_times(days)
    for place in USED:
        seconds = [run for at, _, run in rows if at == place]
        assert min(seconds) <= fitted.least_s[place] <= np.quantile(seconds, 0.02) + 1


def test_a_world_with_the_fit_runs_like_the_world_of_the_logs(
    city: City, days: list[list[Visit]], fitted: Calibration
) -> None:
    """On other days than the logs': segments take as long, whole trips spread as much."""

    def trips(some_days: Sequence[Sequence[Visit]]) -> np.ndarray:
        ends = [(v.trip, v.position, v.arrival_s) for visits in some_days for v in visits]
        starts = [at for trip, position, at in ends if position == 0 and trip < TRIPS]
        stops = [at for trip, position, at in ends if position == FIRST - 1 and trip < TRIPS]
        return np.array(stops) - np.array(starts)

    again = simulate(city, fitted, range(1000, 1000 + DAYS))
    original, copied = running_times(days), running_times(again)
    for place in USED:
        wanted, found = (
            np.array([run for at, _, run in rows if at == place]) for rows in (original, copied)
        )
        assert found.mean() == pytest.approx(wanted.mean(), rel=0.03)
        assert found.std() == pytest.approx(wanted.std(), rel=0.15)
    assert trips(again).mean() == pytest.approx(trips(days).mean(), rel=0.01)
    assert trips(again).std() == pytest.approx(trips(days).std(), rel=0.12)


def test_what_each_part_explains_is_reported(days: list[list[Visit]], fitted: Calibration) -> None:
    found = fitted.residuals
    runs = [run for _, _, run in running_times(days)]
    assert found["runs"] == len(runs)
    assert found["mean_run_s"] == pytest.approx(np.mean(runs), abs=0.001)
    spreads = [found[f"sd_{part}_s"] for part in ("within_segment", "after_pace", "after_phase")]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[2] < 0.6 * spreads[0], "pace and signal cycle are most of the spread here"
    assert abs(found["correlation_of_followers"]) < 0.05, "the noise was drawn anew each time"


# -- what is refused ------------------------------------------------------------------------------


def test_a_fit_needs_logs(city: City) -> None:
    with pytest.raises(InputError, match="calibration of small: no stop-visit logs"):
        fit(city, [])


def test_a_log_that_is_not_there_is_named(city: City, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.parquet: no such file"):
        fit(city, [tmp_path / "gone.parquet"])


def test_a_log_that_is_no_table_is_named(city: City, tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("not a table")
    with pytest.raises(InputError, match=r"text\.parquet: not a stop-visit table"):
        fit(city, [path])


@pytest.mark.parametrize(("column", "name"), [("trip", "S0.99"), ("service", "the other service")])
def test_a_trip_or_service_the_city_does_not_have_is_named_with_the_log(
    city: City, logs: list[Path], tmp_path: Path, column: str, name: str
) -> None:
    table = pq.read_table(logs[0])
    names = table[column].to_pylist()
    names[5] = name
    strange = tmp_path / "strange.parquet"
    pq.write_table(
        table.set_column(table.schema.get_field_index(column), column, pa.array(names)), strange
    )
    with pytest.raises(
        InputError, match=rf"strange\.parquet: .*'{name}'.* does not exist in small"
    ):
        fit(city, [logs[0], strange])


def test_a_visit_missing_from_a_log_makes_no_run_of_two_segments(
    city: City, days: list[list[Visit]], tmp_path: Path
) -> None:
    kept = [visit for visit in days[0] if visit.position != 4]
    runs, _ = read_runs(city, write_logs(tmp_path, city, [kept]))
    found = zip(runs.place.tolist(), runs.leaves_s.tolist(), runs.seconds.tolist(), strict=True)
    assert sorted(found) == sorted(running_times([kept]))


def test_logs_in_which_buses_are_early_at_their_first_stop_are_refused(
    city: City, logs: list[Path], tmp_path: Path
) -> None:
    table, path = pq.read_table(logs[0]), tmp_path / "early.parquet"
    early = pa.array([start + 10_000 for start in table["scheduled_start_s"].to_pylist()])
    column = table.schema.get_field_index("scheduled_start_s")
    pq.write_table(table.set_column(column, "scheduled_start_s", early), path)
    with pytest.raises(InputError, match=r"buses reach their first stop .* s before they start"):
        fit(city, [path])


def test_a_service_that_no_log_shows_is_refused_by_name(
    city: City, days: list[list[Visit]], tmp_path: Path
) -> None:
    kept = [[visit for visit in visits if visit.trip < TRIPS] for visits in days[:2]]
    with pytest.raises(InputError, match="S1"):
        fit(city, write_logs(tmp_path, city, kept))


# -- the file -------------------------------------------------------------------------------------


def test_the_sources_are_named_with_their_hashes(fitted: Calibration, logs: list[Path]) -> None:
    assert fitted.sources == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in logs
    }


def test_logs_of_the_same_name_in_different_folders_are_all_sources(
    city: City, days: list[list[Visit]], tmp_path: Path
) -> None:
    logs = []
    for number, policy in enumerate(("zero", "headway")):
        (tmp_path / policy).mkdir()
        logs += write_logs(tmp_path / policy, city, [days[number]])
    hashes = {hashlib.sha256(path.read_bytes()).hexdigest() for path in logs}
    assert len(hashes) == 2
    assert set(fit(city, logs).sources.values()) == hashes


def test_a_saved_calibration_is_read_back_as_it_was(
    city: City, fitted: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(path, fitted)
    again = load_calibration(path, city)
    for field in fields(Calibration):
        before, after = getattr(fitted, field.name), getattr(again, field.name)
        if isinstance(before, np.ndarray):
            assert np.array_equal(before, after), field.name
        else:
            assert before == after, field.name
    cell, rule = Cell(5, 6), BEHAVIOURS["headway-0.4"]
    assert FastWorld(city, again).run_day(cell, rule) == FastWorld(city, fitted).run_day(cell, rule)


def test_a_saved_calibration_can_be_read_by_people(
    city: City, fitted: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(path, fitted)
    found = json.loads(path.read_text())
    assert found["network"] == network_digest(city)
    assert found["mean_s"][3] == fitted.mean_s[3].tolist()
    assert found["sources"]["day-0.parquet"] == fitted.sources["day-0.parquet"]


def test_the_calibration_of_another_city_is_refused_by_name(
    city: City, fitted: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(path, fitted)
    other = replace(city, vehicle=replace(city.vehicle, capacity=city.vehicle.capacity + 1))
    with pytest.raises(InputError, match=r"calibration\.json was fitted to other streets, stops"):
        load_calibration(path, other)


def test_a_calibration_outlives_other_passengers_and_goes_with_another_timetable(
    city: City, fitted: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(path, fitted)
    people = replace(city.journeys, min_demand=city.journeys.min_demand * 0.5)
    assert load_calibration(path, replace(city, journeys=people)).network == fitted.network
    first = replace(city.trips[0], departure_s=city.trips[0].departure_s + 1)
    with pytest.raises(InputError, match="timetable"):
        load_calibration(path, replace(city, trips=(first, *city.trips[1:])))


def test_a_file_of_format_2_is_bound_to_the_whole_city(
    city: City, fitted: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(path, fitted)
    content = json.loads(path.read_text()) | {"format": "evenline-calibration-2"}
    del content["network"]
    path.write_text(json.dumps(content | {"city": digest(city)}))
    assert calibration_digest(load_calibration(path, city)) == calibration_digest(fitted)
    path.write_text(json.dumps(content | {"city": "0" * 64}))
    with pytest.raises(InputError, match="was fitted to other"):
        load_calibration(path, city)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="was fitted to other"):
        load_calibration(path, city)


def test_a_file_that_is_not_there_is_named(city: City, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.json: no such calibration file"):
        load_calibration(tmp_path / "gone.json", city)
