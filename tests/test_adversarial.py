"""One table of adversarial inputs: every column and key of every file that we read, made from its
type and its stated range, and given to the real command in this process.

A command refuses a bad value with exit code 2 and one line that names the file or the value. It
accepts a value only if the value is within its stated range. A new key without a range, or one that
the sound files of `adversary_files.py` do not have, fails here.
"""

import csv
import importlib
import io
import pkgutil
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import typer
from msgspec import inspect

import evenline
from adversary import NUMERALS, TEXTS, Case, absent, records_in, stated, tried_numbers, unstated
from adversary_files import DEMAND, File, demand_files, every_file, put, table_files
from door import Ended, door
from evenline.city.ranges import COLUMNS, RANGES, Range, Words
from evenline.cli import main as cli
from evenline.importing import demand_tables
from evenline.runs.job import Answer
from evenline.support.records import Record
from evenline.worlds.sumo import network
from hamlet import DETAILS, HAMLET, cells_of, in_cell, with_cell, write_detailed
from tides_folder import TABLES as TIDES
from tides_folder import write_tides

LEAST_CASES = 2_000
# A plan of a trial in the fast world names no version of SUMO, and a bundle contains no code.
NOT_THERE = {"sumo", "code", "rule", "base"}  # a bundle has a rule or a base
# What a registration says of a built-in rule.
NOT_THERE |= {f"policies.0.spec.{key}" for key in ("base", "code", "contract", "provenance")}
# Records that no file of the table contains: between processes or in memory, days that a command
# stored to continue, bases of others, and files that we only write.
ELSEWHERE = {
    *("Job", "Reading", "Ended", "Failure", "Said", "StudyPlan"),
    *("Answer", "Simulator", "Host", "Described"),
    *("_Event", "Journal", "_AnyPlan", "Findings", "Tables", "Linked"),
    *("Manifest", "Version", "_Day"),
    *("_Answer", "_Switch", "_Hold"),  # requests to the page and to the street
}


