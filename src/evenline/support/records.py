"""Typed records: the structure of every JSON and TOML file that we read, checked by msgspec.

A `Record` names its fields with their types and ranges (`Share`, `Positive`, ...). Reading one
refuses unknown keys, wrong types and values out of range in one line that names the file and the
path to the value, such as `plan.toml: limits.tries: expected int >= 1`.
"""

import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

import msgspec

from evenline.support.errors import InputError
from evenline.support.files import read_file, read_json, to_json, write_text

T = TypeVar("T")
_PLACE = re.compile(r"^(?P<text>.*?)(?: - at `(?P<place>.*)`)?$", re.S)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")

Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Number = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
_WORD = r"\A(?!\.+\Z)[A-Za-z0-9_.-]+\Z"
_PRINTED = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_LINE = rf"\A{_PRINTED}*\Z"
_BELOW = rf"\A(?!/|(.*/)?\.\.(/|\Z)){_PRINTED}+\Z"
_SHA256 = r"\A[0-9a-f]{64}\Z"
_MOMENT = r"\A[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z\Z"
_MEANINGS = {
    _WORD: "of letters, digits, - _ . only",
    _LINE: "without line breaks and control characters",
    _BELOW: "that is the path of a file below the folder",
    _SHA256: "of 64 hexadecimal digits",
    _MOMENT: "that is a time such as 2026-01-31T23:59:59Z",
}
Word = Annotated[str, msgspec.Meta(pattern=_WORD, max_length=100)]
Line = Annotated[str, msgspec.Meta(pattern=_LINE, max_length=4_096)]
# For a union with a list or a dictionary: there, msgspec 0.22 frees a pattern that it does not own.
Text = Annotated[str, msgspec.Meta(max_length=4_096)]
FileName = Annotated[str, msgspec.Meta(pattern=_BELOW, max_length=4_096)]
Sha256 = Annotated[str, msgspec.Meta(pattern=_SHA256)]
Moment = Annotated[str, msgspec.Meta(pattern=_MOMENT)]
Hashes = dict[FileName, Sha256]  # the SHA-256 of files by path


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record: frozen, with named fields and no unknown keys.

    A subclass needs `kw_only=True` where a field without a default follows one with a default.
    """


def plain(value: Any) -> Any:
    """Convert a record to plain lists and dictionaries, ready for JSON or TOML."""
    return msgspec.json.decode(msgspec.json.encode(value))


def convert(kind: type[T], value: Any, where: str) -> T:
    """Convert a plain value to a record, or raise an error that names the value at fault."""
    try:
        _refuse_infinite(value, where)
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_described(kind, value, str(error))}") from None
    except RecursionError:
        raise InputError(f"{where}: lists or tables are nested too deeply") from None
    except InputError as error:  # from a dataclass inside, such as a cell
        raise InputError(f"{where}: {error}") from None


def read_record(
    path: Path, kind: type[T], format: str | None = None, folder: Path | None = None
) -> T:
    """Read a record from its JSON file, inside `folder` if given; with `format`, refuse a file of
    another format first.
    """
    value = read_json(path, folder)
    if format is not None and (not isinstance(value, dict) or value.get("format") != format):
        raise InputError(f"{path}: format is not {format!r}")
    return convert(kind, value, str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return tomllib.loads(read_file(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise InputError(f"{path}: not valid TOML ({error})") from None


def write_record(path: Path, record: Record) -> None:
    """Write a record as JSON, atomically."""
    write_text(path, to_json(plain(record)))


def _described(kind: Any, value: Any, message: str) -> str:
    """msgspec's message with the path in front: `limits.tries: expected int >= 1, got 0`."""
    parts = _PLACE.match(message)
    assert parts is not None
    text = parts["text"].replace("`", "").replace("Object contains unknown field", "unknown key")
    text = text.replace("Object missing required field", "missing key")
    for pattern, meaning in _MEANINGS.items():
        text = text.replace(f"matching regex {pattern!r}", meaning)
    steps = _STEP.findall(parts["place"] or "")
    of_key = (parts["place"] or "").startswith("key`")  # the key itself is at fault
    path = _path(kind, value, message, [*steps, ("", "...")] if of_key else steps)
    culprit = path[-1] if of_key else _at(value, path)
    if text.startswith("Expected") and ", got" not in text and not isinstance(culprit, dict | list):
        text += f", got {_short(culprit)}"
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    text = text[:1].lower() + text[1:]
    return f"{_short(place.removeprefix('.'), str)}: {text}" if place else text


def _short(value: Any, form: Callable[[Any], str] = repr) -> str:
    """A value for a message, cut off if it is long."""
    text = form(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _path(kind: Any, value: Any, message: str, steps: list[tuple[str, str]]) -> list[str | int]:
    """The path to a value, with the names of keys that msgspec writes as `[...]`."""
    path: list[str | int] = []
    for name, number in steps:
        if number == "...":
            table = _at(value, path)
            alone = ((key, _replaced(value, path, {key: table[key]})) for key in table)
            name = next((key for key, single in alone if _refusal(kind, single) == message), number)
        path.append(int(number) if number.isdigit() else name)
    return path


def _refusal(kind: Any, value: Any) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _replaced(value: Any, path: list[str | int], new: Any) -> Any:
    """A copy of a value with the item at the end of a path replaced."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


def _refuse_infinite(value: Any, where: str, place: str = "") -> None:
    """Refuse numbers that are not finite, which TOML allows and no field of ours accepts."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {place.lstrip('.')}: {value} is not a finite number")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_infinite(item, where, f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_infinite(item, where, f"{place}[{number}]")
