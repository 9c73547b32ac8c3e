"""The fast world against a slow one written for clarity, and against what must hold in any city.

Random small cities bunch, overtake, fill up and strand people; the compiled kernel has to agree
with the reference simulator in every feature, every charge and every stop visit.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from evenline.city.demand import realise
from evenline.city.embedded import embedded_city
from evenline.city.model import Vehicle
from evenline.control.event import SYSTEM_ON_BOARD, SYSTEM_WAITING
from evenline.control.outcome import Outcome
from evenline.control.visits import Visit
from evenline.support.compiled import compiled
from evenline.support.errors import InputError
from evenline.worlds.fast import kernel
from evenline.worlds.fast.world import FastWorld
from random_cities import (
    Day,
    Person,
    cells,
    days,
    holds,
    small_city,
    steady,
    with_own_doors,
)
from reference_simulator import ReferenceWorld
from side_by_side import CELL, Ride, assert_same_day, examples, fast_world, in_turn, rides, run

# -- the reference --------------------------------------------------------------------------------


@examples(100)
@given(days(), holds())
def test_features_charges_visits_and_outcome_are_those_of_the_reference(
    day: Day, some_holds: list[float]
) -> None:
    assert_same_day(day, some_holds)


@examples(80)
@given(days(), st.data(), holds())
def test_doors_of_every_kind_are_those_of_the_reference(
    day: Day, data: st.DataObject, some_holds: list[float]
) -> None:
    city = data.draw(with_own_doors(day.city))
    fast, _ = assert_same_day(replace(day, city=city), some_holds)
    for visit in fast.visits:
        if visit.hold_s == 0 and visit.boarded + visit.alighted == 0:
            least_s = city.vehicle_of(visit.trip).min_dwell_s
            assert visit.departure_s - visit.arrival_s == math.ceil(least_s)


def test_a_bus_stands_for_its_doors_and_everybody_at_them() -> None:
    """Three wait, four of five on board get off: 2 + 3 * (1 + 5 / 5) + 4 * (0.5 + 5 / 5) = 14."""
    doors = {"opening_s": 2.0, "alighting_s_per_passenger": 0.5, "crowding_s_per_passenger": 0.2}
    bus = Vehicle(min_dwell_s=0, exchange_s_per_passenger=1, **doors)  # type: ignore[arg-type]
    people = [Person(0, [(0, to, (0,))]) for to in (1, 1, 1, 1, 2)]
    people += [Person(0, [(1, 2, (0,))]) for _ in range(3)]
    city = small_city([[0, 1, 2]], [(0, 100)], people, vehicle=bus)
    world = FastWorld(city, steady(city), keep_visits=True)
    run(world, CELL)
    stood = [(v.base_dwell_s, v.departure_s - v.arrival_s) for v in world.visits]
    assert stood == [(7, 7), (14, 14), (8, 8)], "and 2 + 4 * (0.5 + 4 / 5) = 7.2 at the end"
    assert bus.base_dwell_s(3, 4, 5) == 14 and bus.base_dwell_s(0, 0, 9) == 0


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
    left = scalars.waiting_now, scalars.riding_now
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
        capacity = day.city.vehicle_of(visit.trip).capacity
        assert carried[visit.trip] <= capacity
        full = carried[visit.trip] == capacity
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
            since[leg] = int(world._days.fleet.rider[0, leg].changed_s)

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
        least_s = day.city.vehicle_of(visit.trip).min_dwell_s
        assert stood >= least_s + math.ceil(visit.hold_s)


@examples(30)
@given(st.floats().filter(lambda hold: not 0 <= hold <= 60))
def test_a_refused_hold_names_bus_stop_and_value_and_changes_nothing(hold: float) -> None:
    city = small_city([[0, 1, 2], [2, 1, 0]], [(0, 100), (1, 100)])
    world, undisturbed = (FastWorld(city, steady(city)) for _ in range(2))
    world.reset(CELL)
    with pytest.raises(InputError) as refusal:
        world.step([5.0, hold])
    assert str(refusal.value) == f"bus S1.0 at stop s2: hold {hold} s is not from 0 to 60 s"
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


# -- luck -----------------------------------------------------------------------------------------


@compiled
def luck_of(static: Any, key: int, trip: int, visit: int) -> float:
    """The kernel's luck, which Python cannot call."""
    return kernel.luck(static, key, trip, visit)


@pytest.mark.parametrize("follow", [0.0, 0.15, 0.5])
def test_followers_share_luck_as_often_as_the_calibration_says_and_no_value_grows_likelier(
    follow: float,
) -> None:
    town = embedded_city("town")
    static = FastWorld(town, replace(steady(town), follow=follow))._days.static
    pairs = [
        (luck_of(static, key, before, 1), luck_of(static, key, trip, 1))
        for key in range(200)
        for trip, before in enumerate(static.before.tolist())
        if before >= 0
    ]
    luck = np.array(pairs)
    assert np.corrcoef(luck.T)[0, 1] == pytest.approx(follow * (1 - follow), abs=0.03)
    assert np.quantile(luck[:, 1], [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.02)
