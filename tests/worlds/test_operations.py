"""Operations in both worlds: the kernel against the reference simulator, SUMO against its records.

What a hold becomes, which trips run and when a vehicle begins its next trip is read a second time,
word by word, in the reference simulator.
"""

import itertools
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
from evenline.city.operations import ControlPoint, Disruption, Operations
from evenline.city.schedule import hours_of
from evenline.city.starts import half_normal
from evenline.control.action import hold_of
from evenline.control.aec import HoldingAEC
from evenline.control.cycle import Cycle
from evenline.control.event import STOP, Batch
from evenline.control.gym import HoldingEnv
from evenline.control.operations import (
    allowed_s,
    cancelled_trips,
    departures,
    driver_luck,
    executed_s,
    limits_of,
    start_late_s,
)
from evenline.control.outcome import Outcome
from evenline.control.parallel import HoldingParallel
from evenline.control.state import canonical
from evenline.control.visits import Visit
from evenline.control.world import run_episode
from evenline.experiments.compare import Comparison, text_table
from evenline.experiments.experiment import AS_IT_IS
from evenline.experiments.frame import Key
from evenline.experiments.measures import measure
from evenline.policies.bundle import open_policy
from evenline.replay.episode import record_episode
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld, Fleet
from evenline.worlds.open import open_city
from evenline.worlds.sumo.world import SumoWorld
from random_cities import (
    Day,
    Person,
    days,
    holds,
    journeys_of,
    operated,
    small_city,
    steady,
)
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


def disrupted(city: City, *disruptions: Disruption) -> City:
    return replace(city, operations=replace(city.operations, disruptions=disruptions))


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


def test_the_earliest_departure_is_a_rule_that_neither_cap_nor_load_nor_driver_changes() -> None:
    """The bus stands 12 s and needs 100 s; it is due every 300 s from the second stop on."""
    city = line(Operations())
    due = np.array([600 * trip + 300 * i for trip in range(4) for i in range(4)], np.int32)

    def waits(**operations: object) -> list[float]:
        return held(replace(city, due_s=due, operations=Operations(**operations)))[0]  # type: ignore[arg-type]

    assert waits(earliest_s=30.0, max_hold_s=10.0) == [10, 136, 188], "or its hold, if longer"
    strict = {"earliest_s": 30.0, "ignored_share": 1.0, "most_load": 0.0, "round_s": 30.0}
    assert waits(**strict) == [0, 146, 188]
    assert waits(earliest_s=30.0, hold_at="terminals") == [60, 0, 0], "only at control points"
    points = (ControlPoint(2, 0.0),)
    assert waits(earliest_s=0.0, hold_at="listed", control_points=points) == [0, 0, 364]
    late = {"earliest_s": 0.0, "latest_s": 20.0, "round_s": 30.0}
    # Told to leave at 20 s, a driver who rounds would leave at 30: the latest departure stays.
    assert waits(**late)[0] == 8
    with pytest.raises(InputError, match="the earliest departure is after the latest"):
        waits(earliest_s=-30.0, latest_s=20.0)


def test_the_forecast_of_a_hold_is_one_that_may_be_asked_for() -> None:
    city = replace(line(Operations()), operations=Operations(earliest_s=-500.0))
    raw = np.zeros(16)
    assert allowed_s(limits_of(city), 0, raw, 0.0) == 60.0
    assert executed_s(limits_of(city), 0, raw, 0.0, 0.5) == 500.0


def test_control_points_like_all_other_stops_limit_nothing() -> None:
    city = line(Operations(control_points=(ControlPoint(2, 60.0),)))
    assert not city.operations.limits_holds and held(city)[0] == [60, 60, 60]
    listed = line(Operations(hold_at="listed", control_points=(ControlPoint(2, 60.0),)))
    assert held(listed)[0] == [0, 0, 60]


def test_the_executed_hold_is_what_a_replay_records() -> None:
    city = line(Operations(hold_at="terminals"))
    decisions, outcome = record_episode(FastWorld(city, steady(city)), CELL, sixty)
    assert decisions.hold_s.tolist() == [60, 0, 0] * 4
    assert decisions.asked_s is not None and decisions.asked_s.tolist() == [60] * 12
    assert outcome.hold_total_s == 240.0 and outcome.holds_zero == 8


