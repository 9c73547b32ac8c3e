"""What buses do about others: close followers, late starts made up, vehicles that come late.

Each is a number in the calibration; without it the fast world is what it was, to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.operations import Operations
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.calibration import (
    LATE_QUANTILES,
    Calibration,
    calibration_text,
    closeness,
    jam_share,
    load_calibration,
)
from evenline.worlds.fast.world import FastWorld
from recorded_truth import true_calibration, true_city

STOPS, TRIPS = 8, 80
SPREAD_S = np.linspace(-150.0, 150.0, LATE_QUANTILES)


@pytest.fixture(scope="module")
def city() -> City:
    return true_city()


@pytest.fixture(scope="module")
def still(city: City) -> Calibration:
    """Running times without noise, and starts that differ."""
    plain = true_calibration(city)
    return replace(plain, noise_s=0 * plain.noise_s, lateness_s=np.tile(SPREAD_S, (2, 1)))


def run(city: City, calibration: Calibration, seed: int = 3) -> tuple[FastWorld, np.ndarray]:
    world = FastWorld(city, calibration, keep_visits=True)
    world.run_day(Cell(seed, 4), BEHAVIOURS["zero"])
    return world, world.arrivals_s.reshape(TRIPS, STOPS)


def test_a_bus_right_behind_another_runs_slower(city: City, still: Calibration) -> None:
    close = replace(still, close_s=40.0, close_within_s=150.0)
    world, arrived = run(city, close)
    service = np.array([trip.service for trip in city.trips])
    slowed = 0
    for visit in world.visits:
        if visit.position == STOPS - 1 or arrived[visit.trip, visit.position + 1] < 0:
            continue
        others = arrived[service == service[visit.trip], visit.position]
        ahead = others[(others >= 0) & (others < visit.arrival_s)]
        behind = 0.0
        if len(ahead):
            behind = closeness(float(visit.arrival_s - ahead.max()), 150.0)
        usual = close.mean_s[STOPS * service[visit.trip] + visit.position, 0]
        took = arrived[visit.trip, visit.position + 1] - visit.departure_s
        if (others == visit.arrival_s).sum() == 1:  # together, the order decides
            assert took == int(usual + 40.0 * behind + 0.5)
            slowed += behind > 0
    assert slowed > 20


def test_a_jam_holds_up_the_next_bus_by_a_share_that_falls_with_the_headway(
    city: City, still: Calibration
) -> None:
    """The draws of a day do not depend on jams, so a day without them tells the noise."""
    stop, service = 3, np.array([trip.service for trip in city.trips])
    noise_s = still.noise_s.copy()
    noise_s[[stop, STOPS + stop]] = np.linspace(0.0, 200.0, noise_s.shape[1])
    free = replace(still, noise_s=noise_s)
    runs = []
    for jams in ({}, {"jam_near": 0.9, "jam_far": 0.3}):
        world, arrived = run(city, replace(free, **jams))
        left = {v.trip: v for v in world.visits if v.position == stop}
        on = [trip for trip in left if arrived[trip, stop + 1] >= 0]
        took = {trip: arrived[trip, stop + 1] - left[trip].departure_s for trip in on}
        runs.append((left, took))
    (_, usual), (left, took) = runs
    held_up = 0
    for own in (0, 1):
        before, delayed = None, 0.0
        for trip in sorted(left, key=lambda trip: (left[trip].arrival_s, trip)):
            if service[trip] != own or trip not in took or trip not in usual:
                continue
            mean_s = still.mean_s[STOPS * own + stop, 0]
            gap = np.inf if before is None else left[trip].arrival_s - before
            extra = jam_share(float(gap), 0.9, 0.3) * max(delayed - 30.0, 0.0)
            assert took[trip] == pytest.approx(usual[trip] + extra, abs=1.5)
            before, delayed = left[trip].arrival_s, usual[trip] - mean_s + extra
            held_up += extra > 20
    assert held_up > 10
    assert jam_share(0.0, 0.9, 0.3) == pytest.approx(0.9) and jam_share(450.0, 0.9, 0.3) == 0.3
    assert jam_share(1_200.0, 0.9, 0.3) == 0.0


def test_a_late_start_is_made_up_in_part(city: City, still: Calibration) -> None:
    late = replace(still, lateness_s=np.full((2, LATE_QUANTILES), 100.0))
    kept, made_up = (run(city, replace(late, recover=share))[0] for share in (0.0, 0.4))
    runs = [
        np.array([v.arrival_s for v in world.visits]).reshape(-1)[1:]
        - np.array([v.departure_s for v in world.visits])[:-1]
        for world in (kept, made_up)
    ]
    first_trip = slice(0, STOPS - 1)
    assert (runs[0][first_trip] - runs[1][first_trip]).sum() == pytest.approx(40, abs=4)


def test_neighbours_are_late_together_as_often_as_said(city: City, still: Calibration) -> None:
    due = np.array([trip.departure_s for trip in city.trips])
    order = np.lexsort((due, [trip.service for trip in city.trips]))

    def together(share: float) -> float:
        late = []
        for seed in range(30):
            _, arrived = run(city, replace(still, late_follow=share), seed)
            late.append((arrived[:, 0] - due)[order].reshape(2, -1)[:, 1:])  # the first may be cut
        rows = np.concatenate(late)
        return float(np.corrcoef(rows[:, :-1].ravel(), rows[:, 1:].ravel())[0, 1])

    assert abs(together(0.0)) < 0.06
    assert together(0.4) == pytest.approx(0.4 * 0.6, abs=0.06)


def test_a_trip_that_waits_for_its_vehicle_is_late_by_its_own_draw_too(
    city: City, still: Calibration
) -> None:
    """With one vehicle for every fourth trip of a service, buses come back late."""
    late = replace(still, lateness_s=np.full((2, LATE_QUANTILES), 45.0))
    blocks = [f"{trip.service}-{i // 2 % 2}" for i, trip in enumerate(city.trips)]
    trips = tuple(replace(t, duty=b) for t, b in zip(city.trips, blocks, strict=True))
    shared = replace(city, trips=trips, operations=Operations(duties=True, recovery_s=30))
    world, arrived = run(shared, late)
    left = {v.trip: v.departure_s for v in world.visits if v.position == STOPS - 1}
    last: dict[str, int] = {}
    waited = 0
    for index, trip in enumerate(trips):
        if arrived[index, 0] >= 0:
            ready = left[last[trip.duty]] + 30 if trip.duty in last else 0
            assert arrived[index, 0] == max(trip.departure_s, ready) + 45
            waited += ready > trip.departure_s
            last[trip.duty] = index
    assert waited > 10


def test_numbers_without_effect_are_not_written(
    city: City, still: Calibration, tmp_path: Path
) -> None:
    noted = replace(still, note="fitted to nothing")
    optional = {"close_s", "recover", "late_follow", "jam_near", "jam_far"}
    assert not optional & set(calibration_text(noted).split('"'))
    path = tmp_path / "calibration.json"
    given = replace(noted, close_s=4.5, close_within_s=90.0, recover=0.2, late_follow=0.1)
    given = replace(given, jam_near=0.9, jam_far=0.3)
    path.write_text(calibration_text(given))
    found = load_calibration(path, city)
    assert (found.close_s, found.recover, found.late_follow) == (4.5, 0.2, 0.1)
    assert (found.close_within_s, found.jam_near, found.jam_far) == (90.0, 0.9, 0.3)
    path.write_text(calibration_text(replace(given, close_within_s=0.0)))
    with pytest.raises(InputError, match="close_s needs close_within_s"):
        load_calibration(path, city)
