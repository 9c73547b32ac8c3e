"""The embedded cities as plans: `city`, the size of the paper's network, and `town`.

The twelve services of `city` carry the names, trip counts, first and last departures and stop
counts of the network the paper studies; streets, signals and cars are made here. Its people follow
the one real table of that network, of service 7X; `docs/cities.md` says what is fact and what is
choice. `city-two-peaks` is the same city with the demand that it had before.
"""

from dataclasses import replace
from functools import cache

from evenline.city.build import CityPlan, Corner, ServicePlan, build
from evenline.city.demand import DemandPlan, Hourly, Peaks
from evenline.city.model import City
from evenline.support.errors import InputError, choice


def _back(corners: tuple[Corner, ...]) -> tuple[Corner, ...]:
    return corners[::-1]


# Turning points, in blocks. Route 7 is the trunk; 102 runs along it and out to the north-east; 705
# crosses it from the south; 122, 311 and 406 meet in the west. Where the two directions of a route
# share a terminal, one of them goes round the terminal's block.
_7X = ((0, 6), (0, 5), (1, 5), (1, 6), (13, 6), (13, 8), (17, 8))
_7S = ((17, 8), (13, 8), (13, 6), (0, 6), (0, 5))
_102X = ((1, 12), (1, 6), (13, 6), (13, 8), (15, 8), (15, 14), (21, 14), (21, 15))
_102S = (
    (21, 14), (21, 15), (20, 15), (20, 14), (15, 14), (15, 12), (16, 12), (16, 10), (15, 10),
    (15, 8), (13, 8), (13, 6), (1, 6), (1, 12),
)  # fmt: skip
_122X = ((3, 0), (4, 0), (4, 4), (-1, 4), (-1, 8), (1, 8), (1, 10), (6, 10), (6, 13))
_311X = ((-7, -3), (-1, -3), (-1, 8), (1, 8), (1, 10), (-3, 10), (-3, 16), (3, 16))
_406X = ((11, 14), (2, 14), (2, 10), (1, 10), (1, 8), (-10, 8), (-10, 9))
_406S = ((-10, 8), (-10, 9), (-9, 9), (-9, 8), (1, 8), (1, 10), (2, 10), (2, 14), (11, 14))
_705X = ((2, 0), (6, 0), (6, 6), (18, 6), (18, 0), (24, 0))

# People of service 7X who set out in hours 1 to 5 of the day, and who board at stops 1 to 24 of 25:
# public files of the paper's first author (github.com/erzhu419, offline-sumo and sumo-rl).
HOURS_7X = (13, 105, 197, 246, 254)
UNTIL_S = 19_200  # our choice: the rate of the last hour goes on
BOARDING_7X = (
    34, 30, 35, 31, 64, 60, 62, 60, 31, 57, 20, 47, 44, 44, 35, 33, 35, 20, 24, 17, 14, 9, 7, 2,
)  # fmt: skip

_TWO_PEAKS = Peaks(
    floor=0.55,
    peaks=((5_400, 1_900, 1.1), (17_200, 1_400, 1.0)),
    tail_s=1_800,
    tail_intensity=0.15,
    speed_mps=5.6,
)

CITY = CityPlan(
    name="city",
    seed=12,
    horizon_s=24_000,
    block_m=640.0,
    services=(
        ServicePlan("7X", "7", _7X, 25, 50, 0, 17_940),
        ServicePlan("7S", "7", _7S, 26, 52, 0, 17_940, even=True),
        ServicePlan("102X", "102", _102X, 38, 31, 2_160, 17_580, express=((15, 14), (20, 14))),
        ServicePlan(
            "102S", "102", _102S, 40, 35, 2_160, 17_580, even=True, express=((20, 14), (15, 14))
        ),
        ServicePlan("122X", "122", _122X, 36, 32, 1_680, 17_880),
        ServicePlan("122S", "122", _back(_122X), 35, 33, 1_200, 17_940),
        ServicePlan("311X", "311", _311X, 43, 26, 1_800, 17_640, express=((-1, -3), (-1, 0))),
        ServicePlan(
            "311S", "311", _back(_311X), 42, 28, 1_800, 17_940, express=((-1, 0), (-1, -3))
        ),
        ServicePlan("406X", "406", _406X, 40, 28, 2_220, 17_760),
        ServicePlan("406S", "406", _406S, 39, 28, 1_800, 17_460),
        ServicePlan("705X", "705", _705X, 48, 21, 2_760, 17_880),
        ServicePlan("705S", "705", _back(_705X), 47, 25, 1_860, 17_040),
    ),
    unsignalled=frozenset(
        {(0, 5), (1, 5), (9, 6), (16, 14), (17, 14), (18, 14), (19, 14), (20, 15), (21, 15)}
        | {(15, 11), (-10, 9)}
    ),
    bus_lanes=(
        ((1, 6), (9, 6)),
        ((1, 12), (1, 10)),
        ((-1, 4), (-1, 8), (1, 8)),
        ((6, 0), (6, 3)),
    ),
    cars_per_hour=(1000, 2400, 2000, 1400, 1800, 1500, 600),
    car_routes=400,
    busy=_TWO_PEAKS,
    demand=DemandPlan(
        passengers=17_200,
        transfer_share=0.058,  # 868 of 15,079 journeys
        profile=Hourly(HOURS_7X, UNTIL_S, BOARDING_7X),
        ride_share=0.5,
    ),
)

