"""The report of a study, opened in a real browser: everything drawn, nothing fetched, no error.

The study is a small one on `town`: its trial is registered, run and analysed by the real code,
with days from the fast world in place of SUMO; audits and training are a few made-up rows.
"""

import html
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from defusedxml.ElementTree import fromstring
from msgspec.structs import replace as changed
from typer.testing import CliRunner

from browser import LIMIT_S, Page, browsing
from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.city.model import Clock
from evenline.city.tables import digest, open_city, save_city
from evenline.cli.report import BROWSERS, headless, report
from evenline.policies.bundle import export_bundle, open_policy
from evenline.policies.kinds import Spec
from evenline.report.data import read_study
from evenline.report.days import decision_of
from evenline.report.page import REPORT, write_report
from evenline.report.policies import RULES, what_it_is
from evenline.report.words import decision_words, holds_words, verdict
from evenline.rules.table import RULES as BUILT_IN_RULES
from evenline.runs.executors import Results
from evenline.runs.job import Ended, Job
from evenline.support.errors import InputError
from evenline.support.files import to_json
from evenline.trial.evidence import write_analysis
from evenline.trial.matrix import run
from evenline.trial.registration import Trial, register
from evenline.trial.used import note_used
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import open_city as open_calibrated
from made import answer

FIGURES = {
    *("forest", "effects", "map", "timespace", "headways", "load", "holds"),
    *("ends", "metrics", "fidelity", "replay"),
}
PLAN = """
name = "small"
city = "town"
seeds = [1, 2]
levels = [0.75, 1.25]
blocks = { sumo_seed = 9101, demand_seed = 9201, count = 6 }
methods = { reserve = "BUNDLE", parent = "headway+parent", zero = "zero" }
claim = { candidate = "reserve", parent = "parent" }
"""
HOSTILE = "a </script><b>learner</b> & \u201cquotes\u201d"


# -- a study --------------------------------------------------------------------------------------


def make_trial(study: Path) -> Trial:
    """A complete trial, not analysed yet; its candidate is a bundle, the others are built in."""
    town = open_city("town")
    bundle = study / "policies" / "reserve-1"
    export_bundle(bundle, "headway", town, "candidate", {})
    (study / "plan.toml").write_text(PLAN.replace("BUNDLE", str(bundle)))
    trial = register(study / "plan.toml", study / "trial", study / "used-cells.json")
    world = FastWorld(town, calibration_of(town))

    def executor(jobs: Sequence[Job], inputs: Path, *_: Any) -> Results:
        for job in jobs:
            source = str(inputs / job.policy) if "/" in job.policy else job.policy
            outcome = world.run_day(job.cell, open_policy(source, town))
            found = answer(trial, job, outcome)
            yield Ended(job=job, answer=found, failures=(), duration_s=1.0)

    assert run(trial.folder, executor).complete
    return trial


def make_training(folder: Path) -> None:
    folder.mkdir()
    row = {"generalized_s": 990.0, "completion": 0.97, "mean_hold_s": 4.0}
    curve = {"zero": row, "iql-1": row, "v14-1": row, "v14-1@200": row, "v14-2-at-200": row}
    (folder / "curve.json").write_text(to_json(curve))
    learners = [{"name": "v14", "title": HOSTILE}]
    (folder / "config.json").write_text(to_json({"plan": {"learners": learners}}))
    rows = [
        {"lane": lane, "phase": phase, "update": 100 * (i + 1), "critic_loss": 1.0 / (i + 1)}
        for lane, phase in (("iql-1", "iql"), ("v14-1", "online"), ("v14-2", "online"))
        for i in range(8)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "metrics.parquet")


