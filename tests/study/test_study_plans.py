"""Plans of a study: what they say, and one line where they are wrong."""

import datetime
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from door import Door
from evenline.city.embedded import embedded_city
from evenline.city.tables import load_city, save_city
from evenline.cli.study import app
from evenline.importing.gtfs import read_gtfs
from evenline.importing.timetable import Wanted
from evenline.importing.writing import Demand, write_city
from evenline.policies.bundle import export_bundle
from evenline.replay.sealed import FORMAT, Manifest, ReplayPlan
from evenline.study.engine import open_study, run_study
from evenline.study.plan import find_plan, read_study_plan
from evenline.study.steps import STEPS, steps_of
from evenline.study.trial_steps import trial_toml
from evenline.support.errors import InputError
from evenline.support.files import folder_files
from feeds import DATE
from feeds import EXAMPLE as FEED
from town_plan import TOWN, plan_with

NAMES = [step.name for step in STEPS]


def test_the_plans_of_the_project_say_what_they_should() -> None:
    first, town, city = (
        read_study_plan(find_plan(name)) for name in ("town", "town-paper", "city")
    )
    assert (town.checked_trial().jobs, city.checked_trial().jobs) == (120, 1_350)
    assert first.learners == [] and first.checked_trial().jobs == 150
    assert not {*first.checked_trial().blocks} & {*town.checked_trial().blocks}
    assert town.learners == ["v14"] and len(city.learners) == 7
    assert (city.train.iql_updates, city.train.events, city.replay.blocks) == (50_000, 25_000, 10)
    assert len(town.checked_trial().blocks) == 10 and len(town.trial.levels) == 3
    for plan in (first, town, city):
        import tomllib

        trial = plan.registration(Path("somewhere"))
        assert tomllib.loads(trial_toml(trial)) == json.loads(json.dumps(trial))


@pytest.mark.parametrize("name", ["my-city", "fortaleza"])
def test_the_plan_of_an_imported_city_has_every_step_once_somebody_travels(
    tmp_path: Path, name: str
) -> None:
    plan = Path(shutil.copy(FEED.parent / f"{name}.toml", tmp_path))
    wanted = Wanted(("10", "11"), datetime.date.fromisoformat(DATE))
    feed = read_gtfs(FEED, wanted, name)
    write_city(feed, tmp_path / name)
    with pytest.raises(InputError, match=f"nobody travels in {name}"):
        read_study_plan(plan)
    write_city(feed, tmp_path / name, Demand("gravity", 200))
    assert [step.name for step in steps_of(read_study_plan(plan))] == NAMES


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("learner", '"v99"', "v99"),
        ("blocks", "11", "1 to 10"),
        ("candidate", '{ chain = "steel" }', "steel"),
        ("zero", '"nobody"', "nobody"),
        ("required_wins", "8", "require 9"),
        ("seeds", "[1, 1]", "twice"),
        ("level", '"1/0"', "claim: level"),
        ("completion_margin", '"1/0"', "claim: completion_margin"),
        ("completion_margin", "nan", "claim: completion_margin"),
        ("levels", "[0.0]", "trial.levels: demand 0"),
        ("levels", "[1.0, 3.0]", "trial.levels: demand 3.0: town has journeys up to demand"),
        ("learner", '"all"', "train.learner|methods.candidate: learner 'all'"),
        ("learner", '"v14,sac"', "learner 'v14,sac': name exactly one"),
        ("candidate", '{ learner = "v14,sac" }', "methods.candidate: learner"),
        ("events", "1", "train.events = 1: learner v14"),
        ("widths", "[64, 128, 128]\ncurve_blocks = 501", "train.curve_blocks: 501"),
        ("widths", '[64, 128, 128]\ndevice = "abacus"', "train.device: device 'abacus'"),
        ("widths", '[64, 128, 128]\nchain = "gold"', "train.chain: unknown chain 'gold'"),
        ("widths", '[64, 128, 128]\nchain = "h16"', "train.chain: learner v14: only lessons"),
        ("city", '"atlantis"', "city: unknown city 'atlantis'; choose"),
        ("zero", '"some/where"', "methods.zero: unknown policy 'some/where'"),
    ],
)
def test_a_bad_plan_is_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = plan_with(tmp_path, **{old: new})
    with pytest.raises(InputError, match=words) as told:
        read_study_plan(path)
    assert str(told.value).startswith(f"{path}: ") and "\n" not in str(told.value)


def test_blocks_that_were_used_before_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(TOWN.read_text().replace("sumo_seed = 8111", "sumo_seed = 1101"))
    with pytest.raises(InputError, match="1101: calibration has used it") as told:
        read_study_plan(path)
    assert str(told.value).startswith(f"{path}: trial") and "\n" not in str(told.value)


def test_a_bad_plan_ends_with_code_2_and_no_folder(tmp_path: Path, evenline: Door) -> None:
    path = plan_with(tmp_path, level='"1/0"')
    for command in (["run"], ["run", "--dry-run"], ["status"]):
        ended = evenline("study", *command, path, "--out", tmp_path / "study")
        ended.refused(f"evenline: {path}: claim: level = '1/0'")
    assert not (tmp_path / "study").exists()


