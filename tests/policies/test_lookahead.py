"""The look-ahead: its costs are those of a plain reading of the model, and looking ahead pays."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as changed

from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates
from evenline.city.model import City
from evenline.city.tables import open_city
from evenline.control import event
from evenline.control.event import Batch
from evenline.control.state import contract_of
from evenline.control.world import run_episode
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import (
    actor_spec,
    chosen_base,
    export_bundle,
    open_policy,
    read_policy,
    save_bundle,
)
from evenline.policies.kinds import base_policy, base_rule
from evenline.policies.lookahead import (
    ALIGHTING,
    RATE,
    RUN,
    USUAL_BASE,
    Lookahead,
    forecast_of,
    forecast_tables,
)
from evenline.rules.chain import CHAINS, apply_chain
from evenline.rules.policy import BEHAVIOURS, RulePolicy
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld

TOWN = open_city("town")
CALIBRATION = calibration_of(TOWN)
CELLS = PURPOSES["development"].cells(2)


def lookahead(city: City = TOWN, base: RulePolicy = USUAL_BASE, **constants: float) -> Lookahead:
    tables = forecast_tables(city, CALIBRATION)
    return Lookahead("lookahead", city, forecast_of(city, tables, base), **constants)


def moments(cell: Cell, policy: Lookahead) -> Iterator[Batch]:
    """The batches of a day under a policy."""
    world = FastWorld(policy.city, CALIBRATION)
    batch = world.reset(cell)
    while batch is not None:
        yield batch
        batch = world.step(policy(batch))


# -- the model, read plainly ----------------------------------------------------------------------


class PlainDay:
    """The expected day of one service, people in slices of a second: slow, and easy to check."""

    def __init__(self, policy: Lookahead, base: RulePolicy, service: int, demand: float) -> None:
        self.f, self.seen, self.demand = policy.forecast, policy._seen, demand
        self.base, self.service, self.city = base, service, policy.city
        self.first = int(self.f.first_place[service])
        self.last = int(self.f.first_place[service + 1]) - self.first - 1
        self.trips = self.f.trips[self.f.first_trip[service] : self.f.first_trip[service + 1]]
        self.since = self.seen.since_s[self.first : self.first + self.last].copy()
        self.queue = self.seen.queue[self.first : self.first + self.last].copy()
        self.reached = self.seen.reached_s[self.first : self.first + self.last].copy()
        self.cost = 0.0

    def come(self, stop: int, start_s: float, end_s: float) -> tuple[float, float]:
        """Count people and their waiting half hour by half hour, without tables of sums."""
        count = waited = 0.0
        at = start_s
        while at < end_s:
            half = min(int(at // RATE_BIN_S), self.f.rate.shape[1] - 1)
            until = end_s if half == self.f.rate.shape[1] - 1 else (half + 1) * RATE_BIN_S
            until = min(until, end_s)
            people = self.demand * self.f.rate[self.first + stop, half] * (until - at)
            count += people
            waited += people * (end_s - (at + until) / 2)
            at = until
        return count, waited

    def rate(self, table: np.ndarray, stop: int, second: float) -> float:
        half = min(int(second // RATE_BIN_S), self.f.rate.shape[1] - 1)
        return float(table[self.first + stop, half])

    def held(self, trip: int, raw: dict[int, float]) -> float:
        """What the base rule does in the event that a bus would report, as a policy decides it."""
        at, stop = raw[event.TIME], int(raw[event.STOP])
        ahead_s, behind_s = self.city.headway_targets()
        raw |= {event.SERVICE: self.service, event.CAPACITY: self.f.capacity[trip]}
        raw |= {event.TARGET_AHEAD: ahead_s[trip], event.TARGET_BEHIND: behind_s[trip]}
        if self.reached[stop] >= 0:
            raw |= {event.BUS_AHEAD: 1.0, event.HEADWAY_AHEAD: max(at - self.reached[stop], 0.0)}
        later = [t for t in self.trips if self.f.start_s[t] > self.f.start_s[trip]]
        if later and at >= self.f.start_s[later].min():
            raw |= {event.BUS_BEHIND: 1.0, event.HEADWAY_BEHIND: behind_s[trip]}
        row = np.zeros((1, len(event.RAW_FEATURES)))
        row[0, list(raw)] = list(raw.values())
        batch = Batch(at, np.array([trip], np.int32), row)  # type: ignore[arg-type]
        return float(self.base(batch)[0])

    def call(self, trip: int, stop: int, at: float, load: float) -> tuple[float, float]:
        off = float(self.f.alights[self.first + stop]) * load
        came, waited = self.come(stop, self.since[stop], at)
        self.cost += 2 * (self.queue[stop] * max(at - self.since[stop], 0.0) + waited)
        free = max(self.f.capacity[trip] - load + off, 0.0)
        on = min(self.queue[stop] + came, free)
        bus = self.city.vehicle_of(trip)
        on_s, off_s = bus.exchange_s_per_passenger, bus.alighting_s_per_passenger
        off_s = on_s if off_s is None else off_s
        crowd_s = bus.crowding_s_per_passenger * load
        at_doors = (on_s + crowd_s) * on + (off_s + crowd_s) * off
        at_doors += bus.opening_s * (1 - math.exp(-on - off))  # unless nobody comes
        dwell = max(bus.min_dwell_s, at_doors)
        rate = self.demand * self.rate(self.f.rate, stop, at)
        here = {event.WAITING: self.queue[stop] + came, event.ON_BOARD: load, event.RATE: rate}
        here |= {event.STOP: stop, event.TIME: at, event.BASE_DWELL: dwell}
        dwell += self.held(trip, here)
        late = min(rate * dwell, free - on)
        self.queue[stop] += came - on
        self.since[stop] = max(at + dwell, self.since[stop])
        self.reached[stop] = at
        return load - off + on + late, at + dwell

    def drive(self, trip: int, stop: int, end: int, at: float, load: float) -> tuple[float, float]:
        for here in range(stop, end):
            if at >= self.f.horizon_s:
                break
            load, leaves = self.call(trip, here, at, load)
            arrives = leaves + self.rate(self.f.run_s, here, leaves)
            self.cost += load * (min(arrives, self.f.horizon_s) - at)
            at = arrives
        return at, load

    def hold(self, trip: int, raw: np.ndarray, hold_s: float) -> float:
        """The cost with every bus computed to the end of the day."""
        stop, now = int(raw[event.STOP]), float(raw[event.TIME])
        position, due, loads = self.seen.position, self.seen.due_s, self.seen.load
        known = [t for t in self.trips if t != trip and due[t] >= now - 1200]
        for t in known:
            if stop < position[t] < self.last:
                self.drive(t, int(position[t]) + 1, self.last, max(due[t], now), loads[t])
        off = float(self.f.alights[self.first + stop]) * raw[event.ON_BOARD]
        free = max(self.f.capacity[trip] - raw[event.ON_BOARD] + off, 0.0)
        on = min(raw[event.WAITING], free)
        behind = [t for t in known if position[t] <= stop]
        for_later = [
            self.drive(t, int(position[t]) + 1, stop, max(due[t], now), loads[t]) for t in behind
        ]
        self.cost = 0.0  # what came before does not depend on the hold
        leaves = now + raw[event.BASE_DWELL] + hold_s
        late = min(self.demand * self.rate(self.f.rate, stop, now) * (leaves - now), free - on)
        load = raw[event.ON_BOARD] - off + on + late
        self.since[stop], self.queue[stop] = leaves, raw[event.WAITING] - on
        self.reached[stop] = now
        arrives = leaves + self.rate(self.f.run_s, stop, leaves)
        self.cost += 2 * self.queue[stop] * (leaves - now) + load * (arrives - now)
        self.drive(trip, stop + 1, self.last, arrives, load)
        for t, (at, carried) in zip(behind, for_later, strict=True):
            self.drive(t, max(int(position[t]) + 1, stop), self.last, at, carried)
        for here in range(stop, self.last):
            _, waited = self.come(here, self.since[here], self.f.horizon_s)
            left = self.queue[here] * max(self.f.horizon_s - self.since[here], 0.0)
            self.cost += 2 * (waited + left)
        return self.cost


def with_vans(city: City) -> City:
    """Every second trip is run by a van with few places and a slow door."""
    van = replace(city.vehicle, capacity=14, min_dwell_s=20, exchange_s_per_passenger=6)
    trips = tuple(replace(trip, vehicle=i % 2) for i, trip in enumerate(city.trips))
    return replace(city, trips=trips, more_vehicles=(van,))


def with_doors(city: City) -> City:
    """Doors that open slowly, let people off quickly and are soon crowded."""
    doors = {"opening_s": 4.0, "alighting_s_per_passenger": 1.5, "crowding_s_per_passenger": 0.05}
    return replace(city, vehicle=replace(city.vehicle, min_dwell_s=2, **doors))


@pytest.mark.parametrize(
    ("name", "city"),
    [
        ("zero", TOWN),
        ("two-way:gain=0.1", TOWN),
        ("two-way:gain=0.1", with_doors(TOWN)),
        ("virtual-schedule+candidate", with_vans(TOWN)),
    ],
)
def test_the_costs_are_those_of_a_plain_reading_of_the_model(name: str, city: City) -> None:
    """With every bus behind included, so that nothing is cut off."""
    base = open_policy(base_rule(name), city, CALIBRATION)
    assert isinstance(base, RulePolicy)
    policy, checked = lookahead(city, base, behind=50.0), 0
    for number, batch in enumerate(moments(CELLS[1], lookahead(city))):
        policy.follow(batch)
        for i, trip in enumerate(batch.trips.tolist()):
            raw = batch.raw[i]
            costs = policy.costs(trip, raw)
            if number % 80 == 0:
                for n in (0, 4, len(costs) - 1):
                    plain = PlainDay(policy, base, int(raw[event.SERVICE]), policy._demand)
                    wanted = plain.hold(trip, raw, float(policy.holds_s[n]))
                    assert costs[n] == pytest.approx(wanted, rel=1e-9)
                    checked += 1
            policy.note(trip, raw, float(policy.holds_s[int(np.argmin(costs))]))
    assert checked > 20


# -- what it does ---------------------------------------------------------------------------------


def test_looking_ahead_saves_time_and_completes_more_journeys_than_the_reserve() -> None:
    world = FastWorld(TOWN, CALIBRATION)
    reserve = open_policy("zero+candidate", TOWN, CALIBRATION)
    for cell in CELLS:
        looked = world.run_day(cell, lookahead())
        zero = world.run_day(cell, BEHAVIOURS["zero"])
        held = world.run_day(cell, reserve)
        assert looked.generalized_s < min(held.generalized_s, zero.generalized_s - 25)
        assert looked.completion > zero.completion + 0.01


def test_it_knows_nothing_of_the_day_but_what_buses_report() -> None:
    """Arrival rates of the event, and the demand level in them, are not read."""
    batches = list(moments(CELLS[2], lookahead()))
    told, blind = lookahead(), lookahead()
    for batch in batches:
        raw = batch.raw.copy()
        raw[:, [event.RATE, event.SYSTEM_WAITING, event.SYSTEM_ON_BOARD]] = -1.0
        assert told(batch) == blind(Batch(batch.time_s, batch.trips, raw))


@pytest.mark.parametrize("cell", CELLS[:3], ids=lambda cell: f"{cell.demand:.2f}")
def test_it_learns_how_many_people_come_today(cell: Cell) -> None:
    policy = lookahead()
    for _ in moments(cell, policy):
        pass
    met, usual = policy._seen.met
    assert (200 + met) / (200 + usual) == pytest.approx(cell.demand, abs=0.1)


def test_a_new_day_is_begun_without_being_told() -> None:
    used, world = lookahead(), FastWorld(TOWN, CALIBRATION)
    for cell in CELLS[:3]:
        assert run_episode(world, cell, used) == run_episode(world, cell, lookahead())


def test_events_that_it_does_not_see_do_not_end_the_day() -> None:
    """A bus is cancelled, another is seen at every third stop only: both are counted."""
    policy, last_seen, lost = lookahead(), -1, 0
    for batch in moments(CELLS[1], lookahead()):
        keep = (batch.trips != 3) & ((batch.trips != 8) | (batch.raw[:, event.STOP] % 3 == 0))
        if keep.any():
            holds = policy(Batch(batch.time_s, batch.trips[keep], batch.raw[keep]))
            assert all(0.0 <= hold <= 60.0 for hold in holds)
            lost = max(lost, policy.lost_buses)
        for stop in batch.raw[keep & (batch.trips == 8), event.STOP]:
            last_seen = int(stop)
    assert lost == 2 and last_seen >= 6, "the second bus was not seen at its last stops"
    assert policy.unseen_stops == last_seen - last_seen // 3


def test_nothing_is_lost_on_a_usual_day() -> None:
    policy = lookahead()
    for _ in moments(CELLS[1], policy):
        assert policy.lost_buses == 0
    assert policy.unseen_stops == policy.repeated_reports == policy.unknown_buses == 0


def test_a_report_that_comes_twice_is_counted_and_forgets_nothing() -> None:
    """Each bus repeats its fifth stop. Its people are counted once, and the day goes on."""
    once, twice, again = lookahead(), lookahead(), 0
    apart: list[float] = []
    for batch in moments(CELLS[1], lookahead()):
        apart += np.subtract(once(batch), twice(batch)).tolist()
        for i in np.flatnonzero(batch.raw[:, event.STOP] == 4).tolist():
            seen = [each.copy() for each in twice._seen]
            twice(Batch(batch.time_s, batch.trips[[i]], batch.raw[[i]]))
            again += 1
            for before, after in zip(seen, twice._seen, strict=True):
                np.testing.assert_allclose(after, before, rtol=0.01, atol=0.1)
    assert twice.repeated_reports == again > 30
    np.testing.assert_array_equal(once._seen.met, twice._seen.met)
    assert float(np.abs(apart).mean()) < 0.1


def test_a_bus_that_falls_back_or_is_overtaken_does_not_end_the_day() -> None:
    """A bus reports an earlier stop, and two buses of a service report in exchanged order."""
    policy, known, falls = lookahead(), 0, 0
    first, second = TOWN.trips_of[0][2:4]
    other = {first: second, second: first}
    for batch in moments(CELLS[1], lookahead()):
        raw = batch.raw.copy()
        if known > 20 and falls == 0 and raw[0, event.STOP] >= 4:
            raw[0, event.STOP] -= 3
            falls = 1
        trips = np.array([other.get(t, t) for t in batch.trips.tolist()], np.int32)
        holds = policy(Batch(batch.time_s, trips, raw))
        assert all(0.0 <= hold <= 60.0 for hold in holds)
        seen = int((policy._seen.position >= 0).sum())
        assert seen >= known, "nothing that was known is forgotten"
        known = seen
    assert policy.repeated_reports == falls == 1 and known == len(TOWN.trips)


@pytest.mark.parametrize("trip", [-1, len(TOWN.trips)])
def test_a_bus_that_the_timetable_does_not_have_follows_the_base(trip: int) -> None:
    knows, policy, held = lookahead(), lookahead(), 0
    for _, batch in zip(range(40), moments(CELLS[1], lookahead()), strict=False):
        trips = np.append(batch.trips, np.int32(trip))
        holds = policy(Batch(batch.time_s, trips, np.vstack([batch.raw, batch.raw[:1]])))
        based = USUAL_BASE(Batch(batch.time_s, batch.trips[:1], batch.raw[:1]))
        assert holds == [*knows(batch), *based]
        held += based[0] > 0.0
    assert policy.unknown_buses == 40 and knows.unknown_buses == 0 < held


def test_the_rates_are_those_of_the_city_divided_among_the_services() -> None:
    """Where one service alone carries people, the forecast has the city's own rates."""
    tables, rates = forecast_tables(TOWN, CALIBRATION), arrival_rates(TOWN, 1.0)
    assert (tables[RATE] <= rates + 1e-12).all()
    people = int((TOWN.journeys.min_demand <= 1.0).sum())
    assert tables[RATE].sum() * RATE_BIN_S == pytest.approx(people)
    assert ((tables[ALIGHTING] >= 0) & (tables[ALIGHTING] <= 1 + 1e-9)).all()


