"""The contract of the fast world: what a policy, a rule in the kernel and a fleet are shown.

A day has an order, every token has its canonical state, moments with many arrivals come in
batches, and a cell has the people that it has in every other world.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenline.checks.world import check_world
from evenline.city.cells import demo_cell
from evenline.city.demand import DEMAND_LEVELS, Cell, realise
from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.control.action import action_of
from evenline.control.event import SYSTEM_ON_BOARD, SYSTEM_WAITING, WAITING, Batch
from evenline.control.outcome import Outcome
from evenline.control.state import CANONICAL_WIDTH, canonical, contract_of, pack
from evenline.control.world import run_episode
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld, Fleet
from random_cities import Day, Person, cells, days, restless, small_city, steady
from side_by_side import CELL, assert_same_day, examples, fast_world

State = npt.NDArray[np.float32]


# -- the contract ---------------------------------------------------------------------------------


@examples(60)
@given(days())
def test_the_world_keeps_the_contract_in_any_city(day: Day) -> None:
    check_world(fast_world(day), day.cell)


@pytest.mark.parametrize("level", DEMAND_LEVELS)
def test_the_world_keeps_the_contract_in_the_town(level: float) -> None:
    town = embedded_city("town")
    outcome = check_world(FastWorld(town, restless(town, 3)), replace(CELL, demand=level))
    assert outcome.decisions > 100 < outcome.completed


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_rule_inside_the_kernel_decides_as_it_does_from_outside(name: str) -> None:
    @examples(25)
    @given(days())
    def decides_alike(day: Day) -> None:
        outside = run_episode(fast_world(day), day.cell, BEHAVIOURS[name])
        inside = fast_world(day)
        for written in (False, True):
            assert inside.run_day(day.cell, BEHAVIOURS[name], write_states=written) == outside

    decides_alike()


def test_the_rules_differ_in_the_town() -> None:
    town = embedded_city("town")
    world = FastWorld(town, restless(town, 3))
    outcomes = [world.run_day(CELL, rule) for rule in BEHAVIOURS.values()]
    assert len({outcome.hold_total_s for outcome in outcomes}) == len(BEHAVIOURS)
    assert [rule for rule, o in zip(BEHAVIOURS, outcomes, strict=True) if not o.hold_total_s] == [
        "zero"
    ]


def test_a_day_has_an_order() -> None:
    city = small_city([[0, 1]], [(0, 100)], horizon_s=500)
    world = FastWorld(city, steady(city))
    batch = world.reset(CELL)
    with pytest.raises(InputError, match=r"the day is not over \(100 of 500 s\)"):
        world.outcome()
    while batch is not None:
        batch = world.step([0.0])
    assert world.now_s == 500
    with pytest.raises(InputError, match="the day is over; call reset"):
        world.step([0.0])


def test_a_day_run_by_a_rule_is_over() -> None:
    city = small_city([[0, 1]], [(0, 100)], horizon_s=500)
    world = FastWorld(city, steady(city))
    world.reset(CELL)
    world.run_day(CELL, BEHAVIOURS["zero"])
    with pytest.raises(InputError, match="the day is over; call reset"):
        world.step([0.0])


def test_the_visits_of_a_day_so_far_are_of_stops_already_decided() -> None:
    city = small_city([[0, 1, 2]], [(0, 100)])
    world = FastWorld(city, steady(city), keep_visits=True)
    batch = world.reset(CELL)
    decided = 0
    while batch is not None:
        assert len(world.visits) == decided
        batch, decided = world.step([0.0]), decided + 1


# -- the canonical state --------------------------------------------------------------------------


def hold_of_state(state: State) -> float:
    """A restless policy: any change of the state, however small, is another hold."""
    number = zlib.crc32(state.tobytes())
    return 0.0 if number % 3 == 0 else number % 601 / 10


@dataclass(frozen=True)
class Tokens:
    """A day token by token: states, what passed after each, and what it came to."""

    states: list[State]
    costs: list[float]
    outcome: Outcome


def one_by_one(world: FastWorld, cell: Cell) -> Tokens:
    """The states as `pack` and `canonical` make them of the world's batches."""
    contract = contract_of(world.city)
    states: list[State] = []
    costs: list[float] = []
    batch = world.reset(cell)
    while batch is not None:
        decided: list[float] = []
        for token in range(len(batch.trips)):
            taken = [action_of(hold) for hold in decided]
            states.append(canonical(pack(batch, token, taken), contract))
            decided.append(hold_of_state(states[-1]))
        batch = world.step(decided)
        costs += [0.0] * (len(decided) - 1) + [world.charged]
    return Tokens(states, costs, world.outcome())


