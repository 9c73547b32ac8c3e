"""A whole command line, called in this process: the package's, or one beside it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from evenline.cli.main import main
from reproduce.door import run as run_module


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def done(self) -> str:
        """What a command printed that did its work."""
        assert self.code == 0, self.err
        return self.out

    def refused(self, *words: str) -> str:
        """The one line of a refusal, without traceback, with these words in it."""
        assert self.code == 2, self
        assert self.err.startswith(("evenline: ", "reproduce.", "bench.")), self.err
        assert self.err.count("\n") == 1 and "Traceback" not in self.err, self.err
        for word in words:
            assert word in self.err
        return self.err


Door = Callable[..., Ended]


def outcome_in(folder: Path) -> dict[str, Any]:
    """The outcome that `simulate` wrote."""
    found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())["outcome"]
    return found


def door(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], module: str | None = None
) -> Door:
    """Runs commands of `evenline`, or those of a module such as `bench.fast`."""

    command = main if module is None else partial(run_module, module, import_module(module).main)

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["evenline", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            command()
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run
