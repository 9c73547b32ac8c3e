"""Every command that reports a result of a city repeats the city's notes."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from door import Door
from evenline.city.embedded import embedded_city
from evenline.city.tables import save_city

NOTE = "this city is a guess"


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("city") / "noted"
    save_city(replace(embedded_city("town"), name="noted", notes=(NOTE,)), folder)
    return folder


Fake = dict[str, Any]  # what a result is, so that nothing is computed
PAIR: Fake = {"generalized_s": 1.0, "completion": 1.0, "mean_hold_s": 0.0}


@pytest.mark.parametrize(
    ("command", "fakes"),
    [
        ("tune forward", {"experiments.tune.tune": (None, [], "tuned")}),
        (
            "whatif",
            {
                "experiments.whatif.whatif": SimpleNamespace(
                    frame=SimpleNamespace(notes=(NOTE,)), findings=[], answers=[]
                ),
                "experiments.whatif.rows": [["a"]],
            },
        ),
        (
            "city judge",
            {
                "experiments.fidelity.fidelity_audit": [],
                "experiments.fidelity.print_lines": None,
                "worlds.fidelity.accepted": True,
            },
        ),
        ("replay check", {"experiments.replay_audit.write_audit": []}),
        ("train", {"experiments.train.run_training": {"curve": {"zero": PAIR}}}),
        (
            "city fit",
            {
                "experiments.calibrate.calibrate": (SimpleNamespace(residuals={}), {}),
                "experiments.calibrate.place_in_city": "calibration.json",
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_names_the_notes_of_its_city(
    evenline: Door, monkeypatch: pytest.MonkeyPatch, noted: Path, command: str, fakes: Fake
) -> None:
    for name, found in fakes.items():
        monkeypatch.setattr(f"evenline.{name}", lambda *_, found=found, **__: found)
    city = (noted,) if command.startswith("city ") else ("--city", noted)
    assert f"note: {NOTE}" in evenline(*command.split(), *city).done().splitlines()


def test_the_check_of_a_policy_names_them_in_its_json(
    evenline: Door, noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.worlds.open.OpenCity.fast_world", lambda self: None)
    outcome = SimpleNamespace(decisions=1, generalized_s=1.0, completion=1.0)

    def one_decision(world: None, cell: object, policy: Any) -> SimpleNamespace:
        return outcome

    monkeypatch.setattr("evenline.control.world.run_episode", one_decision)
    monkeypatch.setattr("numpy.median", lambda values: 0.0)
    monkeypatch.setattr("numpy.percentile", lambda values, at: 0.0)
    assert json.loads(evenline("policy", "check", "zero", "--city", noted).done())["notes"] == [
        NOTE
    ]
