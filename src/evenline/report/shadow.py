"""The page of a shadow's log: what it saw, what it advised, what people answered.

Headways as they were, every advice with its answer, what the model says the advice was worth, how
good the forecasts were, and how long decisions took. All of it comes from the log, whose chain of
hashes is checked.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import UNSET

import evenline
from evenline.city.model import City
from evenline.control.regularity import BUNCHED
from evenline.control.visits import Visit, visit_table
from evenline.figures.page import Numbers, Picture, simple_page
from evenline.figures.plots import headway_histogram, time_space_diagram
from evenline.live.entries import (
    AdviceEntry,
    AnswerEntry,
    AskedEntry,
    Begun,
    Entry,
    EventEntry,
    PollEntry,
    checked,
)
from evenline.live.frame import Frame, frame_of
from evenline.live.log import read_log
from evenline.live.shadow import KNOWN_S, MATCHED
from evenline.live.view import GAPPED
from evenline.support.errors import InputError
from evenline.support.files import write_text
from evenline.worlds.open import OpenCity

_MOST_ROWS = 200
Call = tuple[int, int]  # trip and stop


@dataclass
class Seen:
    """What a log contains, by kind; the numbers of the city's trips by name."""

    trips: Mapping[str, int] = field(default_factory=dict)
    begun: list[Begun] = field(default_factory=list)
    polls: list[PollEntry] = field(default_factory=list)
    arrived: dict[Call, float] = field(default_factory=dict)
    left: dict[Call, float] = field(default_factory=dict)
    sure: list[float] = field(default_factory=list)
    asked: list[AskedEntry] = field(default_factory=list)
    advice: dict[int, AdviceEntry] = field(default_factory=dict)
    became: dict[int, list[AnswerEntry]] = field(default_factory=lambda: defaultdict(list))


def read_seen(path: Path, city: City) -> Seen:
    """Read a log of a city, or refuse it."""
    seen = Seen({trip.id: number for number, trip in enumerate(city.trips)})
    try:
        entries = list(checked((entry for _, entry in read_log(path, Entry, torn=True)), city))
    except InputError as error:
        line = str(error)
        raise InputError(line if str(path) in line else f"{path}: {line}") from None
    for entry in entries:
        if isinstance(entry, Begun):
            seen.begun.append(entry)
        elif isinstance(entry, PollEntry):
            seen.polls.append(entry)
        elif isinstance(entry, EventEntry):
            visits = seen.arrived if entry.what == "arrives" else seen.left
            visits[seen.trips[entry.trip], entry.stop] = entry.at_s
            seen.sure.append(entry.sure)
        elif isinstance(entry, AskedEntry):
            seen.asked.append(entry)
        elif isinstance(entry, AdviceEntry):
            seen.advice[entry.number] = entry
        elif isinstance(entry, AnswerEntry):
            seen.became[entry.number].append(entry)
    if not seen.begun:
        raise InputError(f"{path}: is not the log of a shadow")
    return seen


def write_shadow_report(log: Path, opened: OpenCity, out: Path, force: bool = False) -> Path:
    """Write the page of a log."""
    city = opened.city
    seen, frame = read_seen(log, city), frame_of(city)
    if out.exists() and not force and b"evenline shadow report" not in out.read_bytes():
        raise InputError(f"{out} was not written by this command; choose another --out or --force")
    policies = {begun.policy: begun.policy_sha256 for begun in seen.begun}
    hashes = ", ".join(f"{name}, SHA-256 {sha256[:12]}" for name, sha256 in policies.items())
    page = simple_page(
        f"Shadow of {city.name}: what {' and then '.join(policies)} would have done",
        lead(seen),
        [_quality(seen), headways(city, seen), _forecasts(seen), decisions(seen)],
        _pictures(city, frame, seen),
        f"Made by: evenline shadow report {log.name} --city {city.name} (evenline "
        f"{evenline.__version__}; policy {hashes}).",
        explained=" ".join((_EXPLAINED, *map(_sentence, seen.begun[-1].notes))),
        last=[_advice_table(city, frame, seen)],
    )
    write_text(out, page)
    return out


