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

from evenline.city.embedded import embedded_city
from evenline.city.model import Vehicle
from evenline.control.outcome import Outcome
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
from side_by_side import CELL, assert_same_day, examples, fast_world, rides, run

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


# -- holds ----------------------------------------------------------------------------------------


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
