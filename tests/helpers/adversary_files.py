"""The files that we read, for the table of adversarial inputs: a sound one of each kind with every
key, how to write it damaged (and sealed again, as its author could), and the command that reads it.
"""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tomli_w
from msgspec import inspect
from msgspec.structs import replace

from adversary import MISSING, TEXTS, Case, cases, changed, stated, tried_numbers
from evenline.checks.learner import fast_replay
from evenline.city.manifest import Manifest as CityManifest
from evenline.city.model import City
from evenline.city.ranges import COLUMNS, RANGES, Range, Words
from evenline.city.tables import digest, load_city, network_digest
from evenline.control.outcome import Outcome
from evenline.control.state import contract_of
from evenline.experiments.tune import Kept
from evenline.learn.plan import Config, Plan
from evenline.learn.schedule import LEARNERS
from evenline.live import entries
from evenline.live.feed import Snapshot, write_message
from evenline.live.log import FIRST
from evenline.live.record import Recorded, Recorder
from evenline.policies.bundle import read_policy, rule_spec, save_bundle
from evenline.policies.kinds import Spec
from evenline.policies.lookahead import forecast_tables
from evenline.records import files as record_names
from evenline.records.files import FittedTo, Limits, new_limits
from evenline.replay.episode import Metadata
from evenline.replay.sealed import Manifest, ReplayPlan
from evenline.rules.policy import BEHAVIOURS, recorded
from evenline.rules.table import RULES
from evenline.runs.job import Job
from evenline.study.engine import State
from evenline.study.plan import WrittenStudy
from evenline.support.files import sha256, to_json
from evenline.support.records import Hashes, plain
from evenline.trial import matrix, records
from evenline.trial.analyse import Analysis
from evenline.trial.closeout import closeout
from evenline.trial.evidence import write_analysis
from evenline.trial.journal import journal
from evenline.trial.plan import WrittenPlan
from evenline.trial.registration import Trial, register
from evenline.trial.used import UsedCells
from evenline.trial.verify import verify
from evenline.worlds import calibration
from evenline.worlds.open import open_city
from hamlet import DETAILS, HAMLET, MANIFEST, write_detailed, write_hamlet
from made import better_by_ninety, made_up
from spoilt_bundles import rehash

SHA = "0123456789abcdef" * 4
AT = "2026-01-31T23:59:59Z"
ARRAYS = calibration.RANGES
DECIMAL = Words(r"[0-9]+(\.[0-9]+)?([eE]-?[0-9]{1,2})?", "a decimal number")
DECIMALS = {"claim.level": DECIMAL, "claim.completion_margin": DECIMAL}
CHANGES = (None, "", 3, MISSING)  # to try where every change must be found


@dataclass(frozen=True)
class File:
    """A file with its type and content, and the command that reads it.

    `write` writes a damaged content, and `makes` is what the command writes if it accepts it.
    `ranges` are those of keys whose type has none, `free` names keys with any content, and `open`
    keys of which every number within the range must be accepted. An `other` file is sound but
    belongs to other settings, so that it is always refused. `code` is the exit code of a refusal.
    Of a `bound` file, every change must be found.
    """

    path: Path
    kind: Any
    base: Any
    command: tuple[object, ...]
    write: Callable[[Any], None]
    makes: tuple[Path, ...] = ()
    ranges: Mapping[str, Range | Words] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    other: bool = False
    code: int = 2
    bound: bool = False

    @property
    def type(self) -> Any:
        return inspect.type_info(self.kind)

    @property
    def name(self) -> str:
        return f"{getattr(self.kind, '__name__', 'hashes')} in {self.path.parent.name}"

    def cases(self) -> Iterator[Case]:
        for case in cases(self.type, self.base):
            if self.path.suffix == ".toml" and not _fits_toml(case.document):
                continue
            if self.bound:
                if case.document != self.base and any(case.value is each for each in CHANGES):
                    yield Case(case.place, case.value, case.document, True)
            elif case.place in self.ranges and not case.bad and case.value is not MISSING:
                inside = stated(self.ranges[case.place], case.value)
                yield Case(case.place, case.value, case.document, not inside)
            else:
                yield case
        for place, allowed in self.ranges.items():
            path = tuple(int(step) if step.isdigit() else step for step in place.split("."))
            for value in TEXTS if isinstance(allowed, Words) else tried_numbers(allowed):
                bad = not stated(allowed, value)
                yield Case(place, value, changed(self.base, path, value), bad)


