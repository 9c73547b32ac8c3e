"""The outcome of a day: the paper's endpoints and a few other figures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from evenline.control.ledger import cost_of
from evenline.support.records import Seconds, Whole


@dataclass(frozen=True)
class Outcome:
    """The outcome of one day. Times are passenger-seconds unless the name says otherwise."""

    departed: Whole
    completed: Whole
    waiting_s: Whole
    riding_s: Whole
    pre_control_cost: Whole
    token_cost: Whole
    decisions: Whole
    zero_duration_tokens: Whole
    holds_zero: Whole
    hold_total_s: Seconds
    denied_boardings: Whole
    trips_completed: Whole
    trip_duration_total_s: Whole
    teleports: Whole = 0
    late_departures: Whole | None = None  # counted in a city with duties
    lost_trips: Whole | None = None
    # Generalized passenger-seconds until the last trip is due to leave its first stop.
    service_cost: Whole | None = None

    @property
    def cost(self) -> int:
        """Generalized passenger-seconds of the whole horizon."""
        return cost_of(self.waiting_s, self.riding_s)

    @property
    def generalized_s(self) -> float:
        """Y: generalized passenger time per departed passenger."""
        return self.cost / self.departed if self.departed else 0.0

    @property
    def service_s(self) -> float | None:
        """The part of `generalized_s` until the last trip is due to leave its first stop."""
        if self.service_cost is None:
            return None
        return self.service_cost / self.departed if self.departed else 0.0

    @property
    def after_s(self) -> float | None:
        """The part of `generalized_s` after that: mostly of people for whom no bus comes."""
        return None if self.service_s is None else self.generalized_s - self.service_s

    @property
    def waiting_each_s(self) -> float:
        """Seconds of waiting per departed passenger."""
        return self.waiting_s / self.departed if self.departed else 0.0

    @property
    def riding_each_s(self) -> float:
        """Seconds on board per departed passenger."""
        return self.riding_s / self.departed if self.departed else 0.0

    @property
    def completion(self) -> float:
        return self.completed / self.departed if self.departed else 1.0

    @property
    def unfinished(self) -> int:
        return self.departed - self.completed

    @property
    def mean_hold_s(self) -> float:
        return self.hold_total_s / self.decisions if self.decisions else 0.0

    @property
    def zero_hold_share(self) -> float:
        return self.holds_zero / self.decisions if self.decisions else 1.0

    @property
    def zero_duration_share(self) -> float:
        """Share of decisions with another decision after them in the same second."""
        return self.zero_duration_tokens / self.decisions if self.decisions else 0.0

    @property
    def trip_duration_s(self) -> float:
        """Mean duration of the completed trips."""
        return self.trip_duration_total_s / self.trips_completed if self.trips_completed else 0.0

    def as_dict(self) -> dict[str, Any]:
        """All figures, including derived ones, ready for JSON."""
        derived = (
            "cost",
            "generalized_s",
            "completion",
            "unfinished",
            "mean_hold_s",
            "zero_hold_share",
            "trip_duration_s",
        )
        return self.counted() | {name: getattr(self, name) for name in derived}

    def counted(self) -> dict[str, Any]:
        """The figures from which the others are derived, without those that were not counted."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def outcome_from(figures: Mapping[str, Any]) -> Outcome:
    """Read an outcome that `as_dict` wrote; derived figures are computed again."""
    known = [f.name for f in fields(Outcome) if f.default is not None or f.name in figures]
    return Outcome(**{name: figures[name] for name in known})