# -- its bundle -----------------------------------------------------------------------------------


def test_a_bundle_says_all_of_it_and_needs_no_calibration(tmp_path: Path) -> None:
    export_bundle(tmp_path / "look", "lookahead:price_s=100", TOWN, None, {}, CALIBRATION)
    assert read_policy(str(tmp_path / "look")).spec.base == "two-way:slack_s=0:gain=0.1"
    bundle = read_policy(str(tmp_path / "look"))
    assert bundle.spec.constants == {"step_s": 5, "behind": 2, "price_s": 100, "prior": 200}
    alone, named = (
        open_policy(bundle, TOWN),
        open_policy("lookahead:price_s=100", TOWN, CALIBRATION),
    )
    world = FastWorld(TOWN, CALIBRATION)
    assert run_episode(world, CELLS[0], alone) == run_episode(world, CELLS[0], named)
    with pytest.raises(InputError, match="needs a calibration"):
        open_policy("lookahead", TOWN)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lookahead:length=3", "unknown constant 'length'; choose 'step_s', 'behind'"),
        ("lookahead:step_s=0", r"constant step_s is 0; must be from 0\.5 to 60"),
        ("lookahead+reserve", "unknown chain 'reserve'"),
    ],
)
def test_constants_and_chains_that_do_not_exist_are_refused(name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_policy(name)


def test_spoilt_tables_are_refused(tmp_path: Path) -> None:
    tables = dict(forecast_tables(TOWN, CALIBRATION))
    spoilt = {
        "must have exactly these tensors": {RATE: tables[RATE]},
        "run_s: must be float64 of shape": tables | {RUN: tables[RUN][:-1]},
        "alighting_share: must be numbers": tables | {ALIGHTING: tables[ALIGHTING] + 1.0},
        "rate_per_s: must be numbers": tables | {RATE: np.full_like(tables[RATE], np.nan)},
    }
    spec = changed(read_policy("lookahead").spec, contract=contract_of(TOWN), provenance={})
    for why, tensors in spoilt.items():
        with pytest.raises(InputError, match=why):
            save_bundle(tmp_path / "bad", spec, tensors)


def test_the_usual_base_is_the_rule_of_its_name() -> None:
    found = base_rule(USUAL_BASE.name)
    assert found.name == USUAL_BASE.name
    assert found.rule.values(found.spec.constants) == USUAL_BASE.values


def test_a_bundle_keeps_its_base_with_every_constant_and_its_timetable(tmp_path: Path) -> None:
    export_bundle(
        tmp_path / "look", "lookahead", TOWN, None, {}, CALIBRATION, base="schedule+candidate"
    )
    bundle = read_policy(str(tmp_path / "look"))
    assert bundle.spec.base == "schedule:slack_s=2+candidate"
    base = open_policy("schedule+candidate", TOWN, CALIBRATION)
    assert isinstance(base, RulePolicy)
    world = FastWorld(TOWN, CALIBRATION)
    alone = run_episode(world, CELLS[0], open_policy(bundle, TOWN))
    assert alone == run_episode(world, CELLS[0], lookahead(base=base))
    assert alone != run_episode(world, CELLS[0], lookahead())
    export_bundle(tmp_path / "again", str(tmp_path / "look"), TOWN, None, {})
    assert read_policy(str(tmp_path / "again")).tensors.keys() == bundle.tensors.keys()


def test_a_tuned_rule_can_be_the_base_and_keeps_its_constants(tmp_path: Path) -> None:
    tuned = "virtual-schedule:slack_s=3.1234567890123:kept=0.4"
    export_bundle(tmp_path / "tuned", tuned, TOWN, None, {}, CALIBRATION)
    export_bundle(
        tmp_path / "look", "lookahead", TOWN, None, {}, CALIBRATION, base=str(tmp_path / "tuned")
    )
    spec = read_policy(str(tmp_path / "look")).spec
    assert spec.base is not None and spec.base.startswith(tuned)
    assert spec.provenance == {"base": {}}
    export_bundle(
        tmp_path / "again", str(tmp_path / "look"), TOWN, None, {}, base=str(tmp_path / "tuned")
    )
    with pytest.raises(
        InputError, match="the buses of a forecast follow a rule or an actor; choose one"
    ):
        chosen_base(str(tmp_path / "look"))


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ("rules.py:mine", r"unknown base 'rules\.py:mine'"),  # code is never run from a bundle
        ("lookahead", "unknown base 'lookahead'"),
        ("forward:gain=0.1", "a bundle must give every constant: forward:slack_s=0:gain=0.1"),
        ("forward:pace=1", "rule forward: unknown constant 'pace'"),
        ("zero+reserve", "unknown chain 'reserve'"),
        ("actor", r"tensor fuse0\.b: missing"),
        ("actor+reserve", "unknown chain 'reserve'"),
        ("actor:gain=1", "a bundle must give every constant: actor"),
    ],
)
def test_a_bundle_with_an_unknown_base_is_refused(tmp_path: Path, base: str, why: str) -> None:
    spec = changed(read_policy("lookahead").spec, contract=contract_of(TOWN), provenance={})
    with pytest.raises(InputError, match=why):
        save_bundle(
            tmp_path / "bad", changed(spec, base=base), dict(forecast_tables(TOWN, CALIBRATION))
        )


