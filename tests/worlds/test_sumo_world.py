"""The SUMO world against SUMO's own records: who waited, who rode, how long a bus stood.

The ledger is compared with outputs that SUMO writes by itself, over whole days; the rest shows
the contract: every arrival asks once, a hold is what was asked for, failures are one line.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import small_cities
import sumo_outputs
from evenline.checks.world import check_world
from evenline.city.cells import demo_cell
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.city.tables import load_city
from evenline.control.event import BASE_DWELL, ON_BOARD, STOP, WAITING, Batch
from evenline.control.outcome import Outcome
from evenline.control.world import Policy, run_episode
from evenline.rules.policy import BEHAVIOURS, RulePolicy, set_rule
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.sumo.errors import first_error
from evenline.worlds.sumo.runtime import libsumo_functions
from evenline.worlds.sumo.world import SumoWorld
from hamlet import write_hamlet
from random_cities import steady

OpenWorld = Callable[..., SumoWorld]
CELL = demo_cell(1)
ZERO, HEADWAY = BEHAVIOURS["zero"], BEHAVIOURS["headway-1.0"]
# Every second bus is held, up to the cap.
RESTLESS = set_rule("restless", "random", share=0.5, longest_s=60.0)


@dataclass(frozen=True)
class Day:
    """A day that was run: its outcome, and the costs as they were charged."""

    outcome: Outcome
    pre_control: int
    token_costs: list[int]


def run_day(world: SumoWorld, cell: Cell, policy: Policy) -> Day:
    batch = world.reset(cell)
    pre_control, costs = world.charged, []
    while batch is not None:
        batch = world.step(policy(batch))
        costs.append(world.charged)
    outcome = world.outcome()
    world.close()
    return Day(outcome, pre_control, costs)


# -- the ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "policy"),
    [*product(["town", "short town"], [ZERO, RESTLESS]), ("city", RESTLESS)],
    ids=lambda given: getattr(given, "name", given),
)
def test_the_ledger_is_what_sumo_counted(
    name: str, policy: RulePolicy, open_world: OpenWorld, tmp_path: Path
) -> None:
    city = small_cities.short_town() if name == "short town" else embedded_city(name)
    world = open_world(city, outputs=sumo_outputs.output_options(tmp_path))
    outcome = run_day(world, CELL, policy).outcome
    ledger = (outcome.waiting_s, outcome.riding_s)

    assert ledger == sumo_outputs.person_summary(tmp_path)
    waiting_s, riding_s = sumo_outputs.person_summary(tmp_path, city.service_end_s)
    assert 0 < outcome.service_cost == 2 * waiting_s + riding_s < outcome.cost

    rides = sumo_outputs.rides(tmp_path, city.horizon_s)
    halts = sumo_outputs.halts(tmp_path, city.horizon_s)
    boarded = sumo_outputs.boardings(rides, halts)
    rebuilt = sumo_outputs.waited_and_rode(rides, boarded, city.horizon_s)
    boardings_and_alightings = sum(halt.exchanged for halt in halts)
    assert sum(ledger) == sum(rebuilt)
    assert abs(ledger[0] - rebuilt[0]) <= boardings_and_alightings  # one step each

    assert outcome.departed == len(sumo_outputs.departures(tmp_path))
    unfinished = sum(ride.arrived_s is None for ride in rides)
    assert outcome.unfinished == unfinished > 0
    riding_at_the_end = any(r.bus is not None and r.arrived_s is None for r in rides)
    assert riding_at_the_end == (name == "short town"), "the cut day is there for this case"


def test_stop_visits_are_sumos_own(town: City, open_world: OpenWorld, tmp_path: Path) -> None:
    world = open_world(town, outputs=sumo_outputs.output_options(tmp_path))
    run_day(world, CELL, RESTLESS)
    seen = {
        sumo_outputs.Halt(
            town.trips[visit.trip].id,
            town.stops[town.services[town.trips[visit.trip].service].stops[visit.position]].id,
            visit.arrival_s,
            visit.departure_s,
            visit.alighted + visit.boarded,
        )
        for visit in world.visits
    }
    assert seen == set(sumo_outputs.halts(tmp_path, town.horizon_s))


@pytest.mark.parametrize("policy", [ZERO, RESTLESS], ids=lambda rule: rule.name)
def test_every_second_is_charged_once(
    town: City, policy: RulePolicy, open_world: OpenWorld
) -> None:
    day = run_day(open_world(small_cities.late_town(town, 1_200)), CELL, policy)
    total = day.outcome.generalized_s * day.outcome.departed
    assert day.pre_control > 0, "people wait before the first bus of this city"
    assert day.pre_control + sum(day.token_costs) == pytest.approx(total, rel=1e-9)
    assert day.pre_control == day.outcome.pre_control_cost
    assert sum(day.token_costs) == day.outcome.token_cost


@pytest.mark.parametrize("max_batch", [16, 2])
def test_the_world_keeps_the_contract(town: City, max_batch: int, open_world: OpenWorld) -> None:
    outcome = check_world(open_world(town, max_batch=max_batch), CELL)
    assert outcome.decisions == town.decisions


# -- the same people ------------------------------------------------------------------------------


def test_the_same_people_depart_whatever_is_done(
    town: City, open_world: OpenWorld, tmp_path: Path
) -> None:
    world = open_world(town, outputs=sumo_outputs.output_options(tmp_path))
    people, generalized = [], set()
    for policy in (ZERO, HEADWAY, RESTLESS):
        outcome = run_day(world, CELL, policy).outcome
        people.append(sumo_outputs.departures(tmp_path))
        generalized.add(outcome.generalized_s)
        assert outcome.departed == len(people[0])
    assert people[0] == people[1] == people[2]
    assert len(generalized) == 3, "the policies do differ"


def test_a_higher_level_contains_everyone_of_a_lower_one(
    town: City, open_world: OpenWorld, tmp_path: Path
) -> None:
    world = open_world(town, outputs=sumo_outputs.output_options(tmp_path))
    levels = []
    for demand in DEMAND_LEVELS:
        run_day(world, dataclasses.replace(CELL, demand=demand), ZERO)
        levels.append(sumo_outputs.departures(tmp_path).items())
    low, middle, high = levels
    assert low < middle < high, "the same people at the same seconds, and more"


# -- what a bus is told ---------------------------------------------------------------------------


class Queues:
    """Who stood at which stop and sat in which bus at any time, from SUMO's own records."""

    def __init__(self, city: City, folder: Path) -> None:
        rides = sumo_outputs.rides(folder, city.horizon_s)
        boarded = sumo_outputs.boardings(rides, sumo_outputs.halts(folder, city.horizon_s))
        self.city, journeys = city, city.journeys
        self.at_stop: dict[int, list[tuple[int, int, str | None, tuple[int, ...]]]] = {}
        self.in_bus: dict[str | None, list[tuple[int, int]]] = {}
        for ride in rides:
            leg = int(journeys.leg_start[int(ride.person[1:])]) + ride.leg
            board = boarded.get(ride, city.horizon_s)
            carriers = journeys.carriers[journeys.leg_carriers[leg]]
            self.at_stop.setdefault(int(journeys.leg_board[leg]), []).append(
                (ride.since_s, board, ride.bus, carriers)
            )
            end = city.horizon_s if ride.arrived_s is None else ride.arrived_s
            self.in_bus.setdefault(ride.bus, []).append((board, end))

    def waiting(self, trip: int, position: int, now_s: int) -> int:
        """For this bus; those who board it in this very second are waiting still."""
        service, bus = self.city.trips[trip].service, self.city.trips[trip].id
        stop = self.city.services[service].stops[position]
        return sum(
            since <= now_s
            and service in carriers
            and (board > now_s or (board, by) == (now_s, bus))
            for since, board, by, carriers in self.at_stop.get(stop, [])
        )

    def on_board(self, trip: int, now_s: int) -> int:
        """Before anybody alights."""
        rides = self.in_bus.get(self.city.trips[trip].id, [])
        return sum(board < now_s <= end for board, end in rides)


