"""What if: a setting changes one thing, the same days run with and without the policy."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.city.cells import PURPOSES
from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.city.operations import Operations
from evenline.experiments import robustness as r
from evenline.experiments import whatif as w
from evenline.experiments.compare import Difference
from evenline.support.errors import InputError
from evenline.worlds.open import open_city

TOWN = embedded_city("town")


def departures(trips_of: tuple[tuple[int, ...], ...], city: object) -> list[list[int]]:
    return [[city.trips[t].departure_s for t in own] for own in trips_of]  # type: ignore[attr-defined]


def test_headways_are_multiplied_between_the_first_trip_and_the_last() -> None:
    every = np.ones(len(TOWN.services))
    same, half = w.respaced(TOWN, every), w.respaced(TOWN, every / 2)
    usual = departures(TOWN.trips_of, TOWN)
    assert departures(same.trips_of, same) == usual
    for old, new in zip(usual, departures(half.trips_of, half), strict=True):
        assert len(new) == 2 * len(old) - 1 and new[::2] == old
        assert np.all(np.diff(new) > 0)


def test_each_setting_changes_one_thing() -> None:
    listed = w.settings(TOWN, np.full(len(TOWN.services), 6.0))
    assert listed[0].city is TOWN and len({(s.factor, s.name) for s in listed}) == len(listed)
    for setting in listed[1:]:
        changed = (
            setting.city.operations != TOWN.operations,
            setting.city.trips != TOWN.trips,
            setting.level != 1.0,
        )
        assert sum(changed) == 1, setting.name
        assert setting.city.journeys is TOWN.journeys


def test_the_same_policy_changes_nothing_in_any_setting(tmp_path: Path) -> None:
    found, said = w.whatif("town", "zero", tmp_path / "out", blocks=2)
    assert all(each.generalized_s == Difference(0.0, 0.0, 0.0) for each in found)
    assert said == ["As the city is, the policy saves nothing (+0.0 s)."]
    told = json.loads((tmp_path / "out" / w.RESULT).read_text())
    assert [each["verdict"] for each in told["findings"]] == ["open"] * len(found)
    assert (tmp_path / "out" / w.PICTURE).read_bytes().startswith(b"\x89PNG")


def test_more_buses_and_shorter_headways_shorten_the_wait(tmp_path: Path) -> None:
    found, said = w.whatif("town", "two-way", tmp_path / "out", blocks=2)
    wait = {(each.factor, each.name): each.without["waiting_s"] for each in found}
    buses = [wait[w.BUSES, name] for name in ("-2", "-1")]
    buses += [wait[w.USUAL, w.USUAL], wait[w.BUSES, "+1"], wait[w.BUSES, "+2"]]
    assert buses == sorted(buses, reverse=True)
    assert len(said) == 3 and len(w.rows(found)) == len(found) + 1
    held = {(each.factor, each.name): each.held["mean_hold_s"] for each in found}
    assert held[w.WHERE, "terminals only"] < held[w.DRIVERS, "50 %"] < held[w.USUAL, w.USUAL]


def test_lost_trips_are_shown_in_a_city_that_loses_some() -> None:
    figures = dict.fromkeys(
        ("generalized_s", "waiting_s", "riding_s", "excess_wait_s", "late_departures"), 0.0
    )
    none, change = figures | {"lost_trips": 0.0}, Difference(0.0, 0.0, 0.0)
    some = figures | {"lost_trips": 2.0}
    for held, shown in ((none, "Late departures"), (some, "Lost trips")):
        found = w.Finding(w.USUAL, w.USUAL, none, held, change, change)
        head, row = w.rows([found])
        assert head[-1] == shown and len(head) == len(row)
        assert row[-1] == ("2.0" if held is some else "0.0")


def test_one_day_is_too_few_for_an_interval(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 blocks: an interval needs at least 2"):
        w.whatif("town", "zero", tmp_path, blocks=1)


def test_robustness_is_written_into_the_document_and_keeps_its_days(tmp_path: Path) -> None:
    document, kept = tmp_path / "page.md", tmp_path / "days"
    document.write_text(
        "before\n<!-- begin robustness town fast -->\nstale\n<!-- end robustness town fast -->\n"
        "after\n"
    )
    place = r.Place("town", "fast", 2, ("two-way", "zero+candidate"))
    r.robustness(document, kept, [place])
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert text.count("| held at: terminals only |") == 1 and "5 %" in text
    # Two days of five settings under two policies; no holding differs only if trips are cancelled.
    days = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert len(days) == 2 * (5 + 5 + 2)
    r.robustness(document, kept, [place])
    assert document.read_text() == text
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == days


def test_a_day_without_holds_is_the_same_whatever_limits_holds() -> None:
    opened = open_city("town")
    city = w.operated(opened.city, hold_at="terminals", ignored_share=0.5, cancelled_share=0.05)
    limited = w.Setting("", "", city)
    free = r._unheld(limited)
    assert free.city.operations == Operations(cancelled_share=0.05)
    cell = PURPOSES["development"].cells(1, (1.0,))[0]
    days = [w.run_days(w.Order(opened, s, "zero", (cell,))) for s in (limited, free)]
    assert days[0] == days[1]


def test_what_is_behind_is_said_apart_from_what_is_open() -> None:
    def found(low: float, high: float) -> w.Finding:
        difference = Difference((low + high) / 2, low, high)
        return w.Finding(w.USUAL, w.USUAL, {}, {}, difference, difference)

    row = (found(-3.0, -1.0), found(1.0, 3.0), found(-1.0, 1.0))
    assert r.verdicts(["a", "b", "c"], [row], 10) == [
        "Clearly behind no holding: b (as it is).",
        "Neither clearly ahead of no holding nor behind: c (as it is).",
    ]
    assert r.verdicts(["a"], [row[:1]], 3) == [
        "All are clearly ahead of no holding in every setting.",
        "3 days decide little: an interval with 0 in it may only be wide.",
    ]


def with_duties(city: City, recovery_s: int) -> City:
    """The trips of each service in turn on three vehicles."""
    trips = [
        replace(city.trips[trip], block=f"{service}-{number % 3}")
        for service, own in enumerate(city.trips_of)
        for number, trip in enumerate(own)
    ]
    trips = sorted(trips, key=lambda trip: [t.id for t in city.trips].index(trip.id))
    operations = Operations(duties=True, recovery_s=recovery_s)
    return replace(city, trips=tuple(trips), operations=operations)


def test_a_city_with_duties_shows_its_late_departures_and_what_is_left_aside() -> None:
    opened = w.OpenCity("duties", with_duties(TOWN, recovery_s=60), open_city("town").fitted())
    cells = tuple(PURPOSES["development"].cells(2, (1.0,)))
    listed = w.settings(opened.city, np.full(len(TOWN.services), 6.0))
    by_name = {
        (s.factor, s.name): f
        for s, f in zip(listed, w.compared(opened, listed, "headway-1.0", cells), strict=True)
    }
    usual, shorter = by_name[w.USUAL, w.USUAL], by_name[w.HEADWAY, "10 % shorter"]
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