def make_audits(study: Path) -> None:
    line = {"audit": "zero", "policy": "zero", "level": "0.75", "quantity": "waiting time"}
    line |= {"sumo": 10.0, "fast": 10.1, "gap": 0.01, "low": -0.01, "high": 0.03, "limit": 0.1}
    lines = [line | {"passed": True}, line | {"passed": False, "audit": "hold", "gap": 0.2}]
    fidelity = {"accepted": False, "lines": lines, "largest_zero_gaps": {"generalized time": 0.01}}
    figure = {"name": "rows", "value": 5, "low": None, "high": None, "paper": 7, "passed": True}
    share = figure | {"name": "share", "value": 0.5, "low": 0.4, "high": 0.6, "passed": None}
    replay = {"figures": [figure, share], "sumo": "1.27.1"}
    replay |= {"hold_histogram": [3, 2, 1], "headway_histogram": [1, 2, 3], "support_by_cell": {}}
    for name, content in (("fidelity/fidelity", fidelity), ("replay-audit/replay", replay)):
        path = study / f"{name}.json"
        path.parent.mkdir()
        path.write_text(to_json(content))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "town"
    folder.mkdir()
    trial = make_trial(folder)
    write_analysis(trial.folder)
    save_city(open_city("town"), folder / "city")
    make_training(folder / "train")
    make_audits(folder)
    with chdir(folder.parent):
        assert write_report(folder) == folder / REPORT
    return folder


# -- the browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    if os.environ.get("CI"):
        pytest.fail("CI needs a browser: install Debian's package chromium")
    pytest.skip("no Chromium on this machine")