_EXPLAINED = (
    "Nobody was held by this program. A headway is the time between two buses of a line at a stop. "
    "Headways with the advised holds are those as they were, with every advised bus later by its "
    "hold from the next stop on and all other buses unchanged; accepted holds are in both. "
    "What a hold would save is the forecast of the policy's own model, in generalized passenger "
    "time. Neither was observed."
)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:].removesuffix('.')}."


def state_of(seen: Seen, number: int) -> str:
    """What became of an advice in the end; answers of people before what happened later."""
    states = [answer.became for answer in seen.became[number]]
    for name in ("accepted", "rejected"):
        if name in states:
            return name
    return states[-1] if states else "open"


def lead(seen: Seen) -> str:
    """The result in words."""
    states = Counter(state_of(seen, number) for number in seen.advice)
    timed = [poll.at_s for poll in seen.polls if poll.at_s > KNOWN_S]  # not before the first answer
    hours = (max(timed) - min(timed)) / 3600 if timed else 0.0
    return (
        f"In {hours:.1f} hours the shadow saw {len(seen.arrived):,} arrivals and made "
        f"{len(seen.asked):,} decisions. It gave {len(seen.advice):,} pieces of advice: "
        f"{states['accepted']:,} accepted, {states['rejected']:,} rejected, "
        f"{states['withdrawn']:,} withdrawn without an answer."
    )


def _quality(seen: Seen) -> Numbers:
    """The state of the feed."""
    states: Counter[str] = Counter()
    for poll in seen.polls:
        states.update(poll.states)
    total = sum(states.values())
    ages = [poll.age_s for poll in seen.polls if poll.age_s < 1e6]
    rows = [
        ["Polls", f"{len(seen.polls):,}"],
        ["Polls that failed", f"{sum(poll.failure is not UNSET for poll in seen.polls):,}"],
        ["Reports matched to a trip", _share(sum(states[name] for name in MATCHED), total)],
    ]
    for name, count in states.most_common():
        if name not in MATCHED:
            rows.append([f"Reports not used: {name}", _share(count, total)])
    if ages:
        rows.append(["Age of the newest report, s: median / 95 %", _two(ages, 50, 95)])
    if seen.sure:
        rows.append(["Events of which we are at least 70 % sure", _share(
            sum(sure >= 0.7 for sure in seen.sure), len(seen.sure))])  # fmt: skip
    return Numbers("The feed", ["", ""], rows)


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else "-"


def _two(values: Sequence[float], low: float, high: float, form: str = ".0f") -> str:
    first, second = np.percentile(values, [low, high])
    return f"{format(float(first), form)} / {format(float(second), form)}"


def with_holds(city: City, seen: Seen) -> dict[Call, float]:
    """The arrivals if every advised bus had been held: it comes later from the next stop on."""
    held = [
        (seen.trips[given.trip], given.stop, given.hold_s)
        for given in seen.advice.values()
        if state_of(seen, given.number) != "accepted"  # its hold is in the arrivals
    ]
    arrived = dict(seen.arrived)
    for trip, stop, hold_s in held:
        for later in range(stop + 1, len(city.services[city.trips[trip].service].stops)):
            if (trip, later) in arrived:
                arrived[trip, later] += hold_s
    return arrived


def gaps(city: City, arrived: Mapping[Call, float], service: int) -> list[tuple[float, float]]:
    """Every headway of a service, with the scheduled one."""
    at_stop: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (trip, stop), second in arrived.items():
        if city.trips[trip].service == service:
            at_stop[stop].append((second, trip))
    target_s = city.headway_targets()[0]
    headways = []
    for stop, rows in at_stop.items():
        if stop == len(city.services[service].stops) - 1:
            continue
        rows.sort()
        for (before, _), (after, trip) in pairwise(rows):
            if target_s[trip] > 0:
                headways.append((after - before, float(target_s[trip])))
    return headways


