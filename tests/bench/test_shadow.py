"""The load of a shadow: many buses, served by another process."""

import numpy as np

from bench.shadow import Feed, _served
from evenline.city.model import City
from evenline.live.courses import courses_of
from evenline.live.feed import read_message
from evenline.live.poll import Poller


def test_every_copy_of_a_bus_reports(town: City) -> None:
    at, along = np.array([100.0, 200.0]), np.array([0.0, 900.0])
    feed = Feed(town, courses_of(town, None), {3: (at, along)}, copies=2)
    for second, buses in ((99.0, 0), (150.0, 2), (201.0, 0)):
        message, count = feed.message(second)
        names = {position.trip for position in read_message(message).positions}
        assert len(names) == count == buses


def test_another_process_serves_the_messages_in_order(town: City) -> None:
    at, along = np.array([100.0, 200.0]), np.array([0.0, 900.0])
    feed = Feed(town, courses_of(town, None), {3: (at, along)}, copies=2)
    with _served(feed, 150.0, 15.0) as url:
        poller = Poller(url)
        for number in range(3):
            assert poller.poll() == feed.message(150.0 + 15.0 * number)[0]
