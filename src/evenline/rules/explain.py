"""Why each bus was held: explanations of a day's decisions, next to its stop visits.

A `Witness` wraps a policy and records every event and proposal. The columns added to the stop-visit
table and the count of activations follow from these records.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from evenline.city.model import City
from evenline.control.event import STOP, Array, Batch
from evenline.control.visits import Visit, visit_table
from evenline.rules.chain import ELEMENTS, explain, seconds_column
from evenline.rules.policy import ChainedPolicy

HOUR_S = 3600


class Witness:
    """A policy that records its events and proposals."""

    def __init__(self, policy: ChainedPolicy) -> None:
        self.policy = policy
        self._trips: list[int] = []
        self._raw: list[Array] = []
        self._proposals: list[Array] = []

    def __call__(self, batch: Batch) -> Sequence[float]:
        decision = self.policy.decide(batch)
        self._trips += batch.trips.tolist()
        self._raw.append(batch.raw)
        self._proposals.append(decision.proposals_s)
        return [float(hold) for hold in decision.holds_s]

    def table(self, city: City, visits: Iterable[Visit]) -> pa.Table:
        """The stop visits with the explanation of each decision; null for visits without a
        decision.
        """
        rows = sorted(visits)
        table = visit_table(city, rows)
        raw = np.concatenate(self._raw) if self._raw else np.zeros((0, 16))
        proposals = np.concatenate(self._proposals) if self._proposals else np.zeros(0)
        account = explain(self.policy.chain, raw, proposals, self.policy.horizon_s)
        stops = raw[:, STOP].astype(int).tolist()
        number = {key: i for i, key in enumerate(zip(self._trips, stops, strict=True))}
        where = [number.get((row.trip, row.position)) for row in rows]
        for name, column in account.items():
            values = column.tolist()
            cells = pa.array([None if i is None else values[i] for i in where])
            if name == "changed_by":
                cells = cells.cast(pa.string()).dictionary_encode()
            table = table.append_column(name, cells)
        return table


def changes(visits: pa.Table) -> Counter[tuple[str, str, int]]:
    """How often each element of the chain changed a hold, by element, service and hour."""
    service, arrival_s = (visits.column(name).to_pylist() for name in ("service", "arrival_s"))
    return Counter(
        (element, service[i], arrival_s[i] // HOUR_S)
        for element in ELEMENTS.values()
        for i, seconds in enumerate(visits.column(seconds_column(element)).to_pylist())
        if seconds  # neither 0 nor null
    )


def activations(visits: pa.Table) -> dict[str, dict[str, dict[str, int]]]:
    """The changes of a day as stored in a file: by element, service and hour of the day."""
    by_element: dict[str, dict[str, dict[str, int]]] = {}
    for (element, service, hour), times in sorted(changes(visits).items()):
        by_element.setdefault(element, {}).setdefault(service, {})[f"hour {hour + 1}"] = times
    return by_element
