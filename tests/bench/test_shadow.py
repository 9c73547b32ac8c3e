"""The load of a shadow: a timetable that comes again is the same day, later."""

import numpy as np

from evenline.bench.shadow import ROUND_S, Feed, _served, repeated
from evenline.city.model import City
from evenline.live.feed import read_message
from evenline.live.lines import lines_of
from evenline.live.poll import Poller


def test_a_repeated_day_has_every_trip_and_everybody_again(town: City) -> None:
    twice = repeated(town, 2)
    assert twice.horizon_s == town.horizon_s + ROUND_S
    half = len(town.trips)
    for first, again in zip(twice.trips[:half], twice.trips[half:], strict=True):
        assert (again.service, again.departure_s) == (first.service, first.departure_s + ROUND_S)
    journeys, people = town.journeys, len(town.journeys)
    later = twice.journeys.departure_s[people:] - ROUND_S
    np.testing.assert_array_equal(later, journeys.departure_s)
    np.testing.assert_array_equal(
        twice.journeys.leg_board, np.tile(journeys.leg_board, 2).astype(np.int32)
    )


def test_every_copy_of_a_bus_reports_in_every_round(town: City) -> None:
    at, along = np.array([100.0, 200.0]), np.array([0.0, 900.0])
    feed = Feed(town, lines_of(town, None), {3: (at, along)}, copies=2, rounds=2)
    for second, buses in ((99.0, 0), (150.0, 2), (201.0, 0), (ROUND_S + 150.0, 2)):
        message, count = feed.message(second)
        names = {position.trip for position in read_message(message).positions}
        assert len(names) == count == buses


def test_another_process_serves_the_messages_in_order(town: City) -> None:
    at, along = np.array([100.0, 200.0]), np.array([0.0, 900.0])
    feed = Feed(town, lines_of(town, None), {3: (at, along)}, copies=2, rounds=1)
    with _served(feed, 150.0, 15.0) as url:
        poller = Poller(url)
        for number in range(3):
            assert poller.poll() == feed.message(150.0 + 15.0 * number)[0]
