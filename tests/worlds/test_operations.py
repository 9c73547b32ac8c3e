"""Operations in both worlds: the kernel against the reference simulator, SUMO against its records.

What a hold becomes, which trips run and when a vehicle begins its next trip is read a second time,
word by word, in the reference simulator.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_cities
import sumo_outputs
from evenline.city.cells import demo_cell
from evenline.city.model import City
from evenline.city.operations import ControlPoint, Operations
from evenline.control.event import STOP, Batch
from evenline.control.operations import cancelled_trips, departures, driver_luck
from evenline.control.world import run_episode
from evenline.policies.bundle import open_policy
from evenline.replay.episode import record_episode
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.fast.world import FastWorld, Fleet
from evenline.worlds.open import open_city
from evenline.worlds.sumo.world import SumoWorld
from random_cities import Day, days, holds, operated, small_city, steady
from side_by_side import CELL, assert_same_day, examples

OpenWorld = Callable[..., SumoWorld]
ALWAYS = BEHAVIOURS["headway-1.0"]


@examples(120)
@given(days(), holds(), st.data())
def test_every_operation_is_that_of_the_reference(
    day: Day, some_holds: list[float], data: st.DataObject
) -> None:
    city = data.draw(operated(day.city))
    assert_same_day(replace(day, city=city), some_holds)


def sixty(batch: Batch) -> list[float]:
    """Ask for the longest hold everywhere."""
    return [60.0] * len(batch.trips)


def line(operations: Operations) -> City:
    """One service of four stops and four trips, and a schedule of 112 s from stop to stop."""
    city = small_city([[0, 1, 2, 3]], [(0, 600 * i) for i in range(4)])
    due = np.array([600 * trip + 112 * i for trip in range(4) for i in range(4)], np.int32)
    return replace(city, due_s=due, operations=operations)


def held(city: City) -> list[list[float]]:
    """The holds of a day on which the longest is always asked for, by trip."""
    world = FastWorld(city, steady(city), keep_visits=True)
    run_episode(world, CELL, sixty)
    rows: list[list[float]] = [[] for _ in city.trips]
    for visit in world.visits:
        rows[visit.trip].append(visit.hold_s)
    return [row[:-1] for row in rows]


def test_buses_are_held_only_where_and_as_long_as_operations_say() -> None:
    assert held(line(Operations()))[0] == [60, 60, 60]
    assert held(line(Operations(hold_at="terminals", max_hold_s=45.0)))[0] == [45, 0, 0]
    points = (ControlPoint(2, 20.0),)
    assert held(line(Operations(hold_at="listed", control_points=points)))[0] == [0, 0, 20]
    assert held(line(Operations(control_points=points)))[0] == [60, 60, 20]
    # The bus stands 12 s and needs 100 s to the next stop, so it keeps its schedule of 112 s.
    assert held(line(Operations(latest_s=42.0)))[0] == [30, 0, 0]
    # It would leave at 72, 232 and 404 s; to leave at 240 s would take more than the longest hold.
    assert held(line(Operations(round_s=30.0)))[0] == [48, 60, 46]


def test_the_executed_hold_is_what_a_replay_records() -> None:
    city = line(Operations(hold_at="terminals"))
    tokens, outcome = record_episode(FastWorld(city, steady(city)), CELL, sixty)
    assert tokens.hold_s.tolist() == [60, 0, 0] * 4
    assert outcome.hold_total_s == 240.0 and outcome.holds_zero == 8


def test_a_fleet_sees_and_executes_the_same_holds() -> None:
    town = open_city("town")
    city = replace(town.city, operations=Operations(ignored_share=0.3, cut_share=0.3, round_s=30.0))
    one, fleet = FastWorld(city, town.fitted()), Fleet(city, town.fitted(), 1)
    expected = run_episode(one, CELL, sixty)
    fleet.reset([CELL])
    while not fleet.over.all():
        fleet.step(np.array([60.0]))
    assert fleet.outcome(0) == expected
    assert 0.2 < expected.zero_hold_share < 0.4 and expected.mean_hold_s < 40.0


def test_drivers_have_the_same_luck_under_every_policy_and_habits_of_the_day() -> None:
    city = replace(open_city("town").city, operations=Operations(ignored_share=0.5))
    luck = driver_luck(city, CELL)
    assert np.array_equal(luck, driver_luck(city, CELL))
    assert not np.array_equal(luck, driver_luck(city, demo_cell(2)))
    many = np.concatenate([driver_luck(city, demo_cell(seed)) for seed in range(1, 60)])
    assert np.quantile(many, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.03)
    stops = len(city.services[city.trips[0].service].stops)
    ignored = [driver_luck(city, demo_cell(seed))[:stops] < 0.5 for seed in range(1, 400)]
    share = np.mean(ignored, axis=1)
    assert share.var() > 2 * 0.25 / stops, "a driver ignores many holds of a day, or few"


def test_no_cancelled_trip_runs_in_either_world(open_world: OpenWorld, tmp_path: Path) -> None:
    city = small_cities.streets(services=1, trips=4, headway_s=300, horizon_s=3000)
    city = replace(city, operations=Operations(cancelled=(2,)))
    fast = FastWorld(city, steady(city), keep_visits=True)
    outcomes = [run_episode(fast, CELL, ALWAYS)]
    assert {visit.trip for visit in fast.visits} == {0, 1, 3}
    world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
    outcomes.append(run_episode(world, CELL, ALWAYS))
    world.close()
    ran = {halt.bus for halt in sumo_outputs.halts(tmp_path, city.horizon_s)}
    assert ran == {city.trips[trip].id for trip in (0, 1, 3)}
    assert [outcome.decisions for outcome in outcomes] == [6, 6]
    lucky = replace(city, operations=Operations(cancelled_share=0.05))
    shares = [cancelled_trips(lucky, demo_cell(seed)).mean() for seed in range(1, 401)]
    assert np.mean(shares) == pytest.approx(0.05, abs=0.015)


def test_a_late_vehicle_makes_its_next_trip_late_in_both_worlds(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """SUMO's own record of stops: the next trip begins when the vehicle has rested, not before."""
    city = small_cities.streets(services=1, trips=4, headway_s=300, horizon_s=3000)
    blocks = ("a", "b", "a", "b")
    trips = tuple(replace(t, block=b) for t, b in zip(city.trips, blocks, strict=True))
    operations = Operations(duties=True, recovery_s=700)
    city = replace(city, trips=trips, operations=operations)
    world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
    run_episode(world, CELL, BEHAVIOURS["zero"])
    world.close()
    halts = sumo_outputs.halts(tmp_path, city.horizon_s)
    first, last = city.services[0].stops[0], city.services[0].stops[-1]
    begun = {h.bus: h.started_s for h in halts if h.stop == city.stops[first].id}
    ended = {h.bus: h.ended_s for h in halts if h.stop == city.stops[last].id}
    for before, after in ((0, 2), (1, 3)):
        ready = ended[trips[before].id] + operations.recovery_s
        assert ready > trips[after].departure_s, "it is late"
        assert ready <= begun[trips[after].id] <= ready + 3
    fast = FastWorld(city, steady(city, run_s=150), keep_visits=True)
    run_episode(fast, CELL, BEHAVIOURS["zero"])
    assert departures(city, fast.arrivals_s) == (2, 0)
    told = {(v.trip, v.position): v for v in fast.visits}
    assert told[2, 0].arrival_s == told[0, 2].departure_s + 700


