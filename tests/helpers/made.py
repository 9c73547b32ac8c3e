"""Small trials for the tests: a plan on `town`, and days that are made up instead of simulated.

The made-up executor answers as a real one would, with the registered hashes and whole-number
days, so that records, seals, analysis and verification are the real ones throughout.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evenline.city.embedded import embedded_city
from evenline.control.outcome import Outcome
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import actor_spec, save_bundle
from evenline.runs.day import described_policy, library_versions
from evenline.runs.executors import Executor, Results
from evenline.runs.job import Answer, Ended, Host, Job, Simulator
from evenline.support.files import to_json, write_text
from evenline.trial.closeout import closeout
from evenline.trial.evidence import write_analysis
from evenline.trial.matrix import run
from evenline.trial.registration import Trial, register
from evenline.trial.verify import verify

Day = Callable[[Job], Outcome]
WORSE = ("zero", "myopic")
FEW = {  # changes of the plan that leave four jobs
    "seeds": "[1]",
    "levels": "[0.75]",
    "blocks": "{ sumo_seed = 9101, demand_seed = 9201, count = 2 }",
    "methods": '{ better = "headway-1.0", worse = ["zero"] }',
    "claim": '{ candidate = "better", parent = "worse", level = "0.25" }',
}


def plan_text(**changes: str) -> str:
    """A plan of 2 methods x 2 seeds x 6 blocks x 2 levels; a change replaces a line or a table."""
    lines = {
        "name": '"small"',
        "city": '"town"',
        "seeds": "[1, 2]",
        "levels": "[0.75, 1.25]",
        "blocks": "{ sumo_seed = 9101, demand_seed = 9201, count = 6 }",
        "methods": '{ better = ["headway-1.0", "headway-0.7"], worse = ["zero", "myopic"] }',
        "claim": '{ candidate = "better", parent = "worse" }',
        "limits": "{ time_s = 60, memory_gib = 4, tries = 2 }",
    }
    return "".join(f"{key} = {value}\n" for key, value in (lines | changes).items())


def registered(where: Path, **changes: str) -> Trial:
    """A registered trial in a folder of its own."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "plan.toml").write_text(plan_text(**changes))
    return register(where / "plan.toml", where / "trial", where / "used-cells.json")


def day(job: Job, cost_per_passenger: int = 1_000, completed: int = 1_940) -> Outcome:
    """A day of 2,000 passengers; a little different in every cell."""
    cell = str(sorted(asdict(job.cell).items()))
    shade = int(hashlib.sha256(cell.encode()).hexdigest()[:4], 16) % 50
    cost = 2_000 * (cost_per_passenger + shade)
    return Outcome(
        departed=2_000,
        completed=completed,
        waiting_s=cost // 4,
        riding_s=cost - 2 * (cost // 4),
        pre_control_cost=10,
        token_cost=cost - 10,
        decisions=700,
        zero_duration_tokens=60,
        holds_zero=400,
        hold_total_s=5_000.0,
        denied_boardings=0,
        trips_completed=60,
        trip_duration_total_s=60_000,
    )


def better_by_ninety(job: Job) -> Outcome:
    """Days in which the candidate saves 90 s a passenger and completes ten journeys more."""
    return day(job) if job.policy in WORSE else day(job, 910, 1_950)


def made_up(trial: Trial, of: Day = better_by_ninety) -> Executor:
    """An executor that makes days up."""

    def answers(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        for job in jobs:
            made = answer(trial, job, of(job))
            yield Ended(job=job, answer=made, failures=(), duration_s=1.25)

    return answers


def answer(trial: Trial, job: Job, outcome: Outcome) -> Answer:
    """What a job's process says of a day."""
    with chdir(trial.inputs):
        policy = described_policy(job.policy)
    options: tuple[str, ...] = ()
    if job.sumo is not None:
        seed = str(job.cell.sumo_seed)
        options = ("--begin", "0", "--end", "7200", "--seed", seed)
    return Answer(
        outcome=outcome,
        city=trial.registered.city.digest,
        cell=job.cell,
        policy=policy,
        simulator=Simulator(
            world=job.world,
            version=job.sumo,
            options=options,
            network=trial.registered.network,
        ),
        calibration=None,
        evaluator=trial.registered.evaluator.sha256,
        versions=library_versions(),
        host=Host(name="made-up", machine="", system="", python=""),
    )


def finished_trial(where: Path, of: Day = better_by_ninety, **changes: str) -> Trial:
    """A trial whose matrix is complete."""
    trial = registered(where, **changes)
    assert run(trial.folder, made_up(trial, of)).complete
    return trial


def closed_trial(where: Path, of: Day = better_by_ninety, **changes: str) -> Trial:
    """A trial that is closed."""
    trial = finished_trial(where, of, **changes)
    write_analysis(trial.folder)
    write_text(trial.folder / "verification.json", to_json(verify(trial.folder).report))
    closeout(trial.folder)
    return trial


def analysed_with_actor(where: Path) -> Path:
    """The folder of a small trial that is ready to be closed, with a bundle in it."""
    town = embedded_city("town")
    spec = actor_spec(town, "raw", {"stable": True})
    save_bundle(where / "actor", spec, random_tensors(len(town.services), 1))
    methods = f'{{ better = "{where}/actor", worse = "zero" }}'
    folder = finished_trial(where, **FEW | {"methods": methods}).folder
    write_analysis(folder)
    write_text(folder / "verification.json", to_json(verify(folder).report))
    return folder


def results(trial: Trial) -> dict[str, Any]:
    """All records without what may differ from run to run."""
    left_out = ("run", "record_sha256")
    return {
        path.name: {k: v for k, v in json.loads(path.read_text()).items() if k not in left_out}
        for path in (trial.folder / "records").iterdir()
    }
