"""The fast world against a slow one written for clarity, and against what must hold in any city.

Random small cities bunch, overtake, fill up and strand people; the compiled kernel has to agree
with the reference simulator in every feature, every charge and every stop visit.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from random_cities import Day, Person, cells, days, holds, restless, small_city, steady
from reference_simulator import ReferenceWorld

from evenline.city.cells import demo_cell
from evenline.city.demand import DEMAND_LEVELS, Cell, realise
from evenline.city.embedded import embedded_city
from evenline.city.model import City, Vehicle
from evenline.control.action import action_of
from evenline.control.event import (
    BUS_AHEAD,
    BUS_BEHIND,
    RATE,
    SYSTEM_ON_BOARD,
    SYSTEM_WAITING,
    WAITING,
    Batch,
)
from evenline.control.outcome import Outcome
from evenline.control.state import CANONICAL_WIDTH, canonical, contract_of, pack
from evenline.control.visits import Visit
from evenline.control.world import World, check_world, run_episode
from evenline.errors import InputError
from evenline.policies.rules import BEHAVIOURS
from evenline.worlds.fast import kernel
from evenline.worlds.fast.world import FastWorld, Fleet

State = npt.NDArray[np.float32]
CELL = demo_cell(1)
EXACT_BUT_RATE = [column for column in range(16) if column != RATE]


def examples(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def in_turn(given_out: Sequence[float]) -> Callable[[Batch], list[float]]:
    """A policy that hands out the same holds again and again, whatever happens."""
    left = itertools.cycle(given_out)
    return lambda batch: [next(left) for _ in batch.trips]


def run(world: World, cell: Cell, some_holds: Sequence[float] = (0.0,)) -> Outcome:
    return run_episode(world, cell, in_turn(some_holds))


def fast_world(day: Day) -> FastWorld:
    return FastWorld(day.city, day.calibration, keep_visits=True)


def assert_same_day(day: Day, some_holds: Sequence[float]) -> tuple[FastWorld, ReferenceWorld]:
    """Both worlds side by side under the same holds: they never differ."""
    fast, slow = fast_world(day), ReferenceWorld(day.city, day.calibration)
    policy = in_turn(some_holds)
    left, right = fast.reset(day.cell), slow.reset(day.cell)
    assert fast.charged == slow.charged
    while left is not None and right is not None:
        assert (left.time_s, left.trips.tolist()) == (right.time_s, right.trips.tolist())
        assert np.array_equal(left.raw[:, EXACT_BUT_RATE], right.raw[:, EXACT_BUT_RATE])
        assert np.allclose(left.raw[:, RATE], right.raw[:, RATE], rtol=1e-12, atol=0)
        decided = policy(left)
        left, right = fast.step(decided), slow.step(decided)
        assert fast.charged == slow.charged
    assert left is None and right is None
    assert fast.outcome() == slow.outcome()
    assert fast.visits == sorted(slow.visits)
    on_bus = {(ride.leg, ride.trip) for ride in rides(fast)}
    assert on_bus == {(ride.leg.number, ride.trip) for ride in slow.rides}
    return fast, slow


# -- the reference --------------------------------------------------------------------------------


@examples(100)
@given(days(), holds())
def test_features_charges_visits_and_outcome_are_those_of_the_reference(
    day: Day, some_holds: list[float]
) -> None:
    assert_same_day(day, some_holds)


@examples(20)
@given(days(), st.data())
def test_a_world_that_is_used_again_remembers_nothing_of_earlier_days(
    day: Day, data: st.DataObject
) -> None:
    used = fast_world(day)
    for _ in range(2):
        run(used, data.draw(cells(day.city)), data.draw(holds()))
    assert run(used, day.cell, [0.0, 30.5]) == run(fast_world(day), day.cell, [0.0, 30.5])
    assert used.outcome() == run(ReferenceWorld(day.city, day.calibration), day.cell, [0.0, 30.5])


def overtaken(world: FastWorld) -> bool:
    """Whether a trip reached a stop before an earlier trip of its service did."""
    reached = {(visit.trip, visit.position): visit.arrival_s for visit in world.visits}
    trips = world.city.trips
    return any(
        trips[a].service == trips[b].service
        and trips[a].departure_s < trips[b].departure_s
        and reached.get((a, position), math.inf) > at
        for (b, position), at in reached.items()
        for a in range(len(trips))
    )


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda world, o: overtaken(world) and o.trips_completed > 1, id="overtaking"),
        pytest.param(lambda world, o: o.zero_duration_tokens > 1, id="decisions at one moment"),
        pytest.param(lambda world, o: o.denied_boardings > 5 < o.completed, id="full buses"),
        pytest.param(lambda world, o: changed(world) > 3, id="changes"),
        pytest.param(lambda world, o: 0 < o.unfinished < o.departed, id="a day that is too short"),
    ],
)
def test_the_random_cities_show_what_they_are_for(
    happens: Callable[[FastWorld, Outcome], bool],
) -> None:
    def shows(day: Day) -> bool:
        world = fast_world(day)
        return happens(world, run(world, day.cell))

    few = settings(examples(150), phases=[Phase.generate])
    assert shows(find(days(), shows, settings=few))


# -- who is where ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ride:
    """A leg for which the kernel found a bus, read from its memory after the day."""

    leg: int
    trip: int
    boarded: int  # position on the trip
    alights: int


def rides(world: FastWorld) -> list[Ride]:
    city, memory, static = world.city, world._days.fleet, world._days.static
    found = []
    for trip, visit in enumerate(static.first_visit[:-1].tolist()):
        stops = city.services[city.trips[trip].service].stops
        for position in range(len(stops)):
            leg = int(memory.alight_head[0, visit + position])
            while leg >= 0:
                board = int(city.journeys.leg_board[leg])
                assert board in stops, "nobody gets on where the bus does not stop"
                found.append(Ride(leg, trip, stops.index(board), position))
                leg = int(memory.alight_next[0, leg])
    return found


def changed(world: FastWorld) -> int:
    """Second and later legs for which a bus came."""
    return sum(ride.leg not in world.city.journeys.leg_start for ride in rides(world))


@examples(80)
@given(days(), holds())
def test_people_are_conserved(day: Day, some_holds: list[float]) -> None:
    world = fast_world(day)
    batch, policy = world.reset(day.cell), in_turn(some_holds)
    everyone = realise(day.city, day.cell).departure_s
    completed = 0
    while batch is not None:
        departed = int((everyone <= batch.time_s).sum())
        present = int(batch.raw[0, SYSTEM_WAITING] + batch.raw[0, SYSTEM_ON_BOARD])
        assert completed <= departed - present <= departed, "who has arrived does not come back"
        completed = departed - present
        batch = world.step(policy(batch))
    outcome = world.outcome()
    scalars = world._days.fleet.num[0]
    left = scalars[kernel.WAITING_NOW], scalars[kernel.RIDING_NOW]
    assert min(left) >= 0
    assert outcome.departed == len(everyone) == outcome.completed + sum(left)
    assert outcome.completed >= completed


@examples(80)
@given(days(), holds())
def test_a_bus_carries_whom_it_took_on_and_never_more_than_it_has_room_for(
    day: Day, some_holds: list[float]
) -> None:
    world = fast_world(day)
    run(world, day.cell, some_holds)
    carried = dict.fromkeys(range(len(day.city.trips)), 0)
    for visit in sorted(world.visits):
        assert visit.load == carried[visit.trip], "what left the last stop reaches this one"
        assert 0 <= visit.alighted <= visit.load
        carried[visit.trip] += visit.boarded - visit.alighted
        assert carried[visit.trip] <= day.city.vehicle.capacity
        full = carried[visit.trip] == day.city.vehicle.capacity
        assert full or visit.left_behind == 0, "only a full bus leaves people behind"


@examples(80)
@given(days(), holds())
def test_nobody_boards_a_service_that_does_not_carry_the_leg_or_alights_elsewhere(
    day: Day, some_holds: list[float]
) -> None:
    world, city = fast_world(day), day.city
    run(world, day.cell, some_holds)
    journeys, taken = city.journeys, rides(world)
    assert len({ride.leg for ride in taken}) == len(taken), "a leg is ridden once"
    for ride in taken:
        service = city.trips[ride.trip].service
        assert service in journeys.carriers[journeys.leg_carriers[ride.leg]]
        assert city.services[service].stops[ride.boarded] == journeys.leg_board[ride.leg]
        assert city.services[service].stops[ride.alights] == journeys.leg_alight[ride.leg]
        assert ride.boarded < ride.alights
    visits = {(visit.trip, visit.position): visit for visit in world.visits}
    for at, visit in visits.items():
        assert visit.boarded == sum((ride.trip, ride.boarded) == at for ride in taken)
        assert visit.alighted == sum((ride.trip, ride.alights) == at for ride in taken)


@examples(80)
@given(days(), holds())
def test_nobody_alights_before_boarding_or_begins_a_leg_before_the_last_has_ended(
    day: Day, some_holds: list[float]
) -> None:
    world = fast_world(day)
    run(world, day.cell, some_holds)
    visits = {(visit.trip, visit.position): visit for visit in world.visits}
    ridden = {ride.leg: ride for ride in rides(world)}
    firsts = set(day.city.journeys.leg_start.tolist())
    for leg, ride in ridden.items():
        boards = visits[ride.trip, ride.boarded]
        alights = visits.get((ride.trip, ride.alights))
        assert alights is None or alights.arrival_s > boards.arrival_s
        if leg not in firsts:
            before = ridden[leg - 1]
            assert visits[before.trip, before.alights].arrival_s < boards.departure_s


@examples(80)
@given(days(), holds())
def test_first_come_first_served(day: Day, some_holds: list[float]) -> None:
    """Whoever came earlier, and could have used the bus, is on it or on an earlier one."""
    world, city = fast_world(day), day.city
    run(world, day.cell, some_holds)
    journeys = city.journeys
    visits = {(visit.trip, visit.position): visit for visit in world.visits}
    people = realise(city, day.cell)
    first_legs = journeys.leg_start[people.journey].tolist()
    since = dict(zip(first_legs, people.departure_s.tolist(), strict=True))
    taken = {ride.leg: ride for ride in rides(world)}
    for leg in taken:
        if leg not in since:
            since[leg] = int(world._days.fleet.change_s[0, leg])

    def turn(ride: Ride) -> tuple[int, int, int]:
        """Buses are served in this order."""
        at = visits[ride.trip, ride.boarded].arrival_s
        return at, city.trips[ride.trip].service, ride.trip

    for leg, ride in taken.items():
        service = city.trips[ride.trip].service
        for other, other_since in since.items():
            known = other in first_legs or other_since < turn(ride)[0]  # changed before it came
            if (
                known
                and other_since < since[leg]
                and journeys.leg_board[other] == journeys.leg_board[leg]
                and service in journeys.carriers[journeys.leg_carriers[other]]
            ):
                assert other in taken
                assert turn(taken[other]) <= turn(ride)


# -- holds ----------------------------------------------------------------------------------------


@examples(60)
@given(days(), holds(), st.integers(0, 40), st.floats(0.0, 60.0))
def test_a_hold_delays_that_departure_by_the_hold_rounded_up_to_whole_seconds(
    day: Day, some_holds: list[float], which: int, hold: float
) -> None:
    def departures(own_hold: float) -> tuple[list[Visit], Visit | None]:
        world, policy = fast_world(day), in_turn(some_holds)
        batch, asked, token = world.reset(day.cell), None, 0
        while batch is not None:
            decided = policy(batch)
            if 0 <= which - token < len(decided):
                decided[which - token] = own_hold
                asked = int(batch.trips[which - token]), int(batch.raw[which - token, 1])
            token += len(decided)
            batch = world.step(decided)
        visits = world.visits
        return visits, next((v for v in visits if (v.trip, v.position) == asked), None)

    before, without = departures(0.0)
    after, held = departures(hold)
    if without is None or held is None:  # the day has fewer decisions
        assert before == after
        return
    assert held.arrival_s == without.arrival_s
    assert held.base_dwell_s == without.base_dwell_s
    assert held.departure_s - without.departure_s == math.ceil(hold)
    for visit in after:
        stood = visit.departure_s - visit.arrival_s
        assert stood >= day.city.vehicle.min_dwell_s + math.ceil(visit.hold_s)


@examples(30)
@given(st.floats().filter(lambda hold: not 0 <= hold <= 60))
def test_a_refused_hold_names_bus_stop_and_value_and_changes_nothing(hold: float) -> None:
    city = small_city([[0, 1, 2], [2, 1, 0]], [(0, 100), (1, 100)])
    world, undisturbed = (FastWorld(city, steady(city)) for _ in range(2))
    world.reset(CELL)
    with pytest.raises(InputError) as refusal:
        world.step([5.0, hold])
    assert str(refusal.value) == f"bus S1.0 at stop s2: hold {hold} s is not within 0..60 s"
    with pytest.raises(InputError, match="1 holds for a batch of 2 buses"):
        world.step([5.0])
    batch = world.step([5.0, 6.0])
    while batch is not None:
        batch = world.step([7.0] * len(batch.trips))
    undisturbed.reset(CELL)
    batch = undisturbed.step([5.0, 6.0])
    while batch is not None:
        batch = undisturbed.step([7.0] * len(batch.trips))
    assert world.outcome() == undisturbed.outcome()


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
            assert inside.run_rule(day.cell, BEHAVIOURS[name], write_states=written) == outside

    decides_alike()


def test_the_rules_differ_in_the_town() -> None:
    town = embedded_city("town")
    world = FastWorld(town, restless(town, 3))
    outcomes = [world.run_rule(CELL, rule) for rule in BEHAVIOURS.values()]
    assert len({outcome.hold_total_s for outcome in outcomes}) == len(BEHAVIOURS)
    assert [rule for rule, o in zip(BEHAVIOURS, outcomes, strict=True) if not o.hold_total_s] == [
        "zero"
    ]


def test_a_day_has_an_order() -> None:
    city = small_city([[0, 1]], [(0, 100)], horizon_s=500)
    world = FastWorld(city, steady(city))
    batch = world.reset(CELL)
    with pytest.raises(InputError, match="the day is not over: 100 of 500 s"):
        world.outcome()
    while batch is not None:
        batch = world.step([0.0])
    assert world.now_s == 500
    with pytest.raises(InputError, match="the day is over: reset the world"):
        world.step([0.0])


def test_a_day_run_by_a_rule_is_over() -> None:
    city = small_city([[0, 1]], [(0, 100)], horizon_s=500)
    world = FastWorld(city, steady(city))
    world.reset(CELL)
    world.run_rule(CELL, BEHAVIOURS["zero"])
    with pytest.raises(InputError, match="the day is over: reset the world"):
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
    with pytest.raises(InputError, match="5 cells for a fleet of 6 worlds"):
        fleet.reset(some_cells[1:])


@pytest.mark.parametrize("hold", [-0.1, 60.1, math.nan, math.inf])
def test_a_fleet_refuses_a_hold_by_the_number_of_the_world_and_moves_no_bus(hold: float) -> None:
    city = small_city([[0, 1, 2]], [(0, 100)])
    fleet = Fleet(city, steady(city), 3)
    before = fleet.reset([CELL] * 3).copy()
    with pytest.raises(InputError, match=f"world 1: hold {hold} s is not within 0..60 s"):
        fleet.step(np.array([10.0, hold, hold]))
    assert np.array_equal(fleet.states, before)
    fleet.step(np.array([10.0, 20.0, 30.0]))
    arrivals = fleet.states[:, 0] * city.horizon_s
    assert arrivals.tolist() == pytest.approx([222, 232, 242]), "100 + 12 + hold + 100"


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
    inside._days.begin(0, day.cell)
    kernel.run_day(
        inside._days.static, inside._days.fleet, 0, rule.kind, rule.a, rule.b, written, True
    )
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
    assert np.array_equal(world._days.fleet.add_waiting[0], arriving)


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


# -- days worked out by hand ----------------------------------------------------------------------


def departures_of(city: City, cell: Cell = CELL) -> list[int]:
    return realise(city, cell).departure_s.tolist()


def test_a_day_by_hand() -> None:
    """Five people wait for one bus, which is held 7.2 s at the first stop."""
    people = [Person(500, [(0, 2, (0,))]) for _ in range(5)]
    city = small_city([[0, 1, 2]], [(0, 1000)], people)
    departures = departures_of(city)
    day = Day(city, steady(city, run_s=100), CELL)
    fast, _ = assert_same_day(day, [7.2, 0.0])
    assert [(v.arrival_s, v.departure_s, v.boarded, v.alighted) for v in fast.visits] == [
        (1000, 1028, 5, 0),  # 5 times 4 s, and 8 s
        (1128, 1140, 0, 0),  # the shortest dwell
        (1240, 1260, 0, 5),
    ]
    outcome = fast.outcome()
    boarded = [1000, 1003, 1007, 1011, 1015]
    assert outcome.waiting_s == sum(boarded) - sum(departures)
    assert outcome.riding_s == 5 * 240
    assert (outcome.completed, outcome.trips_completed, outcome.decisions) == (5, 1, 2)
    assert (outcome.trip_duration_total_s, outcome.hold_total_s) == (240, 7.2)
    assert outcome.holds_zero == 1
    assert outcome.pre_control_cost == 2 * (5 * 1000 - sum(departures))
    assert outcome.token_cost == outcome.cost - outcome.pre_control_cost


def test_a_bus_for_one_takes_people_in_the_order_they_came() -> None:
    people = [Person(500, [(0, 1, (0,))]) for _ in range(3)]
    city = small_city([[0, 1]], [(0, 1000), (0, 2000)], people, vehicle=Vehicle(capacity=1))
    departures = departures_of(city)
    assert len(set(departures)) == 3
    fast, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert [ride.since_s for ride in slow.rides] == departures[:2]
    outcome = fast.outcome()
    assert (outcome.completed, outcome.denied_boardings) == (2, 2 + 1)
    assert outcome.waiting_s == 1000 + 2000 + 3600 - sum(departures)
    assert outcome.riding_s == 2 * 112


def test_whoever_comes_while_the_bus_stands_still_boards() -> None:
    """The bus comes 5 s before the first person and stands 12 s; a hold waits for the second."""
    people = [Person(500, [(0, 1, (0,))]) for _ in range(2)]
    city = small_city([[0, 1]], [(0, 0)], people)
    cell, first, second = next(
        (cell, *departures)
        for cell in map(demo_cell, range(1, 100))
        if 7 < np.diff(departures := departures_of(city, cell)) < 50
    )
    city = small_city([[0, 1]], [(0, first - 5)], people)
    day = Day(city, steady(city), cell)
    unheld, _ = assert_same_day(day, [0.0])
    assert [visit.boarded for visit in unheld.visits] == [1, 0]
    assert unheld.outcome().waiting_s == 3600 - second
    held, _ = assert_same_day(day, [second - (first - 5) - 12])
    assert [visit.boarded for visit in held.visits] == [1, 0], "leaving in that second is too early"
    longer, _ = assert_same_day(day, [second - (first - 5) - 12 + 0.1])
    assert [visit.boarded for visit in longer.visits] == [2, 0]
    assert longer.outcome().waiting_s == 0, "nobody waits for a bus that stands there"
    assert longer.visits[0].departure_s == second + 1, "the hold is not made longer"


def test_during_a_hold_nobody_boards_whose_turn_comes_after_the_bus_has_left() -> None:
    """Two come in neighbouring seconds when the bus is only held; the door takes four for each."""
    people = [Person(500, [(0, 1, (0,))]) for _ in range(2)]
    city = small_city([[0, 1]], [(0, 0)], people)
    cell, first, _ = next(
        (cell, *departures)
        for cell in map(demo_cell, range(1, 501))
        if np.diff(departures := departures_of(city, cell)) == 1
    )
    city = small_city([[0, 1]], [(0, first - 12)], people)
    for hold, boarded in ((0.0, 0), (1.0, 1), (2.0, 1), (3.0, 1), (4.0, 2)):
        fast, _ = assert_same_day(Day(city, steady(city), cell), [hold])
        assert fast.visits[0].boarded == boarded
        assert fast.visits[0].departure_s == first + hold


def test_whoever_comes_before_the_bus_is_done_keeps_it_at_the_stop() -> None:
    """It stands 12 s and somebody comes in the last of them; passing the door takes four."""
    people = [Person(500, [(0, 1, (0,))])]
    (first,) = departures_of(small_city([[0, 1]], [(0, 0)], people))
    for came_at, stood in ((12, 12), (11, 15), (9, 13), (8, 12)):
        city = small_city([[0, 1]], [(0, first - came_at)], people)
        fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
        visit = fast.visits[0]
        assert (visit.boarded, visit.base_dwell_s) == (came_at < 12, 12)
        assert visit.departure_s - visit.arrival_s == stood


def test_people_get_on_before_others_get_off_while_there_is_room() -> None:
    """Two ride to the middle stop, where two more wait; the bus has room for three."""
    people = [
        Person(500 + i, [leg]) for i, leg in enumerate([(0, 1, (0,)), (0, 1, (0,)), (1, 2, (0,))])
    ]
    people.append(Person(503, [(1, 2, (0,))]))
    city = small_city([[0, 1, 2]], [(0, 1000)], people, vehicle=Vehicle(capacity=3))
    fast, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    at_middle = sorted(
        [(ride.boarded_s, "on") for ride in slow.rides if ride.boarded_s > 1100]
        + [(ride.alighted_s, "off") for ride in slow.rides if ride.leg.alight == 1]
    )
    assert at_middle == [(1112, "on"), (1115, "off"), (1119, "on"), (1123, "off")]
    assert fast.visits[1].departure_s == 1112 + 4 * 4
    assert fast.outcome().denied_boardings == 0


@pytest.mark.parametrize("hold", [0.0, 0.25, 1.0, 33.5, 59.0, 60.0])
@pytest.mark.parametrize("size", [0, 2, 4, 11])
def test_a_hold_comes_on_top_of_the_dwell_when_everybody_was_there(size: int, hold: float) -> None:
    people = [Person(500, [(0, 1, (0,))]) for _ in range(size)]
    city = small_city([[0, 1]], [(0, 1000)], people)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [hold])
    assert fast.visits[0].departure_s == 1000 + max(12, 4 * size) + math.ceil(hold)


def test_the_next_leg_begins_when_the_last_has_really_ended() -> None:
    """The other service's first bus has left the place of change before anybody alights there."""
    people = [Person(500, [(0, 1, (0,)), (1, 2, (1,))]) for _ in range(2)]
    city = small_city([[0, 1], [1, 2]], [(0, 1000), (1, 1100), (1, 2000)], people)
    departures = departures_of(city)
    fast, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert [(ride.since_s, ride.boarded_s) for ride in slow.rides[2:]] == [
        (1112, 2000),
        (1115, 2003),
    ]
    outcome = fast.outcome()
    assert outcome.completed == 2
    assert outcome.waiting_s == 1000 + 1003 - sum(departures) + 2 * 888
    assert outcome.riding_s == 2 * 112 + 2 * 112


