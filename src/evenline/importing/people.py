"""People who want to travel become journeys: a way for each, and the demand level of each.

Level 1.00 has the people of the source, as far as buses can carry them; those whom none can carry
are listed. Higher levels add people like them, and every level contains the lower ones.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from evenline.city.demand import DEMAND_LEVELS, RATE_BIN_S, gathered
from evenline.city.model import City, Floats, Ints, Journeys
from evenline.importing.ways import Leg, Ways

_MOST_LEVEL = DEMAND_LEVELS[-1]


@dataclass(frozen=True)
class Wish:
    """Someone who wants to go from a stop to a stop, by the names that the source uses."""

    departure_s: int
    origin: str
    destination: str
    band_s: tuple[int, int]  # when others like this one set out: from, and before
    min_demand: float | None = None  # where the source states it


@dataclass(frozen=True)
class Person:
    """Someone with a way; as in `Wish`."""

    departure_s: int
    legs: tuple[Leg, ...]
    band_s: tuple[int, int]
    min_demand: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """People of the source whom no bus can carry, and why.

    `from_s` is when their band begins. Counts know only one end; the other is empty.
    """

    origin: str
    destination: str
    from_s: int
    passengers: float
    why: str

    @property
    def ends(self) -> str:
        """From where to where, for people."""
        both = (f"from {self.origin}" * bool(self.origin), f"to {self.destination}")
        return " ".join(both if self.destination else both[:1]).strip()


def known_places(ways: Ways) -> dict[str, str]:
    """The place of each name that a source may use for a stop: the source's id, or the city's."""
    by_id = {stop.id: place for stop, place in zip(ways.city.stops, ways.places, strict=True)}
    return by_id | {place: place for place in ways.places}


def carried(wishes: Iterable[Wish], ways: Ways) -> tuple[list[Person], tuple[LeftOut, ...]]:
    """A way for everyone who has one, and a list of the others."""
    known = known_places(ways)
    people: list[Person] = []
    others: Counter[tuple[str, str, int, str]] = Counter()
    for wish in wishes:
        why = _refused(wish, known, ways.city.horizon_s)
        if why is None:
            ends = known[wish.origin], known[wish.destination]
            connected = ways.connects(*ends)  # remembered; a long search in vain is not repeated
            legs = ways.find(*ends, wish.departure_s) if connected else None
            if legs is not None:
                people.append(Person(wish.departure_s, legs, wish.band_s, wish.min_demand))
                continue
            why = "no bus is left" if connected else "no way with two transfers or fewer"
        others[wish.origin, wish.destination, wish.band_s[0], why] += 1
    return people, tuple(
        LeftOut(origin, destination, from_s, count, why)
        for (origin, destination, from_s, why), count in others.items()
    )


def _refused(wish: Wish, known: dict[str, str], horizon_s: int) -> str | None:
    """Why somebody cannot even look for a bus, if so."""
    for name in (wish.origin, wish.destination):
        if name not in known:
            return f"{name} is not a stop of the city"
    if known[wish.origin] == known[wish.destination]:
        return "origin and destination are the same"
    if not 0 <= wish.departure_s < horizon_s:
        return "outside the day"
    return None


def half_hour(at_s: int, start_s: int) -> tuple[int, int]:
    """The half hour of the clock around a second of the day, which begins at `start_s`."""
    from_s = at_s - (at_s + start_s) % RATE_BIN_S
    return from_s, from_s + RATE_BIN_S


def repeated(
    people: Sequence[Person], count: int, ways: Ways, rng: np.random.Generator
) -> list[Person]:
    """More people: some of these again, each at another time of the same band.

    Where no bus is left at that time, they set out when the first one does.
    """
    if not people:
        return []
    again = []
    for index, share in zip(rng.integers(len(people), size=count), rng.random(count), strict=True):
        person = people[index]
        from_s, to_s = max(person.band_s[0], 0), min(person.band_s[1], ways.city.horizon_s)
        at_s = from_s + int(share * (to_s - from_s))
        if ways.arrival_s(person.legs, at_s) is None:
            at_s = person.departure_s
        again.append(Person(at_s, person.legs, person.band_s))
    return again


def extra(count: int) -> int:
    """How many people the highest level adds to `count`."""
    return max(1, round((_MOST_LEVEL - 1) * count)) if count else 0


def levelled(
    people: Sequence[Person], more: Sequence[Person], city: City, rng: np.random.Generator
) -> Journeys:
    """Everyone at level 1.00 and the people added above it, each with a level drawn at random.

    Levels that the source states are kept.
    """
    stated = [person.min_demand for person in people]
    base = _ranked(0.0, 1.0, len(people), rng)
    levels = [drawn if given is None else given for drawn, given in zip(base, stated, strict=True)]
    levels += _ranked(1.0, _MOST_LEVEL, len(more), rng).tolist()
    everyone = zip([*people, *more], levels, strict=True)
    return gathered(
        ((person.departure_s, float(level), person.legs) for person, level in everyone),
        city.services,
    )


def _ranked(low: float, high: float, count: int, rng: np.random.Generator) -> Floats:
    """Levels above `low` up to `high`, evenly spaced and in random order."""
    ranks = rng.permutation(count) + 1
    return np.round(low + (high - low) * ranks / max(count, 1), 6)


def whole(amounts: Floats, rng: np.random.Generator) -> Ints:
    """Amounts as whole numbers, each rounded up or down and as many in all, within one.

    Whole amounts stay as they are.
    """
    floor = np.floor(amounts)
    steps = np.floor(np.concatenate([[0.0], np.cumsum(amounts - floor)]) + rng.random())
    return np.asarray(floor + np.diff(steps), np.int32)
