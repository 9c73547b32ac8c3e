"""Every module that reports a result of a city repeats the city's notes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from door import door
from evenline.city.embedded import embedded_city
from evenline.city.tables import save_city

NOTE = "this city is a guess"


@pytest.mark.parametrize(
    ("module", "results"),
    [
        ("sensitivity", {"sensitivity": None, "rows": [["a"]], "sentences": []}),
        ("worth", {"worth": None, "rows": [["a"]]}),
        ("regime", {"write_regime": ("cities.md", [])}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_names_the_notes_of_its_city(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    module: str,
    results: dict[str, Any],
) -> None:
    save_city(replace(embedded_city("town"), name="noted", notes=(NOTE,)), tmp_path / "noted")
    for name, result in results.items():
        monkeypatch.setattr(f"reproduce.{module}.{name}", lambda *_, result=result, **__: result)
    run = door(monkeypatch, capfd, f"reproduce.{module}")
    assert f"note: {NOTE}" in run("--city", tmp_path / "noted").done().splitlines()
