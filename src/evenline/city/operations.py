"""How a city is operated: where and how long buses may be held, drivers, cancelled trips, duties.

The defaults are the contract of the paper: a hold of up to 60 s at every stop, drivers who do as
they are told, no trip cancelled, and a vehicle of its own for every trip. A day's luck is keyed by
the cell and by trip or stop visit, so it is the same under every policy.
"""

from dataclasses import dataclass

LONGEST_HOLD_S = 60.0
EVERY_STOP, TERMINALS, LISTED = "all", "terminals", "listed"
HOLD_AT = (EVERY_STOP, TERMINALS, LISTED)


@dataclass(frozen=True)
class ControlPoint:
    """A stop with its own longest hold; `stop` is an index."""

    stop: int
    max_hold_s: float


@dataclass(frozen=True)
class Operations:
    """What is allowed and what happens, beside the timetable.

    `hold_at` is every stop, the first stop of each trip, or only the listed control points; a
    listed one has its own cap everywhere. `earliest_s` and `latest_s` are allowances: at a control
    point a bus leaves at most `earliest_s` before its schedule, and no hold makes it leave more
    than `latest_s` after it. A bus with more than `most_load` of its places taken is not held. Of
    the holds, `ignored_share` do not happen and `cut_share` are cut short; drivers round their
    departure to `round_s`. Of the trips, those in `cancelled` and `cancelled_share` of every day do
    not run. With `duties`, trips of one duty share a vehicle, which rests `recovery_s` in between.
    """

    hold_at: str = EVERY_STOP
    max_hold_s: float = LONGEST_HOLD_S
    earliest_s: float | None = None
    latest_s: float | None = None
    most_load: float = 1.0
    ignored_share: float = 0.0
    cut_share: float = 0.0
    round_s: float = 0.0
    cancelled_share: float = 0.0
    duties: bool = False
    recovery_s: int = 0
    control_points: tuple[ControlPoint, ...] = ()
    cancelled: tuple[int, ...] = ()  # trips

    @property
    def cancels(self) -> bool:
        """Whether a trip may be cancelled."""
        return bool(self.cancelled) or self.cancelled_share > 0.0

    @property
    def limits_holds(self) -> bool:
        """Whether a hold may be executed otherwise than it was asked for."""
        return (
            bool(self.control_points)
            or (self.hold_at, self.max_hold_s) != (EVERY_STOP, LONGEST_HOLD_S)
            or (self.earliest_s, self.latest_s) != (None, None)
            or self.most_load < 1.0
            or max(self.ignored_share, self.cut_share, self.round_s) > 0.0
        )


USUAL_OPERATIONS = Operations()
