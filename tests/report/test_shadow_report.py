"""The page of a shadow's log: figures of a street that is known, and a log nobody changed."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from door import Door
from evenline.city.model import City
from evenline.live.feed import Prediction
from evenline.live.record import Polled
from evenline.live.shadow import Rules, Shadow
from evenline.report.shadow import (
    decisions,
    forecast_errors,
    gaps,
    headways,
    lead,
    read_seen,
    savings,
    state_of,
    with_holds,
    write_shadow_report,
)
from evenline.support.errors import InputError
from evenline.worlds.open import OpenCity
from on_the_road import Road


@pytest.fixture(scope="module")
def log(town: City, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quarter of an hour of timetable driving; one bus runs close behind another."""
    path = tmp_path_factory.mktemp("shadow") / "log.jsonl"
    road = Road(town, {1: -170.0})
    shadow = Shadow(OpenCity("town", town), "forward:gain=1", ("1E",), Rules(lead_s=45), path)
    first = True
    for second in np.arange(0.0, 900.0, 20.0):
        snapshot = road.snapshot(float(second))
        told = tuple(
            Prediction(town.trips[t].id, road.frame.date, town.stops[stop].id, k,
                       road.frame.moment(float(road.due_s[t][k]) + 33.0))
            for t in (0, town.trips_of[1][0])
            for k, stop in enumerate(town.services[town.trips[t].service].stops)
        )  # fmt: skip
        for advice in shadow.take(Polled(snapshot.at_s, snapshot._replace(predictions=told))):
            shadow.answer(advice.number, first, "why not")
            first = False
    shadow.take(Polled(road.frame.moment(900.0), None, "the server answers 503"))
    shadow.close()
    return path


def test_the_log_is_read_as_it_was_written(town: City, log: Path) -> None:
    seen = read_seen(log, town)
    road = Road(town, {1: -170.0})
    found = {key: at for key, at in seen.arrived.items() if key[0] != 1}
    errors = [at - road.due_s[trip][stop] for (trip, stop), at in found.items()]
    assert np.abs(errors).max() < 20
    states = [state_of(seen, number) for number in seen.advice]
    assert states.count("accepted") == 1 and states.count("rejected") == len(states) - 1
    assert f"{len(seen.advice)} pieces of advice: 1 accepted" in lead(seen)


def test_headways_and_forecasts_are_those_of_the_street(town: City, log: Path) -> None:
    seen = read_seen(log, town)
    planned_s = town.trips[1].departure_s - town.trips[0].departure_s
    found = [gap for gap, target in gaps(town, seen.arrived, 0) if target == planned_s]
    assert np.median(found) == pytest.approx(planned_s - 170, abs=15)
    errors = forecast_errors(seen)
    assert np.median(np.abs(errors["ours"])) < 15
    assert np.median(errors["the feed's"]) == pytest.approx(33.0, abs=12)


def test_the_page_says_all_of_it(town: City, log: Path, tmp_path: Path) -> None:
    out = write_shadow_report(log, OpenCity("town", town), tmp_path / "page.html")
    text = out.read_text()
    for words in ("Nobody was held", "Headways as they were", "expected against real",
                  "From poll to advice", "Polls that failed", "why not"):  # fmt: skip
        assert words in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    write_shadow_report(log, OpenCity("town", town), out)
    out.write_text("mine")
    with pytest.raises(InputError, match="was not written by this command"):
        write_shadow_report(log, OpenCity("town", town), out)


def test_headways_with_the_advised_holds_are_those_of_later_buses(town: City, log: Path) -> None:
    seen = read_seen(log, town)
    held = with_holds(town, seen)
    rejected = [a for a in seen.advice.values() if state_of(seen, a.number) == "rejected"]
    moved = {trip for (trip, stop), at_s in held.items() if at_s != seen.arrived[trip, stop]}
    assert rejected and moved == {1}
    last = max(stop for trip, stop in seen.arrived if trip == 1)
    later_s = sum(a.hold_s for a in rejected if a.stop < last)
    assert held[1, last] - seen.arrived[1, last] == pytest.approx(later_s)
    row = headways(town, seen).rows[0]
    assert float(row[5]) < float(row[4]), "holding a bus that is too close makes headways even"