def saved_actor(folder: Path, gate: float, chain: str = "raw") -> dict[str, np.ndarray]:
    """A bundle of an untrained actor whose gate begins at a value."""
    tensors = random_tensors(len(TOWN.services), 7)
    tensors["out.b"] = np.array([gate, 0.0, 0.0], np.float32)
    save_bundle(folder, actor_spec(TOWN, chain, {}), tensors)
    return tensors


@pytest.mark.parametrize("rule", ["zero", "zero+candidate"])
def test_an_actor_that_never_holds_is_a_base_like_the_rule_zero(tmp_path: Path, rule: str) -> None:
    saved_actor(tmp_path / "actor", gate=-1e6, chain=rule.partition("+")[2] or "raw")
    for name, base in (("one", str(tmp_path / "actor")), ("other", rule)):
        export_bundle(tmp_path / name, "lookahead", TOWN, None, {}, CALIBRATION, base=base)
    one, other = (open_policy(str(tmp_path / name), TOWN) for name in ("one", "other"))
    for batch in moments(CELLS[0], lookahead()):
        np.testing.assert_array_equal(one.decide(batch).holds_s, other.decide(batch).holds_s)


def test_a_bundle_contains_the_actor_that_its_forecast_follows(tmp_path: Path) -> None:
    tensors = saved_actor(tmp_path / "actor", 0.0, "candidate")
    base = str(tmp_path / "actor")
    export_bundle(tmp_path / "look", "lookahead", TOWN, None, {}, CALIBRATION, base=base)
    bundle = read_policy(str(tmp_path / "look"))
    assert bundle.spec.base == "actor+candidate"
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(bundle.tensors[f"base.{name}"], tensor)
    days = [
        FastWorld(TOWN, CALIBRATION).run_day(CELLS[0], open_policy(policy, TOWN, CALIBRATION))
        for policy in (str(tmp_path / "look"), "lookahead")
    ]
    assert days[0].generalized_s != days[1].generalized_s
    export_bundle(tmp_path / "back", str(tmp_path / "look"), TOWN, None, {}, base="zero")
    assert not [name for name in read_policy(str(tmp_path / "back")).tensors if "base" in name]