def test_a_fleet_shows_the_same_states_as_the_cycle_whatever_becomes_of_holds() -> None:
    """A bus of a batch sees the holds that were asked of those before it, as a policy asked."""
    town = open_city("town")
    city = replace(town.city, operations=Operations(hold_at="terminals", ignored_share=0.5))
    cycle, fleet = Cycle(FastWorld(city, town.fitted())), Fleet(city, town.fitted(), 1)
    cycle.begin(CELL)
    fleet.reset([CELL])
    rng, seen = np.random.default_rng(3), 0
    while not cycle.over:
        assert np.array_equal(cycle.state(), fleet.states[0])
        seen += len(cycle.batch) > 1
        action = rng.uniform(-1.0, 1.0)
        cycle.act(action)
        fleet.step(np.array([hold_of(action)]))
    assert seen > 50 and fleet.over.all()


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
    city = disrupted(city, Disruption("cancelled", trip=2))
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


def late_by(city: City, late_s: list[float], shared: float = 0.0) -> City:
    """The city with these quantiles of lateness at every hour of every service."""
    shape = (len(city.services), hours_of(city), 1)
    operations = replace(city.operations, starts_shared=shared)
    return replace(city, late_starts_s=np.tile(late_s, shape), operations=operations)


def test_starts_are_as_late_as_the_city_says_and_alike_along_a_vehicles_day() -> None:
    city = small_city([[0, 1]], [(0, 10 * i) for i in range(200)])
    city = late_by(city, half_normal(72.0).tolist(), shared=0.6)
    city = replace(  # two trips for each vehicle
        city, trips=tuple(replace(t, duty=f"{i // 2}") for i, t in enumerate(city.trips))
    )
    days = np.array([start_late_s(city, demo_cell(seed)) for seed in range(1, 201)])
    assert np.quantile(days, [0.1, 0.5, 0.9]) == pytest.approx([15, 81, 197], abs=4)
    assert days.std() == pytest.approx(72.0, rel=0.02)
    ranks = days.argsort(axis=0).argsort(axis=0)
    same = np.mean([np.corrcoef(ranks[:, i], ranks[:, i + 1])[0, 1] for i in range(0, 200, 2)])
    other = np.mean([np.corrcoef(ranks[:, i], ranks[:, i + 1])[0, 1] for i in range(1, 199, 2)])
    # Spearman's correlation of normals with correlation 0.6 is 6 / pi asin(0.3).
    assert same == pytest.approx(6 / np.pi * np.arcsin(0.3), abs=0.03)
    assert other == pytest.approx(0.0, abs=0.03)
    assert np.array_equal(days[0], start_late_s(city, demo_cell(1)))
    assert len(start_late_s(replace(city, late_starts_s=None), demo_cell(1))) == 0


