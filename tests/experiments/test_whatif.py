"""What if: a setting changes one thing, the same days run with and without the policy."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import small_cities
from calibrated import policy_in
from evenline.city.cells import PURPOSES, demo_cell
from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.city.operations import Operations
from evenline.experiments import variants as v
from evenline.experiments import whatif as w
from evenline.experiments.experiment import AS_IT_IS, Experiment, Variant, figures, run
from evenline.experiments.measures import Difference
from evenline.runs.executors import Shard
from evenline.support.errors import InputError
from evenline.worlds.calibration import NOISE_QUANTILES, PACE_QUANTILES
from evenline.worlds.open import OpenCity, open_city
from random_cities import steady

TOWN = embedded_city("town")


def departures(trips_of: tuple[tuple[int, ...], ...], city: object) -> list[list[int]]:
    return [[city.trips[t].departure_s for t in own] for own in trips_of]  # type: ignore[attr-defined]


def test_headways_are_multiplied_between_the_first_trip_and_the_last() -> None:
    every = np.ones(len(TOWN.services))
    same, half = v.respaced(TOWN, every), v.respaced(TOWN, every / 2)
    usual = departures(TOWN.trips_of, TOWN)
    assert departures(same.trips_of, same) == usual
    for old, new in zip(usual, departures(half.trips_of, half), strict=True):
        assert len(new) == 2 * len(old) - 1 and new[::2] == old
        assert np.all(np.diff(new) > 0)


def test_each_setting_changes_one_thing() -> None:
    opened = open_city("town")
    city, listed = opened.city, v.all_variants(opened, np.full(len(TOWN.services), 6.0))
    assert listed[0].city is city and len({each.title for each in listed}) == len(listed)
    for variant in listed[1:]:
        changed = (
            variant.city.operations != city.operations,
            variant.city.trips != city.trips,
            variant.demand != 1.0,
        )
        assert sum(changed) == 1, variant.name
        assert variant.city.journeys is city.journeys
    assert len({each.digest for each in listed}) == len(listed) - 2, "two change the demand only"


def test_the_same_policy_changes_nothing_in_any_setting(tmp_path: Path) -> None:
    result = w.whatif("town", "zero", tmp_path / "out", blocks=2)
    found, said = result.findings, result.answers
    assert all(each.generalized_s == Difference(0.0, 0.0, 0.0) for each in found)
    assert said == [
        "As the city is, the policy saves nothing: the saving is 0.0 s, its interval 0.0 to 0.0 s."
    ]
    told = json.loads((tmp_path / "out" / w.RESULT).read_text())
    assert [each["verdict"] for each in told["findings"]] == ["open"] * len(found)
    assert (tmp_path / "out" / w.PICTURE).read_bytes().startswith(b"\x89PNG")


def test_more_buses_and_shorter_headways_shorten_the_wait(tmp_path: Path) -> None:
    result = w.whatif("town", "two-way", tmp_path / "out", blocks=2)
    found, said = result.findings, result.answers
    wait = {(each.factor, each.name): each.without["waiting_s"] for each in found}
    buses = [wait[v.BUSES, name] for name in ("-2", "-1")]
    buses += [wait[AS_IT_IS, AS_IT_IS], wait[v.BUSES, "+1"], wait[v.BUSES, "+2"]]
    assert buses == sorted(buses, reverse=True)
    assert len(w.rows(found)) == len(found) + 1
    assert len(said) in (1, 3)
    held = {(each.factor, each.name): each.held["mean_hold_s"] for each in found}
    assert held[v.WHERE, "terminals only"] < held[v.DRIVERS, "50 %"] < held[AS_IT_IS, AS_IT_IS]


def change(low: float, high: float) -> Difference:
    return Difference((low + high) / 2, low, high)


def answered(usual: Difference, terminals: Difference, half: Difference) -> list[str]:
    """The answers to an operator, given what a policy changes in the three settings asked about."""
    found = [
        w.Finding(factor, name, {}, {}, d, d)
        for factor, name, d in (
            (AS_IT_IS, AS_IT_IS, usual),
            (v.WHERE, "terminals only", terminals),
            (v.DRIVERS, "50 %", half),
        )
    ]
    return w.answers(found, lambda: "About 1.0 buses.")


def test_a_share_is_stated_only_of_a_saving_away_from_0() -> None:
    clear = answered(change(-100.0, -80.0), change(-66.0, 64.0), change(2.0, 8.0))
    assert clear == [
        "Is terminal holding enough? That cannot be told: the saving is 1.0 s, its interval "
        "\u221264.0 to 66.0 s, against 90.0 s as the city is.",
        "What if half the drivers comply? It costs time there: the saving is \u22125.0 s, its "
        "interval \u22128.0 to \u22122.0 s.",
        "How many buses is the controller worth? About 1.0 buses.",
    ]
    assert answered(change(-100.0, -80.0), change(-50.0, -40.0), change(-30.0, -6.0))[:2] == [
        "Is terminal holding enough? It saves 45.0 of 90.0 s (50 %).",
        "What if half the drivers comply? The policy still saves 18.0 of 90.0 s (20 %).",
    ]


def test_nothing_more_is_answered_where_the_policy_itself_is_within_noise() -> None:
    (said,) = answered(change(-18.0, 17.0), change(-1.0, 3.0), change(-9.0, -8.0))
    assert said == (
        "As the city is, it cannot be told whether the policy saves: the saving is 0.5 s, its "
        "interval \u221217.0 to 18.0 s."
    )
    (said,) = answered(change(2.0, 4.0), change(-1.0, 3.0), change(-9.0, -8.0))
    assert said.startswith("As the city is, the policy saves nothing")


def test_lost_trips_are_shown_in_a_city_that_loses_some() -> None:
    figures = dict.fromkeys(
        ("generalized_s", "waiting_s", "riding_s", "excess_wait_s", "late_departures"), 0.0
    )
    none, change = figures | {"lost_trips": 0.0}, Difference(0.0, 0.0, 0.0)
    some = figures | {"lost_trips": 2.0}
    for held, shown in ((none, "Late departures"), (some, "Lost trips")):
        found = w.Finding(AS_IT_IS, AS_IT_IS, none, held, change, change)
        head, row = w.rows([found])
        assert head[-1] == shown and len(head) == len(row)
        assert row[-1] == ("2.0" if held is some else "0.0")


def test_one_day_is_too_few_for_an_interval(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 blocks: an interval needs at least 2"):
        w.whatif("town", "zero", tmp_path, blocks=1)


def test_a_shard_runs_its_part_and_the_last_one_answers(tmp_path: Path) -> None:
    first, second = (Shard(number, 2) for number in (1, 2))
    out = tmp_path / "parts"
    with pytest.raises(InputError, match=r"parts: \d+ days are missing; run the other shards too"):
        w.whatif("town", "headway", out, blocks=2, shard=first)
    w.whatif("town", "headway", out, blocks=2, shard=second)
    w.whatif("town", "headway", tmp_path / "whole", blocks=2)
    assert (out / w.RESULT).read_bytes() == (tmp_path / "whole" / w.RESULT).read_bytes()


def test_a_trip_that_did_not_end_is_said_of_its_variant() -> None:
    opened = open_city("town")
    usual, held = v.hard_variants(opened)[:2]
    cell = demo_cell(1)
    world = opened.fast_world()
    whole = world.run_day(cell, policy_in("zero", opened.city))
    cut = replace(whole, trips_completed=whole.trips_completed - 1)
    full, lost = (
        [figures(opened.city, cell, outcome, world.arrivals_s, None)] for outcome in (whole, cut)
    )
    sentence = "1 of 60 trips did not reach the last stop before the day ended"
    asked = Experiment([usual, held], ["zero", "headway"], [cell])
    assert asked.frame([full, full, full, full]).notes == ()
    (said,) = asked.frame([full, full, full, lost]).notes
    assert said.startswith(f"held at: terminals only: on 1 of 2 days up to {sentence}")
    (said,) = asked.frame([lost, full, lost, full]).notes
    assert said.startswith(f"on 1 of 2 days up to {sentence}")


def test_what_did_not_end_stands_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.experiments.measures.unended_trips", lambda *_: 1)
    result = w.whatif("town", "zero", tmp_path / "out", blocks=2)
    (said,) = {note.partition(": ")[2] or note for note in result.frame.notes if "60" in note}
    assert "up to 1 of 60 trips did not reach the last stop" in said
    told = json.loads((tmp_path / "out" / w.RESULT).read_text())
    assert told["notes"] == list(result.frame.notes)


def test_a_day_in_sumo_has_the_measures_of_one_in_the_fast_world() -> None:
    city = small_cities.streets(services=1, trips=3, headway_s=600, horizon_s=3000)
    places = sum(len(service.stops) for service in city.services)
    even = replace(
        steady(city, run_s=60),
        noise_s=np.zeros((places, NOISE_QUANTILES)),
        pace=np.zeros(PACE_QUANTILES),
    )
    variant = Variant(OpenCity("streets", city, even))
    fast, sumo = (
        run(Experiment([variant], ["zero"], [demo_cell(1)], world)).of("zero")[0]
        for world in ("fast", "sumo")
    )
    assert fast.keys() == sumo.keys() and fast["completion"] == sumo["completion"]
    for day in (fast, sumo):
        assert (day["late_departures"], day["lost_trips"]) == (0, 0)


def with_duties(city: City, recovery_s: int) -> City:
    """The trips of each service in turn on three vehicles."""
    trips = [
        replace(city.trips[trip], duty=f"{service}-{number % 3}")
        for service, own in enumerate(city.trips_of)
        for number, trip in enumerate(own)
    ]
    trips = sorted(trips, key=lambda trip: [t.id for t in city.trips].index(trip.id))
    operations = Operations(duties=True, recovery_s=recovery_s)
    return replace(city, trips=tuple(trips), operations=operations)


def test_a_city_with_duties_shows_its_late_departures_and_what_is_left_aside() -> None:
    opened = OpenCity("duties", with_duties(TOWN, recovery_s=60), open_city("town").fitted())
    cells = tuple(PURPOSES["development"].cells(2, (1.0,)))
    listed = v.all_variants(opened, np.full(len(TOWN.services), 6.0))
    frame = run(Experiment(listed, ["zero", "headway-1.0"], cells))
    by_name = {
        (found.factor, found.name): found for found in w.findings(frame, listed, "headway-1.0")
    }
    usual, shorter = by_name[AS_IT_IS, AS_IT_IS], by_name[v.HEADWAY, "10 % shorter"]
    assert usual.held["late_departures"] > usual.without["late_departures"] > 0.0
    late = w.rows([usual])[0].index("Late departures")
    assert w.rows([usual])[1][late] == f"{usual.held['late_departures']:.1f}"
    assert shorter.without["late_departures"] == 0.0, "a vehicle of its own for every trip"
    said = w.left_aside(opened.city)
    assert said == [
        "The rows of headway and buses on each route, and the worth in buses, are without the "
        "city's duties: they do not fit another timetable."
    ]
    assert w.left_aside(TOWN) == []