CITY_TWO_PEAKS = replace(
    CITY,
    name="city-two-peaks",
    demand=DemandPlan(
        passengers=17_200,
        transfer_share=0.06,
        profile=_TWO_PEAKS,
        ride_share=0.5,
        weights=(("705X", 1.7), ("311X", 1.6), ("122S", 1.4), ("406X", 1.4), ("102S", 1.1)),
    ),
)

_TOWN_PEAKS = Peaks(
    floor=0.6,
    peaks=((2_000, 800, 1.3), (4_600, 600, 1.0)),
    tail_s=700,
    tail_intensity=0.25,
    speed_mps=6.0,
)

TOWN = CityPlan(
    name="town",
    seed=4,
    horizon_s=7_200,
    block_m=550.0,
    services=(
        ServicePlan("1E", "1", ((0, 1), (7, 1), (7, 3)), 13, 17, 0, 4_800),
        ServicePlan("1W", "1", ((7, 3), (7, 1), (0, 1)), 13, 17, 0, 4_800, even=True),
        ServicePlan("2N", "2", ((2, 0), (2, 1), (5, 1), (5, 5)), 12, 13, 300, 4_800),
        ServicePlan("2S", "2", ((5, 5), (5, 1), (2, 1), (2, 0)), 12, 13, 300, 4_800),
    ),
    unsignalled=frozenset({(1, 1)}),
    bus_lanes=(((2, 1), (5, 1)),),
    cars_per_hour=(700, 500),
    busy=_TOWN_PEAKS,
    demand=DemandPlan(
        passengers=2_700,
        transfer_share=0.06,
        profile=_TOWN_PEAKS,
        ride_share=0.5,
        weights=(("2N", 1.3), ("1E", 1.2)),
    ),
    car_routes=60,
)

PLANS = {plan.name: plan for plan in (CITY, CITY_TWO_PEAKS, TOWN)}

# Named ways in which people may use an embedded city, for a day as long as that of `city`.
PROFILES = {
    "rising": CITY.demand,
    "flat": replace(CITY.demand, profile=Hourly((1,), UNTIL_S, BOARDING_7X)),
    "two-peaks": CITY_TWO_PEAKS.demand,
}


@cache
def embedded_city(name: str) -> City:
    """An embedded city by name, built once per process."""
    return build(_plan(name))


def _plan(name: str) -> CityPlan:
    if name not in PLANS:
        raise InputError(f"unknown embedded city {name!r}; choose {choice(PLANS)}")
    return PLANS[name]


def same_streets(name: str) -> str:
    """The first embedded city that differs from this one in its people only, or this one.

    Its calibration is valid for both.
    """
    plan = PLANS[name]
    alike = (p for p in PLANS.values() if replace(p, name=name, demand=plan.demand) == plan)
    return next(alike).name


def with_profile(name: str, profile: str = "rising", until_s: int | None = None) -> City:
    """An embedded city with a named demand profile; streets, timetable and cars stay.

    `until_s` moves the end of demand in a profile by the hour.
    """
    if profile not in PROFILES:
        raise InputError(f"unknown demand profile {profile!r}; choose {choice(PROFILES)}")
    demand, label = PROFILES[profile], profile
    if until_s is not None:
        if not isinstance(demand.profile, Hourly):
            hourly = [n for n, plan in PROFILES.items() if isinstance(plan.profile, Hourly)]
            raise InputError(
                f"profile {profile!r} ends with the last buses; choose {choice(hourly)} to set "
                "the end of demand"
            )
        demand = replace(demand, profile=replace(demand.profile, until_s=until_s))
        label = f"{profile}-{until_s}"
    return _with_demand(name, label, demand)


def with_hours(name: str, factors: tuple[float, ...], until_s: int | None = None) -> City:
    """An embedded city with people in proportion to `factors` by hour of the day.

    The last factor goes on until `until_s`, by default the end of its hour.
    """
    end_s = 3600 * len(factors) if until_s is None else until_s
    if 3600 * (len(factors) - 1) >= end_s:
        raise InputError(f"demand by hour: {len(factors)} hours do not fit before {end_s:,} s")
    profile = Hourly(factors, end_s, BOARDING_7X)
    return _with_demand(name, "hours", replace(CITY.demand, profile=profile))


def _with_demand(name: str, label: str, demand: DemandPlan) -> City:
    plan = _plan(name)
    if demand.profile.last_s > plan.horizon_s:
        raise InputError(
            f"demand at {demand.profile.last_s:,} s: the day of {name} ends at "
            f"{plan.horizon_s:,} s; choose an earlier end with --until-s"
        )
    demand = replace(demand, passengers=plan.demand.passengers)
    return build(replace(plan, name=f"{name}-{label}", demand=demand))
