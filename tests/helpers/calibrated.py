"""The calibrations that come with the embedded cities, for tests that begin with a city."""

from functools import lru_cache

from evenline.city.model import City
from evenline.policies.bundle import open_policy
from evenline.rules.policy import ChainedPolicy
from evenline.worlds.calibration import Calibration, load_calibration
from evenline.worlds.open import EMBEDDED


@lru_cache(maxsize=4)
def calibration_of(city: City) -> Calibration:
    return load_calibration(EMBEDDED / f"{city.name}.json", city)


def policy_in(source: str, city: City) -> ChainedPolicy:
    """A policy opened with the calibration of its city."""
    return open_policy(source, city, calibration_of(city))
