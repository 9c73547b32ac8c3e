"""Run the day of a job in this process and hash everything that the result depends on.

The closure of this module's imports is the evaluator: a change of any other file of ours cannot
change an outcome. Days of one actor in the fast world run together, as one fleet.
"""

import dataclasses
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import evenline
from evenline.city.demand import Cell
from evenline.city.model import City, Ints
from evenline.city.operations import USUAL_OPERATIONS
from evenline.city.tables import digest
from evenline.control.event import TIME, Batch, new_headways
from evenline.control.operations import Departures, departures
from evenline.control.outcome import Outcome
from evenline.control.visits import visit_table
from evenline.control.world import Policy, World, run_episode
from evenline.policies.actor import ActorPolicy
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.policies.kinds import Bundle
from evenline.policies.knowing import Knowing
from evenline.replay.episode import record_episode, write_episode
from evenline.rules.chain import apply_chain
from evenline.rules.explain import Witness, activations
from evenline.rules.policy import BEHAVIOURS, ChainedPolicy, RulePolicy, recorded
from evenline.runs.job import Answer, Described, Host, Job, Simulator
from evenline.support.errors import InputError
from evenline.support.files import folder_files, write_table
from evenline.support.own import load_own
from evenline.support.sources import closure, digest_of, file_hashes
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.fast.world import FastWorld, Fleet
from evenline.worlds.open import CALIBRATION, WORLDS, OpenCity, open_city, open_world
from evenline.worlds.sumo.runtime import runtime_version
from evenline.worlds.sumo.scenario import sumo_options
from evenline.worlds.sumo.world import SumoWorld

Progress = Callable[[int], None]  # seconds of the day simulated so far
PROGRESS_EVERY_S = 0.5
LIBRARIES = ("numpy", "numba")


def evaluator_files() -> dict[str, str]:
    """The hashes of our source files that a day depends on."""
    return file_hashes(closure("evenline.runs.day"))


@cache
def evaluator() -> str:
    """One hash of these files, as they were at the first call in this process."""
    return digest_of(evaluator_files())


def library_versions() -> dict[str, str]:
    """The versions of the libraries that compute, by name."""
    return {name: version(name) for name in LIBRARIES}


def described_policy(source: str | Bundle) -> Described:
    """A policy's digest and the hash of each file behind it."""
    bundle = read_policy(source) if isinstance(source, str) else source
    files: dict[str, str] = {}
    if bundle.code is not None:
        files = {bundle.code.file.name: bundle.code.sha256}
    elif isinstance(source, str) and Path(source).is_dir():
        files = folder_files(Path(source))
    return Described(digest=policy_digest(bundle), files=files)


@dataclass(frozen=True, eq=False)
class Opened:
    """A city, a policy and a world, opened once for all days that share them."""

    city: OpenCity
    city_digest: str
    policy: ChainedPolicy | Knowing
    described: Described
    world: World
    calibration: str | None
    code: str | None  # hash of the file of the user's own world

    def close(self) -> None:
        """Close the world, if it has a method `close`."""
        getattr(self.world, "close", lambda: None)()


def open_job(job: Job) -> Opened:
    """Open everything that a job needs, or raise an error."""
    places = [Path(job.city) / name for name in ("manifest.json", CALIBRATION)]
    if job.calibration is not None:
        places.append(Path(job.calibration))
    written = tuple(path.stat().st_mtime_ns for path in places if path.is_file())
    city = _opened_city(job.city, job.calibration, written)
    if job.as_usual and city.opened.city.operations != USUAL_OPERATIONS:
        city = city.as_usual()
    opened, bundle = city.opened, read_policy(job.policy)
    policy = bundle.knowing or open_policy(bundle, opened.city, opened.calibration)
    world = open_world(job.world, opened, keep_visits=job.visits is not None)
    used = job.world != "sumo" or bundle.needs_calibration
    return Opened(
        opened,
        city.digest,
        policy,
        described_policy(job.policy),
        world,
        city.calibration if used else None,
        None if job.world in WORLDS else load_own(job.world).sha256,
    )


@dataclass(frozen=True, eq=False)
class _City:
    """An opened city with its digests."""

    opened: OpenCity
    digest: str
    calibration: str | None

    def as_usual(self) -> "_City":
        """The same city with the usual operations."""
        city = dataclasses.replace(self.opened.city, operations=USUAL_OPERATIONS)
        return _City(dataclasses.replace(self.opened, city=city), digest(city), self.calibration)


@lru_cache(maxsize=2)
def _opened_city(source: str, calibration: str | None, _written: tuple[int, ...]) -> _City:
    """Open a city once for all policies, and again only after its files have changed."""
    opened = open_city(source, None if calibration is None else Path(calibration))
    fitted = opened.calibration
    own = None if fitted is None else calibration_digest(fitted)
    return _City(opened, digest(opened.city), own)


