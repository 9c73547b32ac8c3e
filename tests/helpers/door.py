"""The whole command line, called in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from evenline.cli.main import main


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
        assert self.err.startswith("evenline: ") and self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err
        return self.err


Door = Callable[..., Ended]


def door(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Door:
    """Runs commands."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["evenline", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run
