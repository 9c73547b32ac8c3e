"""The map of a page: the chosen service follows its streets from its first stop to its last."""

from dataclasses import replace
from itertools import pairwise
from math import dist

import pytest

from evenline.city.tables import open_city
from evenline.report.data import city_data
from small_cities import streets


def test_a_chosen_service_is_drawn_as_long_as_it_is() -> None:
    town = open_city("town")
    for service, drawn in zip(town.services, city_data(town)["services"], strict=True):
        length_m = sum(dist(start, end) for start, end in pairwise(drawn["path"]))
        assert length_m == pytest.approx(service.distance_m[-1] - service.distance_m[0], rel=0.01)
        for end in (0, -1):
            stop = town.stops[service.stops[end]]
            assert drawn["path"][end] == [stop.x_m, stop.y_m]


def test_a_chosen_service_follows_bends_between_its_stops_and_no_others() -> None:
    city = streets(services=1, trips=2, headway_s=300, horizon_s=900)
    (service,) = city.services
    ends = {node.id: (node.x_m, node.y_m) for node in city.nodes}

    def bent(road: str, share: float) -> tuple[float, float]:
        way = next(each for each in city.roads if each.id == road)
        (x0, y0), (x1, y1) = ends[way.from_node], ends[way.to_node]
        return round(x0 + share * (x1 - x0), 1), round(y0 + share * (y1 - y0) + 5.0, 1)

    first, last = service.roads[0], service.roads[-1]
    assert 0.05 < city.stops[service.stops[0]].pos_m / city.roads[0].length_m < 0.5
    bends = {road: (bent(road, 0.02), bent(road, 0.5), bent(road, 0.98)) for road in (first, last)}
    roads = tuple(replace(road, shape=bends.get(road.id, ())) for road in city.roads)
    (drawn,) = city_data(replace(city, roads=roads))["services"]
    passed = [tuple(point) for point in drawn["path"][1:-1]]
    assert [point for point in passed if point in bends[first]] == list(bends[first][1:])
    assert [point for point in passed if point in bends[last]] == list(bends[last][:2])
