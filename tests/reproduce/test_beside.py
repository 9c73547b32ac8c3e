"""Days beside a closed trial: under other versions of SUMO, and without holding on its cells."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from evenline.city.demand import Cell
from evenline.control.outcome import Outcome
from evenline.runs.executors import Results
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.trial.packed import pack
from evenline.trial.plan import Claim
from evenline.trial.registration import Trial
from made import WORSE, closed_trial, day, finished_trial, made_up
from reproduce.unheld import accrued, effect_lines, unheld, unheld_of
from reproduce.versions import document, version_sensitivity


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return closed_trial(tmp_path_factory.mktemp("closed"))


def other_gain(job: Job) -> Outcome:
    """A version under which the candidate saves its block's last digit, in tens of seconds."""
    saved = 10 * (job.cell.sumo_seed % 10) if job.policy not in WORSE else 0
    return day(job, 1_000 - saved)


def test_differences_and_intervals_are_over_blocks(trial: Trial, tmp_path: Path) -> None:
    found = version_sensitivity(
        trial.folder, ["1.25.0"], 4, tmp_path / "out", made_up(trial, other_gain)
    )
    assert list(found) == sorted(["1.25.0", str(trial.registered.sumo)])
    other, own = found["1.25.0"], found[str(trial.registered.sumo)]
    blocks = [-10.0, -20.0, -30.0, -40.0]  # SUMO seeds 9101 to 9104
    assert other.difference.generalized_s == pytest.approx(mean(blocks))
    half = 3.182446 * stdev(blocks) / 2  # Student's t for three degrees of freedom
    assert other.half_width.generalized_s == pytest.approx(half, rel=1e-6)
    assert (other.favourable_blocks, other.blocks) == (4, 4)
    assert own.difference.generalized_s == pytest.approx(-90.0)
    page = document(found, "command")
    assert "| 1.25.0 |" in page and "-25.0" in page


def test_days_that_were_run_are_not_run_again(trial: Trial, tmp_path: Path) -> None:
    ran: list[Job] = []

    def counted(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        ran.extend(jobs)
        yield from made_up(trial, other_gain)(jobs)

    def stopped(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        for number, ended in enumerate(made_up(trial, other_gain)(jobs)):
            if number == 5:
                raise KeyboardInterrupt
            yield ended

    with pytest.raises(KeyboardInterrupt):
        version_sensitivity(trial.folder, ["1.25.0"], 2, tmp_path, stopped)
    version_sensitivity(trial.folder, ["1.25.0"], 2, tmp_path, counted)
    assert len(ran) == 2 * 2 * 2 * 2 - 5, "two methods, seeds, blocks and levels"


def test_no_day_runs_beside_a_trial_that_is_not_closed(trial: Trial, tmp_path: Path) -> None:
    for run in (
        lambda folder: version_sensitivity(folder, ["1.25.0"], 2, tmp_path / "out"),
        lambda folder: unheld(folder, tmp_path / "out"),
    ):
        with pytest.raises(InputError, match="is not closed, so no day may run beside it"):
            run(finished_trial(tmp_path / str(id(run))).folder)
    with pytest.raises(InputError, match="choose others"):
        version_sensitivity(trial.folder, [str(trial.registered.sumo)], 2, tmp_path / "out")
    with pytest.raises(InputError, match="1 blocks: choose 2 to 6"):
        version_sensitivity(trial.folder, ["1.25.0"], 1, tmp_path / "out")


def test_days_without_holding_run_once_and_only_on_the_cells_of_the_trial(
    trial: Trial, tmp_path: Path
) -> None:
    pack(trial.folder, tmp_path / "packed")
    days = unheld(tmp_path / "packed", tmp_path / "zero", made_up(trial))
    cells = {job.cell.name for job in trial.jobs().values()}
    assert days.keys() == cells and unheld_of(trial, tmp_path / "zero") == days
    assert unheld(trial.folder, tmp_path / "zero", made_up(trial, other_gain)) == days
    kept = tmp_path / "zero" / "days.json"
    kept.write_text(kept.read_text().replace('"demand": 0.75', '"demand": 0.8', 1))
    with pytest.raises(InputError, match=r"days.json: day 9101-9201-0.75 is not of this trial"):
        unheld(trial.folder, tmp_path / "zero", made_up(trial))
    other = closed_trial(tmp_path / "other", seeds="[1, 3]")
    assert unheld_of(other, tmp_path / "zero") is None


def split(cell: Cell, before_s: int, after_s: int, completed: int = 1_940) -> Outcome:
    """A day with what a passenger pays until the last bus leaves, and afterwards."""
    made = day(Job(city="town", policy="zero", cell=cell), before_s + after_s, completed)
    return replace(made, service_cost=2_000 * before_s)


def test_an_effect_is_split_at_the_departure_of_the_last_bus() -> None:
    cells = [Cell(9101, 9201, 0.75), Cell(9102, 9202, 1.25)]
    zero = {cell.name: split(cell, 900, 100) for cell in cells}
    days = {"better": (910, 20, 1_960), "worse": (895, 95)}
    records = [
        {"method": method, "seed": 1, "cell": asdict(cell), "outcome": split(cell, *own).as_dict()}
        for method, own in days.items()
        for cell in cells
    ]
    claim = Claim(candidate="better", parent="worse")
    found = accrued(records, claim, zero)
    assert found is not None and len(found) == 3
    assert found["candidate minus parent"] == pytest.approx([15, -75, 0.01])
    assert found["better minus no holding"] == pytest.approx([10, -80, 0.01])
    lines = effect_lines(found, 4_800, 7_200)
    assert "| candidate minus parent | -60.0 | +15.0 | -75.0 |  | +1.00 |" in lines
    assert "| worse minus no holding | -10.0 | -5.0 | -5.0 | 50% | +0.00 |" in lines
    assert list(accrued(records, claim, {}) or {}) == ["candidate minus parent"]
    del records[0]["outcome"]["service_cost"]
    assert accrued(records, claim, zero) is None