def run_job(job: Job, opened: Opened, progress: Progress = lambda now_s: None) -> Answer:
    """Run one day, write the files that the job names, and return the answer."""
    city, world, policy = opened.city.city, opened.world, opened.policy
    if isinstance(policy, Knowing):
        if job.visits is not None or job.tokens is not None:
            raise InputError(f"policy {job.policy} knows the day, so it can only be compared")
        known = _telling(policy.made_for(opened.city, job.cell), progress)
        outcome = run_episode(world, job.cell, known)
        return _answer(job, opened, outcome, _arrivals(city, world), _left_s(world))
    if isinstance(world, FastWorld) and job.tokens is None and job.visits is None:
        quick = isinstance(policy, RulePolicy) and policy.rule.compiled
        driver = policy if quick else _telling(policy, progress)
        outcome = world.run_day(job.cell, driver)
        return _answer(job, opened, outcome, world.arrivals_s, world.left_s)
    witness = Witness(policy)
    watched = _telling(witness, progress)
    if job.tokens is None:
        outcome = run_episode(world, job.cell, watched)
        answer = _answer(job, opened, outcome, _arrivals(city, world), _left_s(world))
    else:
        decisions, outcome = record_episode(world, job.cell, watched)
        answer = _answer(job, opened, outcome, _arrivals(city, world), _left_s(world))
        write_episode(job.tokens, decisions, outcome, provenance(job, answer))
    if job.visits is not None:
        visits = world.visits
        table = witness.table(city, visits) if job.explain else visit_table(city, visits)
        write_table(job.visits, table)
        if job.explain:
            answer = replace(answer, activations=activations(table))
    return answer


def provenance(job: Job, answer: Answer) -> dict[str, object]:
    """The provenance in an episode's file."""
    behaviour = BEHAVIOURS.get(job.policy)
    return {
        "city": answer.city,
        "cell": asdict(job.cell),
        "policy": {"name": job.policy} if behaviour is None else recorded(behaviour),
        "sumo": answer.simulator.version or f"none: the {answer.simulator.world} world",
        "evenline": evenline.__version__,
    }


def _telling(policy: Policy, progress: Progress) -> Policy:
    """A policy that reports the progress of the day from time to time."""
    last = time.monotonic()

    def told(batch: Batch) -> Sequence[float]:
        nonlocal last
        if time.monotonic() - last > PROGRESS_EVERY_S:
            last = time.monotonic()
            progress(batch.time_s)
        return policy(batch)

    return told


def _answer(
    job: Job, opened: Opened, outcome: Outcome, arrivals_s: Ints, left_s: Ints | None
) -> Answer:
    simulator = Simulator(world=job.world, code=opened.code)
    if isinstance(opened.world, SumoWorld):
        options = sumo_options(opened.city.city, job.cell, Path("city.net.xml"), Path("."))
        simulator = Simulator(
            world="sumo",
            version=runtime_version(),
            options=tuple(options),
            network=opened.world.network_sha256,
        )
    return Answer(
        outcome=outcome,
        city=opened.city_digest,
        cell=job.cell,
        policy=opened.described,
        simulator=simulator,
        calibration=opened.calibration,
        evaluator=evaluator(),
        versions=library_versions(),
        host=_host(),
        arrivals_s=tuple(arrivals_s.tolist()) if job.arrivals else (),
        begun=_begun(opened.city.city, left_s) if job.arrivals else None,
    )


@cache
def _host() -> Host:
    return Host(
        name=platform.node(),
        machine=platform.machine(),
        system=platform.platform(),
        python=platform.python_version(),
    )


def _begun(city: City, left_s: Ints | None) -> Departures | None:
    return None if left_s is None else departures(city, left_s)


def _left_s(world: World) -> Ints | None:
    """When each trip left its first stop, if the world is ours."""
    return world.left_s if isinstance(world, FastWorld | SumoWorld) else None


def _arrivals(city: City, world: World) -> Ints:
    """When each trip reached each of its stops, from the world or its stop visits."""
    if isinstance(world, FastWorld):
        return world.arrivals_s
    first = new_headways(city).first_visit
    arrivals = np.full(int(first[-1]), -1, np.int32)
    for visit in world.visits:
        arrivals[first[visit.trip] + visit.position] = visit.arrival_s
    return arrivals


# -- several days together ------------------------------------------------------------------------


def run_together(jobs: Sequence[Job], opened: Opened, progress: Progress) -> list[Answer]:
    """Run days of one actor in the fast world as a fleet, with one call of the actor per
    decision.
    """
    policy = opened.policy
    assert isinstance(policy, ActorPolicy)
    fleet = Fleet(opened.city.city, opened.city.fitted(), len(jobs))
    run_fleet(fleet, [job.cell for job in jobs], policy, progress)
    return [
        _answer(job, opened, fleet.outcome(w), fleet.arrivals_s(w), fleet.left_s(w))
        for w, job in enumerate(jobs)
    ]


def run_fleet(
    fleet: Fleet,
    cells: Sequence[Cell],
    policy: ActorPolicy,
    progress: Progress = lambda now_s: None,
) -> None:
    """Run all worlds of a fleet to the end of their days, with one call of the actor per
    decision.
    """
    states, holds, last = fleet.reset(cells), np.zeros(len(cells)), time.monotonic()
    while not fleet.over.all():
        live = np.flatnonzero(~fleet.over)
        if time.monotonic() - last > PROGRESS_EVERY_S:
            last = time.monotonic()
            progress(int(fleet.raw[live, TIME].min()))
        proposals = policy.actor.proposals_s(states[live])
        holds[live] = apply_chain(policy.chain, fleet.raw[live], proposals, policy.horizon_s)
        states = fleet.step(holds)