def by_fleet(fleet: Fleet, cells_of_fleet: Sequence[Cell]) -> list[Tokens]:
    """The same from a fleet: a world that is over takes the next cell."""
    size, waiting = len(fleet), iter(range(len(cells_of_fleet)))
    states: list[list[State]] = [[] for _ in cells_of_fleet]
    costs: list[list[float]] = [[] for _ in cells_of_fleet]
    outcomes: dict[int, Outcome] = {}
    doing: dict[int, int] = {}

    def take_next(world: int) -> None:
        for cell in waiting:
            fleet.begin(world, cells_of_fleet[cell])
            if not fleet.over[world]:
                doing[world] = cell
                return
            outcomes[cell] = fleet.outcome(world)

    for world in range(size):
        take_next(world)
    while doing:
        decided = np.zeros(size)
        for world, cell in doing.items():
            states[cell].append(fleet.states[world].copy())
            decided[world] = hold_of_state(fleet.states[world])
        fleet.step(decided)
        for world, cell in list(doing.items()):
            costs[cell].append(float(fleet.costs[world]))
            if fleet.over[world]:
                outcomes[cell] = fleet.outcome(world)
                del doing[world]
                take_next(world)
    return [Tokens(states[i], costs[i], outcomes[i]) for i in range(len(cells_of_fleet))]


def assert_same_tokens(left: Tokens, right: Tokens) -> None:
    assert left.outcome == right.outcome
    assert left.costs == right.costs
    assert len(left.states) == len(right.states)
    for mine, other in zip(left.states, right.states, strict=True):
        assert mine.shape == (CANONICAL_WIDTH,)
        assert np.array_equal(mine, other)


@examples(60)
@given(days())
def test_the_state_of_every_token_is_the_canonical_state_of_its_batch(day: Day) -> None:
    (fleet,) = by_fleet(Fleet(day.city, day.calibration, 1), [day.cell])
    assert_same_tokens(fleet, one_by_one(fast_world(day), day.cell))


@examples(40)
@given(days(), st.data())
def test_a_fleet_of_any_size_and_order_gives_each_cell_the_same_day(
    day: Day, data: st.DataObject
) -> None:
    some_cells = data.draw(st.lists(cells(day.city), min_size=1, max_size=6))
    order = data.draw(st.permutations(range(len(some_cells))))
    size = data.draw(st.integers(1, 7))
    found = by_fleet(Fleet(day.city, day.calibration, size), [some_cells[i] for i in order])
    for place, i in enumerate(order):
        assert_same_tokens(found[place], one_by_one(fast_world(day), some_cells[i]))


def test_a_fleet_begins_all_its_worlds_at_once() -> None:
    town = embedded_city("town")
    some_cells = [demo_cell(seed, level) for seed in (1, 2) for level in (1.0, 0.75, 0.6)]
    fleet = Fleet(town, restless(town, 3), len(some_cells))
    states = fleet.reset(some_cells).copy()
    for world, cell in enumerate(some_cells):
        alone = Fleet(town, restless(town, 3), 1)
        assert np.array_equal(states[world], alone.reset([cell])[0])
    assert len(np.unique(states, axis=0)) == len(some_cells), "the cells are different days"
    with pytest.raises(InputError, match="got 5 cells; the fleet has 6 worlds"):
        fleet.reset(some_cells[1:])


