"""The look-ahead: for each bus, the hold that costs the passengers of its service least.

It follows the day through the events that every policy sees, and computes what each hold would do
to the rest of the service's day (`fluid`). It needs half-hour rates of people and mean running
times, which its bundle contains, and no journey, random number or demand level of the day: how many
people come today is estimated from those whom the buses met. Missing, repeated and unknown reports
are counted and cannot corrupt the state: every event states where its bus is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S, Passengers, service_stop_offsets
from evenline.city.model import City, doors_of, service_positions, visit_offsets
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import STOP, Array, Batch
from evenline.control.operations import Bools, limits_of
from evenline.policies import fluid
from evenline.policies.actor import ActorPolicy
from evenline.policies.actor_formula import address_of_formula, numbers_of
from evenline.policies.fluid import Base, Forecast, Room, Search, Seen, new_room
from evenline.rules.chain import apply_chain
from evenline.rules.policy import Decision, RulePolicy, holds_at, set_rule
from evenline.rules.table import Constant, values_of
from evenline.support.errors import InputError
from evenline.worlds.calibration import HOUR_S, Calibration

LOOKAHEAD = "lookahead"
_CONSTANTS = (
    Constant("step_s", 5.0, 0.5, 60.0),  # between the holds that are tried
    Constant("behind", 2.0, 0.0, 50.0),  # buses behind the held one that its hold may delay
    Constant("price_s", 0.0, 0.0, 100_000.0),  # of a passenger who is left when the day ends
    Constant("prior", 200.0, 0.0, 1e9),  # people; how firmly the usual demand is believed
)
USUAL_BASE = set_rule("two-way:slack_s=0:gain=0.1", "two-way", slack_s=0.0, gain=0.1)
USUAL_DEMAND = 1.0
RATE, ALIGHTING, RUN, DELAY = "rate_per_s", "alighting_share", "run_s", "start_delay_s"
Tables = Mapping[str, npt.NDArray[np.float64]]


def lookahead_constants(given: Mapping[str, float]) -> dict[str, float]:
    """Every constant by name; those that are not given have their defaults."""
    values = values_of(f"policy {LOOKAHEAD}", _CONSTANTS, given)
    return {constant.name: value for constant, value in zip(_CONSTANTS, values, strict=True)}


# -- what is known before the day -----------------------------------------------------------------


@lru_cache(maxsize=4)
def forecast_tables(city: City, calibration: Calibration) -> Tables:
    """The rates of people and the mean running times of a city, as a bundle contains them."""
    journeys = city.journeys
    usual = np.flatnonzero(journeys.min_demand <= USUAL_DEMAND).astype(np.int32)
    rate, alighting = rates_of(city, Passengers(usual, journeys.departure_s[usual]))
    hour = np.arange(rate.shape[1]) * RATE_BIN_S // HOUR_S
    run_s = calibration.mean_s[:, np.minimum(hour, calibration.mean_s.shape[1] - 1)]
    return {
        RATE: rate,
        ALIGHTING: alighting,
        RUN: np.ascontiguousarray(run_s, np.float64),
        DELAY: np.array([calibration.start_delay_s], np.float64),
    }


def rates_of(city: City, people: Passengers, bin_s: int = RATE_BIN_S) -> tuple[Array, Array]:
    """People per second by place and half hour, and the share on board who alight at a place.

    A leg that several services can carry is divided among them. Only first legs have a time.
    """
    journeys, positions = city.journeys, service_positions(city.services)
    first, bins = service_stop_offsets(city), -(-city.horizon_s // bin_s)
    rate, off, aboard = np.zeros((int(first[-1]), bins)), np.zeros(first[-1]), np.zeros(first[-1])
    for p, departure_s in zip(people.journey.tolist(), people.departure_s.tolist(), strict=True):
        half_hour = min(departure_s // bin_s, bins - 1)
        for leg in range(journeys.leg_start[p], journeys.leg_start[p + 1]):
            carriers = journeys.carriers[journeys.leg_carriers[leg]]
            for service in carriers:
                board = first[service] + positions[service, int(journeys.leg_board[leg])]
                alight = first[service] + positions[service, int(journeys.leg_alight[leg])]
                if leg == journeys.leg_start[p]:
                    rate[board, half_hour] += 1 / len(carriers) / bin_s
                off[alight] += 1 / len(carriers)
                aboard[board + 1 : alight + 1] += 1 / len(carriers)
    return rate, off / np.maximum(aboard, 1e-9)


def _half_hours(horizon_s: int) -> int:
    """The number of half hours of a day."""
    return -(-horizon_s // RATE_BIN_S)


def check_tables(tables: Tables, places: int, horizon_s: int) -> None:
    """Refuse the tables of a bundle if one is missing, unknown, out of shape or out of range."""
    grid = (places, _half_hours(horizon_s))
    limits = {RATE: (grid, 1e3), ALIGHTING: ((places,), 1.0 + 1e-9), RUN: (grid, 1e6)}
    limits[DELAY] = ((1,), 1e6)
    if tables.keys() != limits.keys():
        raise InputError(f"must have exactly these tensors: {', '.join(limits)}")
    for name, (shape, most) in limits.items():
        table = tables[name]
        if table.shape != shape or table.dtype != np.float64:
            raise InputError(f"tensor {name}: must be float64 of shape {list(shape)}")
        if not (np.isfinite(table).all() and (table >= 0).all() and (table <= most).all()):
            raise InputError(f"tensor {name}: must be numbers from 0 to {most:g}")


def _followed(base: RulePolicy | ActorPolicy) -> Base:
    """The base in the form of the computation."""
    if isinstance(base, RulePolicy):
        return Base(base.rule.address, base.constants, base.chain, base.first_visit, base.due_s)
    none, numbers = np.zeros(0, np.int32), numbers_of(base)
    return Base(address_of_formula(), numbers, base.chain, none, np.zeros(0))


def forecast_of(
    city: City, tables: Tables, base: RulePolicy | ActorPolicy = USUAL_BASE, bin_s: int = RATE_BIN_S
) -> Forecast:
    """The tables of a bundle, the timetable and the base in the form of the computation."""
    rate = np.ascontiguousarray(tables[RATE])
    buses = [city.vehicle_of(trip) for trip in range(len(city.trips))]
    starts_s = np.array([trip.departure_s for trip in city.trips], float) + tables[DELAY][0]
    next_s = np.full(len(starts_s), np.inf)
    for trips in city.trips_of:
        next_s[list(trips[:-1])] = starts_s[list(trips[1:])]
    ahead_s, behind_s = city.headway_targets()
    start = bin_s * np.arange(rate.shape[1] + 1, dtype=np.float64)
    zeros = np.zeros((len(rate), 1))
    return Forecast(
        horizon_s=float(city.horizon_s),
        capacity=np.array([float(bus.capacity) for bus in buses]),
        min_dwell_s=np.array([float(bus.base_dwell_s(0)) for bus in buses]),
        exchange_s=np.array([bus.exchange_ms / 1000 for bus in buses]),
        bin_s=float(bin_s),
        first_place=service_stop_offsets(city),
        first_trip=np.cumsum([0, *map(len, city.trips_of)]).astype(np.int32),
        trips=np.array([trip for trips in city.trips_of for trip in trips], np.int32),
        start_s=starts_s,
        next_s=next_s,
        target_ahead_s=ahead_s.astype(float),
        target_behind_s=behind_s.astype(float),
        rate=rate,
        people=np.hstack([zeros, np.cumsum(rate * bin_s, axis=1)]),
        moment=np.hstack([zeros, np.cumsum(rate * np.diff(start**2) / 2, axis=1)]),
        alights=np.ascontiguousarray(tables[ALIGHTING]),
        run_s=np.ascontiguousarray(tables[RUN]),
        trip_run_s=np.zeros((0, 0)),
        base=_followed(base),
        first_visit=visit_offsets(city),
        limits=limits_of(city),
        doors_s=doors_of(city) * np.array([1e-3, 1e-3, 1e-6]),
    )


# -- the policy -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Lookahead:
    """A policy that looks ahead. It follows one day at a time."""

    name: str
    city: City
    forecast: Forecast
    chain: int = 0
    step_s: float = _CONSTANTS[0].default
    behind: float = _CONSTANTS[1].default
    price_s: float = _CONSTANTS[2].default
    prior: float = _CONSTANTS[3].default
    holds_s: Array = field(init=False)
    _tried: Array = field(init=False)
    _seen: Seen = field(init=False)
    _room: Room = field(init=False)
    # Counted today: reports of a stop that was reported before.
    repeated_reports: int = field(init=False, default=0)
    unknown_buses: int = field(init=False, default=0)  # decisions for trips not in the timetable
    _now_s: int = field(init=False, default=-1)
    _demand: float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        self.holds_s = np.append(np.arange(0.0, MAX_HOLD_S - 1e-9, self.step_s), MAX_HOLD_S)
        self._tried = np.empty(len(self.holds_s))
        stops = max(len(service.stops) for service in self.city.services)
        self._room = new_room(stops, max(map(len, self.city.trips_of)), len(self.holds_s))
        self.begin()

    @property
    def horizon_s(self) -> float:
        return float(self.city.horizon_s)

    @property
    def _search(self) -> Search:
        return Search(self.prior, self.price_s, int(self.behind), self.chain, self.holds_s)

    def begin(self) -> None:
        """Forget the day before."""
        trips, places = len(self.city.trips), int(self.forecast.first_place[-1])
        self._seen = Seen(
            np.full(trips, -1, np.int32), self.forecast.start_s.copy(), np.zeros(trips),
            np.zeros(places), np.zeros(places), np.full(places, -1.0), np.zeros(2),
            np.zeros(trips, np.int32),
        )  # fmt: skip
        self._now_s = -1
        self.repeated_reports = self.unknown_buses = 0

    @property
    def people_met(self) -> Array:
        """People met at stops today, and people expected there under the usual demand."""
        return self._seen.met

    @property
    def unseen_stops(self) -> int:
        """Stops that buses have passed today without a report."""
        return int(self._seen.unseen.sum())

    @property
    def lost_buses(self) -> int:
        """Buses on their way that the forecast no longer counts on, because they are too late."""
        last = [len(self.city.services[trip.service].stops) - 2 for trip in self.city.trips]
        late = self._seen.due_s < self._now_s - fluid.LOST_S
        return int((late & (self._seen.position < last)).sum())

    @property
    def calls_computed(self) -> int:
        """Calls of buses at stops that the forecast has computed so far."""
        return int(self._room.cost[2])

    def follow(self, batch: Batch) -> None:
        """Begin a new day if a batch cannot belong to the day so far.

        Time went back, or buses start again before any has left its first stop. A later report of
        a stop that the bus has passed is taken at its word.
        """
        again = self._seen.position[batch.trips] >= batch.raw[:, STOP]
        fresh = again.any() and self._seen.position.max() <= 0
        if batch.time_s < self._now_s or fresh:
            self.begin()
        else:
            self.repeated_reports += int(again.sum())
        self._now_s = batch.time_s

    def expect(self, trip: int, runs: bool) -> None:
        """Expect a trip that has not begun, or stop expecting it because it is cancelled."""
        if self._seen.position[trip] < 0:
            self._seen.due_s[trip] = self.forecast.start_s[trip] if runs else -np.inf

    def join(self, second: int) -> None:
        """Join a day that has begun: count nobody who came before this second as waiting."""
        self._seen.since_s[:] = second

    def decide(self, batch: Batch) -> Decision:
        """The holds of a moment."""
        return self.weigh(batch, np.ones(len(batch.trips), np.bool_))[0]

    def weigh(self, batch: Batch, may_hold: Bools) -> tuple[Decision, Array]:
        """The holds of a moment and the costs that they were chosen by, bus by hold of `holds_s`.

        The forecast expects a bus that may not be held to drive on. A bus that the timetable does
        not have follows the base, as if it were on time, and costs nothing.
        """
        known = (batch.trips >= 0) & (batch.trips < len(self.city.trips))
        if not known.all():
            return self._weigh_known(batch, may_hold, known)
        self.follow(batch)
        buses = len(batch.trips)
        proposals, holds = np.empty(buses), np.empty(buses)
        costs = np.empty((buses, len(self.holds_s)))
        fluid.decide(
            self.forecast, self._seen, self._room, batch.trips, batch.raw, may_hold, self._search,
            costs, proposals, holds,
        )  # fmt: skip
        return Decision(proposals, holds), costs

    def _weigh_known(self, batch: Batch, may_hold: Bools, known: Bools) -> tuple[Decision, Array]:
        buses, base = len(batch.trips), self.forecast.base
        proposals, costs = np.zeros(buses), np.zeros((buses, len(self.holds_s)))
        raw = np.ascontiguousarray(batch.raw[~known])
        base_s = np.empty(len(raw))
        holds_at(base.address, base.constants, raw, np.zeros(len(raw)), base_s)
        proposals[~known] = apply_chain(base.chain, raw, base_s, self.horizon_s)
        holds = apply_chain(self.chain, batch.raw, proposals, self.horizon_s)
        if known.any():
            part = Batch(batch.time_s, batch.trips[known], batch.raw[known])
            (proposals[known], holds[known]), costs[known] = self.weigh(part, may_hold[known])
        self.unknown_buses += int((~known).sum())
        return Decision(proposals, holds), costs

    def __call__(self, batch: Batch) -> list[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]

    # Bus by bus, for those who choose the holds themselves.

    def costs(self, trip: int, raw: Array) -> Array:
        """The cost of asking for each hold of `holds_s`, for a bus of the batch that is followed.

        It is the cost of what the chain and the operations leave of the hold.
        """
        self._demand = fluid.try_holds(
            self.forecast, self._seen, self._room, trip, raw, self._search, self._tried
        )
        return self._tried.copy()

    @property
    def kept_s(self) -> Array:
        """What the chain and the operations leave of each hold whose cost was asked last."""
        return self._room.kept_s

    def change(self, trip: int, raw: Array, hold_s: float) -> None:
        """Keep another hold of a bus than the one that was kept with its last event."""
        self.costs(trip, raw)  # today's demand, for the people who come meanwhile
        self.note(trip, raw, hold_s)

    def note(self, trip: int, raw: Array, hold_s: float) -> None:
        """Keep the hold that a bus was given."""
        fluid.note(self.forecast, self._seen, trip, raw, hold_s, self._demand)
