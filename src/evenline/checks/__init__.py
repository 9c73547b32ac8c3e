"""Checks for your own worlds, policies, learners and cities, each in one call.

    from evenline.checks import check_city, check_learner, check_policy, check_world

Each check runs real days and raises an `AssertionError` that names the first broken promise.
"""

from evenline.checks.city import check_city
from evenline.checks.learner import check_learner
from evenline.checks.policy import check_policy
from evenline.checks.world import check_world

__all__ = ["check_city", "check_learner", "check_policy", "check_world"]
