"""How a city is operated: where and how long buses may be held, drivers, disruptions, duties.

The defaults are the contract of the paper: a hold of up to 60 s at every stop, drivers who do as
they are told, no disruption, and a vehicle of its own for every trip. A day's luck is keyed by
the cell and by trip or stop visit, so it is the same under every policy.
"""

from dataclasses import dataclass

LONGEST_HOLD_S = 60.0
EVERY_STOP, TERMINALS, _LISTED = "all", "terminals", "listed"
HOLD_AT = (EVERY_STOP, TERMINALS, _LISTED)
CANCELLED, BREAKDOWN, CLOSED, SLOW = "cancelled", "breakdown", "closed", "slow"
KINDS = (CANCELLED, BREAKDOWN, CLOSED, SLOW)
MOST_SLOW = 20.0
LEAST_SLOWNESS = 0.5  # with which every driver drives as fast as the street allows


@dataclass(frozen=True)
class ControlPoint:
    """A stop with its own longest hold; `stop` is an index."""

    stop: int
    max_hold_s: float


@dataclass(frozen=True)
class Disruption:
    """Something that goes wrong from `from_s` until `until_s` (None: the end of the day).

    A `trip` is cancelled, or its bus breaks down as it reaches a stop: the first one from `stop` on
    (-1: any) that it reaches from `from_s` on, but not its last. A `stop` is closed: buses that
    leave the stop before in that time do not stop there, unless their trip begins or ends there. On
    a slow `road`, buses that set out in that time take `factor` times as long. `day` is the SUMO
    seed of the only day on which it happens; None means every day.
    """

    kind: str
    trip: int = -1
    stop: int = -1
    road: str = ""
    from_s: int = 0
    until_s: int | None = None
    factor: float = 1.0
    day: int | None = None

    def lasts(self, second: int) -> bool:
        """Whether it is going on in a second of its day."""
        return self.from_s <= second and (self.until_s is None or second < self.until_s)


@dataclass(frozen=True)
class Operations:
    """What is allowed and what happens, beside the timetable.

    `hold_at` is every stop, the first stop of each trip, or only the listed control points; a
    listed one has its own cap everywhere. `earliest_s` and `latest_s` are allowances: no bus leaves
    a control point more than `earliest_s` before its schedule, however long it must wait, and no
    hold makes it leave more than `latest_s` after it. A bus with more than `most_load` of its
    places taken is not held. Of the holds, `ignored_share` do not happen and `cut_share` are cut
    short; drivers round their departure to `round_s`. None of these three shortens the wait for the
    earliest departure. Of the trips, `cancelled_share` of every day do not run; `disruptions`
    lists what else goes wrong. With `duties`, trips of one duty share a vehicle, which rests
    `recovery_s` in between. `starts_shared` is the correlation of late starts along a duty.
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
    starts_shared: float = 0.0
    control_points: tuple[ControlPoint, ...] = ()
    disruptions: tuple[Disruption, ...] = ()

    @property
    def disrupted(self) -> bool:
        """Whether a day may differ from the timetable: a trip cancelled, or any disruption."""
        return bool(self.disruptions) or self.cancelled_share > 0.0

    def has(self, *kinds: str) -> bool:
        """Whether a disruption of one of these kinds is listed."""
        return any(event.kind in kinds for event in self.disruptions)

    @property
    def limits_holds(self) -> bool:
        """Whether a hold may be executed otherwise than it was asked for."""
        return (
            any(point.max_hold_s != self.max_hold_s for point in self.control_points)
            or (self.hold_at, self.max_hold_s) != (EVERY_STOP, LONGEST_HOLD_S)
            or (self.earliest_s, self.latest_s) != (None, None)
            or self.most_load < 1.0
            or max(self.ignored_share, self.cut_share, self.round_s) > 0.0
        )


USUAL_OPERATIONS = Operations()
