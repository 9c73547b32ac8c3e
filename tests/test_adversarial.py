"""One table of adversarial inputs: every column and key of every file that we read, made from its
type and its stated range, and given to the real command in this process.

A command refuses a bad value with exit code 2 and one line that names the file or the value. It
accepts a value only if the value is within its stated range. A new key without a range, or one that
the sound files of `adversary_files.py` do not have, fails here.
"""

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from adversary import MISSING, Case, absent, unstated
from adversary_files import File, every_file
from door import Ended, door
from evenline.city.tables import COLUMNS, RANGES, Range, Words
from evenline.cli import main as cli
from hamlet import HAMLET, MANIFEST, cells_of, seal, with_cell, write_hamlet

LEAST_CASES = 2_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    return every_file(tmp_path_factory.mktemp("sound"))


class Table:
    """The commands, and the cases that did not end as they must."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        # Building the tree of commands takes longer than most cases.
        monkeypatch.setattr(cli, "app", typer.main.get_command(cli.app))
        self.run = door(monkeypatch, capfd)
        self.count, self.wrong = 0, []

    def judge(self, file: File, case: Case) -> None:
        self.count += 1
        for made in file.makes:
            shutil.rmtree(made, ignore_errors=True)
        try:
            ended = self.run(*file.command)
        except Exception as error:
            self.wrong.append(f"{file.name}: {case}: {type(error).__name__}: {error}")
            return
        if fault := _fault(file, case, ended):
            self.wrong.append(f"{file.name}: {case}: {fault}")


def _fault(file: File, case: Case, ended: Ended) -> str | None:
    """What is wrong with the end of a command, if anything."""
    if ended.code == 0 or (ended.code == 1 and "analyse" in file.command):
        return "accepted" if case.bad else None
    if ended.code != file.code:
        return f"exit code {ended.code}"
    if file.code == 1:  # findings, one a line
        lines = ended.out.splitlines()
        return None if lines and all(line.isprintable() for line in lines) else f"{lines}"
    line = ended.err.removesuffix("\n")
    if ended.out or not line.startswith("evenline: ") or not line.isprintable():
        return f"not one line: {ended.out}{ended.err}"
    names = (file.path.name, file.path.parent.name, case.place.rpartition(".")[2], repr(case.value))
    return None if any(name in line for name in names) else f"does not name it: {line}"


# -- JSON and TOML --------------------------------------------------------------------------------


def test_every_key_states_its_range(files: list[File]) -> None:
    for file in files:
        assert sorted(set(unstated(file.type)) - set(file.free)) == [], file.name


def test_the_sound_files_have_every_key_and_are_accepted(
    files: list[File], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    table = Table(monkeypatch, capfd)
    for file in files:
        import sys; o = open("/tmp/helper2/sound.txt", "a"); print(file.name, sorted(absent(file.type, file.base)), file=o)
        file.write(file.base)
        for made in file.makes:
            shutil.rmtree(made, ignore_errors=True)
        print(table.run(*file.command), file=o); o.close()


def test_a_damaged_key_is_refused_in_one_line(
    files: list[File], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    table = Table(monkeypatch, capfd)
    import time
    for file in files:
        t, n = time.time(), table.count
        for case in file.cases():
            file.write(case.document)
            table.judge(file, case)
        file.write(file.base)
        with open("/tmp/helper2/times.txt", "a") as f: f.write(f"{file.name} {table.count-n} {time.time()-t:.1f}\n")
    Path("/tmp/helper2/wrong.txt").write_text("\n".join(ascii(w) for w in table.wrong))
    assert not table.wrong
    assert table.count >= LEAST_CASES