@pytest.mark.parametrize("hold", [-0.1, 60.1, math.nan, math.inf])
def test_a_fleet_refuses_a_hold_by_the_number_of_the_world_and_moves_no_bus(hold: float) -> None:
    city = small_city([[0, 1, 2]], [(0, 100)])
    fleet = Fleet(city, steady(city), 3)
    before = fleet.reset([CELL] * 3).copy()
    with pytest.raises(InputError, match=f"world 1: hold {hold} s is not from 0 to 60 s"):
        fleet.step(np.array([10.0, hold, hold]))
    assert np.array_equal(fleet.states, before)
    fleet.step(np.array([10.0, 20.0, 30.0]))
    arrivals = fleet.states[:, 0] * city.horizon_s
    assert arrivals.tolist() == pytest.approx([222, 232, 242]), "100 + 12 + hold + 100"


def test_a_fleet_goes_on_from_a_snapshot_of_plain_numbers() -> None:
    """The names and forms are those of checkpoints; the tables have a row for each world."""
    town = embedded_city("town")
    fleet, other = (Fleet(town, restless(town, 3), 2) for _ in range(2))
    fleet.reset([demo_cell(1, 1.0), demo_cell(2, 1.25)])
    other.reset([demo_cell(3, 1.0), demo_cell(4, 1.0)])

    def go_on(some: Fleet) -> tuple[list[State], list[Outcome]]:
        states = []
        while not some.over.all():
            states.append(some.step(np.array([20.0, 0.0])).copy())
        return states, [some.outcome(world) for world in range(2)]

    for _ in range(200):
        fleet.step(np.array([0.0, 30.0]))
    kept = {name: array.copy() for name, array in fleet.snapshot().items()}
    assert all(array.dtype.names is None and len(array) == 2 for array in kept.values())
    trips = len(town.trips)
    assert kept["num"].shape == (2, 23) and kept["trip"].shape == (2, trips, 16)
    states, outcomes = go_on(fleet)
    other.restore(kept)
    again, same = go_on(other)
    assert np.array_equal(states, again) and outcomes == same


def test_a_bus_and_a_place_are_one_line_of_the_cache_each() -> None:
    city = small_city([[0, 1, 2]], [(0, 100)])
    day = FastWorld(city, steady(city))._days.fleet
    assert day.trip.itemsize == day.place.itemsize == 64 and day.visit.itemsize == 16
    for table in (day.trip, day.place, day.visit, day.queue):
        assert table.ctypes.data % 64 == 0


def test_a_hold_for_a_world_that_is_over_is_ignored() -> None:
    city = small_city([[0, 1]], [(0, 100), (0, 300)])
    never = replace(CELL, demand=0.0)
    fleet = Fleet(city, steady(city), 2)
    fleet.reset([CELL, never])
    fleet.step(np.zeros(2))
    fleet.step(np.zeros(2))
    assert fleet.over.all()
    before = fleet.outcome(0), fleet.outcome(1)
    fleet.step(np.array([math.nan, 99.0]))
    assert (fleet.outcome(0), fleet.outcome(1)) == before


@examples(40)
@given(days())
def test_a_rule_inside_the_kernel_writes_the_states_it_passes(day: Day) -> None:
    """What is left after the day is the last token's state."""
    rule, contract = BEHAVIOURS["random-often"], contract_of(day.city)
    outside, inside = fast_world(day), fast_world(day)
    last = blank = canonical(pack(Batch(0, np.zeros(0), np.zeros((1, 16))), 0, []), contract)
    blank[:5] = 0.0
    blank[5:19] = blank[19:33]
    batch = outside.reset(day.cell)
    while batch is not None:
        decided = list(rule(batch))
        taken = [action_of(hold) for hold in decided[:-1]]
        last = canonical(pack(batch, len(taken), taken), contract)
        batch = outside.step(decided)
    written = blank.copy()
    inside._state = written
    inside.run_day(day.cell, rule, write_states=True)
    assert np.array_equal(written, last)


# -- wide moments ---------------------------------------------------------------------------------


def many_at_once(services: int, run_s: int = 100) -> Day:
    """So many services, each with its own two stops before the last and the same timetable."""
    rows = [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(services)]
    people = [Person(400, [(row[0], row[2], (i,))]) for i, row in enumerate(rows)]
    trips = [(i, at) for i in range(services) for at in (600, 900)]
    city = small_city(rows, trips, people, horizon_s=1800)
    return Day(city, steady(city, run_s), CELL)