def test_a_rule_with_a_timetable_of_its_own_keeps_it_as_a_base(tmp_path: Path) -> None:
    export_bundle(tmp_path / "rule", "schedule", TOWN, None, {}, CALIBRATION)
    bundle = read_policy(str(tmp_path / "rule"))
    late = {"timetable_s": bundle.tensors["timetable_s"] + 500.0}
    save_bundle(tmp_path / "late", bundle.spec, late)
    base = str(tmp_path / "late")
    export_bundle(tmp_path / "look", "lookahead", TOWN, None, {}, CALIBRATION, base=base)
    found = read_policy(str(tmp_path / "look")).tensors["timetable_s"]
    np.testing.assert_array_equal(found, late["timetable_s"])


def test_folders_do_not_change_what_a_bundle_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export_bundle(
        tmp_path / "look", "lookahead", TOWN, None, {}, CALIBRATION, base="zero+candidate"
    )
    saved_actor(tmp_path / "zero+candidate", 0.0)
    assert read_policy("look").spec.base == "zero+candidate"


def test_an_actor_of_another_city_is_refused_as_a_base(tmp_path: Path) -> None:
    saved_actor(tmp_path / "actor", 0.0)
    city = open_city("city")
    with pytest.raises(InputError, match="actor was made for a city with different services"):
        export_bundle(
            tmp_path / "look", "lookahead", city, None, {}, calibration_of(city),
            base=str(tmp_path / "actor"),
        )  # fmt: skip
    with pytest.raises(InputError, match="actor was made for a city with different services"):
        base_policy(chosen_base(str(tmp_path / "actor")), city, calibration_of(city))