class Table:
    """The commands, and the cases that did not end as they must."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        # Building the tree of commands takes longer than most cases.
        monkeypatch.setattr(cli, "app", typer.main.get_command(cli.app))
        # Rows and keys are the subject here, and SUMO would take seconds for every case.
        monkeypatch.setattr(network, "check_network", lambda _: None)
        self._door = door(monkeypatch, capfd)
        self.count = 0
        self.wrong: list[str] = []

    def run(self, file: File) -> Ended:
        for made in file.makes:
            shutil.rmtree(made, ignore_errors=True)
        return self._door(*file.command)

    def judge(self, file: File, case: Case) -> None:
        self.count += 1
        try:
            fault = _fault(file, case, self.run(file))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            self.wrong.append(ascii(f"{file.name}: {case}: {fault}"))


def _fault(file: File, case: Case, ended: Ended) -> str | None:
    """What is wrong with the end of a command, if anything."""
    if ended.code == 0 or (ended.code == 1 and "analyse" in file.command):
        return "accepted" if case.bad else None
    if ended.code != file.code:
        return f"exit code {ended.code}"
    if not case.bad and case.place in file.open and isinstance(case.value, int | float):
        return f"refused within its range: {ended.err}"
    if file.code == 1:  # findings, one a line
        lines = ended.out.splitlines()
        return None if lines and all(line.isprintable() for line in lines) else f"said {lines}"
    line = ended.err.removesuffix("\n")
    if ended.out or not line.startswith("evenline: ") or not line.isprintable():
        return f"not one line: {ended.out}{ended.err}"
    names = (file.path.name, file.path.parent.name, case.place.rpartition(".")[2], repr(case.value))
    if isinstance(case.value, str) and case.value:
        names += (case.value,)  # a value that is a path may name a folder that exists
    return None if any(name in line for name in names) else f"names neither file nor value: {line}"


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A folder in memory if there is one: a busy disk would take minutes for so many files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def files(root: Path) -> list[File]:
    return every_file(root)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Table:
    return Table(monkeypatch, capfd)


# -- JSON and TOML --------------------------------------------------------------------------------


def test_every_key_states_its_range(files: list[File]) -> None:
    for file in files:
        ranged = {place.replace(".0", "[]") for place in file.ranges}
        assert sorted(set(unstated(file.type)) - ranged - set(file.free)) == [], file.name


def test_a_new_record_is_in_the_table(files: list[File]) -> None:
    for module in pkgutil.walk_packages(evenline.__path__, "evenline."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    known: set[type] = set()
    for file in files:
        records_in(file.type, known)
    new = {kind.__name__ for kind in _below(Record) if kind not in known}
    assert new <= ELSEWHERE, "add a sound file of it to adversary_files.py"
    assert list(unstated(inspect.type_info(Answer))) == []


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("evenline."):
            yield each
            yield from _below(each)


def test_the_sound_files_have_every_key_and_are_accepted(files: list[File], table: Table) -> None:
    for file in files:
        assert set(absent(file.type, file.base)) <= NOT_THERE, file.name
        file.write(file.base)
        ended = table.run(file)
        if file.other:
            ended.refused(file.path.name)
        else:
            ended.done()


def test_a_damaged_key_is_refused_in_one_line(files: list[File], table: Table) -> None:
    for file in files:
        for case in file.cases():
            file.write(case.document)
            table.judge(file, case)
        file.write(file.base)
    assert not table.wrong
    assert table.count >= LEAST_CASES


# -- tables ---------------------------------------------------------------------------------------


def damaged_cells(text: str, ranges: Mapping[str, Range | Words]) -> Iterator[Case]:
    """Every column of a table with every kind of value in its first row."""
    for number, column in enumerate(cells_of(text)[0]):
        allowed = ranges[column]
        texts = isinstance(allowed, Words)
        tried = TEXTS if texts else (*NUMERALS, *map(str, tried_numbers(allowed)))
        for value in tried:
            content = in_cell(text, 1, number, value).encode()
            yield Case(column, value, content, not stated(allowed, value))


def column_cases(name: str) -> Iterator[Case]:
    """Every column with every kind of value in its first row, and ids that appear twice."""
    yield from damaged_cells((HAMLET | DETAILS)[name], RANGES[name])
    key, cells = COLUMNS[name][0], cells_of((HAMLET | DETAILS)[name])
    if key == f"{name[:-5]}_id":
        yield Case(key, cells[1][0], with_cell(name, 2, 0, cells[1][0]).encode(), True)


def test_every_key_and_column_of_a_city_has_a_range() -> None:
    for name, text in (HAMLET | DETAILS).items():
        assert tuple(RANGES[name]) == tuple(cells_of(text)[0])


def test_a_damaged_column_is_refused_in_one_line(root: Path, table: Table) -> None:
    for file in table_files(root):
        for case in column_cases(file.path.name):
            file.write(case.document)
            table.judge(file, case)
        write_detailed(file.path.parent)
    assert not table.wrong
    assert table.count >= 400


def test_a_damaged_table_of_demand_is_refused_in_one_line(root: Path, table: Table) -> None:
    tried: set[str] = set()
    for file, text in zip(demand_files(root), DEMAND.values(), strict=True):
        new = [
            case for case in damaged_cells(text, demand_tables.COLUMNS) if case.place not in tried
        ]
        for case in new:
            file.write(case.document)
            table.judge(file, case)
        tried |= {case.place for case in new}
    assert not table.wrong
    assert tried == set(demand_tables.COLUMNS)


# -- whole files ----------------------------------------------------------------------------------

CONTENTS = {
    "nothing": b"",
    "no text": b"\xff\xfe\x00\x9c",
    "a list": b"[1, 2]\n",
    "nested": b"[" * 100_000,
    "nested TOML": b"a = " + b"[" * 5_000 + b"]" * 5_000,
    "nested JSON": b'{"format": ' + b"[" * 900 + b"]" * 900 + b"}",
    "digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "digits in TOML": b"a = " + b"9" * 5_000,
    "a date": b"name = 2026-13-45",
    "NUL": b"\0" * 100,
}


def test_a_damaged_file_is_refused_in_one_line(files: list[File], root: Path, table: Table) -> None:
    for file in (*files, *table_files(root), *demand_files(root)):
        file.write(file.base)
        whole = file.path.read_bytes()
        for name, content in CONTENTS.items() | {"half": whole[: len(whole) // 2]}.items():
            put(file.path, content)
            table.judge(file, Case("", name, content, True))
        file.write(file.base)
        if file.path.suffix in (".csv", ".toml"):
            put(file.path, b"\xef\xbb\xbf" + whole)
            assert table.run(file).done(), "a byte-order mark is accepted where people write files"
            file.write(file.base)
    assert not table.wrong


# -- records of real buses ------------------------------------------------------------------------


def test_damaged_records_are_counted_or_refused_in_one_line(root: Path, table: Table) -> None:
    """Every column of the TIDES tables with every kind of value, and whole files."""
    folder = write_tides(root / "records")
    for name, text in TIDES.items():
        cells = cells_of(text)
        file = File(folder / name, None, None, ("city", "check", folder), put)
        for number, column in enumerate(cells[0]):
            for value in (*TEXTS[::3], *NUMERALS[::2]):
                spoilt = [row.copy() for row in cells]
                spoilt[1][number] = value
                out = io.StringIO()
                csv.writer(out, lineterminator="\n").writerows(spoilt)
                put(file.path, out.getvalue().encode("utf-8", "surrogatepass"))
                table.judge(file, Case(column, value, None, False))
        for what, content in CONTENTS.items():
            put(file.path, content)
            table.judge(file, Case("", what, content, what in ("nothing", "no text", "NUL")))
        put(file.path, text.encode())
    assert not table.wrong
    assert table.count >= 300


def test_damaged_parquet_is_refused_in_one_line(root: Path, table: Table) -> None:
    folder = write_tides(root / "parquet")
    typed = pa_csv.read_csv(folder / "stop_visits.csv")
    (folder / "stop_visits.csv").unlink()
    path = folder / "stop_visits.parquet"
    file = File(path, None, None, ("city", "check", folder), put)
    columns = {name: typed[name] for name in typed.column_names}
    for name in columns:
        for value in ([None] * 6, ["x"] * 6, [-1e300] * 6, [True] * 6, [[1]] * 6):
            pq.write_table(pa.table(columns | {name: value}), path)
            table.judge(file, Case(name, str(value[0]), None, False))
    pq.write_table(typed, path)
    whole = path.read_bytes()
    damaged = {**CONTENTS, "half": whole[: len(whole) // 2], "flipped": whole[:40] + whole[41:]}
    for what, content in damaged.items():
        put(path, content)
        table.judge(file, Case("", what, content, True))
    assert not table.wrong


def test_damaged_records_make_no_city_or_one_line(root: Path, table: Table) -> None:
    folder, out = write_tides(root / "imported"), root / "imported-city"
    command = ("city", "import", "records", folder, "--hours", "7-9", "--out", out)
    for name in ("stop_visits.csv", "trips_performed.csv", "route_stops.csv", "stops.csv"):
        cells = cells_of(TIDES[name])
        file = File(folder / name, None, None, command, put, (out,))
        for number, column in enumerate(cells[0]):
            for value in ("", "1e300"):
                spoilt = [row.copy() for row in cells]
                spoilt[1][number] = value
                out_text = io.StringIO()
                csv.writer(out_text, lineterminator="\n").writerows(spoilt)
                put(file.path, out_text.getvalue().encode())
                table.judge(file, Case(column, value, None, False))
        put(file.path, TIDES[name].encode())
    assert not table.wrong
