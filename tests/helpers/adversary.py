"""Adversarial values for every key of a document, made from its type and its stated range.

`allows` says whether a value is within the range that a type states, without the code under test;
`unstated` finds keys whose type states none; `cases` damages a document in every place.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import inspect

from evenline.city.ranges import Range, Words

MISSING = object()
RECORDS = (inspect.StructType, inspect.DataclassType)
LISTS = (inspect.VarTupleType, inspect.ListType)
NUMBERS = (inspect.IntType, inspect.FloatType)
BASE64 = r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
Place = tuple[str | int, ...]


# -- stated ranges --------------------------------------------------------------------------------


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone."""
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def bounds(kind: Any) -> tuple[float | None, float | None]:
    """The lowest and the highest number that a type states."""
    step = 1 if isinstance(kind, inspect.IntType) else 0
    low = kind.ge if kind.ge is not None else None if kind.gt is None else kind.gt + step
    return low, kind.le if kind.le is not None else None if kind.lt is None else kind.lt - step


def allows(kind: Any, value: Any) -> bool:
    """Whether a value is within the stated range, found without the code under test."""
    if isinstance(kind, inspect.UnionType):
        return any(allows(each, value) for each in kind.types)
    if isinstance(kind, inspect.AnyType):
        return True
    if isinstance(kind, inspect.NoneType):
        return value is None
    if isinstance(kind, inspect.BoolType):
        return isinstance(value, bool)
    if isinstance(kind, inspect.LiteralType):
        return value in kind.values and not isinstance(value, bool)
    if isinstance(kind, NUMBERS):
        types = int if isinstance(kind, inspect.IntType) else (int, float)
        if isinstance(value, bool) or not isinstance(value, types) or not math.isfinite(value):
            return False
        low, high = bounds(kind)
        return (low is None or low <= value) and (high is None or value <= high)
    if isinstance(kind, inspect.StrType):
        if not isinstance(value, str) or len(value) > (kind.max_length or math.inf):
            return False
        return kind.pattern is None or re.search(kind.pattern, value) is not None
    if isinstance(kind, inspect.BytesType):
        return isinstance(value, str) and re.fullmatch(BASE64, value) is not None
    if isinstance(kind, inspect.DictType):
        return isinstance(value, dict) and all(
            allows(kind.key_type, k) and allows(kind.value_type, v) for k, v in value.items()
        )
    if isinstance(kind, inspect.TupleType):
        same = isinstance(value, list) and len(value) == len(kind.item_types)
        return same and all(map(allows, kind.item_types, value))
    if isinstance(kind, LISTS):
        long = isinstance(value, list) and len(value) >= (kind.min_length or 0)
        return long and all(allows(kind.item_type, each) for each in value)
    names = {each.encode_name: each for each in kind.fields}
    return (
        isinstance(value, dict)
        and value.keys() <= names.keys()
        and all(name in value for name, each in names.items() if each.required)
        and all(allows(names[name].type, each) for name, each in value.items())
    )


def unstated(kind: Any, place: str = "") -> Iterator[str]:
    """The places of a type without a stated range."""
    types = members(kind)
    texts = [each for each in types if isinstance(each, inspect.StrType)]
    lists = (inspect.VarTupleType, inspect.TupleType, inspect.ListType, inspect.DictType)
    if any(text.pattern for text in texts) and any(isinstance(each, lists) for each in types):
        yield f"{place}: msgspec corrupts memory where a pattern is in a union with this"
    for each in types:
        if isinstance(each, NUMBERS):
            if None in bounds(each):
                yield place
        elif isinstance(each, inspect.StrType):
            if each.pattern is None and each.max_length is None:
                yield place
        elif isinstance(each, inspect.AnyType):
            yield place
        elif isinstance(each, inspect.DictType):
            yield from unstated(each.key_type, f"{place} key")
            yield from unstated(each.value_type, f"{place}[]")
        elif isinstance(each, LISTS):
            yield from unstated(each.item_type, f"{place}[]")
        elif isinstance(each, inspect.TupleType):
            for item in each.item_types:
                yield from unstated(item, f"{place}[]")
        elif isinstance(each, RECORDS):
            for own in each.fields:
                yield from unstated(own.type, f"{place}.{own.encode_name}".lstrip("."))


# -- cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A damaged document: what was put where, and whether it is outside the stated range."""

    place: str
    value: Any
    document: Any
    bad: bool

    def __str__(self) -> str:
        return f"{self.place} = {'(missing)' if self.value is MISSING else repr(self.value)[:60]}"