def test_only_a_look_ahead_has_a_base(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="forward does not look ahead, so it has no base"):
        export_bundle(tmp_path / "bad", "forward", TOWN, None, {}, CALIBRATION, base="zero")


def test_weighing_is_deciding_with_the_costs_and_without_holds_that_may_not_be() -> None:
    decides, weighs, tries, bound = (lookahead() for _ in range(4))
    days = zip(range(60), moments(CELLS[0], decides), strict=False)
    for _, batch in days:
        decision, costs = weighs.weigh(batch, np.ones(len(batch.trips), np.bool_))
        tries.follow(batch)
        for i, (trip, raw) in enumerate(zip(batch.trips.tolist(), batch.raw, strict=True)):
            np.testing.assert_array_equal(tries.costs(trip, raw), costs[i])
            tries.note(trip, raw, decision.holds_s[i])
        bound.weigh(batch, np.zeros(len(batch.trips), np.bool_))
        leaves_s = batch.raw[:, event.TIME] + batch.raw[:, event.BASE_DWELL]
        places = decides.forecast.first_place[batch.raw[:, event.SERVICE].astype(int)]
        since_s = bound._seen.since_s[places + batch.raw[:, event.STOP].astype(int)]
        np.testing.assert_array_equal(since_s, leaves_s)