def opened(browser: str, page: Path, profile: Path, width: int = 1200) -> dict[str, Any]:
    """What the page says of itself after drawing, with the browser's console beside it."""
    command = [
        *headless(browser, profile),
        f"--window-size={width},900",
        "--enable-logging=stderr",
        "--dump-dom",
        f"{page.as_uri()}?check",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    answer = re.search(r'<pre id="check"[^>]*>(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(answer[1]))
    return found | {"console": [line for line in done.stderr.splitlines() if "CONSOLE" in line]}


def assert_clean(found: dict[str, Any]) -> None:
    assert found["tip"] and found["keys"]
    for name in ("problems", "console", "requests", "deaf"):
        assert found[name] == [], name
    assert found["overflow"] == 0
    assert found["nameless"] == 0


@pytest.mark.parametrize("width", [1200, 500])
def test_every_figure_is_drawn_and_nothing_is_fetched(
    browser: str, study: Path, tmp_path: Path, width: int
) -> None:
    found = opened(browser, study / REPORT, tmp_path, width)
    assert_clean(found)
    assert found["figures"].keys() == FIGURES
    assert min(found["figures"].values()) >= 3
    assert min(found["csv"].values()) >= 1
    assert found["redrawn"]  # another service was chosen
    assert found["choices"] > 20
    assert found["service"] in {each.id for each in open_city("town").services}


def test_blocks_that_are_all_alike_have_no_interval_and_are_drawn_without(
    browser: str, study: Path, tmp_path: Path
) -> None:
    alike = tmp_path / "alike"
    shutil.copytree(study, alike)
    path = alike / "trial" / "analysis.json"
    analysis = json.loads(path.read_text())
    for found in analysis["beyond_the_claim"].values():
        found |= {"bca_mean": None, "hodges_lehmann": None}
    path.unlink()
    path.write_text(json.dumps(analysis))
    assert_clean(opened(browser, write_report(alike), tmp_path / "profile"))
    assert (alike / REPORT).exists()


def test_a_study_with_a_city_alone_has_no_sections_of_what_it_has_not(
    browser: str, study: Path, tmp_path: Path
) -> None:
    shutil.copytree(study / "city", tmp_path / "bare" / "city")
    page = write_report(tmp_path / "bare")
    found = opened(browser, page, tmp_path / "profile")
    assert_clean(found)
    assert found["figures"].keys() == {"map"}
    assert re.findall(r'<section id="(\w+)">', page.read_text()) == ["map", "provenance"]
    assert re.findall(r'<li><a href="#(\w+)">', page.read_text()) == ["map", "provenance"]
    assert "No verdict yet" in page.read_text() and "failed" not in page.read_text()


def test_the_page_prints_and_its_figures_are_files(
    browser: str, study: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(study, tmp_path / "copy")
    app = typer.Typer()
    app.command()(report)
    done = CliRunner().invoke(app, [str(copy), "--pdf", "--figures"])
    assert done.exit_code == 0, done.output
    assert done.output.split() == [str(copy / n) for n in (REPORT, "figures", "report.pdf")]
    assert (copy / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert {path.name for path in (copy / "figures").iterdir()} == {f"{n}.svg" for n in FIGURES}
    for path in (copy / "figures").iterdir():
        assert_stands_alone(path)
    drawn = (copy / "figures" / "map.svg").read_bytes()
    (copy / "figures" / "map.svg").write_text("mine")
    with pytest.raises(InputError, match=r"map\.svg has changed since .*--force"):
        report(copy, figures=True)
    report(copy, figures=True, force=True)
    assert (copy / "figures" / "map.svg").read_bytes() == drawn


def assert_stands_alone(path: Path) -> None:
    """An SVG that needs no style sheet, no script and no other file."""
    root = fromstring(path.read_bytes())
    inside = list(root.iter())
    names = {element.tag.rpartition("}")[2] for element in inside}
    assert names <= {
        *("svg", "g", "title", "text", "rect", "circle", "line", "path", "polyline", "polygon"),
        "clipPath",
    }, path.name
    assert not any({"class", "style", "href"} & element.attrib.keys() for element in inside)
    assert "var(" not in path.read_text() and "color-mix" not in path.read_text()
    assert len(inside) > 10


def open_report(page: Page, study: Path, width: int, height: int) -> None:
    """Open the page of a study in a window of this size, and wait until all is drawn."""
    page.size(width, height)
    page.open((study / REPORT).resolve().as_uri())
    page.wait("document.readyState === 'complete' && typeof figures === 'object'")


def save_by_click(page: Page, name: str, folder: Path) -> None:
    """Click on the button of a figure until its file is there."""
    until = time.monotonic() + LIMIT_S
    while not (folder / f"{name}.svg").exists():
        assert time.monotonic() < until, f"{name}.svg was not saved"
        page.click(f'figure[data-figure="{name}"] button.save')
        time.sleep(1.0)


def test_a_click_on_the_button_saves_the_figure_as_it_is_seen(
    browser: str, study: Path, tmp_path: Path
) -> None:
    with browsing(browser, tmp_path / "profile") as page:
        open_report(page, study, 1200, 900)
        page.do("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        for name in sorted(FIGURES):
            save_by_click(page, name, tmp_path)
        assert page.value("problems") == []
        circles = page.value("figures.forest.box.querySelectorAll('circle').length")
    for name in FIGURES:
        assert_stands_alone(tmp_path / f"{name}.svg")
    root = fromstring((tmp_path / "forest.svg").read_bytes())
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"block 1", "block 6", "candidate minus parent, s per passenger"} <= {*words}
    marks = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(marks) == circles > 0
    assert marks[0].get("fill") == "rgb(0, 114, 178)"  # as the style sheet says


def test_the_page_fits_a_phone(browser: str, study: Path, tmp_path: Path) -> None:
    with browsing(browser, tmp_path / "profile") as page:
        open_report(page, study, 390, 844)
        assert page.value("document.documentElement.scrollWidth") == 390
        widest = "Math.max(...[...document.querySelectorAll('.stack td')].map("
        widest += "(cell) => cell.getBoundingClientRect().right))"
        assert page.value(widest) <= 390


def test_without_a_browser_the_error_names_the_package(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="apt-get install chromium"):
        report(study, pdf=True)


# -- words ----------------------------------------------------------------------------------------


def test_the_page_stands_alone(study: Path) -> None:
    page = (study / REPORT).read_text()
    assert set(re.findall(r"https?://[^\"'<\s]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert page.count("</script>") == 2  # what a study says cannot end the data
    assert page.count("<figcaption>") == len(FIGURES)
    assert str(study.parent) not in page


def test_the_same_study_gives_the_same_page(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(study, tmp_path / "town")
    assert write_report(copy).read_text() == (study / REPORT).read_text()


def test_a_page_that_was_edited_is_replaced_only_by_force(study: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(study / "city", bare / "city")
    page = write_report(bare).read_text()
    assert write_report(bare).read_text() == page
    (bare / REPORT).write_text("mine")
    with pytest.raises(InputError, match=rf"{REPORT} has changed since .*--force"):
        write_report(bare)
    assert (bare / REPORT).read_text() == "mine"
    assert write_report(bare, force=True).read_text() == page


def test_the_verdict_says_what_failed_and_what_it_does_not_say(study: Path) -> None:
    found = read_study(study)
    assert found.trial is not None
    analysis = found.trial["analysis"]
    said = verdict(found)
    assert said.confirmed == analysis["confirmed"]
    assert f"{analysis['claim']['primary']['wins']} of 6" in said.lead
    assert any("No real bus was held" in limit for limit in said.limits)
    assert any("did not pass its audit" in limit for limit in said.limits)
    analysis["gates"]["stability"] = False
    analysis["confirmed"] = False
    assert "metric of the training of the compared policies is finite" in verdict(found).lead
    assert verdict(found).word == "Not confirmed"


def test_a_gate_against_a_control_is_said_in_words(study: Path) -> None:
    found = read_study(study)
    assert found.trial is not None
    trial, gate = found.trial, "less time than zero"
    trial["claim"]["gates"] = (*trial["claim"]["gates"], gate)
    trial["analysis"]["gates"][gate] = False
    trial["analysis"]["confirmed"] = False
    said = verdict(found)
    condition = "less passenger time than \u201czero\u201d in at least"
    assert condition in said.lead
    assert any(condition in words and not passed for words, passed in said.checks)
    assert any("asks for less time than \u201czero\u201d" in limit for limit in said.limits)


def test_a_robustness_gate_stands_beside_the_claim_and_changes_no_verdict(study: Path) -> None:
    found = read_study(study)
    assert found.trial is not None
    before = verdict(found)
    gate = "less time than zero in 6 of 6 blocks"
    found.trial["claim"]["robustness"] = [gate]
    found.trial["analysis"]["robustness"] = {gate: False}
    said = verdict(found)
    assert (said.word, said.lead) == (before.word, before.lead)
    words = "beside the claim: less passenger time than \u201czero\u201d in at least 6 blocks"
    assert (words, False) in said.checks


def test_what_may_be_chance_is_said_first_and_a_tie_is_one(study: Path) -> None:
    found = read_study(study)
    assert found.trial is not None
    analysis, primary = found.trial["analysis"], found.trial["analysis"]["claim"]["primary"]
    analysis["confirmed"], primary["passed"] = False, False
    analysis["means"]["reserve"]["generalized_s"] = 900.0
    analysis["means"]["parent"]["generalized_s"] = 1000.0
    lead = verdict(found).lead
    assert lead.startswith("The difference may be chance: on average over these days, passengers")
    assert "lost less time with the policy" in lead and "900 instead of 1,000 s each" in lead
    primary["passed"] = True
    assert verdict(found).lead.startswith("This describes the days of the trial")
    analysis["confirmed"] = True
    assert verdict(found).lead.startswith("On average over these days, passengers in town lost")
    analysis["means"]["parent"]["generalized_s"] = 900.01
    assert "lost as much time" in verdict(found).lead and "instead" not in verdict(found).lead


def test_a_verdict_that_is_not_final_or_not_on_fresh_days_says_so(
    study: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(study, tmp_path / "town")
    unfinished = "has not been verified by independent code or closed"
    assert any(unfinished in limit for limit in verdict(read_study(copy)).limits)
    (copy / "trial" / "verification.json").write_text("{}")
    assert any("has not been closed" in limit for limit in verdict(read_study(copy)).limits)
    (copy / "trial" / "closeout.json").write_text('{"merkle_root": "0"}')
    assert not any("not final" in limit for limit in verdict(read_study(copy)).limits)
    assert not any("not fresh" in limit for limit in verdict(read_study(copy)).limits)
    entry = {"name": "first-look", "trial": None, "city": digest(open_city("town"))}
    note_used(tmp_path / "before" / "used-cells.json", entry | {"blocks": [[9106, 1]]})
    assert any("first-look" in limit for limit in verdict(read_study(copy)).limits)


def test_a_trip_that_did_not_end_is_said(study: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(study, tmp_path / "town")
    said = "of 60 trips did not reach the last stop"
    assert not any(said in limit for limit in verdict(read_study(copy)).limits)
    path = next((copy / "trial" / "records").iterdir())
    record = json.loads(path.read_text())
    record["outcome"]["trips_completed"] -= 1
    path.write_text(to_json(record))
    (limit,) = (limit for limit in verdict(read_study(copy)).limits if said in limit)
    assert limit.startswith("On 1 of ") and said in write_report(copy, force=True).read_text()


def test_the_page_names_the_world_of_a_trial_outside_sumo(study: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(study, tmp_path / "town")
    assert "(SUMO 1.27.1)" in (study / REPORT).read_text()
    path = copy / "trial" / "trial.json"
    registered = json.loads(path.read_text()) | {"world": "fast", "sumo": None}
    path.unlink()
    path.write_text(to_json(registered))
    page = write_report(copy).read_text()
    assert "(the world fast)" in page and "SUMO None" not in page and "SUMO 1.27.1)" not in page


def test_no_command_on_the_page_would_be_refused(study: Path, tmp_path: Path) -> None:
    """After outcomes nothing before them can be forced; without a trial anything can."""
    page = (study / REPORT).read_text()
    assert "--from" not in page and "--out town-again --until train" in page
    shutil.copytree(study / "fidelity", tmp_path / "town" / "fidelity")
    assert "--from fidelity --until fidelity" in write_report(tmp_path / "town").read_text()


def test_commands_on_the_page_run_where_it_was_made(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(study, tmp_path / "my results" / "town")
    commands = re.findall(
        r"<code(?: class=\"wrap\")?>(evenline .*?)</code>", write_report(copy).read_text()
    )
    parts = [shlex.split(html.unescape(command)) for command in commands]
    assert ["evenline", "report", "my results/town"] in parts
    assert ["evenline", "trial", "analyse", "my results/town/trial"] in parts
    for path in {part for command in parts for part in command if "/" in part}:
        assert Path(path).exists() or path == "my results/town-again"


def test_every_rule_is_described_and_so_are_chain_and_setting() -> None:
    assert RULES.keys() == BUILT_IN_RULES.keys()
    spec = Spec(kind="rule", rule="two-way", constants={"slack_s": 2.0, "gain": 0.1}, chain="raw")
    line = what_it_is(spec)
    assert line.endswith("(slack 2 s, gain 0.1)") and line.startswith("balances the gaps")
    assert "60 s, so that more people catch it" in what_it_is(changed(spec, chain="candidate"))
    actor = Spec(kind="actor", constants={}, chain="raw", provenance={"learner": "taught"})
    assert what_it_is(actor) == "asks a neural network, trained as taught on simulated days"


def test_the_page_says_what_was_tested_and_what_each_policy_does(study: Path) -> None:
    page = (study / REPORT).read_text()
    assert "all its 60 bus trips, on 2 routes in 4 directions" in page
    assert "24 simulated days under each policy: 6 blocks, 2 levels of demand" in page
    assert "holds a bus that is closer to the bus ahead than to the bus behind" in page
    assert "never holds a bus" in page and "buses a day" not in page


def test_a_tick_stands_only_where_something_was_checked(study: Path) -> None:
    found = read_study(study)
    assert found.trial is not None
    found.trial["analysis"]["gates"]["stability"] = True
    assert dict(verdict(found).checks)["stable training: neither policy was trained"] is None
    found.trial["trained"] = ["reserve"]
    (passed,) = (passed for words, passed in verdict(found).checks if "is finite" in words)
    assert passed is True


def test_an_unfinished_trial_tells_no_outcome(study: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(study, tmp_path / "town")
    (copy / "trial" / "analysis.json").unlink()
    page = write_report(copy).read_text()
    assert "No verdict" in page
    assert '"pairs"' not in page
    assert 'data-figure="timespace"' not in page


def test_records_that_do_not_give_the_analysis_are_refused(study: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(study, tmp_path / "town")
    records = {p: json.loads(p.read_text()) for p in (copy / "trial" / "records").iterdir()}
    path, record = next(each for each in records.items() if each[1]["method"] == "reserve")
    record["outcome"]["generalized_s"] += 1
    path.write_text(to_json(record))
    with pytest.raises(InputError, match=r"analysis\.json disagrees with the records"):
        write_report(copy)


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "nothing")
    with pytest.raises(InputError, match="is not a study"):
        write_report(tmp_path)


def test_a_decision_of_the_look_ahead_is_told_with_the_cost_of_every_hold() -> None:
    opened = open_calibrated("town")
    cell = PURPOSES["development"].cells(1)[1]
    told = decision_of(opened, "lookahead", cell)
    assert told is not None and decision_of(opened, "zero", cell) is None
    best = min(told["costs"])
    assert told["costs"][0] == 0 > best
    assert told["holds_s"][told["costs"].index(best)] == told["chosen_s"]
    said = decision_words(told)
    assert f"bus {told['trip']} of service {told['service']}" in said
    assert f"Held for {told['chosen_s']:.0f} s" in said and f"{-best:,.0f} s" in said


def test_a_decision_is_told_by_the_clock_of_the_city_and_the_name_of_the_stop() -> None:
    known, cell = open_calibrated("town"), PURPOSES["development"].cells(1)[1]
    named = tuple(replace(stop, name=f"Place {stop.id}") for stop in known.city.stops)
    clock = Clock("2026-03-02", 18_000, "UTC")
    city = replace(known.city, stops=named, clock=clock)
    plain, told = (
        decision_of(replace(known, city=each), "lookahead", cell) for each in (known.city, city)
    )
    assert plain is not None and told is not None
    hour, rest = plain["clock"].split(":", 1)
    said = f"At {int(hour) + 5}:{rest} bus {told['trip']}"
    assert decision_words(told).startswith(said)
    assert f"reached stop Place {plain['stop']} ({plain['stop']})," in decision_words(told)


def test_holds_are_drawn_by_the_clock_of_the_city(
    browser: str, study: Path, tmp_path: Path
) -> None:
    page, shown = tmp_path / "page.html", (study / REPORT).read_text()
    assert shown.count('"start_s": 0') + shown.count('"start_s":0') == 1
    page.write_text(re.sub(r'"start_s": ?0', '"start_s": 30600', shown))
    command = [*headless(browser, tmp_path / "profile"), "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.search(r'data-tip="Service \w+, from 8:30 to 9:30\n', done.stdout)


def test_behind_a_chain_the_decision_tells_the_hold_that_is_left() -> None:
    opened, cell = open_calibrated("town"), PURPOSES["development"].cells(1)[1]
    told = decision_of(opened, "lookahead+candidate", cell)
    assert told is not None
    assert told["chosen_s"] < told["holds_s"][told["costs"].index(min(told["costs"]))]


def test_holds_are_counted_where_no_reserve_acts() -> None:
    days = {
        "decisions": [["A", 0, 40], ["B", 0, 60]],
        "activations": {"candidate": [["hold", "A", 0, 5], ["hold", "B", 0, 15]]},
        "held": "hold",
        "blocks": [{}, {}],
    }
    assert holds_words(days, "lookahead") == (
        "The policy \u201clookahead\u201d made 10 holds a day, 20.0 % of all decisions, most of "
        "them on service B."
    )