def changed(document: Any, path: Place, value: Any) -> Any:
    """A copy of a document with the value at a path replaced or removed."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    if value is MISSING and len(path) == 1:
        del copy[path[0]]
    else:
        inner = copy[path[0]] if len(path) > 1 else None
        copy[path[0]] = changed(inner, path[1:], value)
    return copy


def nodes(kind: Any, value: Any, path: Place = ()) -> Iterator[tuple[Place, Any, Any]]:
    """Every value of a document with its path and type; lists and tables by their first item."""
    yield path, kind, value
    for each in members(kind):
        if isinstance(each, RECORDS) and isinstance(value, dict):
            for own in each.fields:
                here = (*path, own.encode_name)
                yield from nodes(own.type, value.get(own.encode_name, MISSING), here)
        elif isinstance(each, inspect.DictType) and isinstance(value, dict):
            shown: set[type] = set()
            for key, item in value.items():
                if type(item) not in shown:
                    shown.add(type(item))
                    yield from nodes(each.value_type, item, (*path, key))
        elif isinstance(each, LISTS) and isinstance(value, list):
            for item in value[:1]:
                yield from nodes(each.item_type, item, (*path, 0))
        elif isinstance(each, inspect.TupleType) and isinstance(value, list):
            yield from nodes(each.item_types[0], value[0], (*path, 0))


def tries(kind: Any) -> Iterator[Any]:
    """Values to try for a type: of other types, at and beyond its limits, and unpleasant ones."""
    yield None
    yield [[]]
    yield {"a": {"b": []}}
    for each in members(kind):
        if isinstance(each, NUMBERS):
            low, high = bounds(each)
            whole = isinstance(each, inspect.IntType)
            yield from (math.nan, math.inf, 1e308, 10**30, True, "1", 0.5)
            for limit, way in ((low, -1), (high, 1)):
                if limit is not None:
                    yield limit
                    yield limit + way if whole else math.nextafter(limit, way * math.inf)
        elif isinstance(each, inspect.StrType):
            yield from (3, "", "a\0b", "a\nb", "../../x", "é 中", "\ud800", "x" * 5_000)
        elif isinstance(each, inspect.LiteralType | inspect.BoolType):
            yield from ("other", 2, "")
        elif isinstance(each, inspect.DictType):
            yield from ([], "x")
        elif not isinstance(each, inspect.NoneType):
            yield from ({}, [], "x", 3)


def cases(kind: Any, base: Any) -> Iterator[Case]:
    """Every case of a document."""
    for path, own, value in nodes(kind, base):
        place = ".".join(map(str, path))
        for tried in tries(own):
            yield Case(place, tried, changed(base, path, tried), not allows(own, tried))
        for each in members(own):
            if not isinstance(value, dict):
                continue
            if isinstance(each, RECORDS):
                strict = getattr(each, "forbid_unknown_fields", False)
                for key in ("wheels", "a\nb", "\ud800"):
                    yield Case(f"{place} unknown", key, changed(base, (*path, key), 6), strict)
                for field_ in each.fields:
                    if field_.encode_name in value:
                        here = (*path, field_.encode_name)
                        bare = changed(base, here, MISSING)
                        yield Case(".".join(map(str, here)), MISSING, bare, field_.required)
            elif isinstance(each, inspect.DictType) and value:
                item = next(iter(value.values()))
                for key in ("", "a\nb", "../../x", "/etc/x", "x" * 5_000, "\ud800"):
                    there = changed(base, (*path, key), item)
                    yield Case(f"{place} key", key, there, not allows(each.key_type, key))


def stated(allowed: Range | Words, value: Any) -> bool:
    """Whether a text or a number is within a range of the tables."""
    if isinstance(allowed, Words):
        words = value.split() if allowed.list else [value]
        fits = (re.fullmatch(allowed.pattern, w) and w.isprintable() for w in words)
        escapes = allowed.path and any(".." in word for word in words)
        return bool(words) and all(fits) and not escapes
    if value == "":
        return allowed.blank
    try:
        number = float(value)
    except ValueError:
        return False
    return allowed.low <= number <= allowed.high and not (allowed.whole and number % 1)


def tried_numbers(allowed: Range) -> list[float]:
    """The limits of a range, and the nearest numbers beyond them."""
    step = 1 if allowed.whole else 0
    beyond = (
        [allowed.low - step, allowed.high + step]
        if step
        else [
            math.nextafter(allowed.low, -math.inf),
            math.nextafter(allowed.high, math.inf),
        ]
    )
    return [allowed.low, allowed.high, *beyond]


TEXTS = (
    *(
        "",
        " ",
        "a b",
        "a\nb",
        "a\0b",
        "../../x",
        "é中",
        ":a",
        "a|b",
        "<a>",
        '"',
        "x" * 5_000,
        "\u2028",
    ),
    *("nan", "inf", "-1", "1e999999999", "1/0", "1/3"),
)
NUMERALS = (
    *(
        "",
        " ",
        "x",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e30",
        "-1e30",
        str(2**63),
        "0.5",
        "1_0",
        "0x1",
    ),
    *("\uff11", "1\n2", "1,5", "1\0"),
)


def absent(kind: Any, base: Any) -> Iterator[str]:
    """The keys of a type that a document does not have."""
    for path, _, value in nodes(kind, base):
        if value is MISSING:
            yield ".".join(map(str, path))


def records_in(kind: Any, seen: set[type]) -> set[type]:
    """Add the records that a type consists of, also inside others."""
    for each in members(kind):
        if isinstance(each, RECORDS) and each.cls not in seen:
            seen.add(each.cls)
            for own in each.fields:
                records_in(own.type, seen)
        for part in ("key_type", "value_type", "item_type"):
            if hasattr(each, part):
                records_in(getattr(each, part), seen)
        for item in getattr(each, "item_types", ()):
            records_in(item, seen)
    return seen