def test_the_model_speaks_of_the_advice_that_was_given(town: City, log: Path) -> None:
    seen = read_seen(log, town)
    assert savings(seen) == {}, "this policy forecasts nothing"
    seen.asked = [msgspec.structs.replace(asked, saves_s=3600.0) for asked in seen.asked]
    assert savings(seen) == dict.fromkeys(seen.advice, 3600.0)
    told = dict(decisions(seen).rows)
    assert told["What the advice would save by the model, hours"] == f"{len(seen.advice)}.0"
    assert told["of it what was accepted, hours"] == "1.0"


def test_a_first_poll_that_failed_and_a_second_policy_are_told(town: City, tmp_path: Path) -> None:
    road = Road(town)
    for number, policy in enumerate(("zero", "forward:gain=1")):
        shadow = Shadow(OpenCity("town", town), policy, log=tmp_path / "log")
        if number == 0:
            shadow.take(Polled(0.0, None, "the server answers 503"))
        for second in np.arange(0.0, 1801.0, 600.0):
            snapshot = road.snapshot(float(second) + 1800.0 * number)
            shadow.take(Polled(snapshot.at_s, snapshot))
        shadow.close()
    assert lead(read_seen(tmp_path / "log", town)).startswith("In 1.0 hours")
    page = write_shadow_report(tmp_path / "log", OpenCity("town", town), tmp_path / "page.html")
    assert "what zero and then forward:gain=1 would have done" in page.read_text()


def test_a_changed_log_and_one_of_another_kind_are_refused(
    town: City, log: Path, tmp_path: Path
) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    (tmp_path / "log").write_bytes(b"".join(lines).replace(b'"sure":1.0', b'"sure":0.9', 1))
    with pytest.raises(InputError, match="does not contain the hash"):
        read_seen(tmp_path / "log", town)
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(InputError, match="not the log of a shadow"):
        read_seen(tmp_path / "log", town)


def test_commands_refuse_bad_arguments_in_one_line(
    evenline: Door, log: Path, tmp_path: Path
) -> None:
    run = ("shadow", "run", "--city", "town", "--policy", "zero", "--log", tmp_path / "l")
    evenline(*run, "--feed", tmp_path / "none", "--no-page").refused("no such file or folder")
    evenline(*run, "--feed", "ftp://x/y", "--no-page").refused("https://HOST")
    evenline(*run, "--feed", tmp_path, "--updates", "http://x/y", "--no-page").refused(
        "leave it out"
    )
    evenline(*run, "--feed", "http://x/y", "--host", "0.0.0.0").refused("--token")
    evenline(*run, "--feed", "http://x/y", "--lines", "9").refused("unknown line '9'")
    evenline(*run, "--feed", "http://x/y", "--stops", "nowhere").refused("'nowhere' is not in town")
    evenline(*run, "--feed", "http://127.0.0.1:9/y", "--speed", 0).refused("speed 0")
    evenline("shadow", "record", "x", "--out", tmp_path / "r").refused("https://HOST")
    evenline("shadow", "serve", "--host", "0.0.0.0").refused("on this machine only")
    evenline("shadow", "serve", "--silent", "9-3").refused("silent '9-3'")
    evenline("shadow", "report", log, "--city", "city").refused("another city")


def test_a_recording_goes_from_play_to_page(evenline: Door, town: City, tmp_path: Path) -> None:
    from evenline.live.feed import write_message
    from evenline.live.record import Recorder

    road, recorder = Road(town), Recorder(tmp_path / "day")
    for second in np.arange(0.0, 300.0, 30.0):
        recorder.keep(road.frame.moment(float(second)), write_message(road.snapshot(float(second))))
    recorder.close()
    run = ("shadow", "run", "--city", "town", "--policy", "zero", "--log", tmp_path / "log")
    told = evenline(*run, "--feed", tmp_path / "day", "--speed", 0, "--no-page").done()
    assert str(tmp_path / "log") in told
    before = (tmp_path / "log").read_bytes().count(b'"kind":"poll"')
    evenline(*run, "--feed", tmp_path / "day", "--speed", 0, "--no-page").done()
    polls = (tmp_path / "log").read_bytes().count(b'"kind":"poll"')
    assert polls == before == 10, "what was seen is not played again"
    page = tmp_path / "page.html"
    evenline("shadow", "report", tmp_path / "log", "--city", "town", "--out", page).done()
    assert "0 pieces of advice" in page.read_text()
