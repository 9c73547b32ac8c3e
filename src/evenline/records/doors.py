"""How long buses stand at stops, fitted robustly to what was recorded.

With recorded departures the fit is to dwells, otherwise to the times from stop to stop. It also
finds out whether recorded times are arrivals or departures.
"""

from dataclasses import dataclass, fields

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints
from evenline.records.clean import Mask
from evenline.records.estimates import HUBER, Estimate, Z, estimate, numbered, robust, within
from evenline.records.patterns import Driven
from evenline.worlds.calibration import HOUR_S

PRIOR_EXCHANGE_S, PRIOR_SD_S = 4.0, 2.0  # the doors' model of `Vehicle`, and how sure it is
LONG_RUN_S, LONG_DWELL_S = 1_800.0, 300.0
LEAST_TRIED_S = tuple(float(second) for second in range(21))
EACH_TRIED_S = tuple(float(each) for each in np.geomspace(0.2, 8.0, 14))
MOST_TRIED = 20_000
RESOLUTION_S = 0.01  # of the values that are tried
LIKELY = 1.92  # of the log-likelihood: half of chi-square's 95 % point


@dataclass(frozen=True, eq=False)
class Steps:
    """Times from one stop to the next, as columns."""

    day: Ints
    trip: Ints
    place: Ints  # of the first stop
    from_s: Floats
    to_s: Floats
    here: Floats  # people who passed the doors at the first stop
    there: Floats  # and at the second
    boards: Floats  # of them, people who got on: at the first stop, at the second
    boards_there: Floats
    load: Floats  # when it left the first
    stood_s: Floats  # recorded dwell at the first stop, or NaN
    begins: Mask  # whether it is the first of the service
    close: Floats  # how close the bus was behind another one stop earlier, or NaN
    late_s: Floats  # how late its trip started, or NaN

    def only(self, rows: Mask | Ints) -> "Steps":
        return Steps(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


@dataclass(frozen=True)
class Doors:
    """How long a bus stands: `least_s`, or `each_s` for everybody who gets on or off.

    `stamp` says what the recorded time of a visit is: the bus's arrival or its departure.
    """

    least_s: float
    each_s: float
    stamp: str

    def dwell_s(self, people: Floats) -> Floats:
        return np.maximum(np.ceil(self.least_s), np.ceil(self.each_s * people))


def steps_of(driven: Driven, city: City, close: Floats) -> Steps:
    """The steps of all trips between neighbouring stops; `close` has a number for each visit."""
    follows = (driven.trip[1:] == driven.trip[:-1]) & (np.diff(driven.position) == 1)
    row = np.flatnonzero(follows)
    on, off = np.nan_to_num(driven.boarded), np.nan_to_num(driven.alighted)
    seconds = driven.time_s[row + 1] - driven.time_s[row]
    row = row[(seconds > 0) & (seconds < LONG_RUN_S)]
    before = np.maximum(row - 1, 0)
    again = (driven.trip[before] == driven.trip[row]) & (driven.position[row] > 0)
    return Steps(
        driven.day[row],
        driven.trip[row],
        service_stop_offsets(city)[driven.service[row]] + driven.position[row],
        driven.time_s[row],
        driven.time_s[row + 1],
        (on + off)[row],
        (on + off)[row + 1],
        on[row],
        on[row + 1],
        np.nan_to_num(driven.load[row]),
        driven.departure_s[row] - driven.time_s[row],
        driven.position[row] == 0,
        np.where(again, close[before], np.nan),
        np.full(len(row), np.nan),
    )


def fit_doors(steps: Steps, stamp: str = "") -> tuple[Doors, list[Estimate]]:
    """How long buses stand for people, and whether times are arrivals or departures.

    With recorded departures, from the dwells; otherwise from the time to the next stop. If that
    depends on the people at the next stop rather than at this one, the recorded times are
    departures, unless `stamp` says what they are. Only differences within a segment and hour count,
    so that a stop where every bus is slow does not look like people. Buses wait at their first
    stop, so it does not count either.
    """
    known = bool(np.isfinite(steps.stood_s).mean() > 0.5)
    used = steps.only(~steps.begins & ((steps.stood_s < LONG_DWELL_S) | (not known)))
    group = numbered(used.place.astype(np.int64) * 48 + (used.from_s // HOUR_S).astype(int))
    y = within(used.stood_s if known else used.to_s - used.from_s, group)

    def slopes(*columns: Floats) -> tuple[Floats, Floats]:
        return robust(y, np.stack([within(x, group) for x in columns], axis=1), used.trip)

    both, errors = slopes(used.here, used.there)
    if not stamp:
        stamp = "departure" if not known and both[1] > both[0] else "arrival"
    late = stamp == "departure"
    people, boards = (used.there, used.boards_there) if late else (used.here, used.boards)
    least, each, error, low, high = _doors(y, people, group, used.trip)
    split, apart = slopes(boards, people - boards)
    crowded, wrong = slopes(people, people * (used.load - used.load.mean() if len(y) else 0.0))
    source = "recorded dwells" if known else "from stop to stop, with the doors' model as prior"
    one, load = (f"not used: the fast world's doors {why}" for why in (
        "need as long for one who boards as for one who alights", "do not depend on the load"
    ))  # fmt: skip
    what, n = "what the recorded time is", len(y)
    return Doors(least, each, stamp), [
        estimate("exchange_s_per_passenger", each, error, n, source),
        Estimate("min_dwell_s", least, low, high, n, source),
        estimate("boarding_s_per_passenger", split[0], apart[0], n, one),
        estimate("alighting_s_per_passenger", split[1], apart[1], n, one),
        estimate("crowding_s_per_passenger_and_load", crowded[1], wrong[1], n, load),
        estimate("people_here_s", both[0], errors[0], n, what),
        estimate("people_at_next_stop_s", both[1], errors[1], n, what),
    ]


def _doors(
    y: Floats, people: Floats, group: Ints, trip: Ints
) -> tuple[float, float, float, float, float]:
    """The least dwell and the seconds for each person that explain the times best.

    Returns both, the standard error of the second, and the interval of the first: values that are
    not much worse. Dwells are whole seconds, as in the fast world.
    """
    some = slice(None, None, max(1, len(y) // MOST_TRIED))
    y, people, group, trip = y[some], people[some], numbered(group[some]), trip[some]
    scale = max(1.4826 * float(np.median(np.abs(y))), 1e-6)

    def loss(least: float, each: float) -> float:
        dwell = Doors(least, each, "").dwell_s(people)
        rest = np.abs(y - within(dwell, group)) / scale
        huber = np.where(rest <= HUBER, rest**2 / 2, HUBER * (rest - HUBER / 2)).sum()
        return float(huber + ((each - PRIOR_EXCHANGE_S) / PRIOR_SD_S) ** 2 / 2)

    tried = {(m, e): loss(m, e) for m in LEAST_TRIED_S for e in EACH_TRIED_S}
    best = min(tried, key=tried.__getitem__)
    for width in (0.4, 0.1, 0.03, 0.01):
        near = best[1] * (1 + np.linspace(-width, width, 9))
        tried |= {(best[0], float(e)): loss(best[0], float(e)) for e in near}
        best = min(tried, key=tried.__getitem__)
    profile = {m: min(v for (own, _), v in tried.items() if own == m) for m in LEAST_TRIED_S}
    near_best = [m for m, value in profile.items() if value - tried[best] < LIKELY]
    _, error = robust(y, within(np.maximum(best[0], best[1] * people), group)[:, None], trip)
    wide = max(float(error[0]) * best[1], RESOLUTION_S / Z)
    return best[0], round(best[1], 3), wide, max(min(near_best) - 1, 0.0), max(near_best) + 1