def test_a_bus_is_told_who_waits_and_who_rides(
    town: City, open_world: OpenWorld, tmp_path: Path
) -> None:
    told = []

    def policy(batch: Batch) -> Sequence[float]:
        for trip, row in zip(batch.trips.tolist(), batch.raw.astype(int), strict=True):
            told.append((trip, row[STOP], batch.time_s, row[WAITING], row[ON_BOARD]))
        return RESTLESS(batch)

    run_day(open_world(town, outputs=sumo_outputs.output_options(tmp_path)), CELL, policy)
    queues = Queues(town, tmp_path)
    for trip, position, now_s, waiting, on_board in told:
        assert on_board == queues.on_board(trip, now_s)
        assert waiting == queues.waiting(trip, position, now_s)


def test_a_full_bus_leaves_people_behind_for_the_next(open_world: OpenWorld) -> None:
    world = open_world(queueing_city([(60, 3), (1, 1)]))
    outcome = run_day(world, CELL, ZERO).outcome
    visits = {(v.trip, v.position): (v.boarded, v.left_behind) for v in world.visits}
    assert [visits[1, 0], visits[1, 1]] == [(50, 10), (0, 3)]
    assert [visits[2, 0], visits[2, 1]] == [(11, 0), (4, 0)]
    assert outcome.denied_boardings == 13
    assert outcome.completed == 65


