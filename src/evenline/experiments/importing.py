"""Import a city by what lies outside our code: a SUMO scenario, or a function of the user's own.

SUMO runs a stranger's scenario in a worker with limits, where it may crash or hang. What a user's
function returns must pass `check_city`.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from evenline.checks.city import check_city
from evenline.city.model import City
from evenline.importing.imported import Imported
from evenline.importing.writing import read_again
from evenline.runs.executors import Worker
from evenline.runs.job import Failure, Limits, Reading
from evenline.runs.worker import Said
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder
from evenline.support.own import load_own
from evenline.worlds.open import OpenCity

SCENARIO = Limits(tries=1)  # of reading one, which SUMO runs for a day


def import_sumo(
    config: Path,
    name: str,
    end_s: int | None = None,
    progress: Callable[[Said], None] = lambda said: None,
) -> Imported:
    """The city of a stranger's SUMO scenario, read and run in a worker with limits."""
    with ScratchFolder() as scratch:
        folder = Path(scratch) / "city"
        worker = Worker(None, Path(), SCENARIO.memory_gib)
        try:
            wanted = Reading(config=config, name=name, out=folder, end_s=end_s)
            said = worker.ask(wanted, SCENARIO, progress, threading.Event())
        finally:
            worker.end()
        if isinstance(said, Failure):
            raise InputError(_unread(config, said))
        return Imported(read_again(folder), said.told or ())


def _unread(config: Path, failure: Failure) -> str:
    """Why a scenario could not be read, in one line."""
    if failure.kind == "input":
        return failure.message
    limits = f"limits: {SCENARIO.time_s:,} s and {SCENARIO.memory_gib:g} GiB"
    why = {
        "died": f"SUMO crashes on it ({failure.message})",
        "memory": f"SUMO needs too much memory for it ({limits})",
        "time": f"SUMO does not end with it ({failure.message}; {limits})",
        "silent": f"SUMO does not get on with it ({failure.message})",
    }
    return f"{config}: {why.get(failure.kind, failure.message)}"


def import_own(function: str, source: str, name: str = "") -> Imported:
    """The city that a function of the user's own makes of a source; it must pass `check_city`."""
    make = load_own(function).thing
    if not callable(make):
        raise InputError(f"{function}: is not a function of the source to import")
    try:
        city = make(source)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{function}: fails on {source} ({said})") from error
    if not isinstance(city, City):
        raise InputError(f"{function}: must return a City, and it returns {type(city).__name__}")
    city = replace(city, name=name) if name else city
    try:
        check_city(OpenCity(source, city))
    except AssertionError as error:
        raise InputError(f"{function}: the city it returns is not in order: {error}") from None
    return Imported(city)
