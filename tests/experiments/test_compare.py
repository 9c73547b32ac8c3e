"""Policies side by side: measures, pairing, intervals, the result's folder."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from calibrated import calibration_of, policy_in
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.embedded import embedded_city
from evenline.control.visits import visit_table
from evenline.control.world import run_episode
from evenline.experiments.clairvoyant import CLAIRVOYANT, Operator, hindsight
from evenline.experiments.compare import Comparison, compare, named_policies, text_table
from evenline.experiments.experiment import AS_IT_IS, Experiment, Variant, figures
from evenline.experiments.frame import Key
from evenline.experiments.measures import MEASURES, PARTS, difference, measure, signed
from evenline.experiments.simulate import day_notes
from evenline.figures.measure import (
    Regularity,
    regularity,
    unended_said,
    unended_trips,
)
from evenline.policies.names import BUILT_IN
from evenline.runs.day import evaluator_files
from evenline.runs.executors import Executor, Results, processes
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.sources import digest_of
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import open_city
from reproduce.day import measure_day
from small_actors import save_actor, town

CELL = PURPOSES["development"].cells(1)[1]


@pytest.mark.parametrize("policy", ["zero", "headway", "random-often"])
@pytest.mark.parametrize("name", ["town", "city"])
def test_regularity_is_what_the_stop_visits_say(name: str, policy: str) -> None:
    city = embedded_city(name)
    world = FastWorld(city, calibration_of(city), keep_visits=True)
    outcome = run_episode(world, CELL, policy_in(policy, city))
    day = measure_day(city, CELL, outcome, visit_table(city, world.visits))
    found = measure(city, CELL, outcome, world.arrivals_s)
    for name in ("generalized_s", "waiting_s", "riding_s", "completion", "unfinished"):
        assert found[name] == pytest.approx(getattr(day, name))
    assert found["headway_cv"] == pytest.approx(day.headway_cv)
    assert found["bunched_share"] == pytest.approx(day.bunched_share)
    assert found["trip_duration_s"] == pytest.approx(day.trip_duration_s)


def comparison(
    city: str, cells: Sequence[Cell], days: dict[str, list[dict[str, float]]], **more: Any
) -> Comparison:
    """A comparison of days that are made up."""
    keyed = {Key(AS_IT_IS, policy): own for policy, own in days.items()}
    return Comparison(city, "fast", tuple(cells), keyed, {AS_IT_IS: 1.0}, **more)


def planned_arrivals() -> np.ndarray:
    """Every bus of the town exactly on its headway at every stop."""
    rows = [
        trip.departure_s + 60 * np.arange(len(town().services[trip.service].stops))
        for trip in town().trips
    ]
    return np.concatenate(rows).astype(np.int32)


def test_buses_on_their_headways_cost_no_excess_wait() -> None:
    assert regularity(town(), planned_arrivals()) == Regularity(
        pytest.approx(0.0), 0.0, pytest.approx(0.0)
    )


def test_a_trip_that_did_not_end_is_counted_and_said() -> None:
    city = embedded_city("town")
    world = FastWorld(city, calibration_of(city))
    whole = world.run_day(CELL, policy_in("zero", city))
    cut = replace(whole, trips_completed=whole.trips_completed - 1)
    opened, said = open_city("town"), []
    experiment = Experiment([Variant(opened)], ["zero"], (CELL,), "sumo")
    for outcome in (whole, cut):
        day = figures(city, CELL, outcome, world.arrivals_s, None)
        assert day["unended_trips"] == (outcome is cut)
        frame = experiment.frame([[day]])
        found = comparison("town", (CELL,), {"zero": [day]}, notes=frame.notes)
        said.append(text_table(found))
        assert ("Trips not ended" in said[-1]) == ("note: " in said[-1]) == (outcome is cut)
        assert tuple(day_notes(opened, "sumo", CELL, outcome)) == frame.notes
    assert "note: 1 of 60 trips did not reach the last stop before the day ended" in said[1]


def test_trips_that_the_city_itself_loses_are_not_counted() -> None:
    city = embedded_city("town")
    operations = replace(city.operations, cancelled_share=0.1)
    less = replace(city, operations=operations)
    outcome = FastWorld(less, calibration_of(city)).run_day(CELL, policy_in("zero", less))
    assert outcome.trips_completed < len(city.trips)
    assert unended_trips(less, CELL, outcome) == 0
    assert unended_said(60, [0, 0]) == ()
    (said,) = unended_said(60, [0, 2, 1])
    assert said.startswith("on 2 of 3 days up to 2 of 60 trips did not reach the last stop")


def test_excess_wait_is_that_of_people_who_come_at_random() -> None:
    """Every second bus moved by a third of its headway: simulated passengers tell the wait."""
    arrivals, first = planned_arrivals(), 0
    for number, trip in enumerate(town().trips):
        stops = len(town().services[trip.service].stops)
        arrivals[first : first + stops] += 90 * (number % 2)
        first += stops
    rng, excess = np.random.default_rng(0), []
    visit = np.cumsum([0, *(len(town().services[t.service].stops) for t in town().trips)])
    for trips in town().trips_of:
        came = np.sort([arrivals[visit[trip] + 1] for trip in trips])
        plan = np.sort([planned_arrivals()[visit[trip] + 1] for trip in trips])
        waits = []
        for line in (came, plan):
            people = rng.uniform(line[0], line[-1], 200_000)
            waits.append(np.mean(line[np.searchsorted(line, people)] - people))
        excess.append(
            (waits[0] - waits[1], len(town().services[town().trips[trips[0]].service].stops) - 1)
        )
    expected = np.average([e for e, _ in excess], weights=[n for _, n in excess])
    assert regularity(town(), arrivals).excess_wait_s == pytest.approx(expected, abs=1.0)


def test_no_bus_at_all_is_no_error() -> None:
    nobody = np.full(len(planned_arrivals()), -1, np.int32)
    assert regularity(town(), nobody) == Regularity(0.0, 0.0, 0.0)


def test_the_interval_is_students_over_blocks() -> None:
    rng = np.random.default_rng(3)
    cells = [Cell(1 + b, 501 + b, level) for b in range(6) for level in (0.75, 1.0, 1.25)]
    here, there = rng.normal(5, 2, 18), rng.normal(0, 2, 18)
    means = (here - there).reshape(6, 3).mean(axis=1)
    expected = stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    found = difference(cells, here, there)
    assert found.mean == pytest.approx(means.mean())
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_one_block_has_no_interval() -> None:
    cells = [Cell(1, 501, level) for level in (0.75, 1.0)]
    found = difference(cells, np.array([1.0, 2.0]), np.zeros(2))
    assert (found.mean, found.low, found.high) == (1.5, None, None)


def test_a_comparison_is_written_whole(tmp_path: Path) -> None:
    actor, docs = save_actor(tmp_path / "my-actor", "candidate"), tmp_path / "docs" / "page.md"
    docs.parent.mkdir()
    docs.write_text("# Page\n")
    sources = ["zero", "headway+parent", "schedule", str(actor)]
    found = compare("town", "fast", sources, 2, tmp_path / "out", processes(1), docs)
    kept = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [policy["name"] for policy in kept["policies"]] == sources
    assert kept == found.as_json() and kept["blocks"] == 2
    world = FastWorld(town(), calibration_of(town()))
    for policy in kept["policies"]:
        day = policy["days"][1]
        again = run_episode(world, CELL, policy_in(policy["name"], town()))
        assert day["generalized_s"] == pytest.approx(again.generalized_s, rel=1e-9)
        assert {key: day[key] for key in asdict(CELL)} == asdict(CELL)
        assert set(policy["difference"]) == {m.name for m in (*MEASURES, *PARTS)}
    zero = kept["policies"][0]["difference"]
    assert all(d == {"mean": 0.0, "low": 0.0, "high": 0.0} for d in zero.values())
    text = (tmp_path / "out" / "comparison.txt").read_text()
    assert text == text_table(found) and "my-actor" in text
    assert "| my-actor |" in docs.read_text() and docs.read_text().startswith("# Page")
    assert (docs.parent / "images" / f"{docs.stem}-town-fast.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "comparison.png").read_bytes()[:4] == b"\x89PNG"


def test_the_difference_of_a_day_is_to_the_same_day(tmp_path: Path) -> None:
    found = compare("town", "fast", ["zero", "headway"], 2, tmp_path / "out")
    gaps = found.column("headway", "waiting_s") - found.column("zero", "waiting_s")
    change = found.difference("headway", "zero", "waiting_s")
    assert change.mean == pytest.approx(gaps.mean())
    assert found.difference("headway", measure="waiting_s") == change
    assert found.plot().figure.axes[0].get_title() == "Generalized time, s"


def test_the_change_of_time_is_split_at_the_last_departure(tmp_path: Path) -> None:
    found = compare("town", "fast", ["zero", "lookahead"], 2, tmp_path / "out")
    whole, during, after = (
        found.difference("lookahead", measure=name).mean
        for name in ("generalized_s", "service_s", "after_s")
    )
    assert during + after == pytest.approx(whole) and during < 0 and after < 0
    text = (tmp_path / "out" / "comparison.txt").read_text()
    rows = text[text.index("the part of the change") :].splitlines()
    assert rows[1].split()[0] == "Policy" and rows[2].startswith("lookahead")
    assert signed(found.difference("lookahead", measure="service_s"), ",.1f") in rows[2]


def test_each_policy_has_its_share_of_the_clairvoyants_gain(tmp_path: Path) -> None:
    sources = ["zero", "headway", "lookahead"]
    found = compare("town", "fast", sources, 1, tmp_path / "out", clairvoyant=True)
    operator = Operator(open_city("town"))
    knows_s = [hindsight(operator, cell)[0] for cell in found.cells]
    zero, ahead = (found.column(policy, "generalized_s") for policy in ("zero", "lookahead"))
    assert (np.array(knows_s) <= ahead).all()
    assert found.clairvoyant_s == pytest.approx(float((zero - knows_s).mean()))
    assert found.share("lookahead") == pytest.approx((zero - ahead).sum() / (zero - knows_s).sum())
    assert found.share("zero") == 0.0

    ran: list[Job] = []
    again = compare("town", "fast", sources, 1, tmp_path / "out", noting(ran), clairvoyant=True)
    assert again.as_json() == found.as_json()
    assert {job.policy for job in ran} == {"zero", "headway"}, "what takes long is stored"
    share = round(100 * found.share("lookahead"))
    rows = [row for row in text_table(found).splitlines() if row.startswith("lookahead")]
    assert rows[1].endswith(f"  {share}"), "of means, of differences, of their parts"


def test_the_clairvoyants_days_are_kept_one_by_one(tmp_path: Path) -> None:
    ran: list[Job] = []
    sources = ["zero", "headway"]
    executor = noting(ran, killed_after=7)  # the six days of rules, and one more
    with pytest.raises(KeyboardInterrupt):
        compare("town", "fast", sources, 1, tmp_path / "out", executor, clairvoyant=True)
    compare("town", "fast", sources, 1, tmp_path / "out", noting(ran), clairvoyant=True)
    searched = [job.cell for job in ran if job.policy == CLAIRVOYANT]
    assert len(searched) == len(set(searched)) == 3


def test_the_worst_level_is_the_one_with_the_least_gain() -> None:
    cells = tuple(Cell(1, 501, level) for level in (0.75, 1.0, 1.25))
    times_s = {"zero": (900.0, 950.0, 999.0), "mine": (890.0, 949.0, 900.0)}
    days = {policy: [{"generalized_s": s} for s in all_s] for policy, all_s in times_s.items()}
    assert comparison("town", cells, days).worst_level_s("mine") == -1.0


def test_without_a_gain_there_is_no_share() -> None:
    days = {policy: [{"generalized_s": 900.0}] for policy in ("best", "zero")}
    cells = (Cell(1, 501, 1.0),)
    assert comparison("town", cells, days, clairvoyant_s=0.0).share("zero") is None
    assert comparison("town", cells, days).share("zero") is None


def noting(ran: list[Job], killed_after: int | None = None) -> Executor:
    """Two processes that note every job; after so many answers comes a kill."""

    def run(jobs: Sequence[Job], **options: Any) -> Results:
        for count, ended in enumerate(processes(2)(jobs, **options)):
            if count == killed_after:
                raise KeyboardInterrupt
            ran.append(ended.job)
            yield ended

    return run


def test_sumo_days_are_kept_and_not_run_again(tmp_path: Path) -> None:
    ran: list[Job] = []
    first = compare("town", "sumo", ["zero"], 1, tmp_path / "out", noting(ran))
    assert [job.policy for job in ran] == ["zero"] * 3
    with pytest.raises(KeyboardInterrupt):
        compare("town", "sumo", ["zero", "schedule"], 1, tmp_path / "out", noting(ran, 1))
    again = compare("town", "sumo", ["zero", "schedule"], 1, tmp_path / "out", noting(ran))
    assert [job.policy for job in ran[3:]] == ["schedule"] * 3 and len(set(ran)) == 6
    assert again.of("zero") == first.of("zero")


def test_a_kept_day_is_run_again_after_a_change_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Job] = []
    for _ in range(2):
        compare("town", "fast", ["lookahead"], 1, tmp_path / "out", noting(ran))
    assert len(ran) == 3
    source = evaluator_files()
    assert "rules/formulas.py" in source and "worlds/fast/kernel.py" in source
    changed = digest_of(source | {"rules/formulas.py": "0" * 64})
    monkeypatch.setattr("evenline.runs.store.evaluator", lambda: changed)
    compare("town", "fast", ["lookahead"], 1, tmp_path / "out", noting(ran))
    assert len(ran) == 6


def test_a_kept_day_that_was_changed_is_refused(tmp_path: Path) -> None:
    compare("town", "fast", ["lookahead"], 1, tmp_path / "out")
    day = min((tmp_path / "out" / "days").iterdir())
    day.write_bytes(day.read_bytes().replace(b'"departed":', b'"departed":1', 1))
    with pytest.raises(InputError, match=re.escape(f"{day} has changed since it was written")):
        compare("town", "fast", ["lookahead"], 1, tmp_path / "out")


def test_all_stands_for_every_controller() -> None:
    names = named_policies("all")
    assert set(names) == set(BUILT_IN) - {"headway"}, "a second name of headway-1.0"
    assert named_policies("zero, headway,zero") == ["zero", "headway"]


@pytest.mark.parametrize("bad", ["", " , ", "zero,no-such", "zero+v3"])
def test_policies_that_are_not_there_are_refused(bad: str) -> None:
    with pytest.raises(InputError):
        named_policies(bad)


def test_a_policy_is_not_compared_with_itself(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("headway and headway-1.0 are the same policy")):
        compare("town", "fast", ["zero", "headway", "headway-1.0"], 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_policy_has_means_and_no_differences(tmp_path: Path) -> None:
    text = text_table(compare("town", "fast", ["zero"], 1, tmp_path / "out"))
    assert text.endswith("\nno differences: zero is the only policy; name another one to compare\n")
    both = text_table(compare("town", "fast", ["zero", "headway"], 1, tmp_path / "out"))
    assert "no differences" not in both


def test_worlds_and_folders_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown world 'moon'; choose 'fast' or 'sumo'"):
        compare("town", "moon", ["zero"], 1, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=re.escape("has no plan.json")):
        compare("town", "fast", ["zero"], 1, tmp_path / "mine")