# -- holds ----------------------------------------------------------------------------------------


def test_a_hold_comes_on_top_of_the_dwell_to_the_second(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """Everybody is there before the bus, no other bus or car is near: dwell is known beforehand."""
    sizes = [(0, 0), (1, 2), (3, 4), (9, 0), (5, 11), (2, 7)]
    holds = [(0.0, 0.0), (1.0, 60.0), (12.0, 0.25), (33.5, 59.0), (0.0, 7.0), (21.0, 2.75)]
    city = queueing_city(sizes)
    told: dict[tuple[int, int], list[int]] = {}

    def policy(batch: Batch) -> Sequence[float]:
        (trip,), (row,) = batch.trips.tolist(), batch.raw
        told[trip, int(row[STOP])] = row[[WAITING, ON_BOARD, BASE_DWELL]].astype(int).tolist()
        return [holds[trip - 1][int(row[STOP])] if trip else 0.0]

    run_day(open_world(city, outputs=sumo_outputs.output_options(tmp_path)), CELL, policy)
    place = {city.stops[stop].id: p for p, stop in enumerate(city.services[0].stops)}
    stood = {
        (halt.bus, place[halt.stop]): halt.ended_s - halt.started_s
        for halt in sumo_outputs.halts(tmp_path, city.horizon_s)
    }
    for trip, (pair, asked) in enumerate(zip(sizes, holds, strict=True), 1):
        for position in (0, 1):
            dwell = max(12, 4 * pair[position])
            assert told[trip, position] == [pair[position], position * pair[0], dwell]
            assert stood[city.trips[trip].id, position] == dwell + math.ceil(asked[position])


@pytest.mark.parametrize(("each_s", "least_s"), [(2.5, 12), (1.75, 7.5), (0.4, 0)])
def test_fractions_of_a_second_round_dwell_up_as_in_sumo(
    each_s: float, least_s: float, open_world: OpenWorld, tmp_path: Path
) -> None:
    """SUMO's own record of how long buses stand is the dwell that both worlds say beforehand."""
    sizes = [(0, 0), (1, 2), (3, 4), (9, 0), (5, 11), (2, 7)]
    city = queueing_city(sizes)
    bus = replace(city.vehicle, exchange_s_per_passenger=each_s, min_dwell_s=least_s)
    city = replace(city, vehicle=bus)
    run_day(open_world(city, outputs=sumo_outputs.output_options(tmp_path)), CELL, ZERO)
    first, second = (city.stops[stop].id for stop in city.services[0].stops[:2])
    stood = {
        (halt.bus, halt.stop): halt.ended_s - halt.started_s
        for halt in sumo_outputs.halts(tmp_path, city.horizon_s)
    }
    fast = FastWorld(city, steady(city), keep_visits=True)
    run_episode(fast, CELL, ZERO)
    told = {(v.trip, v.position): v for v in fast.visits}
    for trip, pair in enumerate(sizes, 1):
        for position, stop in enumerate((first, second)):
            dwell = math.ceil(max(1, least_s, each_s * pair[position]))  # SUMO stands for a step
            assert stood[city.trips[trip].id, stop] == dwell
            visit = told[trip, position]
            assert visit.boarded == pair[position]
            assert max(1, visit.base_dwell_s) == dwell
            assert max(1, visit.departure_s - visit.arrival_s) == dwell


def test_doors_that_sumo_does_not_know_are_refused() -> None:
    city = embedded_city("town")
    with pytest.raises(InputError, match="which SUMO does not know; use the fast world"):
        SumoWorld(replace(city, vehicle=replace(city.vehicle, opening_s=2.0)))


def test_every_bus_stands_and_fills_up_as_its_own_type(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    """SUMO's own records of dwell and of who boarded, for two bus types in turn."""
    sizes = [(3, 0), (3, 0), (9, 2), (9, 2)]
    city = queueing_city(sizes)
    van = replace(city.vehicle, capacity=7, min_dwell_s=20, exchange_s_per_passenger=6)
    trips = tuple(replace(trip, vehicle=i % 2) for i, trip in enumerate(city.trips))
    city = replace(city, trips=trips, more_vehicles=(van,))
    day = run_day(open_world(city, outputs=sumo_outputs.output_options(tmp_path)), CELL, ZERO)
    first = city.stops[city.services[0].stops[0]].id
    halts = {
        halt.bus: (halt.ended_s - halt.started_s, halt.exchanged)
        for halt in sumo_outputs.halts(tmp_path, city.horizon_s)
        if halt.stop == first
    }
    # The van of the third group leaves two people, who go with the bus after it.
    expected = [(20, 3), (12, 3), (42, 7), (44, 11)]
    assert [halts[trip.id] for trip in city.trips[1:]] == expected
    assert day.outcome.departed == day.outcome.completed == 28
    fast = FastWorld(city, steady(city), keep_visits=True)
    run_episode(fast, CELL, ZERO)
    told = [v for v in fast.visits if v.position == 0 and v.trip]
    assert [(v.departure_s - v.arrival_s, v.boarded) for v in told] == expected


def queueing_city(sizes: Sequence[tuple[int, int]]) -> City:
    """One service; so many people are at its first and second stop long before each bus comes.

    The first bus runs empty, since nobody can be there before the day begins.
    """
    headway = 900
    city = small_cities.streets(
        services=1, trips=1 + len(sizes), headway_s=headway, horizon_s=(2 + len(sizes)) * headway
    )
    people = [
        (number * headway - 300, position, size)
        for number, pair in enumerate(sizes, 1)
        for position, size in enumerate(pair)
    ]
    return small_cities.with_groups(city, people)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.floats().filter(lambda hold: not 0 <= hold <= 60))
def test_a_refused_hold_names_bus_stop_and_value(waiting_world: SumoWorld, hold: float) -> None:
    with pytest.raises(InputError) as refusal:
        waiting_world.step([0.0, hold])
    assert str(refusal.value) == f"bus 1W.00 at stop s013: hold {hold} s is not from 0 to 60 s"


def test_a_refused_hold_changes_nothing(town: City, waiting_world: SumoWorld) -> None:
    for holds in ([math.nan, 0.0], [61.0, 0.0], [-1.0, 0.0], [0.0], []):
        with pytest.raises(InputError):
            waiting_world.step(holds)
    batch = waiting_world.step([0.0, 0.0])
    while batch is not None:
        batch = waiting_world.step(ZERO(batch))
    refused = waiting_world.outcome()
    waiting_world.close()
    assert refused == run_episode(waiting_world, CELL, ZERO)


@pytest.fixture
def waiting_world(town: City, open_world: OpenWorld) -> SumoWorld:
    """A town at its first batch: two buses are asked."""
    world = open_world(town)
    batch = world.reset(CELL)
    assert batch is not None
    assert [town.trips[trip].id for trip in batch.trips] == ["1E.00", "1W.00"]
    return world


# -- batches --------------------------------------------------------------------------------------


def test_more_than_sixteen_arrivals_become_batches_of_one_moment(open_world: OpenWorld) -> None:
    city = small_cities.streets(services=20, trips=1, headway_s=0, horizon_s=1_200)
    world = open_world(city)
    first = world.reset(CELL)
    assert first is not None
    second = world.step([0.0] * 16)
    assert second is not None
    assert world.charged == 0
    assert first.time_s == second.time_s
    assert [*first.trips, *second.trips] == list(range(20))
    third = world.step([0.0] * 4)
    assert third is not None
    assert third.time_s > second.time_s
    world.close()

    outcome = check_world(world, CELL)  # every stop of every bus is decided exactly once
    assert outcome.decisions == city.decisions == 40
    assert outcome.trips_completed == 20


def test_narrow_batches_change_no_decision(town: City, open_world: OpenWorld) -> None:
    def widest(world: SumoWorld) -> tuple[int, Outcome]:
        widths = [0]

        def policy(batch: Batch) -> Sequence[float]:
            widths.append(len(batch.trips))
            return HEADWAY(batch)

        outcome = run_day(world, CELL, policy).outcome
        return max(widths), outcome

    wide, outcome = widest(open_world(town))
    narrow, same = widest(open_world(town, max_batch=2))
    assert wide > narrow == 2
    assert outcome == same


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_process_has_one_open_world(town: City, open_world: OpenWorld) -> None:
    first, second = open_world(town), open_world(town)
    assert first.reset(CELL) is not None
    with pytest.raises(InputError, match="another SUMO world is open in this process"):
        second.reset(CELL)
    first.close()
    assert second.reset(CELL) is not None


def test_a_day_has_an_order(open_world: OpenWorld) -> None:
    world = open_world(small_cities.streets(services=1, trips=1, headway_s=0, horizon_s=600))
    batch = world.reset(CELL)
    with pytest.raises(InputError, match=r"the day is not over \(1 of 600 s\)"):
        world.outcome()
    while batch is not None:
        batch = world.step(ZERO(batch))
    with pytest.raises(InputError, match="the day is over; call reset"):
        world.step([])


def test_a_crash_of_sumo_is_one_line_with_the_time(
    town: City, open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, before = open_world(town), open_world(town)
    expected = run_episode(before, CELL, ZERO)
    before.close()
    real, steps = libsumo_functions().simulation_step, iter(range(10_000))

    def breaks(*args: Any) -> None:
        if next(steps) == 1_000:
            raise RuntimeError("first line\nthe engine is gone")
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(libsumo_functions(), "simulation_step", breaks)
        with pytest.raises(InputError) as failure:
            run_episode(world, CELL, ZERO)
    assert str(failure.value) == "SUMO stopped at 1000 s of the day: the engine is gone"
    assert run_episode(world, CELL, ZERO) == expected, "the next day is not harmed"


def test_what_sumo_cannot_load_is_told_by_table_and_row(tmp_path: Path) -> None:
    """SUMO names a stop; the user knows it by its table and row."""
    hamlet = load_city(write_hamlet(tmp_path / "hamlet"))
    printed = "Error: Invalid position for busStop 's1'.\nQuitting (on error).\n"
    assert first_error(hamlet, printed) == "stops.csv row 1: Invalid position for busStop 's1'."


def test_a_city_that_sumo_cannot_load_is_one_line_with_the_time(
    town: City, open_world: OpenWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"^SUMO stopped at 0 s of the day: [^\n]+$"):
        open_world(small_cities.unloadable(town)).reset(CELL)
    assert capfd.readouterr().err == "", "SUMO's own line would be a second one"
    assert open_world(town).reset(CELL) is not None