def test_those_who_change_wait_from_the_second_they_are_out_of_the_door() -> None:
    """Five alight for a bus that comes meanwhile, full, and leaves as the last of them is out."""
    changing = [Person(500, [(0, 1, (0,)), (1, 2, (1,))]) for _ in range(5)]
    riding = [Person(500, [(3, 2, (1,))]) for _ in range(5)]
    city = small_city(
        [[0, 1], [3, 1, 2]],
        [(0, 1000), (1, 1003)],
        changing + riding,
        vehicle=Vehicle(capacity=5),
    )
    day = Day(city, steady(city), CELL)
    fast, slow = assert_same_day(day, [0.0])
    out_of_the_door = [ride.alighted_s for ride in slow.rides if ride.leg.alight == 1]
    assert sorted(out_of_the_door) == [1120, 1123, 1127, 1131, 1135]
    (full,) = [visit for visit in fast.visits if (visit.trip, visit.position) == (1, 1)]
    assert (full.arrival_s, full.departure_s, full.left_behind) == (1123, 1135, 5)

    waiting = []

    def look(batch: Batch) -> list[float]:
        waiting.extend(row[WAITING] for row in batch.raw if batch.time_s == 1123)
        return [0.0] * len(batch.trips)

    run_episode(fast, CELL, look)
    assert waiting == [2], "as the full bus comes, two are out"


