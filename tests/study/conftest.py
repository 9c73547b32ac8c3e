"""What tests of the study share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evenline.cli.main import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other trials have used is looked for in the working directory too."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def evenline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs a command as a person does: its exit code, and what it says on standard error."""

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["evenline", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capfd.readouterr().err

    return run
