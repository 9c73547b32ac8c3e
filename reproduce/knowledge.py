"""What each piece of knowledge is worth to the look-ahead, in the fast world.

The same development days run with more or less knowledge, with other bases, lengths, steps and
prices of a passenger who is left, under other controllers, and under a clairvoyant that knows the
day. Everything is compared with no holding. `reproduce.worth` writes the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.embedded import CITY, CITY_TWO_PEAKS
from evenline.experiments.clairvoyant import CLAIRVOYANT as BY_THE_CLAIRVOYANT
from evenline.experiments.frame import Days
from evenline.experiments.measures import Difference, difference
from evenline.policies.bundle import export_bundle
from evenline.policies.lookahead import LOOKAHEAD, USUAL_BASE
from evenline.worlds.open import OpenCity
from reproduce.policies import HERE, LATE_S, UNSEEN_SHARE

NOBODY, CLAIRVOYANT = "zero", "clairvoyant"
CONTROLLER, KNOWLEDGE, BASE = "controller", "knowledge", "base of the forecast"
LENGTH, PRICE, STEP = "buses behind", "price of a passenger left", "step between holds"
CONTROLLERS = (
    "headway-0.4", "schedule", "virtual-schedule", USUAL_BASE.name, "zero+candidate", LOOKAHEAD,
    f"{LOOKAHEAD}+candidate",
)  # fmt: skip
BASES = (
    "zero", "zero+candidate", "schedule", "virtual-schedule", "headway-0.2", "forward:gain=0.1",
    "two-way:gain=0.05", "two-way:gain=0.1", "two-way:gain=0.2",
)  # fmt: skip
LENGTHS = (0, 1, 2, 3, 6)
STEPS_S = (15, 10, 5, 2, 1)
RESERVED = f"{LOOKAHEAD}, reserve alone on top"
RIVALS = ("zero+candidate", f"{LOOKAHEAD}+candidate", RESERVED, CLAIRVOYANT)
PRICES_S = (0, 500, 2_000, 10_000, 50_000)


# -- the settings ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A way to run the days: a policy, with its knowledge and its price."""

    group: str
    name: str
    source: str


def settings(
    opened: OpenCity, folder: Path, policies: Sequence[str] = (), bases: Sequence[str] = ()
) -> list[Setting]:
    """All settings; the first is the reference, the last the clairvoyant.

    Look-aheads with other bases are written to a folder as bundles.
    """
    named = (NOBODY, *CONTROLLERS, *policies)
    known = {
        "exact people of the day": "exact",
        "usual rates, level known": "level_known",
        "usual rates, level believed 20 % too low": "level_too_low",
        "usual rates, level believed 20 % too high": "level_too_high",
        "rates counted on one other day": "counted_once",
        "rates without time of day": "flat",
    }
    if opened.source in (CITY.name, CITY_TWO_PEAKS.name):
        known["rates of another demand"] = "outdated"
    known[f"{UNSEEN_SHARE:.0%} of events unseen".replace("%", " %")] = "unseen"
    known[f"other buses known {LATE_S} s late"] = "late"
    known["running times of today's leaders"] = "from_leaders"
    return [
        *(Setting(CONTROLLER, Path(source).name, source) for source in named),
        Setting(CONTROLLER, RESERVED, f"{HERE}:reserve_on_top"),
        *(Setting(KNOWLEDGE, name, f"{HERE}:{function}") for name, function in known.items()),
        *(
            Setting(BASE, f"base {Path(base).name}", _based(opened, folder, base))
            for base in (*BASES, *bases)
        ),
        *(Setting(LENGTH, f"{n} in full", f"{LOOKAHEAD}:behind={n}") for n in LENGTHS),
        *(Setting(PRICE, f"{n:,} s", f"{LOOKAHEAD}:price_s={n}") for n in PRICES_S),
        *(Setting(STEP, f"every {n} s", f"{LOOKAHEAD}:step_s={n}") for n in STEPS_S),
        Setting(CONTROLLER, CLAIRVOYANT, BY_THE_CLAIRVOYANT),
    ]


def _based(opened: OpenCity, folder: Path, base: str) -> str:
    """The look-ahead with another base for the buses of its forecast, as a bundle."""
    place = folder / Path(base).name.replace(":", "-")
    city, fitted = opened.city, opened.fitted()
    export_bundle(place, LOOKAHEAD, city, None, {}, fitted, force=True, base=base)
    return str(place)


@dataclass(frozen=True)
class Worth:
    """What a setting gives: means, and differences from no holding with intervals over blocks."""

    group: str
    name: str
    generalized_s: float
    completion: float
    time_change_s: Difference
    completion_change: Difference
    least_completion_change: float  # mean of the demand level at which it is least
    share: float  # of the clairvoyant's gain in time


def worths(listed: Sequence[Setting], cells: Sequence[Cell], days: Sequence[Days]) -> list[Worth]:
    """Compare every setting with the first, and its gain with that of the last."""
    times_s, completed = (
        np.array([[day[name] for day in of_setting] for of_setting in days])
        for name in ("generalized_s", "completion")
    )
    gain_s = float((times_s[0] - times_s[-1]).mean())
    at = [[i for i, c in enumerate(cells) if c.demand == level] for level in DEMAND_LEVELS]
    return [
        Worth(
            setting.group,
            setting.name,
            float(time_s.mean()),
            float(done.mean()),
            difference(cells, time_s, times_s[0]),
            difference(cells, done, completed[0]),
            min(float((done - completed[0])[rows].mean()) for rows in at),
            float((times_s[0] - time_s).mean()) / gain_s,
        )
        for setting, time_s, done in zip(listed, times_s, completed, strict=True)
    ]
