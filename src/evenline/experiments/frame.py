"""The result of an experiment: a frame of days, a row for each variant, policy and day.

`difference`, `table` and `plot` compare policies on the same days; `to_arrow` and `to_pandas` hand
over all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evenline.city.demand import Cell
from evenline.city.model import Floats
from evenline.experiments.measures import (
    CONFIDENCE,
    MEASURES,
    Difference,
    difference,
    number,
    signed,
)
from evenline.figures.picture import Picture
from evenline.figures.plots import LIGHT
from evenline.support.columns import TextTable
from evenline.support.errors import InputError, choice

Days = list[dict[str, float]]  # the figures of every day of an arm, in the order of the cells
SHOWN = ("generalized_s", "waiting_s", "completion", "headway_cv", "mean_hold_s")
DRAWN = ("generalized_s", "completion", "excess_wait_s")


class Key(NamedTuple):
    """The name of an arm: a variant and a policy."""

    variant: str
    policy: str


@dataclass(frozen=True, eq=False)
class Frame:
    """All days of an experiment. `levels` multiply the demand of the cells, by variant."""

    city: str
    world: str
    cells: tuple[Cell, ...]
    days: Mapping[Key, Days]
    levels: Mapping[str, float]
    notes: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(key.variant for key in self.days))

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(key.policy for key in self.days))

    def of(self, policy: str, variant: str | None = None) -> Days:
        """The days of a policy, in the first variant unless one is named."""
        key = Key(variant or self.variants[0], policy)
        if key not in self.days:
            names, known = (self.policies, policy) if variant is None else (self.variants, variant)
            raise InputError(f"no days of {known!r}; choose {choice(names)}")
        return self.days[key]

    def column(self, policy: str, measure: str, variant: str | None = None) -> Floats:
        """The values of a measure over the days."""
        days = self.of(policy, variant)
        if measure not in days[0]:
            raise InputError(f"no measure {measure!r}; choose {choice(days[0])}")
        return np.array([day[measure] for day in days])

    def difference(
        self,
        policy: str,
        reference: str | None = None,
        measure: str = "generalized_s",
        variant: str | None = None,
    ) -> Difference:
        """What a policy changes on the same days, by default against the first policy."""
        there = self.column(reference or self.policies[0], measure, variant)
        return difference(self.cells, self.column(policy, measure, variant), there)

    @property
    def title(self) -> str:
        return f"{self.city}, {self.world} world: means of {len(self.cells)} days"

    def table(self, reference: str | None = None) -> TextTable:
        """Means of every policy, and the difference of its time from the reference's."""
        base = reference or self.policies[0]
        several = len(self.variants) > 1
        forms = {m.name: m for m in MEASURES}
        headings = [f"difference from {Path(base).name} ({CONFIDENCE:.0%} interval)"]
        headings += [forms[name].heading for name in SHOWN[1:]]
        rows = [["variant"] * several + ["policy", forms[SHOWN[0]].heading, *headings]]
        for variant, policy in self.days:
            means = [
                number(
                    forms[name].scale * float(self.column(policy, name, variant).mean()),
                    forms[name].form,
                )
                for name in SHOWN
            ]
            change = self.difference(policy, base, variant=variant)
            shown = "" if policy == base else signed(change, ",.1f")
            rows.append([variant] * several + [Path(policy).name, means[0], shown, *means[1:]])
        return TextTable(self.title, rows, self.notes, 1 + several)

    def plot(self, reference: str | None = None, measures: Sequence[str] = DRAWN) -> Picture:
        """Draw the differences from the reference, with intervals."""
        base, several = reference or self.policies[0], len(self.variants) > 1
        shown = [key for key in self.days if key.policy != base] or list(self.days)
        policies = list(dict.fromkeys(Path(key.policy).name for key in shown))
        names = [
            ", ".join([key.variant] * several + [Path(key.policy).name] * (len(policies) > 1))
            or policies[0]
            for key in shown
        ]
        panels = [m for m in MEASURES if m.name in measures]
        if not panels:
            raise InputError(f"no measure to draw; choose {choice(m.name for m in MEASURES)}")
        changes = [
            [self.difference(key.policy, base, m.name, key.variant) for key in shown]
            for m in panels
        ]
        picture = Figure(
            figsize=(0.7 + 3.45 * len(panels), 1.6 + 0.3 * len(shown)),
            layout="constrained",
            facecolor=LIGHT.paper,
        )
        axes = picture.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, m, panel in zip(axes, panels, changes, strict=True):
            draw_differences(axis, panel, m.scale)
            axis.set_title(m.heading, fontsize=10, color=LIGHT.ink)
        label_rows(axes[0], names)
        whose = f" of {policies[0]}" if several and len(policies) == 1 else ""
        picture.supxlabel(
            f"difference{whose} from {Path(base).name}, {CONFIDENCE:.0%} interval over blocks "
            f"({self.city}, {self.world}, {len(self.cells)} days)",
            fontsize=10,
        )
        return Picture(picture, f"differences-{self.city}")

    def to_arrow(self) -> pa.Table:
        """All days as a table of pyarrow."""
        rows: list[dict[str, Any]] = [
            {
                **key._asdict(),
                **asdict(cell),
                "demand": cell.demand * self.levels[key.variant],
                **day,
            }
            for key, days in self.days.items()
            for cell, day in zip(self.cells, days, strict=True)
        ]
        return pa.Table.from_pylist(rows)

    def to_pandas(self) -> Any:
        """All days as a data frame of pandas, which is not installed with Evenline."""
        try:
            import_module("pandas")
        except ImportError:
            raise InputError(
                "pandas is not installed; install it with: pip install pandas, or use to_arrow()"
            ) from None
        return self.to_arrow().to_pandas()

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


# -- differences as a drawing ---------------------------------------------------------------------


def draw_differences(axis: Axes, changes: Sequence[Difference], scale: float = 1.0) -> None:
    """Draw differences as points with their intervals, in rows from above."""
    rows = np.arange(len(changes))
    low, high = scale * np.array([change.ends for change in changes]).T
    axis.axvline(0.0, color=LIGHT.muted, linewidth=1.0)
    axis.hlines(rows, low, high, color=LIGHT.policies[0], linewidth=2.0)
    axis.plot(
        [scale * change.mean for change in changes], rows, "o", color=LIGHT.policies[0],
        markersize=5,
    )  # fmt: skip
    axis.grid(axis="x", color=LIGHT.faint, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(length=0, labelsize=9)


def label_rows(axis: Axes, names: Sequence[str]) -> None:
    """Name the rows of differences, the first above."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
