"""Candidate and parent of a finished trial run again under other versions of SUMO."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from evenline.control.outcome import Outcome
from evenline.runs.executors import Results
from evenline.runs.job import Job as Order
from evenline.support.errors import InputError
from evenline.trial.evidence import write_analysis
from evenline.trial.versions import document, version_sensitivity, write_versions
from made import WORSE, day, finished_trial, made_up, registered


def other_gain(order: Order) -> Outcome:
    """A version under which the candidate saves its block's last digit, in tens of seconds."""
    saved = 10 * (order.cell.sumo_seed % 10) if order.policy not in WORSE else 0
    return day(order, 1_000 - saved)


def test_differences_and_intervals_are_over_blocks(tmp_path: Path) -> None:
    trial = finished_trial(tmp_path)
    write_analysis(trial.folder)
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
    write_versions(found, "command", "small", tmp_path / "page.md")
    assert page in (tmp_path / "page.md").read_text()


def test_days_that_were_run_are_not_run_again(tmp_path: Path) -> None:
    trial = finished_trial(tmp_path)
    ran: list[Order] = []

    def counted(orders: Sequence[Order], *_: Any, **__: Any) -> Results:
        ran.extend(orders)
        yield from made_up(trial, other_gain)(orders)

    def stopped(orders: Sequence[Order], *_: Any, **__: Any) -> Results:
        for number, ended in enumerate(made_up(trial, other_gain)(orders)):
            if number == 5:
                raise KeyboardInterrupt
            yield ended

    with pytest.raises(KeyboardInterrupt):
        version_sensitivity(trial.folder, ["1.25.0"], 2, tmp_path / "out", stopped)
    version_sensitivity(trial.folder, ["1.25.0"], 2, tmp_path / "out", counted)
    assert len(ran) == 2 * 2 * 2 * 2 - 5, "two methods, seeds, blocks and levels"


def test_an_unfinished_trial_the_registered_version_and_one_block_are_refused(
    tmp_path: Path,
) -> None:
    unfinished = registered(tmp_path / "a")
    with pytest.raises(InputError, match="jobs are not done, and outcomes stay sealed"):
        version_sensitivity(unfinished.folder, ["1.25.0"], 2, tmp_path / "out")
    trial = finished_trial(tmp_path / "b")
    with pytest.raises(InputError, match="choose others"):
        version_sensitivity(trial.folder, [str(trial.registered.sumo)], 2, tmp_path / "out")
    with pytest.raises(InputError, match="1 blocks: choose 2 to 6"):
        version_sensitivity(trial.folder, ["1.25.0"], 1, tmp_path / "out")
