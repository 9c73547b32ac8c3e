"""Evenline simulates, trains and tests bus holding policies that keep buses evenly spaced.

    import evenline as el

    open_city          a city by name or folder            network_map   its map
    run_day            a day of it under a policy          time_space    the day's buses as lines
    compare_policies   policies on the same days           policy_names  the built-in ones
    Experiment         policies x variants x days          variants      of a city's operations
    run                an experiment, to a frame of days   days          of an experiment
    rule, tune         a rule of yours, and its constants  train         networks that hold buses
    register           a trial of a claim about a policy   open_trial, verify  one that is there
    import_gtfs, import_sumo, import_own   cities          read_records  days of real buses
    make_env           a Gymnasium environment             run_study     all steps to a verdict

`Cell` names a day, `Outcome` is its result, `InputError` says in one line what is wrong. Each name
is loaded on first use, so importing the package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenline.city.demand import Cell
    from evenline.control.outcome import Outcome
    from evenline.experiments.experiment import Experiment
    from evenline.interface.cities import import_gtfs, import_own, import_sumo, read_records
    from evenline.interface.days import (
        compare_policies,
        days,
        make_env,
        network_map,
        open_city,
        run,
        run_day,
        run_study,
        time_space,
        variants,
    )
    from evenline.interface.policies import policy_names, train, tune
    from evenline.interface.trials import open_trial, register, verify
    from evenline.rules.own import rule
    from evenline.support.errors import InputError

__version__ = "0.1.0"
__all__ = [
    "Cell",
    "Experiment",
    "InputError",
    "Outcome",
    "compare_policies",
    "days",
    "import_gtfs",
    "import_own",
    "import_sumo",
    "make_env",
    "network_map",
    "open_city",
    "open_trial",
    "policy_names",
    "read_records",
    "register",
    "rule",
    "run",
    "run_day",
    "run_study",
    "time_space",
    "train",
    "tune",
    "variants",
    "verify",
]
_HOMES = {
    "Cell": "evenline.city.demand",
    "Experiment": "evenline.experiments.experiment",
    "InputError": "evenline.support.errors",
    "Outcome": "evenline.control.outcome",
    "compare_policies": "evenline.interface.days",
    "days": "evenline.interface.days",
    "import_gtfs": "evenline.interface.cities",
    "import_own": "evenline.interface.cities",
    "import_sumo": "evenline.interface.cities",
    "make_env": "evenline.interface.days",
    "network_map": "evenline.interface.days",
    "open_city": "evenline.interface.days",
    "open_trial": "evenline.interface.trials",
    "policy_names": "evenline.interface.policies",
    "read_records": "evenline.interface.cities",
    "register": "evenline.interface.trials",
    "rule": "evenline.rules.own",
    "run": "evenline.interface.days",
    "run_day": "evenline.interface.days",
    "run_study": "evenline.interface.days",
    "time_space": "evenline.interface.days",
    "train": "evenline.interface.policies",
    "tune": "evenline.interface.policies",
    "variants": "evenline.interface.days",
    "verify": "evenline.interface.trials",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'evenline' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