def test_a_leg_of_several_carriers_takes_whichever_comes_first() -> None:
    people = [Person(500, [(0, 2, (0, 1))])]
    for first, trips in enumerate([[(0, 1000), (1, 1100)], [(0, 1100), (1, 1000)]]):
        city = small_city([[0, 1, 2], [0, 2]], trips, people)
        _, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
        (ride,) = slow.rides
        assert city.trips[ride.trip].service == first


@pytest.mark.parametrize(
    ("carriers", "changer_first"),
    [
        pytest.param((1,), False, id="same choice of services: first legs go before changes"),
        pytest.param((1, 2), True, id="another choice of services: always in the same order"),
    ],
)
def test_people_who_begin_to_wait_in_the_same_second_board_in_a_fixed_order(
    carriers: tuple[int, ...], changer_first: bool
) -> None:
    """One changes at stop 1 in the second in which another sets out there; a bus takes one."""
    people = [Person(500, [(0, 1, (0,)), (1, 2, (1,))]), Person(1000, [(1, 2, carriers)])]
    services, trips = [[0, 1], [1, 2], [1, 2]], [(1, 2000), (2, 3000)]
    _, at = departures_of(small_city(services, trips, people))
    city = small_city(services, [(0, at - 112), *trips], people, vehicle=Vehicle(capacity=1))
    _, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    second = slow.rides[1]
    assert (second.since_s, second.boarded_s, second.person.changing) == (at, 2000, changer_first)