def _fits_toml(value: Any, top: bool = True) -> bool:
    if isinstance(value, dict):
        return all(_fits_toml(each, False) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return not top and all(_fits_toml(each, False) for each in value)
    return not top and value is not None and not (isinstance(value, str) and "\ud800" in value)


def put(path: Path, content: bytes) -> None:
    """Write a new file instead of one that may be read-only; to write over it may be slow."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def in_json(path: Path) -> Callable[[Any], None]:
    return lambda document: put(path, json.dumps(document).encode())


def as_written(path: Path) -> Callable[[Any], None]:
    """In the form in which a trial writes its files."""
    return lambda document: put(path, to_json(document).encode())


def in_toml(path: Path) -> Callable[[Any], None]:
    return lambda document: put(path, tomli_w.dumps(document).encode())


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def every_file(root: Path) -> list[File]:
    """A sound file of every kind, in a new folder."""
    hamlet = write_hamlet(root / "hamlet")
    fitted = calibration_of(load_city(hamlet))
    in_json(hamlet / "calibration.json")(fitted)
    return [
        *city_files(root, hamlet, fitted),
        *recorded_city_files(root, fitted),
        *plan_files(root, hamlet),
        *policy_files(root, hamlet),
        *replay_files(root, hamlet),
        *learning_files(root, hamlet),
        *live_files(root, hamlet),
        *trial_files(root),
    ]


# -- city, calibration ----------------------------------------------------------------------------


def calibration_of(city: City) -> dict[str, Any]:
    """A calibration of the hamlet, as its file contains it."""
    return {
        "format": calibration.FORMAT,
        "network": network_digest(city),
        "city": digest(city),
        "start_delay_s": 1,
        "mean_s": [[60.0]] * 6,
        "pace_s": [1.0] * 6,
        "phase_s": [[0.0] * calibration.PHASES] * 6,
        "noise_s": [[0.0] * calibration.NOISE_QUANTILES] * 6,
        "least_s": [1.0] * 6,
        "pace": [0.0] * calibration.PACE_QUANTILES,
        "note": "made up",
        "follow": 0.25,
        "sources": {"day.parquet": SHA},
        "residuals": {"runs": 1.0},
        "lateness_s": [[0.0] * calibration.LATE_QUANTILES] * 2,
        "close_s": 4.5,
        "close_within_s": 90.0,
        "recover": 0.2,
        "late_follow": 0.1,
        "jam_near": 0.9,
        "jam_far": 0.3,
    }


def city_files(root: Path, hamlet: Path, fitted: dict[str, Any]) -> list[File]:
    own, manifest = root / "fitted.json", write_detailed(root / "sealed") / "manifest.json"
    check = ("policy", "check", "zero", "--city", hamlet, "--calibration", own)
    first = {name: "0.0" if isinstance(fitted[name][0], list) else "0" for name in ARRAYS}
    ranges = {f"{name}.{first[name]}": Range(*ARRAYS[name]) for name in ARRAYS}
    return [
        File(
            own,
            calibration._File,
            fitted,
            check,
            in_json(own),
            ranges=ranges,
            open=("follow", "residuals.runs", *ranges),
        ),
        File(
            manifest,
            CityManifest,
            read(manifest),
            ("city", "check", "--seal", manifest.parent),
            in_json(manifest),
            ranges=RANGES["manifest.json"],
            open=tuple(map("vehicle.{}".format, MANIFEST["vehicle"])),
        ),
    ]


def recorded_city_files(root: Path, fitted: dict[str, Any]) -> list[File]:
    """What a city from records keeps beside its tables."""
    folder = write_hamlet(root / "from-records")
    limits, records = folder / record_names.LIMITS, folder / record_names.RECORDS
    registered = json.loads(new_limits(fitted["network"], ("2026-03-02",)))
    in_json(limits)(registered)
    own = fitted | {"note": "fitted", "sources": {limits.name: sha256(limits)}}
    in_json(folder / "calibration.json")(own)
    fitted_to = {
        "format": "evenline-records-2",
        "records": "old",
        "tables": {"stop_visits.csv": SHA},
        "routes": ["1"],
        "days": ["2026-03-02"],
        "first_hour": 6,
        "last_hour": 20,
        "trips": 2,
        "visits": 6,
        "left_out": 0,
        "stamp": "arrival",
        "recorded_share": [1.0, 0.5, 1.0, 0.0],
    }
    in_json(records)(fitted_to)
    show = ("city", "check", folder)
    return [
        File(records, FittedTo, fitted_to, show, in_json(records)),
        File(limits, Limits, registered, show, in_json(limits), bound=True),
    ]


def table_files(root: Path) -> list[File]:
    """The tables of the hamlet; their cases are made from `RANGES`."""
    folder = write_detailed(root / "edited")
    return [
        File(
            folder / name,
            None,
            (HAMLET | DETAILS)[name].encode(),
            ("city", "check", "--seal", folder),
            partial(put, folder / name),
        )
        for name in COLUMNS
        # The hamlet with all details has the buses of a scenario, which take neither: test_details.
        if name not in ("slowness.csv", "starts.csv")
    ]


# Sound tables of demand for the hamlet; together they have every column.
DEMAND = {
    "journeys": "departure_s,origin,destination,min_demand\n10,s1,s3,0.5\n60,t1,t2,1.25\n",
    "by-clock": "departure_time,origin,destination\n00:00:10,s1,s3\n00:01,t1,t2\n",
    "matrix": "from_s,to_s,origin,destination,passengers\n0,300,s1,s3,2.5\n0,60,t1,t2,4\n",
    "bands": "from_time,to_time,origin,destination,passengers\n00:00,00:05,s1,s2,3\n"
    "00:00:00,00:01:00,t1,t2,4\n",
    "counts": "service_id,stop_id,from_s,boardings,alightings\nout,s1,0,5,0\nout,s3,0,0,5\n",
    "by-route": "route_id,direction_id,stop_id,from_time,boardings,alightings\n"
    "1,0,s1,00:00,5,0\n1,0,s3,00:00,0,5\n",
}


def demand_files(root: Path) -> list[File]:
    """Tables of demand; their cases are made from `demand_tables.COLUMNS`."""
    hamlet, out = write_hamlet(root / "hamlet-of-few"), root / "hamlet-of-many"
    return [
        File(
            path := root / f"{name}.csv",
            None,
            text.encode(),
            ("city", "people", hamlet, "--demand", path, "--out", out),
            partial(put, path),
            makes=(out,),
        )
        for name, text in DEMAND.items()
    ]


# -- plans ----------------------------------------------------------------------------------------

CLAIM = {
    "candidate": "better",
    "parent": "worse",
    "completion_margin": "0.003",
    "level": "0.5",
    "required_wins": 1,
    "endpoint": "generalized_s",
    "direction": "lower",
    "unit": "block mean of seeds x levels",
    "ties": "nonwins",
    "gates": ["completeness"],
    "robustness": [],
}
LIMITS = {"time_s": 60, "memory_gib": 4.0, "tries": 2, "silence_s": 60.0}
BLOCKS = {"sumo_seed": 9101, "demand_seed": 9201, "count": 1}
OTHERS = {"sumo_seed": 9301, "demand_seed": 9401, "count": 1}


def trial_plan(hamlet: Path) -> dict[str, Any]:
    return {
        "name": "small",
        "city": str(hamlet),
        "seeds": [1],
        "levels": [1.0],
        "blocks": BLOCKS,
        "claim": CLAIM,
        "methods": {"better": ["headway-1.0"], "worse": "zero"},
        "limits": LIMITS,
        "world": "fast",
        "calibration": str(hamlet / "calibration.json"),
    }


def study_plan(hamlet: Path) -> dict[str, Any]:
    return {
        "name": "small",
        "city": str(hamlet),
        "seeds": [1],
        "claim": CLAIM,
        "limits": LIMITS,
        "replay": {"blocks": 1, "reuse": ""},
        "calibration": {"blocks": 1},
        "fidelity": {"required": False},
        "train": {
            "learner": "v14",
            "iql_updates": 10,
            "events": 100,
            "widths": [8, 8, 8],
            "device": "cpu",
            "centred": False,
            "chain": "raw",
            "curve_blocks": 1,
        },
        "methods": {"better": {"chain": "candidate", "learner": "v14"}, "worse": "zero"},
        "trial": {"levels": [1.0], "blocks": OTHERS, "world": "sumo"},
    }


def plan_files(root: Path, hamlet: Path) -> list[File]:
    trial, study = trial_plan(hamlet), study_plan(hamlet)
    plan, planned, sound = root / "plan.toml", root / "study.toml", root / "sound.toml"
    ledger, unused = root / "used" / "used-cells.json", root / "unused" / "used-cells.json"
    out, state = root / "new-trial", root / "study" / "state.json"
    ledger.parent.mkdir()
    state.parent.mkdir()
    in_toml(sound)(trial)
    in_toml(root / "sound-study.toml")(study)
    in_toml(state.parent / "plan.toml")(study)
    used = {"name": "old", "trial": SHA, "city": SHA, "blocks": [[1, 2]], "subject": SHA}
    done = {"inputs": {"a": "b"}, "outputs": {"x": SHA}, "seconds": 1.0}
    states = {"format": "evenline-study-2", "steps": {"city": done}}
    register = ("trial", "register", "--out", out)
    return [
        File(
            plan,
            WrittenPlan,
            trial,
            (*register, plan, "--used-cells", unused),
            in_toml(plan),
            makes=(out, unused.parent),
            ranges=DECIMALS,
            open=tuple(map("limits.{}".format, LIMITS)),
        ),
        File(
            ledger,
            UsedCells,
            {"format": "evenline-used-cells-1", "trials": [used]},
            (*register, sound, "--used-cells", ledger),
            in_json(ledger),
            makes=(out,),
        ),
        File(
            planned,
            WrittenStudy,
            study,
            ("study", "run", planned, "--out", root / "new-study", "--dry-run"),
            in_toml(planned),
            ranges=DECIMALS,
            open=("train.iql_updates", "train.widths.0", *map("limits.{}".format, LIMITS)),
        ),
        File(
            state,
            State,
            states,
            ("study", "status", root / "sound-study.toml", "--out", state.parent),
            in_json(state),
        ),
    ]


# -- policies, replay, learning -------------------------------------------------------------------


def policy_files(root: Path, hamlet: Path) -> list[File]:
    folder, city = root / "bundle", load_city(hamlet)
    constants = RULES["forward"].named(RULES["forward"].values({}))
    save_bundle(folder, rule_spec("forward", constants, "raw", city, {"note": "mine"}), {})
    policy, hashes = folder / "policy.json", folder / "hashes.json"
    base, listed = read(policy), read(hashes)

    def rewrite(document: Any) -> None:
        in_json(policy)(document)
        rehash(folder)

    def relist(document: Any) -> None:
        put(policy, to_json(base).encode())
        in_json(hashes)(document)

    look = root / "look"
    spec = replace(read_policy("lookahead").spec, contract=contract_of(city), provenance={})
    save_bundle(look, spec, dict(forecast_tables(city, open_city(str(hamlet)).fitted())))
    ahead = read(look / "policy.json")

    def rewrite_look(document: Any) -> None:
        in_json(look / "policy.json")(document)
        rehash(look)

    show, free = ("policy", "show", folder), ("provenance[]",)
    return [
        File(policy, Spec, base, show, rewrite, free=free),
        File(look / "policy.json", Spec, ahead, ("policy", "show", look), rewrite_look, free=free),
        File(hashes, Hashes, listed, show, relist),
    ]


def replay_files(root: Path, hamlet: Path) -> list[File]:
    folder = root / "replay"
    store = fast_replay(folder, open_city(str(hamlet)), 1, ("zero",))
    shutil.copytree(folder, root / "whole-replay")
    plan, manifest = folder / "plan.json", folder / "manifest.json"
    behaviours = [recorded(each) for each in BEHAVIOURS.values()]
    planned = read(plan) | {"behaviours": behaviours}
    listed = read(manifest) | {"plan": planned, "calibration": SHA}
    in_json(plan)(planned)
    in_json(manifest)(listed)
    episode = folder / next(iter(store.manifest.files))
    whole = pq.read_table(episode)
    told = json.loads(pq.read_metadata(episode).metadata[b"evenline"])
    told["outcome"] |= {"late_departures": 0, "lost_trips": 0}  # as in a city with duties

    def retell(document: Any) -> None:
        episode.unlink()
        with pq.ParquetWriter(episode, whole.schema) as writer:
            writer.write_table(whole)
            writer.add_key_value_metadata({"evenline": json.dumps(document)})
        own = {str(episode.relative_to(folder)): sha256(episode)}
        in_json(manifest)(listed | {"files": listed["files"] | own})

    collect = ("replay", "collect", "--city", hamlet, "--out", folder, "--blocks", 1)
    return [
        File(plan, ReplayPlan, planned, collect, in_json(plan)),
        File(manifest, Manifest, listed, collect, in_json(manifest)),
        File(episode, Metadata, told, collect, retell),
    ]


def learning_files(root: Path, hamlet: Path) -> list[File]:
    """Of a run and a search with other settings, which are refused in any case."""
    config, tries = root / "trained" / "config.json", root / "tuned" / "tries.json"
    config.parent.mkdir()
    tries.parent.mkdir()
    hashes = {"city": SHA, "replay": SHA, "calibration": SHA}
    other = Config(**hashes, device="cpu", plan=Plan((LEARNERS["v14"],), (1,)))
    found = {"constants": [0.5], "generalized_s": 1.0, "completion": 0.5}
    replay = root / "whole-replay"
    return [
        File(
            config,
            Config,
            plain(other),
            ("train", "--city", hamlet, "--replay", replay, "--out", config.parent),
            in_json(config),
            other=True,
        ),
        File(
            tries,
            Kept,
            {"setting": {"rule": SHA}, "tries": [found]},
            ("tune", "forward", "--city", hamlet, "--out", tries.parent),
            in_json(tries),
            other=True,
            free=("setting[]",),
        ),
    ]


# -- live -----------------------------------------------------------------------------------------


def live_files(root: Path, hamlet: Path) -> list[File]:
    """A shadow's log with one entry of each kind, and the index of a recording."""
    city = load_city(hamlet)
    log, page, trip = root / "shadow" / "log.jsonl", root / "shadow-page", city.trips[0].id
    log.parent.mkdir()
    # Its first line is so long that half of a log is less than a line.
    first = entries.Begun(
        format=entries.FORMAT, evenline="1", city=digest(city), policy="zero", policy_sha256=SHA,
        lines=(city.services[0].id,), notes=("a" * 1500,),
    )  # fmt: skip
    raw = (0.0, 1.0, *[0.0] * 14)
    later: tuple[entries.Entry, ...] = (
        entries.HeardEntry(
            at_s=1, moment_s=1e9, behind=0, packed=entries.packed(Snapshot(1e9, ()))
        ),
        entries.PollEntry(
            at_s=1, age_s=1, states={"trip": 1}, dropped=0, took_ms=1, failure="a",
            fixes={trip: ("bus", 1.0, 1.0, 1.0)},
        ),
        entries.EventEntry(
            what="leaves", trip=trip, stop=1, at_s=1, sure=1, vehicle="a", occupied=0.5
        ),
        entries.AskedEntry(
            now_s=1, trip=trip, stop=1, raw=raw, hold_s=1, noted_s=1, expected_s=1, sure=1,
            feed_s=1, saves_s=1,
        ),
        entries.AdviceEntry(
            number=1, now_s=1, trip=trip, vehicle="a", stop=1, until_s=1, hold_s=1, reason="a"
        ),
        entries.LineEntry(now_s=1, service=city.services[0].id, on=True),
    )  # fmt: skip
    answer = entries.AnswerEntry(number=1, now_s=1, became="accepted", why="a")
    report = ("shadow", "report", log, "--city", hamlet, "--out", page / "page.html")

    def after(*before: Any) -> tuple[bytes, str]:
        lines, previous = b"", FIRST
        for entry in before:
            line = _line(plain(entry) | {"previous": previous})
            lines, previous = lines + line, hashlib.sha256(line).hexdigest()
        return lines, previous

    def file(entry: Any, *before: Any) -> File:
        lines, previous = after(*before)
        return File(
            log, type(entry), plain(entry) | {"previous": previous}, report,
            lambda document: put(log, lines + _line(document)), makes=(page,),
        )  # fmt: skip

    folder, logs = root / "recording", root / "shadow-logs"
    recorder = Recorder(folder)
    recorder.keep(1e9, write_message(Snapshot(1e9, ())))
    recorder.close()
    index = folder / "index.jsonl"
    shown = json.loads(index.read_text())
    run = (
        *("shadow", "run", "--city", hamlet, "--feed", folder, "--policy", "zero"),
        *("--speed", 0, "--no-page", "--log", logs / "log.jsonl"),
    )
    return [
        file(first),
        *(file(entry, first) for entry in later),
        file(answer, first, later[4]),
        File(index, Recorded, shown, run, lambda document: put(index, _line(document)), (logs,)),
    ]


# -- trials ---------------------------------------------------------------------------------------


SPEC = ("policies[].spec.provenance[]",)  # with any content


def trial_files(root: Path) -> list[File]:
    def new(name: str) -> Trial:
        return register(root / "sound.toml", root / name, root / f"{name}-used" / "cells.json")

    return [
        registration_file(new("registered")),
        *journal_files(new("told")),
        *record_files(new("running"), new("complete")),
        *closed_files(new("closed")),
    ]


def _hamlet_day(job: Job) -> Outcome:
    """A made-up day with no more trips than the hamlet's timetable has."""
    day = better_by_ninety(job)
    return dataclasses.replace(day, trips_completed=4, trip_duration_total_s=4_000)


def _line(event: Any) -> bytes:
    return json.dumps(event, sort_keys=True).encode() + b"\n"


def registration_file(trial: Trial) -> File:
    path, told = trial.folder / "trial.json", trial.folder / "journal.jsonl"
    first = plain(journal(trial.folder)[0])

    def rewrite(document: Any) -> None:
        in_json(path)(document)
        put(told, _line(first | {"trial": sha256(path)}))

    status = ("trial", "status", trial.folder)
    return File(path, records.Registered, read(path), status, rewrite, free=SPEC)


def journal_files(trial: Trial) -> list[File]:
    path, first = trial.folder / "journal.jsonl", plain(journal(trial.folder)[0])
    tied = {"at": AT, "previous": hashlib.sha256(_line(first)).hexdigest()}
    later: tuple[records.Event, ...] = (
        records.Deviation(why="a", by="b", evaluator=SHA, source={"x.py": SHA}),
        records.Quarantined(job=SHA, name="a", errors=("b",)),
        records.Released(job=SHA, name="a"),
        records.Peek(records=1),
        records.Withdrawn(method="other", why="a", by="b"),
    )
    status = ("trial", "status", trial.folder)

    def alone(event: Any) -> None:
        put(path, _line(event))

    def after(event: Any) -> None:
        put(path, _line(first) + _line(event))

    return [
        File(path, records.RegisteredEvent, first, status, alone),
        *(File(path, type(event), plain(event) | tied, status, after) for event in later),
    ]


def record_files(running: Trial, complete: Trial) -> list[File]:
    for trial in (running, complete):
        assert matrix.run(trial.folder, made_up(trial, _hamlet_day)).complete
    first, second = running.jobs()
    path, away = matrix.record_path(running, first), matrix.quarantine_path(running, second)
    matrix.record_path(running, second).unlink()
    away.parent.mkdir()
    failed = {"job": second, "name": "worse", "at": AT, "errors": ["lost"]}
    in_json(away)(failed)
    base, listed = read(path), complete.folder / "matrix.json"

    def reseal(document: Any) -> None:
        if isinstance(document, dict) and document.get("record_sha256") == base["record_sha256"]:
            bare = {key: value for key, value in document.items() if key != "record_sha256"}
            with suppress(ValueError):  # NaN cannot be sealed
                document = bare | {"record_sha256": matrix.seal_of(bare)}
        in_json(path)(document)

    status, analyse = ("trial", "status", running.folder), ("trial", "analyse", complete.folder)
    return [
        File(path, records.JobRecord, base, status, reseal, open=("run.duration_s",)),
        File(away, records.QuarantineEntry, failed, status, in_json(away)),
        File(listed, records.Matrix, read(listed), analyse, in_json(listed)),
    ]


def closed_files(trial: Trial) -> list[File]:
    folder = trial.folder
    matrix.run(folder, made_up(trial, _hamlet_day))
    write_analysis(folder)
    (folder / "verification.json").write_text(to_json(verify(folder).report))
    closeout(folder)
    kinds = {
        "trial.json": records.Registered,
        f"records/{next(iter(trial.jobs()))}.json": records.JobRecord,
        "matrix.json": records.Matrix,
        "analysis.json": Analysis,
        "closeout.json": records.Closeout,
    }
    return [
        File(
            folder / name,
            kind,
            read(folder / name),
            ("trial", "verify", folder),
            as_written(folder / name),
            free=SPEC if kind is records.Registered else (),
            code=1,
            bound=True,
        )
        for name, kind in kinds.items()
    ]
