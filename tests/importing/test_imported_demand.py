"""Journeys from tables and from gravity: everyone is carried as told, or listed."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evenline.city.demand import Cell, carrying, realise
from evenline.city.model import City, Clock, Journeys
from evenline.importing.demand import demand_from, left_out_table, with_people
from evenline.importing.gravity import pair_weights
from evenline.importing.people import whole
from evenline.importing.ways import Ways
from evenline.support.errors import InputError
from on_time import timed_cities, ways
from random_cities import small_city

# Two lines that cross at s1, with a bus every ten minutes, and a stop that none of them reaches.
CROSS = small_city(
    [[0, 1, 2], [3, 1, 4], [5, 6]],
    [(line, at) for line in (0, 1) for at in range(0, 3600, 600)] + [(2, 0)],
    horizon_s=7200,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def legs_of(journeys: Journeys, person: int) -> list[tuple[int, int]]:
    legs = range(journeys.leg_start[person], journeys.leg_start[person + 1])
    return [(int(journeys.leg_board[leg]), int(journeys.leg_alight[leg])) for leg in legs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demand")


def written(folder: Path, *lines: str) -> str:
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


# -- journeys -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(timed_cities(), st.data())
def test_everyone_of_a_table_is_carried_or_listed(
    folder: Path, city: City, data: st.DataObject
) -> None:
    """Also those to stops that the city lacks, and outside its day."""
    stop = st.integers(0, len(city.stops))
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, city.horizon_s + 9), stop, stop), min_size=1, max_size=9)
    )
    reached = [
        (at, a, b)
        for at, a, b in rows
        if a != b and max(a, b) < len(city.stops) and at < city.horizon_s
        if any(any(ways(city, a, b, at, legs)) for legs in (1, 2, 3))
    ]
    assume(reached)
    path = written(
        folder, "departure_s,origin,destination", *(f"{t},s{a},s{b}" for t, a, b in rows)
    )
    found = demand_from(path, city, rng())
    lost = Counter({(e.origin, e.destination): 0 for e in found.report.left_out})
    for each in found.report.left_out:
        lost[each.origin, each.destination] += int(each.passengers)
    assert lost == Counter((f"s{a}", f"s{b}") for _, a, b in rows) - Counter(
        (f"s{a}", f"s{b}") for _, a, b in reached
    )
    journeys = found.journeys
    usual = [person for person in range(len(journeys)) if journeys.min_demand[person] <= 1]
    ends = [(int(journeys.departure_s[p]), legs_of(journeys, p)) for p in usual]
    assert sorted((at, legs[0][0], legs[-1][1]) for at, legs in ends) == sorted(reached)
    for board, alight, number in zip(
        journeys.leg_board, journeys.leg_alight, journeys.leg_carriers, strict=True
    ):
        assert journeys.carriers[number] == carrying(city.services, board, alight) != ()
    assert with_people(city, found).journeys is journeys, "the city accepts them"


def test_a_transfer_is_found_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "departure_s,origin,destination", "0,s0,s2", "0,s0,s4", "0,s3,s2")
    found = demand_from(path, CROSS, rng())
    assert (found.report.passengers, found.report.with_transfer) == (3, 2)
    legs = [legs_of(found.journeys, person) for person in range(len(found.journeys))]
    assert [(0, 1), (1, 4)] in legs and [(3, 1), (1, 2)] in legs


def test_the_list_of_those_left_out_says_why(tmp_path: Path) -> None:
    rows = ["0,s0,s2", "1,s0,s6", "2,s0,mars", "7200,s0,s2", "3601,s0,s2", "5,s1,s1", "6,s0,s6"]
    path = written(tmp_path, "departure_s,origin,destination", *rows)
    found = demand_from(path, CROSS, rng())
    assert left_out_table(found.report).splitlines() == [
        "origin,destination,from_s,passengers,why",
        "s0,s6,0,2,no way with two transfers or fewer",
        "s0,mars,0,1,mars is not a stop of the city",
        "s0,s2,7200,1,outside the day",
        "s0,s2,3600,1,no bus is left",
        "s1,s1,0,1,origin and destination are the same",
    ]
    assert found.notes[-1] == "demand leaves out 6 passengers whom no bus can carry"


def test_times_of_the_clock_and_ids_of_the_source_are_understood(tmp_path: Path) -> None:
    stops = tuple(replace(stop, source=f"Stop {stop.id[1:]}/a") for stop in CROSS.stops)
    clock = Clock("2026-03-03", 23 * 3600 + 1800, "UTC")
    city = replace(CROSS, stops=stops, clock=clock)
    rows = ["23:30,Stop 0/a,Stop 2/a", "24:00:05,s0,Stop 2/a"]
    path = written(tmp_path, "destination,departure_time,origin", *(
        ",".join([row.split(",")[2], *row.split(",")[:2]]) for row in rows
    ))  # fmt: skip
    journeys = demand_from(path, city, rng()).journeys
    usual = journeys.min_demand <= 1
    assert journeys.departure_s[usual].tolist() == [0, 1805]


def test_levels_that_a_table_states_are_kept(tmp_path: Path) -> None:
    rows = ["0,s0,s2,1.25", "5,s0,s2,0.5", "9,s0,s4,1"]
    path = written(tmp_path, "departure_s,origin,destination,min_demand", *rows)
    found = demand_from(path, CROSS, rng())
    assert found.journeys.min_demand.tolist() == [1.25, 0.5, 1.0]
    assert (found.report.passengers, found.report.with_transfer) == (2, 1)


# -- levels ---------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_level_1_has_the_people_of_the_table_and_higher_levels_repeat_some(
    folder: Path, count: int, seed: int
) -> None:
    rows = [f"{40 * i},s0,s2" for i in range(count)]
    path = written(folder, "departure_s,origin,destination", *rows)
    city = with_people(CROSS, demand_from(path, CROSS, rng(seed)))
    sizes = [len(realise(city, Cell(1, 1, level)).journey) for level in (0.5, 1.0, 1.25)]
    assert sizes == [count // 2, count, count + max(1, round(count / 4))]
    journeys = city.journeys
    usual = journeys.min_demand <= 1
    assert journeys.departure_s[usual].tolist() == [40 * i for i in range(count)]
    halves = set((journeys.departure_s[usual] // 1800).tolist())
    assert set((journeys.departure_s[~usual] // 1800).tolist()) <= halves


# -- matrices -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_a_matrix_of_whole_numbers_is_kept_exactly_at_level_1(
    folder: Path, amounts: list[int], seed: int
) -> None:
    assume(sum(amounts))
    pairs = [(0, 1), (0, 2), (1, 2), (3, 1), (3, 4), (1, 4), (0, 4), (3, 2)][: len(amounts)]
    rows = [
        f"{300 * i},{300 * i + 600},s{a},s{b},{amount}"
        for i, ((a, b), amount) in enumerate(zip(pairs, amounts, strict=True))
    ]
    found = demand_from(
        written(folder, "from_s,to_s,origin,destination,passengers", *rows), CROSS, rng(seed)
    )
    journeys = found.journeys
    made: Counter[tuple[int, int]] = Counter()
    for person in np.flatnonzero(journeys.min_demand <= 1):
        legs = legs_of(journeys, person)
        pair = legs[0][0], legs[-1][1]
        made[pair] += 1
        from_s = 300 * pairs.index(pair)
        assert from_s <= journeys.departure_s[person] < from_s + 600
    assert made == Counter(dict(zip(pairs, amounts, strict=True))) - Counter()
    assert found.report.passengers == sum(amounts)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_amounts_become_whole_numbers_next_to_them_and_as_many(
    amounts: list[float], seed: int
) -> None:
    given_ = np.array(amounts)
    found = whole(given_, rng(seed))
    assert (np.abs(found - given_) < 1 + 1e-9).all()
    assert abs(found.sum() - given_.sum()) < 1 + 1e-9
    assert (found[given_ % 1 == 0] == given_[given_ % 1 == 0]).all()


def test_many_small_amounts_are_rounded_fairly() -> None:
    found = sum(whole(np.full(50, 0.1), rng(seed)) for seed in range(400))
    assert found.sum() == 2_000
    assert found == pytest.approx(np.full(50, 40), abs=25)


# -- gravity --------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_gravity_makes_the_number_asked_for_and_the_same_again(count: int, seed: int) -> None:
    one, two = (demand_from("gravity", CROSS, rng(seed), passengers=count) for _ in range(2))
    for column in ("departure_s", "min_demand", "leg_board", "leg_alight", "leg_carriers"):
        assert getattr(one.journeys, column).tolist() == getattr(two.journeys, column).tolist()
    assert (one.journeys.min_demand <= 1).sum() == one.report.passengers == count
    assert one.notes == (f"demand is synthetic (gravity, {count:,} passengers)",)


def test_gravity_follows_its_formula() -> None:
    """By hand: a line of three stops 2 km apart, six buses; r·exp(-r / 2 km) of 2 and of 4 km."""
    stretched = replace(CROSS.services[0], distance_m=(0.0, 2000.0, 4000.0))
    weights = pair_weights(Ways(_unchecked(stretched)))
    near, far = 36 * 2000 * np.exp(-1), 36 * 4000 * np.exp(-2)
    assert weights == pytest.approx(np.array([[0, near, far], [0, 0, near], [0, 0, 0]]))


def _unchecked(service: object) -> City:
    """A city of one service whose roads do not matter."""
    city = small_city([[0, 1, 2]], [(0, at) for at in range(0, 3600, 600)])
    object.__setattr__(city, "services", (service,))
    return city


def test_gravity_gives_a_pair_with_a_transfer_three_tenths_of_its_weight() -> None:
    places = list(Ways(CROSS).stops_of)
    weights = pair_weights(Ways(CROSS))
    direct = weights[places.index("s0"), places.index("s2")]
    assert weights[places.index("s0"), places.index("s4")] == pytest.approx(0.3 * direct)
    assert weights[places.index("s0"), places.index("s6")] == 0


def test_nobody_sets_out_in_an_hour_without_weight_or_after_the_last_bus() -> None:
    city = small_city([[0, 1]], [(0, at) for at in range(0, 10_800, 300)], horizon_s=14_400)
    found = demand_from("gravity", city, rng(), passengers=300, hours=(1, 0, 3))
    hours = Counter((found.journeys.departure_s // 3600).tolist())
    assert hours.keys() == {0, 2}
    assert 2 < hours[2] / hours[0] < 4
    assert found.journeys.departure_s.max() <= 10_500


def test_the_note_of_an_earlier_demand_does_not_stay() -> None:
    old = replace(
        CROSS, notes=("demand is synthetic (gravity, 9 passengers)", "streets are straight")
    )
    found = demand_from("gravity", old, rng(), passengers=5)
    assert with_people(old, found).notes == (
        "streets are straight",
        "demand is synthetic (gravity, 5 passengers)",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "say for how many passengers"),
        ({"passengers": 0}, "passengers 0: must be from 1"),
        ({"passengers": 5, "hours": (1, -1)}, "demand by hour: -1 must be"),
        ({"passengers": 5, "hours": (0, 0)}, "hardly any bus of small runs"),
    ],
)
def test_gravity_without_sense_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        demand_from("gravity", CROSS, rng(), **options)  # type: ignore[arg-type]


# -- tables that are refused ----------------------------------------------------------------------

OD = "from_time,to_time,origin,destination,passengers"
JOURNEYS = "departure_s,origin,destination"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a,b"], "table.csv: the header is none of journeys (departure_s or departure_time"),
        ([JOURNEYS], "table.csv: has no rows"),
        ([JOURNEYS, "8:00,s0,s2"], "row 2: departure_s '8:00' must be a whole number"),
        ([JOURNEYS, "1,s0,s2", "2,,s2"], "row 3: origin '' must be 1 to 200"),
        ([JOURNEYS, "1,s0"], "row 2: destination '' must be"),
        ([JOURNEYS, "1,s0,mars"], "carries any of these people; the first go from s0 to mars"),
        ([OD, "00:00,07:00,s0,s2,0"], "table.csv: has no people; every number is 0"),
        ([OD, "08:00,07:00,s0,s2,1"], "row 2: the band ends before it begins"),
        ([OD, "08:00,8h,s0,s2,1"], "row 2: to_time '8h' must be a time such as 08:05"),
        ([OD, "08:00,09:00,s0,s2,nan"], "row 2: passengers 'nan' must be a number from 0"),
        ([OD, *["00:00,01:00,s0,s2,1e6"] * 2], "has 2,000,000 people; at most 1,000,000"),
    ],
)
def test_a_wrong_table_is_refused_with_its_row(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        demand_from(written(tmp_path, *lines), CROSS, rng())


def test_passengers_are_for_gravity_only(tmp_path: Path) -> None:
    path = written(tmp_path, JOURNEYS, "1,s0,s2")
    with pytest.raises(InputError, match="only 'gravity' takes passengers"):
        demand_from(path, CROSS, rng(), passengers=10)
    with pytest.raises(InputError, match="no such file; name a CSV file, or write 'gravity'"):
        demand_from("gravitas", CROSS, rng())
