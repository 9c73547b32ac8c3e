"""Evenline simulates, trains and tests bus holding policies that keep buses evenly spaced.

    import evenline as el

    open_city          a city by name or folder            network_map   its map
    run_day            a day of it under a policy          time_space    the day's buses as lines
    compare_policies   policies on the same days           controllers   the built-in policies
    make_env           a Gymnasium environment             run_study     all steps to a verdict
    rule               makes a rule of your function

`Cell` names a day, `Outcome` is its result, `InputError` says in one line what is wrong. Each name
is loaded on first use, so importing the package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenline.city.demand import Cell
    from evenline.control.outcome import Outcome
    from evenline.front import (
        compare_policies,
        controllers,
        make_env,
        network_map,
        open_city,
        run_day,
        run_study,
        time_space,
    )
    from evenline.rules.own import rule
    from evenline.support.errors import InputError

__version__ = "0.1.0"
__all__ = [
    "Cell",
    "InputError",
    "Outcome",
    "compare_policies",
    "controllers",
    "make_env",
    "network_map",
    "open_city",
    "rule",
    "run_day",
    "run_study",
    "time_space",
]
_HOMES = {
    "Cell": "evenline.city.demand",
    "InputError": "evenline.support.errors",
    "Outcome": "evenline.control.outcome",
    "rule": "evenline.rules.own",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'evenline' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "evenline.front")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
