"""The timetable that schedule-based rules hold to."""

import numpy as np
import pytest

from calibrated import calibration_of, policy_in
from evenline.city.cells import PURPOSES
from evenline.city.demand import service_stop_offsets
from evenline.policies.timetable import usual_times
from evenline.rules.policy import BEHAVIOURS, due_times
from evenline.worlds.fast.world import FastWorld
from small_actors import town


def test_a_trip_is_due_later_at_every_further_stop() -> None:
    first, times = service_stop_offsets(town()), usual_times(town(), calibration_of(town()))
    for service in range(len(town().services)):
        assert (np.diff(times[first[service] : first[service + 1]]) > 0).all()


def test_days_without_holding_are_on_time_on_average() -> None:
    """On days that the timetable was not made from."""
    world, due = (
        FastWorld(town(), calibration_of(town())),
        due_times(town(), usual_times(town(), calibration_of(town()))),
    )
    late = []
    for cell in PURPOSES["demo"].cells(10):
        world.run_day(cell, BEHAVIOURS["zero"])
        arrived = world.arrivals_s
        late.append(np.mean((arrived - due)[arrived >= 0]))
    assert np.mean(late) == pytest.approx(0.0, abs=15.0)


def test_every_visit_of_every_trip_has_its_time() -> None:
    policy, times = policy_in("schedule", town()), usual_times(town(), calibration_of(town()))
    first, visit = service_stop_offsets(town()), 0
    for trip in town().trips:
        stops = len(town().services[trip.service].stops)
        due = policy.due_s[visit : visit + stops]  # type: ignore[attr-defined]
        assert due.tolist() == (trip.departure_s + times[first[trip.service] :][:stops]).tolist()
        visit += stops
    assert visit == len(policy.due_s)  # type: ignore[attr-defined]