def test_a_trip_whose_vehicle_comes_after_the_day_is_lost() -> None:
    city = small_city([[0, 1]], [(0, 0), (0, 100)], horizon_s=400)
    trips = tuple(replace(trip, block="a") for trip in city.trips)
    city = replace(city, trips=trips, operations=Operations(duties=True, recovery_s=300))
    world = FastWorld(city, steady(city))
    run_episode(world, CELL, sixty)
    assert departures(city, world.arrivals_s) == (0, 1)


def test_both_worlds_execute_the_same_holds_of_the_same_events(open_world: OpenWorld) -> None:
    """Where nothing else is at random: one bus alone, asked for the longest hold everywhere."""
    operations = Operations(max_hold_s=50.0, ignored_share=0.4, cut_share=0.3, round_s=30.0)
    city = small_cities.streets(services=1, trips=4, headway_s=600, horizon_s=4000)
    city = replace(city, operations=operations)
    world, seen = open_world(city), list[tuple[int, int, float, float]]()
    batch = world.reset(CELL)
    luck = driver_luck(city, CELL)
    while batch is not None:
        trip, row = int(batch.trips[0]), batch.raw[0]
        batch = world.step([60.0])
        seen.append((trip, int(row[STOP]), row[2] + row[10], float(world.executed_s[0])))
    assert len(seen) == 8
    for trip, stop, leaves, executed in seen:
        mine = luck[3 * trip + stop]
        wanted = 0.0 if mine < 0.4 else 50.0 * min((mine - 0.4) / 0.3, 1.0)
        if wanted > 0:
            wanted = min(max(30 * np.floor((leaves + wanted) / 30 + 0.5) - leaves, 0.0), 50.0)
        assert executed == pytest.approx(wanted)
        visit = next(v for v in world.visits if (v.trip, v.position) == (trip, stop))
        assert visit.hold_s == executed
        assert visit.departure_s - visit.arrival_s >= int(executed)


def test_the_look_ahead_proposes_only_what_is_allowed() -> None:
    town = open_city("town")
    city = replace(town.city, operations=Operations(hold_at="terminals", max_hold_s=30.0))
    world = FastWorld(city, town.fitted())
    policy = open_policy("lookahead", city, town.fitted())
    batch, most = world.reset(CELL), 0.0
    while batch is not None:
        asked = policy(batch)
        batch = world.step(asked)
        assert np.array_equal(world.executed_s, asked), "what it asks for is what happens"
        most = max(most, *asked)
    assert 0.0 < most <= 30.0
