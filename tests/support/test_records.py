"""Records refuse whatever they do not name, in one line with the path to the value."""

from pathlib import Path

import msgspec
import pytest

from evenline.support.errors import InputError
from evenline.support.records import (
    Hashes,
    Line,
    Moment,
    Positive,
    Record,
    Share,
    Word,
    convert,
    plain,
    read_record,
    read_toml,
    write_record,
)


class Limits(Record):
    tries: Positive = 3
    share: Share = 0.5


class Plan(Record):
    name: str
    limits: Limits = Limits()
    seeds: tuple[int, ...] = ()
    hashes: dict[str, str] = msgspec.field(default_factory=dict)
    word: Word = "a"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "plan: missing key name"),
        ({"name": 1}, "plan: name: expected str, got int"),
        ({"name": "a", "nmae": "b"}, "plan: unknown key nmae"),
        ({"name": "a", "limits": {"tries": 0}}, "plan: limits.tries: expected int >= 1, got 0"),
        ({"name": "a", "limits": {"tries": True}}, "plan: limits.tries: expected int, got bool"),
        ({"name": "a", "limits": {"share": 2}}, "plan: limits.share: expected float <= 1.0"),
        ({"name": "a", "limits": {"share": float("inf")}}, "limits.share: inf is not a finite"),
        ({"name": "a", "seeds": [1, "2"]}, r"plan: seeds\[1\]: expected int, got str"),
        (
            {"name": "a", "hashes": {"a.b": "", "c.d": 1}},
            r"plan: hashes\.c\.d: expected str, got int",
        ),
        (
            {"name": "a", "word": "a/b"},
            "plan: word: expected str of letters, digits, - _ . only, got 'a/b'",
        ),
        ([], "plan: expected object, got array"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        convert(Plan, given, "plan")
    assert "\n" not in str(refused.value)


def test_a_record_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = Plan(name="a", limits=Limits(tries=7), seeds=(1, 2))
    write_record(tmp_path / "plan.json", plan)
    assert read_record(tmp_path / "plan.json", Plan) == plan
    assert plain(plan) == {
        "name": "a",
        "limits": {"tries": 7, "share": 0.5},
        "seeds": [1, 2],
        "hashes": {},
        "word": "a",
    }


def test_another_format_is_refused_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": "other-1"}')
    with pytest.raises(InputError, match=r"plan\.json: format is not 'ours-1'"):
        read_record(tmp_path / "plan.json", Plan, format="ours-1")


@pytest.mark.parametrize("text", ["name = ", "\x00", 'name = "a"\nname = "b"'])
def test_toml_that_cannot_be_read_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(InputError, match=r"plan\.toml: not valid TOML") as refused:
        read_toml(tmp_path / "plan.toml")
    assert "\n" not in str(refused.value)


class Listed(Record):
    hashes: Hashes = msgspec.field(default_factory=dict)
    note: Line = ""
    at: Moment | None = None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"hashes": {"../x": "0" * 64}}, "list: hashes.../x: expected str that is the path of a"),
        ({"hashes": {"": "0" * 64}}, "list: hashes.: expected str that is the path of a file"),
        ({"hashes": {"x": "0"}}, "list: hashes.x: expected str of 64 hexadecimal digits, got '0'"),
        ({"note": "a\nb"}, "list: note: expected str without line breaks and control characters"),
        ({"note": "x" * 5_000}, "list: note: expected str of length <= 4096, got 'xxx"),
        ({"at": "noon"}, "list: at: expected str that is a time such as 2026-01-31T23:59:59Z"),
        ({"a\nb": 1}, "list: unknown key a\\nb"),
    ],
)
def test_a_refusal_is_one_short_line_whatever_the_value(given: object, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        convert(Listed, given, "list")
    assert str(refused.value).startswith(problem)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 400
