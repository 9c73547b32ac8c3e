"""Where in a replay the guard of the completion reserve holds, and in the other reading of it."""

import numpy as np

from evenline.city.demand import RATE_BIN_S
from evenline.replay.store import Store
from evenline.rules.chain import LOW_LOAD, RESERVE_FROM, RESERVE_UNTIL

FIRST_PART = 0.25  # of a line's stops


def guard_shares(store: Store) -> tuple[float, float, float]:
    """The share of decisions in the guard; how many of these are in the first quarter of the line;
    and the share if only the last trip of a service has no bus behind.
    """
    columns, known, city = store.columns, store.known, store.city
    service = known.service[columns.trip]
    half_hour = np.minimum(columns.time_s // RATE_BIN_S, known.rates.shape[2] - 1)
    rate = known.rates[columns.level, known.first_stop[service] + columns.stop, half_hour]
    part_of_day = columns.time_s / city.horizon_s
    either = (part_of_day >= RESERVE_FROM) & (part_of_day < RESERVE_UNTIL) & (rate > 0)
    either &= columns.headway_ahead_s >= 0
    either &= columns.on_board / known.capacity[columns.trip] <= LOW_LOAD
    guard = either & (columns.headway_behind_s < 0)
    stops = np.array([len(each.stops) for each in city.services])
    early = columns.stop < FIRST_PART * stops[service]
    last = either & (known.target_behind[columns.trip] == 0)
    return float(guard.mean()), float(early[guard].mean()), float(last.mean())


def guard_line(store: Store, papers: float) -> str:
    """Why our share of guard rows is not the paper's, in words."""
    share, early, last = guard_shares(store)
    return (
        f"The guard holds in {share:.1%} of our decisions and in {papers:.1%} of the paper's."
        f" {early:.1%} of ours are in the first quarter of a line, where the next bus has not"
        " started yet: we read that as no bus behind. If only the last trip of a service had none,"
        f" the share would be {last:.1%}."
    )