def test_folders_that_a_plan_names_lie_beside_it_or_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Door
) -> None:
    project = tmp_path / "project"
    save_city(embedded_city("town"), project / "cities" / "mine")
    export_bundle(project / "bundle", "zero", embedded_city("town"), None, {})
    (project / "plans").mkdir()
    path = plan_with(project / "plans", city='"cities/mine"', zero='"bundle"')
    path.write_text(path.read_text().replace("[replay]", '[replay]\nreuse = "data/sealed"'))
    plan = read_study_plan(path)
    assert plan.open_city().decisions == embedded_city("town").decisions
    assert plan.policy(plan.methods["zero"]) == str(project / "bundle")
    ended = evenline("study", "run", path, "--dry-run", "--out", tmp_path / "study")
    assert ended.code == 0 and "replay: reuse = 'data/sealed': not found" in ended.err
    (project / "data" / "sealed").mkdir(parents=True)
    assert "not found" not in evenline("study", "run", path, "--dry-run").err


def test_a_bundle_is_known_by_its_content(tmp_path: Path) -> None:
    town, path = embedded_city("town"), plan_with(tmp_path, zero='"bundle"')
    settings = next(step.settings for step in STEPS if step.name == "policies")
    made = []
    for source in ("zero", "headway", "zero"):
        export_bundle(tmp_path / "bundle", source, town, None, {})
        made.append(settings(read_study_plan(path)))
    assert made[0] == made[2] != made[1]


def test_an_unknown_plan_and_unknown_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"village: no such file or plan; .*'city', .*'town'"):
        find_plan("village")
    path = tmp_path / "plan.toml"
    path.write_text("colour = 1\n" + TOWN.read_text())
    with pytest.raises(InputError, match="unknown key colour"):
        read_study_plan(path)
    path.write_text(TOWN.read_text().replace("[claim]", "[clam]"))
    with pytest.raises(InputError, match="clam"):
        read_study_plan(path)
    path.write_text("name = [")
    with pytest.raises(InputError, match="not valid TOML"):
        read_study_plan(path)


def test_a_dry_run_names_every_step_and_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "study"
    for arguments in (["run", "town-paper", "--dry-run"], ["status", "city"]):
        done = CliRunner().invoke(app, [*arguments, "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert all(name in done.output for name in NAMES)
        assert "to do" in done.output and "about" in done.output
    assert not out.exists()
    refused = CliRunner().invoke(app, ["run", "town", "--until", "lunch", "--out", str(out)])
    assert isinstance(refused.exception, InputError) and not out.exists()


def test_a_replay_of_another_size_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Imported first, so that it does not keep the function that is put in place below.
    import evenline.experiments.collect  # noqa: F401
    from evenline.city.tables import digest

    plan = plan_with(tmp_path)
    plan.write_text(plan.read_text().replace("[replay]", f'[replay]\nreuse = "{tmp_path}"'))
    asked = ReplayPlan(
        format=FORMAT,
        city=digest(embedded_city("town")),
        city_name="town",
        blocks=10,
        behaviours=(),
    )
    sealed = Manifest(format=FORMAT, plan=asked, sumo="", evenline="", files={})
    monkeypatch.setattr("evenline.replay.sealed.check_sealed", lambda folder: sealed)
    with pytest.raises(InputError, match="replay with another blocks"):
        run_study(open_study(plan, tmp_path / "study"), STEPS, until="replay")
    assert not (tmp_path / "study" / "replay").exists()


@pytest.mark.parametrize("name", ["town", "town-paper"])
def test_needs_come_before_those_who_need_them(name: str) -> None:
    before: set[str] = set()
    for step in steps_of(read_study_plan(find_plan(name))):
        assert set(step.needs) <= before
        before.add(step.name)
    assert ("train" in before) == (name == "town-paper") and "calibration" in before


def test_a_plan_copied_for_another_city_leaves_the_first_study_alone(
    evenline: Door, tmp_path: Path
) -> None:
    """The copy still says name = "town"; its file's name counts."""
    evenline("study", "run", "town", "--until", "city").done()
    first = folder_files(tmp_path / "results" / "study-town")
    save_city(replace(embedded_city("town"), name="other"), tmp_path / "other")
    plan = plan_with(tmp_path, city='"other"').rename(tmp_path / "my-plan.toml")
    evenline("study", "run", "my-plan.toml", "--until", "city").done()
    own = Path("results/study-my-plan")
    assert load_city(own / "city").name == "other"
    assert open_study(own / "plan.toml", None).folder == own

    plan.rename(tmp_path / "town.toml")
    words = (
        "evenline: results/study-town has the study of another",
        "'town'; choose another --out",
    )
    evenline("study", "run", "town.toml", "--until", "city").refused(*words)
    assert folder_files(tmp_path / "results" / "study-town") == first


def test_a_city_that_was_moved_or_edited_keeps_its_study(evenline: Door, tmp_path: Path) -> None:
    town = embedded_city("town")
    save_city(town, tmp_path / "here")
    plan = plan_with(tmp_path, city='"here"')
    evenline("study", "run", plan, "--until", "city").done()
    (tmp_path / "here").rename(tmp_path / "there")
    plan = plan_with(tmp_path, city='"there"')
    evenline("study", "run", plan, "--until", "city").done()
    save_city(replace(town, trips=town.trips[:-1]), tmp_path / "there")
    evenline("study", "run", plan, "--until", "city").done()
    assert len(load_city(Path("results/study-plan/city")).trips) == len(town.trips) - 1