def test_buses_start_late_in_sumo_by_the_same_seconds_as_in_the_fast_world(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """By SUMO's own record of stops; the last trip waits for its vehicle and starts later still."""
    city = small_cities.streets(services=1, trips=4, headway_s=300, horizon_s=3000)
    city = with_blocks(city, "abca", Operations(duties=True))
    late = late_by(city, [10.0 * rank for rank in range(11)])
    late_s = start_late_s(late, CELL)
    began: dict[str, list[dict[str, int]]] = {"fast": [], "sumo": []}
    for number, each in enumerate((city, late)):
        fast = FastWorld(each, steady(each), keep_visits=True)
        run_episode(fast, CELL, lambda batch: [0.0] * len(batch.trips))
        first = [visit for visit in fast.visits if visit.position == 0]
        began["fast"].append({city.trips[v.trip].id: v.arrival_s for v in first})
        folder = tmp_path / str(number)
        folder.mkdir()
        world = open_world(each, outputs=sumo_outputs.output_options(folder))
        run_episode(world, CELL, lambda batch: [0.0] * len(batch.trips))
        world.close()
        stop = city.stops[city.services[0].stops[0]].id
        halts = sumo_outputs.halts(folder, city.horizon_s)
        began["sumo"].append({h.bus: h.started_s for h in halts if h.stop == stop})
    for on_time, uneven in began.values():
        waited = {
            trip.id: uneven[trip.id] - on_time[trip.id] - late_s[number]
            for number, trip in enumerate(city.trips)
        }
        assert all(waited[trip.id] == 0 for trip in city.trips[:3])
    assert late_s.min() >= 0 and late_s.max() > 20


def with_blocks(city: City, blocks: str, operations: Operations) -> City:
    """The city with a letter for the vehicle of each trip."""
    trips = tuple(replace(t, duty=b) for t, b in zip(city.trips, blocks, strict=True))
    return replace(city, trips=trips, operations=operations)


def test_trips_are_lost_and_late_as_sumos_own_record_says(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """Two vehicles come back after the day; a minute at the first stop is a late departure."""
    city = small_cities.streets(services=1, trips=4, headway_s=300, horizon_s=3000)
    city = with_blocks(city, "abab", Operations(duties=True, recovery_s=3000))
    fast = FastWorld(city, steady(city, run_s=150))
    world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
    outcomes = [run_episode(each, CELL, sixty) for each in (fast, world)]
    world.close()
    assert [(o.late_departures, o.lost_trips) for o in outcomes] == [(2, 2), (2, 2)]
    halts = sumo_outputs.halts(tmp_path, city.horizon_s)
    first = city.stops[city.services[0].stops[0]].id
    left = {halt.bus: halt.ended_s for halt in halts if halt.stop == first}
    assert left.keys() == {city.trips[0].id, city.trips[1].id}
    assert all(left[trip.id] > trip.departure_s + 60 for trip in city.trips[:2])


def test_a_late_vehicle_makes_its_next_trip_late_in_both_worlds(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """SUMO's own record of stops: the next trip begins when the vehicle has rested, not before."""
    city = small_cities.streets(services=1, trips=4, headway_s=300, horizon_s=3000)
    operations = Operations(duties=True, recovery_s=700)
    city = with_blocks(city, "abab", operations)
    trips = city.trips
    world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
    sumo = run_episode(world, CELL, BEHAVIOURS["zero"])
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
    assert departures(city, fast.left_s) == (2, 0)
    for outcome in (fast.outcome(), sumo):
        assert (outcome.late_departures, outcome.lost_trips) == (2, 0)
    told = {(v.trip, v.position): v for v in fast.visits}
    assert told[2, 0].arrival_s == told[0, 2].departure_s + 700


def test_a_trip_whose_vehicle_comes_after_the_day_is_lost() -> None:
    city = small_city([[0, 1]], [(0, 0), (0, 100)], horizon_s=400)
    trips = tuple(replace(trip, duty="a") for trip in city.trips)
    city = replace(city, trips=trips, operations=Operations(duties=True, recovery_s=300))
    world = FastWorld(city, steady(city))
    run_episode(world, CELL, BEHAVIOURS["zero"])
    assert departures(city, world.left_s) == (0, 1)
    run_episode(world, CELL, sixty)
    assert departures(city, world.left_s) == (1, 1), "12 s at the door and a hold of a minute"


# -- disruptions ----------------------------------------------------------------------------------


def street(*groups: tuple[int, int, int]) -> City:
    """One service of three stops and three trips, and people as (departure, position, number)."""
    city = small_cities.streets(services=1, trips=3, headway_s=600, horizon_s=3000)
    return small_cities.with_groups(city, groups)


def in_both_worlds(
    city: City, open_world: OpenWorld, folder: Path
) -> tuple[list[tuple[Outcome, list[Visit]]], list[sumo_outputs.Halt]]:
    """The outcome and visits of a day in either world, and the halts that SUMO wrote itself."""
    fast = FastWorld(city, steady(city, run_s=60), keep_visits=True)
    days = [(run_episode(fast, CELL, BEHAVIOURS["zero"]), fast.visits)]
    world = open_world(city, outputs=sumo_outputs.output_options(folder))
    outcome = run_episode(world, CELL, BEHAVIOURS["zero"])
    days.append((outcome, sorted(world.visits)))
    world.close()
    return days, sumo_outputs.halts(folder, city.horizon_s)


def test_people_of_a_broken_bus_ride_on_with_the_next_in_both_worlds(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """SUMO's own record: the bus ends its day at the stop, and the next one takes its people."""
    stop = street().services[0].stops[1]
    city = disrupted(
        street((0, 0, 5), (0, 1, 3)), Disruption("breakdown", trip=0, stop=stop, from_s=1)
    )
    days, halts = in_both_worlds(city, open_world, tmp_path)
    for outcome, visits in days:
        assert [(v.trip, v.position) for v in visits] == [
            (0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)
        ]  # fmt: skip
        broken, next_bus = visits[1], visits[3]
        on_first = visits[0].boarded
        assert on_first > 0
        assert (broken.load, broken.alighted, broken.boarded) == (on_first, on_first, 0)
        assert next_bus.boarded == 3 + on_first, "those of the stop and those of the broken bus"
        assert (outcome.departed, outcome.completed, outcome.trips_completed) == (8, 8, 2)
        assert outcome.decisions == 5
    fast, sumo = (outcome for outcome, _ in days)
    assert fast.waiting_s == pytest.approx(sumo.waiting_s, rel=0.1)
    assert [h.stop for h in halts if h.bus == city.trips[0].id] == [
        city.stops[i].id for i in city.services[0].stops[:2]
    ]
    taken = [h.exchanged for h in halts if h.bus == city.trips[1].id]
    assert taken[1] == days[1][1][3].boarded
    assert sumo_outputs.carried_to_the_end(tmp_path, city.trips[1].id) == 8


def test_a_closed_stop_is_passed_in_both_worlds(open_world: OpenWorld, tmp_path: Path) -> None:
    """People there wait until it opens; whoever wants to get out there does so one stop later."""
    city = street((0, 0, 4), (5, 1, 3))
    middle = city.services[0].stops[1]
    alight = city.journeys.leg_alight.copy()
    alight[:4] = middle  # the journeys of the first stop
    city = replace(city, journeys=replace(city.journeys, leg_alight=alight))
    city = disrupted(city, Disruption("closed", stop=middle, until_s=1000))
    days, halts = in_both_worlds(city, open_world, tmp_path)
    for outcome, visits in days:
        assert [v.position for v in visits] == [0, 2, 0, 2, 0, 1, 2]
        assert [v.load for v in visits if v.position == 2] == [0, 0, 3], "they are already out"
        assert visits[5].boarded == 3
        assert (outcome.departed, outcome.completed, outcome.decisions) == (7, 7, 4)
    fast, sumo = (outcome for outcome, _ in days)
    assert fast.waiting_s == pytest.approx(sumo.waiting_s, rel=0.1)
    assert {h.bus for h in halts if h.stop == city.stops[middle].id} == {city.trips[2].id}


def test_whoever_changes_at_a_closed_stop_is_set_down_and_walks_back(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """They wait there from the moment they get out, and ride on when it has opened."""
    city = street((0, 0, 2))
    first, middle, last = city.services[0].stops
    people = [Person(0, [(first, middle, (0,)), (middle, last, (0,))]) for _ in range(2)]
    city = replace(city, journeys=journeys_of(people))
    city = disrupted(city, Disruption("closed", stop=middle, until_s=1000))
    days, _ = in_both_worlds(city, open_world, tmp_path)
    waited = []
    for outcome, visits in days:
        assert (outcome.departed, outcome.completed) == (2, 2)
        assert [(v.trip, v.boarded) for v in visits if v.position == 1] == [(2, 2)]
        waited.append(outcome.waiting_s)
    assert waited[0] == pytest.approx(waited[1], rel=0.1) and min(waited) > 2000


def test_a_slow_road_takes_longer_in_both_worlds(open_world: OpenWorld, tmp_path: Path) -> None:
    """By SUMO's own record, a bus needs about as much longer as in the fast world."""
    usual = street()
    road = usual.services[0].roads[0]
    window = Disruption("slow", road=road, from_s=500, until_s=1000, factor=3.0)
    found = {}
    for name, city in (("usual", usual), ("slow", disrupted(usual, window))):
        world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
        run_episode(world, CELL, BEHAVIOURS["zero"])
        world.close()
        halts = {(h.bus, h.stop): h for h in sumo_outputs.halts(tmp_path, city.horizon_s)}
        start, end = (city.stops[stop].id for stop in city.services[0].stops[:2])
        for number, trip in enumerate(city.trips):
            run_s = halts[trip.id, end].started_s - halts[trip.id, start].ended_s
            found[name, number] = run_s
    assert found["slow", 0] == found["usual", 0], "before the window nothing changes"
    grown = found["slow", 1] / found["usual", 1]
    fast = FastWorld(disrupted(usual, window), steady(usual, run_s=100), keep_visits=True)
    run_episode(fast, CELL, BEHAVIOURS["zero"])
    runs = [b.arrival_s - a.departure_s for a, b in itertools.pairwise(fast.visits)]
    assert runs[0] == 100 and runs[3] == 300, "both stops lie on the slow road"
    assert runs[4] == 100 + round(200 * shared_part(usual)), "only a part of the way is slow"
    assert grown == pytest.approx(3.0, rel=0.15)


def shared_part(city: City) -> float:
    """How much of the way from the second stop to the third lies on the first road."""
    service, road = city.services[0], city.roads
    length = next(r.length_m for r in road if r.id == service.roads[0])
    return (length - service.distance_m[1]) / (service.distance_m[2] - service.distance_m[1])


def test_a_disruption_of_another_day_does_not_happen() -> None:
    city = line(Operations())
    today, other = (Disruption("breakdown", trip=1, day=day) for day in (CELL.sumo_seed, 77))
    assert [len(row) for row in held(disrupted(city, other))] == [3, 3, 3, 3]
    assert [len(row) for row in held(disrupted(city, today, other))] == [3, 0, 3, 3]


def test_the_duty_of_a_broken_bus_is_lost() -> None:
    city = small_city([[0, 1, 2]], [(0, 0), (0, 500)])
    trips = tuple(replace(trip, duty="a") for trip in city.trips)
    city = replace(city, trips=trips, operations=Operations(duties=True))
    whole = run_episode(FastWorld(city, steady(city)), CELL, BEHAVIOURS["zero"])
    assert (whole.late_departures, whole.lost_trips) == (0, 0)
    city = disrupted(city, Disruption("breakdown", trip=0, stop=1))
    broken = run_episode(FastWorld(city, steady(city)), CELL, BEHAVIOURS["zero"])
    assert (broken.late_departures, broken.lost_trips) == (0, 1)


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


LIMITS: dict[str, tuple[Operations, list[float]]] = {  # the holds of a bus at its two stops
    "terminals": (Operations(hold_at="terminals", max_hold_s=45.0), [45, 0]),
    "listed": (Operations(hold_at="listed", control_points=(ControlPoint(1, 20.0),)), [0, 20]),
    "latest": (Operations(latest_s=-58.0), []),
    "earliest": (Operations(earliest_s=0.0, max_hold_s=10.0, ignored_share=1.0), []),
    "load": (Operations(most_load=0.0), [60, 0]),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_holds_show_in_sumos_own_record(
    open_world: OpenWorld, tmp_path: Path, name: str
) -> None:
    """The bus is due 100 s after its trip begins, and 400 s after it at the second stop.

    It stands 12 s; two people do not need longer at the door.
    """
    operations, expected = LIMITS[name]
    people = ((0, 0, 2),) if name == "load" else ()
    city = small_cities.streets(services=1, trips=2, headway_s=1200, horizon_s=3000)
    city = small_cities.with_groups(city, people)
    due = [t.departure_s + after for t in city.trips for after in (100, 400, 2000)]
    point = city.services[0].stops[1]
    points = tuple(replace(p, stop=point) for p in operations.control_points)
    operations = replace(operations, control_points=points)
    city = replace(city, due_s=np.array(due, np.int32), operations=operations)
    world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
    run_episode(world, CELL, sixty)
    world.close()
    halts = {(h.bus, h.stop): h for h in sumo_outputs.halts(tmp_path, city.horizon_s)}
    bus = city.trips[0]
    stood = [halts[bus.id, city.stops[stop].id] for stop in city.services[0].stops[:2]]
    seconds = [halt.ended_s - halt.started_s for halt in stood]
    if name == "earliest":
        assert [halt.ended_s for halt in stood] == [100, 400]
    elif name == "latest":
        assert stood[0].ended_s == 100 - 58 and stood[1].ended_s == stood[1].started_s + 72
    else:
        assert seconds == [12 + hold_s for hold_s in expected]
        assert (stood[0].exchanged > 0) == (name == "load")


# -- what a learner sees --------------------------------------------------------------------------


def test_every_view_tells_the_hold_that_happened() -> None:
    city = line(Operations(hold_at="terminals", max_hold_s=45.0))

    def world() -> FastWorld:
        return FastWorld(city, steady(city))

    env = HoldingEnv(world, lambda _: CELL)
    _, info = env.reset(seed=0)
    assert info["executed_holds_s"] == ()
    told = [env.step(np.array([1.0], np.float32))[4]["executed_holds_s"] for _ in range(3)]
    assert told == [(45.0,), (0.0,), (0.0,)]
    one, all_buses = HoldingAEC(world, lambda _: CELL), HoldingParallel(world, lambda _: CELL)
    one.reset(seed=0)
    _, infos = all_buses.reset(seed=0)
    for hold_s in (45.0, 0.0, 0.0):
        bus = one.agent_selection
        one.step(np.array([1.0], np.float32))
        assert one.infos[bus]["executed_hold_s"] == hold_s
        assert [name for name, info in infos.items() if info["decides"]] == [bus]
        infos = all_buses.step({bus: np.array([1.0], np.float32)})[4]
        assert infos[bus]["executed_hold_s"] == hold_s


def test_version_2_of_the_state_adds_the_time_to_the_next_departure(open_world: OpenWorld) -> None:
    """Read from the timetable by hand, in both worlds; the first 229 numbers stay as they are."""
    city = small_cities.streets(services=1, trips=3, headway_s=900, horizon_s=3000)
    trips = tuple(replace(t, duty=b) for t, b in zip(city.trips, ("a", "b", "a"), strict=True))
    city = replace(city, trips=trips, operations=Operations(duties=True))
    for world in (FastWorld(city, steady(city, run_s=700)), open_world(city)):
        env = HoldingEnv(lambda world=world: world, lambda _: CELL, state_version=2)
        state, info = env.reset(seed=0)
        over, seen = False, 0
        while not over:
            assert state.shape == (245,) and env.observation_space.contains(state)
            assert np.array_equal(state[:229], canonical(env.cycle._packed(), env.cycle.contract))
            left_s = 1800 - info["time_s"] if info["trip"] == trips[0].id else 3600
            assert state[229] == pytest.approx(min(max(left_s / 600, -6), 6), abs=1e-6)
            assert not state[230:].any(), "one bus alone"
            seen += 1
            state, _, over, _, info = env.step(np.array([-1.0], np.float32))
        assert seen == 6 and not state[229:].any()
        env.close()
    with pytest.raises(InputError, match="state version 3: choose '1' or '2'"):
        HoldingEnv(lambda: FastWorld(city, steady(city)), lambda _: CELL, state_version=3)


def test_a_comparison_of_a_city_with_duties_shows_late_departures_and_lost_trips() -> None:
    city = small_city([[0, 1, 2]], [(0, 0), (0, 100), (0, 3000)])
    trips = tuple(replace(t, duty=b) for t, b in zip(city.trips, "aaa", strict=True))
    city = replace(city, trips=trips, operations=Operations(duties=True, recovery_s=3000))
    world = FastWorld(city, steady(city))
    figures = measure(city, CELL, run_episode(world, CELL, BEHAVIOURS["zero"]), world.arrivals_s)
    assert (figures["late_departures"], figures["lost_trips"]) == (1.0, 1.0)
    days, levels = {Key(AS_IT_IS, "zero"): [figures]}, {AS_IT_IS: 1.0}
    found = Comparison("small", "fast", (CELL,), days, levels, digests={"zero": ""}, duties=True)
    assert "Late departures" in text_table(found) and "Lost trips" in text_table(found)
    assert found.as_json()["policies"][0]["mean"]["lost_trips"] == 1.0


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
