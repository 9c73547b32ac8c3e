"""Evenline: learn, deploy and prove bus holding policies that keep buses evenly spaced.

    import evenline as el

    open_city          a city by name or folder            network_map   its map
    run_day            a day of it under a policy          time_space    the day's buses as lines
    compare_policies   policies on the same days           controllers   the built-in policies
    make_env           a Gymnasium environment             run_study     the whole way to a verdict

`Cell` names a day, `Outcome` is what it came to, `InputError` says in one line what is wrong.
Each is loaded when it is first asked for, so that importing the package stays quick.
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
    "run_day",
    "run_study",
    "time_space",
]
_HOMES = {
    "Cell": "evenline.city.demand",
    "InputError": "evenline.support.errors",
    "Outcome": "evenline.control.outcome",
}


def __getattr__(name: str) -> Any:
    """Load a name of the front door from its home."""
    if name not in __all__:
        raise AttributeError(f"module 'evenline' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "evenline.front")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
