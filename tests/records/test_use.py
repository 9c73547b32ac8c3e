"""A city from records is used like any other; every result says what it was fitted to."""

from pathlib import Path

import pytest

from door import Door
from evenline.city.tables import city_notes
from evenline.experiments.records import audit_records, import_records
from evenline.worlds.open import open_city
from made import FEW, plan_text
from recorded_truth import DAYS, write_records

QUICK = FEW | {"world": '"fast"', "levels": "[1.0]"}

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("use")
    write_records(folder / "records")
    import_records(folder / "records", "", "6-12", f"{DAYS[0]},{DAYS[1]}", folder / "mine", "mine")
    return folder / "mine"


def test_a_city_says_that_it_is_not_yet_judged_and_then_how_it_did(city: Path) -> None:
    said = [note for note in city_notes(city) if "not yet judged on a day" in note]
    assert len(said) == 1 and open_city(str(city)).notes("fast").count(said[0]) == 1
    audit = audit_records(str(city), city.parent / "records", DAYS[3], city.parent / "audit")
    for notes in (
        city_notes(city),
        open_city(str(city)).notes("fast"),
        open_city(str(city)).notes("sumo"),
    ):
        assert sum(audit.said in note for note in notes) == 1
        assert not any("not yet judged" in note for note in notes)


@pytest.mark.parametrize(
    "command",
    [
        "compare --policies zero,headway --blocks 1 --workers 1 --out compared",
        "compare --policies zero,lookahead --blocks 1 --workers 1 --out ahead",
        "tune forward --blocks 1 --budget 3 --workers 1 --out tuned",
    ],
)
def test_policies_run_on_it(command: str, city: Path, evenline: Door) -> None:
    assert evenline(*command.split(), "--city", city).done()


def test_a_trial_runs_on_it_and_says_what_it_was_fitted_to(city: Path, evenline: Door) -> None:
    Path("plan.toml").write_text(plan_text(**(QUICK | {"city": f'"{city}"'})))
    evenline("trial", "register", "plan.toml", "--out", "trial").done()
    evenline("trial", "run", "trial", "--workers", 1).done()
    ended = evenline("trial", "analyse", "trial")
    assert (ended.out + ended.err).count("fitted to records of records") == 1
    assert evenline("trial", "verify", "trial").code == 0