def test_behind_a_chain_it_asks_for_the_hold_of_which_the_chain_leaves_the_best() -> None:
    """The raw look-ahead follows the same day and says what the holds that remain would cost."""
    free, chain = lookahead(), CHAINS["candidate"]
    behind = Lookahead("behind", TOWN, free.forecast, chain)
    other = 0
    for batch in moments(CELLS[1], Lookahead("drives", TOWN, free.forecast, chain)):
        decision, costs = behind.weigh(batch, np.ones(len(batch.trips), np.bool_))
        free.follow(batch)
        for i, (trip, raw) in enumerate(zip(batch.trips.tolist(), batch.raw, strict=True)):
            rows = np.tile(raw, (len(free.holds_s), 1))
            kept_s = apply_chain(chain, rows, free.holds_s, TOWN.horizon_s)
            assert decision.holds_s[i] == kept_s[costs[i].argmin()]
            # Costs count from no hold, which the reserve does not leave open.
            on_grid = np.isin(kept_s, free.holds_s) & (kept_s[0] == 0.0)
            raw_costs = free.costs(trip, raw)
            same = raw_costs[np.searchsorted(free.holds_s, kept_s[on_grid])]
            np.testing.assert_array_equal(costs[i][on_grid], same)
            other += kept_s[raw_costs.argmin()] != decision.holds_s[i]
            free.note(trip, raw, decision.holds_s[i])
    assert other > 0, "knowing the chain changes some holds"


def test_nobody_waits_since_before_a_day_was_joined() -> None:
    late = lookahead()
    late.join(3000)
    assert (late._seen.since_s == 3000).all()
    late.begin()
    assert (late._seen.since_s == 0).all()