def test_people_who_set_out_in_the_same_second_board_in_the_order_of_the_journeys() -> None:
    """Half of those who set out at midnight are moved to before it, that is, to midnight."""
    goals = [1, 2, 3, 2, 1, 3, 3, 1, 2, 1, 3, 2]
    people = [Person(0, [(0, goal, (0,))]) for goal in goals]
    city = small_city([[0, 1, 2, 3]], [(0, 0)], people, vehicle=Vehicle(capacity=4))
    first = realise(city, CELL).journey[: departures_of(city).count(0)].tolist()
    assert len(first) > 4
    _, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert [ride.person.journey for ride in slow.rides[:4]] == sorted(first)[:4]


# -- edges ----------------------------------------------------------------------------------------


def test_a_stop_with_no_demand_is_served_in_the_shortest_dwell() -> None:
    people = [Person(500, [(0, 2, (0,))]) for _ in range(9)]
    city = small_city([[0, 1, 2]], [(0, 1000), (0, 1500)], people)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
    at_empty = [visit for visit in fast.visits if visit.position == 1]
    assert len(at_empty) == 2
    for visit in at_empty:
        assert (visit.boarded, visit.alighted, visit.left_behind) == (0, 0, 0)
        assert visit.departure_s - visit.arrival_s == city.vehicle.min_dwell_s