def headways(city: City, seen: Seen) -> Numbers:
    """Headways by line: how many, how even, how many bunched and gapped."""
    rows, held = [], with_holds(city, seen)
    for index, service in enumerate(city.services):
        pairs = gaps(city, seen.arrived, index)
        if len(pairs) < 2:
            continue
        observed = [gap for gap, _ in pairs]
        rows.append(
            [
                service.name or service.id,
                f"{len(pairs):,}",
                f"{statistics.mean(observed) / 60:.1f}",
                f"{statistics.mean(target for _, target in pairs) / 60:.1f}",
                _variation(observed),
                _variation([gap for gap, _ in gaps(city, held, index)]),
                _share(sum(gap < BUNCHED * target for gap, target in pairs), len(pairs)),
                _share(sum(gap > GAPPED * target for gap, target in pairs), len(pairs)),
            ]
        )
    head = [
        "line", "headways", "mean, min", "target, min", "variation", "with the advised holds",
        "bunched", "gapped",
    ]  # fmt: skip
    return Numbers(
        "Headways as they were (variation: standard deviation over mean; bunched: under "
        f"{100 * BUNCHED:.0f} % of the target, gapped: over {100 * GAPPED:.0f} %)",
        head,
        rows,
    )


def _variation(observed: Sequence[float]) -> str:
    mean = statistics.mean(observed)
    return f"{statistics.pstdev(observed) / mean:.2f}" if mean > 0 else "-"


def forecast_errors(seen: Seen) -> dict[str, list[float]]:
    """Expected against real arrivals in seconds, of ours and of the feed's predictions."""
    errors: dict[str, list[float]] = {"ours": [], "the feed's": []}
    for asked in seen.asked:
        came_s = seen.arrived.get((seen.trips.get(asked.trip, -1), asked.stop))
        if came_s is None or came_s <= asked.now_s or asked.stop == 0:
            continue  # it was there when it was asked about
        errors["ours"].append(asked.expected_s - came_s)
        if asked.feed_s is not UNSET:
            errors["the feed's"].append(asked.feed_s - came_s)
    return errors


def _forecasts(seen: Seen) -> Numbers:
    """How good the forecasts of arrivals were."""
    rows = []
    for name, errors in forecast_errors(seen).items():
        if errors:
            sizes = [abs(error) for error in errors]
            late = statistics.mean(errors)
            rows.append([name, f"{len(errors):,}", _two(sizes, 50, 95), f"{late:+.1f}"])
    head = ["forecasts", "number", "error, s: median / 95 %", "mean, s (+: expected too late)"]
    return Numbers("Arrivals: expected against real", head, rows)


def _bus_hours(seen: Seen) -> float:
    """How long buses were followed, all together; a feed that was silent counts for one minute."""
    return (
        sum(
            min(after.at_s - before.at_s, 60.0)
            * sum(before.states.get(name, 0) for name in MATCHED)
            for before, after in pairwise(seen.polls)
        )
        / 3600
    )


def decisions(seen: Seen) -> Numbers:
    """How long decisions took, what they propose, and what the model says of the advice given."""
    times = [poll.took_ms for poll in seen.polls]
    held = [asked for asked in seen.asked if asked.hold_s > 0]
    rows = [["Decisions", f"{len(seen.asked):,}"], ["with a hold", f"{len(held):,}"]]
    if held:
        rows.append(["Mean hold, s", f"{statistics.mean(a.hold_s for a in held):.0f}"])
    if bus_hours := _bus_hours(seen):
        rows.append(["Advice per hour of a bus", f"{len(seen.advice) / bus_hours:.1f}"])
    if times:
        rows.append(["From poll to advice, ms: median / 99 %", _two(times, 50, 99, ".1f")])
    saves = savings(seen)
    if saves:
        total = sum(saves.values()) / 3600
        accepted = sum(s for n, s in saves.items() if state_of(seen, n) == "accepted") / 3600
        rows.append(["What the advice would save by the model, hours", f"{total:,.1f}"])
        rows.append(["of it what was accepted, hours", f"{accepted:,.1f}"])
    return Numbers("Decisions", ["", ""], rows)


