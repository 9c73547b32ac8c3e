"""One job of a trial, alone in a process: a JSON order in, one JSON answer out.

The process measures what it depends on itself (city, policy files, SUMO, our source), so that a
machine with other files cannot pass for the registered one. It ends when whoever ordered it ends.
Run as `python -m evenline.runs.trial_job`; `evenline.runs.executors` talks to it.
"""

import json
import os
import platform
import resource
import sys
import threading
from pathlib import Path
from typing import Any

from evenline.city.demand import Cell
from evenline.city.tables import digest, open_city
from evenline.control.outcome import Outcome
from evenline.control.world import run_episode
from evenline.policies.bundle import open_policy, policy_digest
from evenline.runs.source import EVALUATOR, folder_files, source_digest, source_files
from evenline.support.errors import InputError
from evenline.worlds.sumo.runtime import runtime_version
from evenline.worlds.sumo.scenario import sumo_options
from evenline.worlds.sumo.world import SumoWorld


def evaluate(order: dict[str, Any]) -> dict[str, Any]:
    """Run the episode; paths in the order are relative to the present folder."""
    city, cell = open_city(order["city"]), Cell(**order["cell"])
    policy = open_policy(order["policy"], city)
    with SumoWorld(city) as world:
        outcome = run_episode(world, cell, policy)
    return {
        "city": digest(city),
        "policy": described_policy(order["policy"]),
        "sumo": {
            "version": runtime_version(),
            "options": sumo_options(city, cell, Path("city.net.xml"), Path(".")),
        },
        "evaluator": source_digest(source_files(EVALUATOR)),
        "outcome": outcome.as_dict(),
        "ledger": ledger_totals(outcome),
        "host": {
            "name": platform.node(),
            "machine": platform.machine(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
    }


def described_policy(source: str) -> dict[str, Any]:
    """A policy's digest and, of a bundle, the hash of each file: tensors included."""
    folder = Path(source)
    files = folder_files(folder) if folder.is_dir() else {}
    return {"digest": policy_digest(source), "files": files}


def ledger_totals(outcome: Outcome) -> dict[str, int]:
    """The passenger ledger of the day, in passenger-seconds."""
    return {
        "waiting_s": outcome.waiting_s,
        "riding_s": outcome.riding_s,
        "cost": outcome.cost,
        "pre_control_cost": outcome.pre_control_cost,
        "token_cost": outcome.token_cost,
    }


def _end_with(lifeline: int) -> None:
    """Wait until the other end of a pipe is gone, then end this process at once."""
    os.read(lifeline, 1)
    os._exit(1)


def main() -> None:
    """Serve one order from standard input."""
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but the answer on the answer channel
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(order["lifeline"],), daemon=True).start()
    memory = int(order["memory_gib"] * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        answer: dict[str, Any] = {"done": evaluate(order)}
    except InputError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"SUMO stopped: out of the {order['memory_gib']} GiB it may use"}
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
