"""The page of evidence: the verdict first, the paper's numbers next to ours, no early outcomes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evenline.city.embedded import embedded_city
from evenline.city.tables import digest
from evenline.control.outcome import Outcome
from evenline.figures.paper import paper
from evenline.report.evidence import write_evidence
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_text
from evenline.trial.closeout import closeout
from evenline.trial.evidence import write_analysis
from evenline.trial.matrix import Shard, run
from evenline.trial.packed import pack
from evenline.trial.verify import verify
from made import WORSE, day, finished_trial, made_up, registered

TRAINED = Path(__file__).parents[2] / "data" / "train-city"


def closed(where: Path, of: Callable[[Job], Outcome]) -> Path:
    folder = finished_trial(where, of).folder
    write_analysis(folder)
    write_text(folder / "verification.json", to_json(verify(folder).report))
    closeout(folder)
    return folder


def page_of(folder: Path, **places: Path) -> str:
    document = folder.parent / "evidence.md"
    write_evidence(document, folder, **places)
    return document.read_text()


def more_with_demand(order: Job) -> Outcome:
    """The candidate saves more the higher the demand."""
    return day(order) if order.policy in WORSE else day(order, int(1_000 - 80 * order.cell.demand))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Results of training and audits, made up for `town`."""
    town = digest(embedded_city("town"))
    training, audits = tmp_path / "train", tmp_path / "audit"
    config = json.loads((TRAINED / "config.json").read_text()) | {"city": town}
    write_text(training / "config.json", to_json(config))
    write_text(training / "ratio.json", (TRAINED / "ratio.json").read_text())
    figure = {"name": "share of guard rows", "paper": 0.0391, "value": 0.0782, "passed": None}
    replay = {"sumo": "1.27.1", "figures": [figure | {"low": 0.07, "high": 0.08}]}
    write_text(audits / "replay.json", to_json(replay))
    printed = paper()["fidelity"]
    lines = [
        {"audit": "response", "quantity": name, "low": -0.001, "high": 0.9, "passed": True}
        for name in printed["response"]
    ]
    fidelity = {"city_digest": town, "accepted": True, "lines": lines}
    write_text(audits / "fidelity.json", to_json(fidelity | {"largest_zero_gaps": printed["zero"]}))
    return {"training": training, "audits": audits}


def test_an_unfinished_trial_shows_no_outcome(tmp_path: Path, places: dict[str, Path]) -> None:
    trial = registered(tmp_path / "half")
    run(trial.folder, made_up(trial), Shard(1, 2))
    bare, page = page_of(trial.folder), page_of(trial.folder, **places)
    assert page.startswith("# Evidence: the trial is running, 0 of 6 blocks done\n")
    assert trial.sha256 in page and "## Candidate" not in page and "better" not in page
    assert "Share of guard rows: 2.00 times the paper's. Every audited claim holds." in page
    assert "5 of 11 figures are at most the paper's" in page and "All are the paper's." in page
    assert "Not made yet: `evenline audit fidelity --city town` writes" in bare
    run(trial.folder, made_up(trial))
    pack(trial.folder, trial.folder.parent / "packed")
    for place in (trial.folder, trial.folder.parent / "packed"):
        first = page_of(place).splitlines()[0]
        assert first == "# Evidence: the trial is complete but not closed, 6 of 6 blocks done"


def test_a_confirmed_trial_says_so_first(tmp_path: Path, places: dict[str, Path]) -> None:
    folder = closed(tmp_path / "one", more_with_demand)
    pack(folder, tmp_path / "one" / "packed")
    page = page_of(folder, **places)
    assert page.startswith("# Evidence: confirmed\n")
    assert "| difference | -92.12 | -80.00 | +0.00466 | +0.00000 | -77.22 | +0.00 |" in page
    assert "-80.0 s here and -92.1 s in the paper: the same direction, 87% of its size" in page
    assert "The saving grows with demand, as in the paper." in page
    assert "| 1.25 | -148.46 | -100.00 |" in page and "| 9101-9201 | -80.00 |" in page
    assert "No method has less time than the candidate." in page
    assert (tmp_path / "one" / "images" / "evidence-blocks.png").is_file()
    packed = page_of(tmp_path / "one" / "packed", **places)
    assert packed.replace(str(tmp_path / "one" / "packed"), str(folder)) == page


def test_a_denied_trial_says_so_first(tmp_path: Path) -> None:
    page = page_of(closed(tmp_path / "one", day))
    assert page.startswith("# Evidence: not confirmed\n")
    assert "blocks with less generalized time | 10 of 10, p = 0.0009766 | 0 of 6," in page
    assert "failed here: both tests (intersection-union), gate: demand direction" in page
    assert "no difference here" in page and "as it does in the paper; it is largest" in page


def test_results_of_another_city_and_changed_trials_are_refused(tmp_path: Path) -> None:
    folder = closed(tmp_path, more_with_demand)
    with pytest.raises(InputError, match="belongs to another city than the trial; run: evenline"):
        page_of(folder, training=TRAINED)
    path = folder / "analysis.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("-80.0", "-81.0"))
    with pytest.raises(InputError, match=r"analysis.json"):
        page_of(folder)