def test_a_service_with_one_trip_has_no_bus_ahead_and_none_behind() -> None:
    city = small_city([[0, 1, 2, 3], [3, 2, 1, 0]], [(0, 100), (1, 100), (1, 300)])
    world = FastWorld(city, steady(city))
    batch, seen = world.reset(CELL), 0
    while batch is not None:
        for trip, row in zip(batch.trips, batch.raw, strict=True):
            if trip == 0:
                seen += 1
                assert not row[[BUS_AHEAD, BUS_BEHIND, 3, 4, 5, 6]].any()
        batch = world.step([0.0] * len(batch.trips))
    assert seen == 3


@pytest.mark.parametrize("horizon", [1000 + 12 + 100 + 50, 1000 + 12 + 100, 1000 + 5, 1001])
def test_a_bus_that_never_finishes_before_the_horizon_keeps_its_riders(horizon: int) -> None:
    """It ends between two stops, before the second, at the first, and as it comes."""
    people = [Person(500, [(0, 2, (0,))]) for _ in range(3)]
    city = small_city([[0, 1, 2]], [(0, 1000)], people, horizon)
    departures = departures_of(city)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
    outcome = fast.outcome()
    boarded = [at for at in (1000, 1003, 1007) if at < horizon]
    assert (outcome.completed, outcome.trips_completed, outcome.unfinished) == (0, 0, 3)
    assert outcome.riding_s == sum(horizon - at for at in boarded)
    ended = boarded + [horizon] * (3 - len(boarded))
    assert outcome.waiting_s == sum(ended) - sum(departures)


