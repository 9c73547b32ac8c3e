"""Waiting today comes from headways, and a break in service is none."""

import numpy as np
import pytest

from evenline.records.patterns import Driven
from evenline.records.today import waiting_today
from recorded_truth import true_city


def test_nobody_waits_through_a_break_in_service() -> None:
    """A bus every ten minutes for two hours, then none for four hours, then two hours again."""
    times = np.concatenate([np.arange(13) * 600.0, 21_600 + np.arange(13) * 600.0])
    count, none = len(times), np.full(len(times), np.nan)
    zeros = np.zeros(count, np.int32)
    trips = np.arange(count, dtype=np.int32)
    driven = Driven(zeros, trips, zeros, zeros, times, none, none, none, none, none)
    (found,) = waiting_today(true_city(), "2026-03-02", driven)
    assert found.headways == 24 and found.wait_s == pytest.approx(300)
    assert found.excess_s == pytest.approx(0)
