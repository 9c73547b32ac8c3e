"""The time of day as people read it: every time of a city's day that is shown goes through here.

Days are counted in seconds from their beginning. A city without a clock counts from 0:00; the hours
of a service day go on past 24.
"""

from evenline.city.model import City


def clock_text(city: City | None, second: float, seconds: bool = False) -> str:
    """A second of a city's day as 8:57, or as 8:57:15."""
    begins_s = city.clock.start_s if city is not None and city.clock is not None else 0
    return time_text(begins_s + second, seconds)


def time_text(after_midnight_s: float, seconds: bool = False) -> str:
    """The same for seconds after midnight."""
    minute, rest = divmod(round(after_midnight_s), 60)
    text = f"{minute // 60}:{minute % 60:02d}"
    return f"{text}:{rest:02d}" if seconds else text