def test_more_than_sixteen_arrivals_become_batches_of_one_moment() -> None:
    day = many_at_once(20)
    world = fast_world(day)
    first = world.reset(CELL)
    assert first is not None
    second = world.step([0.0] * 16)
    assert second is not None
    assert world.charged == 0
    assert first.time_s == second.time_s == 600
    assert [*first.trips, *second.trips] == list(range(0, 40, 2))
    third = world.step([0.0] * 4)
    assert third is not None
    assert third.time_s == 712
    assert world.charged > 0

    outcome = check_world(world, CELL)
    assert outcome.decisions == day.city.decisions == 80


@pytest.mark.parametrize("services", [15, 16, 17, 20, 33])
def test_wide_moments_are_those_of_the_reference_and_of_a_fleet(services: int) -> None:
    day = many_at_once(services)
    assert_same_day(day, [0.0, 12.5, 60.0])
    expected = one_by_one(fast_world(day), CELL)
    for found in by_fleet(Fleet(day.city, day.calibration, 2), [CELL, CELL, CELL]):
        assert_same_tokens(found, expected)
    assert expected.outcome.zero_duration_tokens > 0


def test_narrow_batches_change_no_decision() -> None:
    day = many_at_once(20)
    widths = []

    def policy(batch: Batch) -> Sequence[float]:
        widths.append(len(batch.trips))
        return BEHAVIOURS["random-often"](batch)

    narrow = FastWorld(day.city, day.calibration, max_batch=3)
    assert run_episode(narrow, CELL, policy) == run_episode(
        fast_world(day), CELL, BEHAVIOURS["random-often"]
    )
    assert max(widths) == 3


# -- the same people ------------------------------------------------------------------------------


def without_buses(city: City) -> City:
    """The same city when its only bus comes after the day."""
    last = replace(city.trips[0], departure_s=city.horizon_s - 1)
    return replace(city, trips=(last,))


@pytest.mark.parametrize("level", [*DEMAND_LEVELS, 0.5])
@pytest.mark.parametrize("seed", [1, 77])
def test_a_cell_has_the_people_and_the_departures_of_every_other_world(
    level: float, seed: int
) -> None:
    town = without_buses(embedded_city("town"))
    cell = demo_cell(seed, level)
    departures = realise(town, cell).departure_s
    assert len(departures) > 1000
    world = FastWorld(town, steady(town, start_delay_s=1))
    assert world.reset(cell) is None, "no bus ever comes"
    outcome = world.outcome()
    assert outcome.departed == len(departures)
    assert outcome.waiting_s == int((town.horizon_s - departures).sum())
    assert (outcome.riding_s, outcome.completed, outcome.decisions) == (0, 0, 0)
    assert world.charged == outcome.cost == outcome.pre_control_cost
    arriving = np.bincount(departures, minlength=town.horizon_s)
    assert np.array_equal(world._days.fleet.second[0].add_waiting, arriving)


@examples(40)
@given(days())
def test_as_many_wait_at_any_moment_as_have_departed_when_no_bus_takes_them(day: Day) -> None:
    """A service that nobody may use calls at its stops and tells how many wait in the city."""
    idle = len(day.city.services)
    calls = [(idle, at) for at in range(0, day.city.horizon_s, 97)]
    services = [*(service.stops for service in day.city.services), [0, 1]]
    city = replace(small_city(services, calls, (), day.city.horizon_s), journeys=day.city.journeys)
    departures = realise(city, day.cell).departure_s
    world = FastWorld(city, steady(city))
    batch, seen = world.reset(day.cell), 0
    while batch is not None:
        seen += 1
        assert batch.raw[0, SYSTEM_WAITING] == (departures <= batch.time_s).sum()
        assert batch.raw[0, WAITING] == batch.raw[0, SYSTEM_ON_BOARD] == 0
        batch = world.step([0.0])
    assert seen == len(calls)


def test_a_level_above_what_the_journeys_hold_is_refused_as_in_every_world() -> None:
    town = embedded_city("town")
    cell = demo_cell(1, 1.5)
    with pytest.raises(InputError) as expected:
        realise(town, cell)
    with pytest.raises(InputError) as refusal:
        FastWorld(town, steady(town)).reset(cell)
    assert str(refusal.value) == str(expected.value)