@pytest.mark.parametrize("capacity", [1, 2, 7, 50])
def test_all_people_at_one_stop(capacity: int) -> None:
    people = [Person(500, [(1, 2, (0,))]) for _ in range(40)]
    city = small_city(
        [[0, 1, 2]], [(0, 1000 + 200 * i) for i in range(4)], people,
        vehicle=Vehicle(capacity=capacity),
    )  # fmt: skip
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0, 15.0])
    boarded = {visit.trip: visit.boarded for visit in fast.visits if visit.position == 1}
    expected = [min(capacity, max(0, 40 - capacity * i)) for i in range(4)]
    assert list(boarded.values()) == expected
    assert fast.outcome().completed == sum(expected)
    assert fast.outcome().denied_boardings == sum(max(0, 40 - capacity * (i + 1)) for i in range(4))


@examples(30)
@given(days(), holds())
def test_a_city_of_buses_for_one(day: Day, some_holds: list[float]) -> None:
    city = replace(day.city, vehicle=replace(day.city.vehicle, capacity=1))
    assert_same_day(replace(day, city=city), some_holds)


@examples(20)
@given(days(), holds())
def test_a_city_without_people(day: Day, some_holds: list[float]) -> None:
    city = replace(day.city, journeys=small_city([[0, 1]], [(0, 0)]).journeys)
    fast, _ = assert_same_day(Day(city, day.calibration, Cell(5, 6, 1.0)), some_holds)
    outcome = fast.outcome()
    assert (outcome.cost, outcome.departed, outcome.completed) == (0, 0, 0)
    assert (outcome.generalized_s, outcome.completion) == (0.0, 1.0)


