"""Raw events for the tests of rules: as Hypothesis draws them, and many at once."""

import numpy as np
from hypothesis import strategies as st

from evenline.control.event import RAW_FEATURES, Batch

Event = dict[str, float]
seconds = st.integers(0, 4_000)
flags = st.integers(0, 1)
events = st.fixed_dictionaries(
    {
        "service": st.integers(0, 11),
        "stop": st.integers(0, 47),
        "time_s": st.integers(0, 23_999),
        "headway_ahead_s": seconds,
        "headway_behind_s": seconds,
        "target_ahead_s": seconds,
        "target_behind_s": seconds,
        "waiting": st.integers(0, 200),
        "on_board": st.integers(0, 50),
        "arrival_rate_per_s": st.one_of(st.just(0.0), st.floats(1e-4, 0.2)),
        "base_dwell_s": st.integers(12, 400),
        "bus_ahead": flags,
        "bus_behind": flags,
        "capacity": st.just(50),
        "system_waiting": st.integers(0, 5_000),
        "system_on_board": st.integers(0, 5_000),
    }
)


def batch_of(*rows: Event) -> Batch:
    raw = np.array([[row[name] for name in RAW_FEATURES] for row in rows], float)
    return Batch(int(rows[0]["time_s"]), np.arange(len(rows), dtype=np.int32), raw)


def many_events(count: int, seed: int = 0) -> Batch:
    """Different moments of different buses, as a long day has them."""
    rng = np.random.default_rng(seed)
    raw = np.zeros((count, 16))
    keys = rng.choice(12 * 48 * 24_000, count, replace=False)
    raw[:, RAW_FEATURES.index("service")] = keys // (48 * 24_000)
    raw[:, RAW_FEATURES.index("stop")] = keys // 24_000 % 48
    raw[:, RAW_FEATURES.index("time_s")] = keys % 24_000
    return Batch(0, np.zeros(count, np.int32), raw)
