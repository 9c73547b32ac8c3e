"""Where and when a city lies: degrees as metres, the time of day as seconds of the city's day.

A city without an origin or a clock gets a made-up one, the same for the simulated street and for
the shadow, so that cities which exist nowhere can be tried too.
"""

from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evenline.city.geometry import Origin
from evenline.city.model import City, Clock
from evenline.support.errors import InputError

NOWHERE = Origin(45.0, 0.0)
SOME_DAY = Clock("2026-01-01", 6 * 3600, "UTC")


class Frame(NamedTuple):
    """The origin of a city and the moment when its day begins, as seconds since 1970."""

    origin: Origin
    begin_s: float
    start_s: int  # seconds after midnight
    date: str  # service date, as feeds write it: YYYYMMDD
    zone: str

    def metres(self, lat: float, lon: float) -> tuple[float, float]:
        """Metres east and north of the origin."""
        return self.origin.metres(lat, lon)

    def degrees(self, x_m: float, y_m: float) -> tuple[float, float]:
        """Latitude and longitude of a place."""
        return self.origin.degrees(x_m, y_m)

    def second(self, moment_s: float) -> float:
        """The second of the city's day at a moment."""
        return moment_s - self.begin_s

    def moment(self, second: float) -> float:
        """The moment of a second of the city's day."""
        return self.begin_s + second

    def clock(self, second: float) -> str:
        """The time of day that people read, HH:MM:SS."""
        local = datetime.fromtimestamp(round(self.moment(second)), ZoneInfo(self.zone))
        return local.strftime("%H:%M:%S")


def frame_of(city: City) -> Frame:
    """The frame of a city. A service day begins twelve hours before noon, as in GTFS."""
    origin, clock = city.origin or NOWHERE, city.clock or SOME_DAY
    try:
        noon = datetime.fromisoformat(f"{clock.date}T12:00:00").replace(tzinfo=ZoneInfo(clock.zone))
    except (ValueError, ZoneInfoNotFoundError):
        raise InputError(
            f"city {city.name}: clock {clock.date} {clock.zone} is not a date and a time zone; "
            "write them as 2026-01-31 and Europe/Zurich"
        ) from None
    midnight_s = noon.timestamp() - timedelta(hours=12).total_seconds()
    return Frame(
        origin,
        midnight_s + clock.start_s,
        clock.start_s,
        clock.date.replace("-", ""),
        clock.zone,
    )