@examples(20)
@given(days(), holds())
def test_a_level_at_which_nobody_travels_is_an_empty_day(day: Day, some_holds: list[float]) -> None:
    journeys = replace(day.city.journeys, min_demand=np.full(len(day.city.journeys), 0.5))
    city = replace(day.city, journeys=journeys)
    fast, _ = assert_same_day(replace(day, city=city, cell=Cell(1, 2, 0.25)), some_holds)
    assert fast.outcome().departed == 0


def test_a_day_in_the_town_is_that_of_the_reference() -> None:
    """Crowds of thousands and loads of dozens, with running times that bunch."""
    town = embedded_city("town")
    fast, _ = assert_same_day(Day(town, restless(town, 5), demo_cell(9, 1.25)), [0.0, 0.0, 25.3])
    outcome = fast.outcome()
    assert outcome.denied_boardings > 0 and outcome.completed > 1000


@pytest.mark.parametrize("follow", [0.0, 0.15, 0.5])
def test_followers_share_luck_as_often_as_the_calibration_says_and_no_value_grows_likelier(
    follow: float,
) -> None:
    town = embedded_city("town")
    static = FastWorld(town, replace(steady(town), follow=follow))._days.static
    pairs = [
        (kernel.luck(static, key, before, 1), kernel.luck(static, key, trip, 1))
        for key in range(200)
        for trip, before in enumerate(static.before.tolist())
        if before >= 0
    ]
    luck = np.array(pairs)
    assert np.corrcoef(luck.T)[0, 1] == pytest.approx(follow * (1 - follow), abs=0.03)
    assert np.quantile(luck[:, 1], [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.02)
