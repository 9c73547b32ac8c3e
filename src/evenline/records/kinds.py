"""The kinds of days in records: weekdays, Saturdays, Sundays, and days that run like one of them.

The service decides: days are of one kind if they have nearly the same number of trips on every
line. The calendar names a kind by most of its days: a holiday that runs like Sundays is a Sunday.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date

import numpy as np

from evenline.city.model import Floats
from evenline.records.clean import Records
from evenline.support.errors import InputError

_APART_SHARE = 0.15  # of the trips of two days, line by line: more, and the days differ in kind
_CHANCE = (
    2.0  # standard deviations of a number of trips: what may be missing on like days by chance
)
NAMES = ("weekday",) * 5 + ("Saturday", "Sunday")


def kinds_of(records: Records) -> dict[str, str]:
    """The kind of each day that has visits."""
    groups: list[list[str]] = []
    trips = _trips_by_line(records)
    for day in trips:
        like = (group for group in groups if _alike(trips, group[0], day))
        group = next(like, None)
        if group is None:
            groups.append([day])
        else:
            group.append(day)
    kinds: dict[str, str] = {}
    seen = Counter[str]()
    for group in groups:
        count = Counter(named(day) for day in group)
        name = max(count, key=lambda kind: (count[kind], NAMES.index(kind)))
        seen[name] += 1
        kinds |= dict.fromkeys(group, name if seen[name] == 1 else f"{name} {seen[name]}")
    return dict(sorted(kinds.items()))


def named(day: str) -> str:
    """What the calendar calls a day."""
    return NAMES[date.fromisoformat(day).weekday()]


def kinds_text(kinds: Mapping[str, str]) -> str:
    """The days by kind, with the calendar's name where it is another one."""
    parts = []
    for kind in dict.fromkeys(kinds.values()):
        days = [
            day if named(day) in kind else f"{day} (a {named(day)})"
            for day, of_day in kinds.items()
            if of_day == kind
        ]
        parts.append(f"{kind}: {', '.join(days)}")
    return "; ".join(parts)


def refuse_mixed(records: Records, what: str, days: Iterable[str], others: Iterable[str]) -> None:
    """Refuse days of another kind than others; `what` says what was asked of them."""
    kinds = kinds_of(records)
    for day in days:
        for other in others:
            mine, its = kinds.get(day), kinds.get(other)
            if mine is not None and its is not None and mine != its:
                raise InputError(
                    f"{what}: {day} is a day of another kind ({mine}) than {other} ({its}); choose "
                    f"days of one kind: {kinds_text(kinds)}"
                )


def _trips_by_line(records: Records) -> dict[str, Floats]:
    """The number of recorded trips of each line, by day."""
    trips = np.unique(records.visits.trip)
    lines = {line: i for i, line in enumerate(dict.fromkeys(map(records.line, trips.tolist())))}
    table = np.zeros((len(records.days), len(lines)))
    for trip in trips.tolist():
        table[records.trips.day[trip], lines[records.line(trip)]] += 1
    return {day: row for day, row in zip(records.days, table, strict=True) if row.any()}


def _alike(trips: Mapping[str, Floats], first: str, second: str) -> bool:
    """Whether two days run alike. Where the calendar tells them apart, chance is no excuse."""
    apart = float(np.abs(trips[first] - trips[second]).sum())
    most = float(np.maximum(trips[first], trips[second]).sum())
    by_chance = _CHANCE * np.sqrt(most) if named(first) == named(second) else 0.0
    return apart <= max(_APART_SHARE * most, by_chance)