def savings(seen: Seen) -> dict[int, float]:
    """What each advice would save by the model of a policy that has one, passenger-seconds."""
    worth = {(a.trip, a.stop): a.saves_s for a in seen.asked if a.saves_s is not UNSET}
    given = [a for a in seen.advice.values() if (a.trip, a.stop) in worth]
    return {a.number: float(worth[a.trip, a.stop]) for a in given}


def _advice_table(city: City, frame: Frame, seen: Seen) -> Numbers:
    """The advice, one a row."""
    trips, rows = {trip.id: trip for trip in city.trips}, []
    for given in list(seen.advice.values())[-_MOST_ROWS:]:
        service = city.services[trips[given.trip].service]
        stop = city.stops[service.stops[given.stop]]
        why = "; ".join(answer.why for answer in seen.became[given.number] if answer.why)
        rows.append(
            [
                frame.clock(given.now_s),
                service.name or service.id,
                given.vehicle,
                stop.name or stop.id,
                frame.clock(given.until_s),
                given.reason,
                state_of(seen, given.number) + (f" ({why})" if why else ""),
            ]
        )
    caption = f"Advice ({len(rows)} of {len(seen.advice)}, the latest last)"
    return Numbers(caption, ["at", "line", "bus", "stop", "until", "reason", "answer"], rows)


# -- figures --------------------------------------------------------------------------------------


def _pictures(city: City, frame: Frame, seen: Seen) -> list[Picture]:
    """The ladder of the line with most advice, or else most arrivals, and all headways."""
    services = {trip.id: trip.service for trip in city.trips}
    advised = Counter(services[given.trip] for given in seen.advice.values())
    count = advised or Counter(city.trips[trip].service for trip, _ in seen.arrived)
    if not count or not seen.arrived:
        return []
    service = city.services[count.most_common(1)[0][0]]
    name = service.name or service.id
    begin_s = min(seen.arrived.values())
    visits = visit_table(city, _visits(seen, begin_s))
    every = [gaps(city, seen.arrived, i) for i in range(len(city.services))]
    ratios = np.array([gap / target for pairs in every for gap, target in pairs])
    return [
        Picture(
            f"Ladder of {name}",
            f"Every line is a bus as the shadow saw it; the axis begins at {frame.clock(begin_s)}. "
            "Dots are advice, accepted or not; nobody was held by this program.",
            f"Paths of the buses of {name} over time, with the advice.",
            lambda theme: time_space_diagram(
                {name: visits}, service.id, theme, dots="advised (area: how long)"
            ),
        ),
        Picture(
            "Headways",
            "Headways at stops against those of the timetable, all lines.",
            f"Histogram of {len(ratios)} headways as multiples of the timetable's.",
            lambda theme: headway_histogram({"as they were": ratios}, theme),
        ),
    ]


def _visits(seen: Seen, begin_s: float) -> list[Visit]:
    """The arrivals as stop visits, with the advised hold in place of a hold."""
    advised = {(seen.trips[a.trip], a.stop): a.hold_s for a in seen.advice.values()}
    rows = []
    for (trip, stop), at_s in seen.arrived.items():
        arrival_s = round(at_s - begin_s)
        left_s = round(seen.left.get((trip, stop), at_s) - begin_s)
        hold_s = advised.get((trip, stop), 0.0)
        rows.append(Visit(trip, stop, arrival_s, max(left_s, arrival_s), 0, 0, 0, 0, 0, hold_s))
    return rows
