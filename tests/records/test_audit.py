"""The verdict of an audit names every registered measure, also those that could not be judged."""

from dataclasses import replace

import numpy as np

from evenline.records.audit import Judged, verdict
from evenline.support.files import to_json

HEADWAY = Judged("headway", "s", 500.0, 510.0, 40.0, 30.0, 50.0, 39.0, 1.2)
NAN = float("nan")


def test_a_measure_that_is_not_recorded_is_named() -> None:
    dwell = replace(HEADWAY, measure="dwell", recorded=NAN, model_gap=NAN, real_gap=NAN)
    said = verdict([HEADWAY, dwell], ["2012-10-03"])
    assert "1 of 1 measures" in said and "not recorded: dwell" in said
    row = dwell.as_dict()
    assert row["passed"] is None and row["real_gap"] is None and "null" in to_json(row)


def test_a_measure_that_the_model_lacks_fails() -> None:
    dwell = replace(HEADWAY, measure="dwell", simulated=NAN, model_gap=NAN)
    assert not dwell.passed and np.isinf(dwell.ratio)
    assert "1 of 2 measures" in verdict([HEADWAY, dwell], ["2012-10-03"])
