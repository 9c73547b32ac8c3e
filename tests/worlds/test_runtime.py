"""Other versions of SUMO: installed once, checked before use, installed again if damaged."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evenline.support.errors import InputError
from evenline.worlds.sumo import runtime
from evenline.worlds.sumo.runtime import install_runtime, runtime_environment


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that a stand-in for pip has installed."""
    done: list[str] = []

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        library = Path(command[command.index("--target") + 1], "libsumo")
        library.mkdir()
        (library / "__init__.py").write_text("whole")
        done.append(command[-1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(runtime.subprocess, "run", pip)
    monkeypatch.setenv("EVENLINE_RUNTIMES", str(tmp_path))
    return done


def test_a_damaged_runtime_is_installed_again_before_it_is_used(
    installs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"9\.9\.9 is not installed; .* evenline sumo 9\.9\.9"):
        runtime_environment("9.9.9")
    library = install_runtime("9.9.9") / "libsumo" / "__init__.py"
    for damage in (lambda: library.write_text("ha"), lambda: library.unlink(), lambda: None):
        damage()
        runtime._check_runtime.cache_clear()  # as in a new process
        paths = runtime_environment("9.9.9")["PYTHONPATH"].split(os.pathsep)
        assert paths[0] == str(tmp_path / "9.9.9") and library.read_text() == "whole"
    assert installs == ["sumo-data==9.9.9"] * 3
    line = f"evenline: {library} is not what was put there; it is made again"
    assert capsys.readouterr().err.splitlines() == [line, line]


def test_a_runtime_that_somebody_else_put_there_is_kept(
    installs: list[str], tmp_path: Path
) -> None:
    own = tmp_path / "9.9.9" / "libsumo" / "__init__.py"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    for use in (install_runtime, runtime_environment):
        with pytest.raises(InputError, match=r"9\.9\.9 was not installed by Evenline, .* remove"):
            use("9.9.9")
    assert own.read_text() == "mine" and installs == []
