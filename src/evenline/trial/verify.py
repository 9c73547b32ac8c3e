"""Independent verification of a trial. Uses only the standard library, and no other code of ours.

    python verify.py FOLDER [--source PACKAGE] [--registration HASH] [--root MERKLE_ROOT]
    python verify.py --all FOLDER      # every closed trial inside a folder

A hash proves that a file is the one that somebody named by this hash before. Whoever owns a folder
can write another trial and compute every hash in it again. So give this program the hash that was
printed at registration, and the root that was printed at closeout, as somebody else has kept them.
Without them it proves only that the files do not contradict each other.

Reads the JSON files of a trial's folder, recounts the records, checks every hash, settles the plan
anew from `plan.toml`, recomputes means, differences, wins, p-values, gates and sizes of effects,
and compares them with the registration, `analysis.json` and `closeout.json`. In a closed trial's
folder it checks every byte of every file, and names what does not belong there. A packed trial
(`evenline trial pack`) has its records in one file per block and may lack tensors of policies:
these are named as detached. Every problem is one line that says where and what. It is one file, to
be read from top to bottom. It executes and changes nothing in the folder.
"""

import argparse
import csv
import hashlib
import json
import lzma
import random
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import comb
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import Any

VERIFICATION = "verification.json"
CLOSEOUT, STATEMENT = "closeout.json", "provenance.intoto.json"
# What a closed trial has at least, besides the inputs and the records.
BOUND = ("trial.json", "plan.toml", "journal.jsonl", "matrix.json", "analysis.json", VERIFICATION)
# In a packed trial: the records of a block, and what may be absent because its hash is registered.
BLOCK = re.compile(r"block-([0-9]+)-([0-9]+)\.([0-9a-f]{16})\.jsonl\.xz")
DETACHABLE = re.compile(r"policies/[^/]+/[^/]+\.safetensors")
LARGEST_BLOCK = 2**28  # bytes
DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,20})?([eE]-?[0-9]{1,2})?")
LOCKS = re.compile(r"\.journal\.lock|\.lock(-[0-9]+-of-[0-9]+)?")
# Keys of a plan that came later: a statement may have them with these values for an older plan.
LATER = {"world": "sumo", "calibration": None}
MALFORMED = (
    *(ArithmeticError, AttributeError, LookupError, OSError),
    *(RecursionError, TypeError, ValueError),
)
# What each gate checks. Trials that do not say so were registered when two gates checked less.
GATES = {
    "mean direction": "passengers lose less time on average",
    "demand direction": "passengers lose less time at every level of demand",
    "completeness": "every planned day was run and counted",
    "artifacts": "every registered file of the city and of the policies is there, unchanged",
    "stability": "each metric of the training of the compared policies is finite, from the first "
    "update to the last, and so is each weight",
}
# A plan as it is registered: what may be left out of its file, and what each part then is.
PLAN = {"sumo": None, "world": "sumo", "calibration": None}
LIMITS = {"time_s": 3600, "memory_gib": 8.0, "tries": 3, "silence_s": 120.0}
FIXED = {
    "endpoint": "generalized_s",
    "direction": "lower",
    "unit": "block mean of seeds x levels",
    "ties": "nonwins",
}
CLAIM = FIXED | {"completion_margin": "0.003", "level": "0.025", "robustness": []}
# Every event of a journal with its keys, besides `at`, `event` and `previous`.
EVENTS = {
    "registered": {"trial"},
    "deviation": {"why", "by", "evaluator", "source"},
    "quarantined": {"job", "name", "errors"},
    "released": {"job", "name"},
    "peek": {"records"},
    "withdrawn": {"method", "why", "by"},
}
# The counts of a day, of which some cities have more, and those that its ledger repeats.
COUNTS = (
    *("departed", "completed", "waiting_s", "riding_s", "cost", "pre_control_cost", "token_cost"),
    *("decisions", "zero_duration_tokens", "holds_zero", "denied_boardings", "trips_completed"),
    *("trip_duration_total_s", "unfinished"),
)
MORE_COUNTS = ("teleports", "late_departures", "lost_trips")
LEDGER = {"waiting_s", "riding_s", "cost", "pre_control_cost", "token_cost"}
DESCRIPTIVE = "descriptive; not part of the registered claim"
SKEW = timedelta(minutes=5)  # that the clocks of two machines may differ by
REGISTERING = timedelta(hours=1)  # registration takes less, even if it compiles a large network
# The options of SUMO; an imported scenario brings more.
OPTIONS = {
    *("--net-file", "--additional-files", "--route-files", "--begin", "--end", "--step-length"),
    *("--seed", "--default.departspeed", "--default.departlane", "--pedestrian.model"),
    *("--time-to-teleport", "--max-depart-delay", "--collision.mingap-factor", "--no-step-log"),
    *("--no-warnings", "--duration-log.disable", "--xml-validation", "--xml-validation.net"),
}
RESAMPLES, LEEWAY = 9_999, 0.015  # of the bootstrap: another generator gives nearly the same
ACTOR_BASE = re.compile(r"actor([:+]|$)")  # the buses of a look-ahead's forecast follow an actor
LESS_TIME = re.compile(r"less time than ([^ ]+)(?: in ([0-9]{1,3}) of ([0-9]{1,3}) blocks)?")
PACKAGE = Path(__file__).resolve().parents[1]  # if this file is inside the package
FIGURES = ("generalized_s", "completion", "unfinished")
Episode = tuple[str, int, int, int, float]  # method, training seed, SUMO seed, demand seed, level


@dataclass
class Opinion:
    """The result: problems by line, the recomputed figures, and what a packed trial lacks."""

    problems: list[str] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    packed: bool = False
    detached: dict[str, str] = field(default_factory=dict)  # registered hash by path

    def expect(self, truth: bool, where: object, what: str) -> bool:
        problem = shown(f"{where}: {what}")
        if not truth and problem not in self.problems:
            self.problems.append(problem)
        return truth


def shown(text: str) -> str:
    """Text of a stranger's files without control codes, which a terminal would obey."""
    return text if text.isprintable() else ascii(text)[1:-1]


def is_trial(folder: Path) -> bool:
    """Whether a folder has any of the files that only a trial has."""
    return any((folder / name).is_file() for name in ("trial.json", "journal.jsonl", CLOSEOUT))


def verify(
    folder: Path,
    source: Path | None = None,
    root: str | None = None,
    registration: str | None = None,
) -> Opinion:
    """Check a trial's folder, packed or not, and the two hashes that somebody has kept of it."""
    opinion = Opinion(packed=is_packed(folder))
    with tempfile.TemporaryDirectory() as aside:
        place = folder
        if opinion.packed:
            place = Path(aside)
            expand(folder, place, opinion)
        check_folder(place, source, root, opinion)
        if registration is not None and (place / "trial.json").is_file():
            trial_sha256 = file_hash(place / "trial.json")
            what = f"was registered as {trial_sha256}, not as the hash you kept"
            opinion.expect(trial_sha256 == registration, "trial.json", what)
    return opinion


def check_folder(folder: Path, source: Path | None, root: str | None, opinion: Opinion) -> None:
    """Run all checks in order; skip a check only if its inputs cannot be read."""
    trial = load(folder / "trial.json", opinion)
    events = read_journal(folder / "journal.jsonl", opinion)
    wanted: dict[str, Any] = {}  # of the closeout
    if isinstance(trial, dict) and events:
        wanted = check_trial(folder, trial, events, source, opinion)
    elif not opinion.problems:
        opinion.expect(bool(events), "journal.jsonl", "has no events")
        opinion.expect(isinstance(trial, dict), "trial.json", "is not a registration")
    if (folder / CLOSEOUT).exists():
        manifest = load(folder / CLOSEOUT, opinion)
        if manifest is None and opinion.problems:
            return
        with reading(CLOSEOUT, opinion):
            check_closeout(folder, manifest, wanted, root, opinion)
        with reading(CLOSEOUT, opinion):
            check_statement(folder, manifest, trial, events, opinion)
    else:
        opinion.expect(root is None, CLOSEOUT, "is missing; there is no root to compare")
        left = (folder / STATEMENT).exists()
        opinion.expect(not left, CLOSEOUT, f"is missing, but {STATEMENT} exists; close the trial")


def check_trial(
    folder: Path,
    trial: dict[str, Any],
    events: list[dict[str, Any]],
    source: Path | None,
    opinion: Opinion,
) -> dict[str, Any]:
    """Check all but the closeout, and return what the closeout must say."""
    trial_sha256, name = file_hash(folder / "trial.json"), "trial.json"
    opinion.expect(
        events[0].get("trial") == trial_sha256, name, "changed since the journal's first line"
    )
    wanted: dict[str, Any] = {"trial": trial_sha256}
    records: dict[str, dict[str, Any]] = {}
    gates = trial.get("gates")
    form = trial.get("format") == "evenline-trial-1"
    opinion.expect(form, name, "is not in the format of a registration")
    opinion.expect(gates in (None, GATES), name, "says of its gates what they do not check")
    with reading("plan.toml", opinion):
        check_plan(folder, trial, opinion)
    with reading(name, opinion):
        check_registration(folder, trial, events, opinion)
    with reading("journal.jsonl", opinion):
        check_events(folder, trial, events, opinion)
    with reading(name, opinion):
        check_source(folder, trial, events, source, opinion)
    with reading(name, opinion):
        wanted |= {"name": trial["name"], "notices": notices(folder, trial, events, opinion)}
        records = check_records(folder, trial, trial_sha256, events, opinion)
    with reading("matrix.json", opinion):
        check_matrix(folder, trial_sha256, records, opinion)
    with reading(name, opinion):
        opinion.expect(bool(records or opinion.problems), "records", "there are none")
        if records and not opinion.problems:
            figures = {"notices": wanted["notices"]}
            whole = trial.get("gates") is None or not absent(folder, trial, opinion)
            figures |= recompute(trial, list(records.values()), whole)
            results = {"confirmed": figures["confirmed"], "results_sha256": results_hash(records)}
            check_analysis(folder, trial_sha256, figures, results["results_sha256"], opinion)
            wanted |= results
            opinion.report = {
                "format": "evenline-trial-verification-1",
                "trial": trial_sha256,
                "records": len(records),
                "analysis_agrees": not opinion.problems,
                **figures,
                "controls": {
                    label: {name: row[name] for name in ("difference", "favourable_blocks")}
                    for label, row in figures["controls"].items()
                },
            }
            if (folder / CLOSEOUT).is_file():  # until then it may be of an earlier analysis
                kept = load(folder / VERIFICATION, opinion)
                compare(VERIFICATION, opinion.report, kept, opinion, strict=True)
    return wanted


# -- the plan and the journal ---------------------------------------------------------------------


def check_plan(folder: Path, trial: dict[str, Any], opinion: Opinion) -> None:
    """Check that the registered plan is what `plan.toml` settles to, and that it can be a plan."""
    where, plan = "trial.json plan", trial["plan"]
    raw = tomllib.loads(content_of(folder / "plan.toml").decode("utf-8-sig"))
    wanted = settled(raw)
    for name, value in (PLAN | {"limits": LIMITS}).items():  # of a registration before it existed
        if name not in plan and wanted[name] == value:
            del wanted[name]
    for part, later in (("claim", ("robustness",)), ("limits", tuple(LIMITS))):
        for name in later:
            default = (CLAIM | LIMITS)[name]
            if part in plan and name not in plan[part] and wanted[part][name] == default:
                del wanted[part][name]
    compare(where, wanted, plan, opinion, "plan.toml gives", strict=True)
    claim, seen = plan["claim"], [number for block in plan["blocks"] for number in block]
    for name, value in FIXED.items():
        opinion.expect(claim[name] == value, where, f"{name} can only be {value!r}")
    good = 0 < exact(claim["level"]) < 1 and 0 <= exact(claim["completion_margin"]) < 1
    opinion.expect(good, where, "level or margin is out of range")
    roles = {claim["candidate"], claim["parent"]}
    good = len(roles) == 2 and roles <= plan["methods"].keys()
    opinion.expect(good, where, "candidate and parent are not two methods")
    for gate in (*claim["gates"], *claim.get("robustness", ())):
        asked = LESS_TIME.fullmatch(gate)
        good = asked is None or asked[1] in plan["methods"].keys() - roles
        if asked is not None and asked[3] is not None:
            good = good and int(asked[3]) == len(plan["blocks"]) >= int(asked[2]) >= 1
        good = good and (asked is not None or gate in GATES)
        opinion.expect(good, where, f"gate {gate!r:.80} cannot be")
    good = all(map(is_count, (*seen, *plan["seeds"]))) and bool(seen)
    for values in (plan["blocks"], plan["seeds"], plan["levels"]):
        good = good and len({str(value) for value in values}) == len(values) > 0
    good = good and all(is_number(level) and 0 < level < 1_000 for level in plan["levels"])
    opinion.expect(good, where, "blocks, seeds or levels cannot be those of a trial")
    limits = plan.get("limits", LIMITS).values()
    good = all(is_number(value) and value > 0 for value in limits)
    opinion.expect(good, where, "its limits are not above 0")
    opinion.expect(trial["name"] == plan["name"], "trial.json", "is not named after its plan")
    registered = [(p["method"], p["seed"], p["source"]) for p in trial["policies"]]
    same = sorted(map(str, registered)) == sorted(map(str, sources(plan)))
    opinion.expect(same, "trial.json", "its policies are not the plan's")
    world, ours = plan.get("world", "sumo"), ("sumo", "fast")
    same = trial.get("world", "sumo") == world or world not in ours
    opinion.expect(same, "trial.json", "its world is not the plan's")
    same = (trial["sumo"] is not None) == (world == "sumo")
    same = same and plan.get("sumo") in (None, trial["sumo"])
    opinion.expect(same, "trial.json", "its version of SUMO is not the plan's")


def settled(raw: dict[str, Any]) -> dict[str, Any]:
    """A plan as it is registered, from the values of its file."""
    claim, blocks, seeds = raw["claim"], raw["blocks"], raw["seeds"]
    claim = CLAIM | {
        name: str(value) if name in ("completion_margin", "level") else value
        for name, value in claim.items()
    }
    claim.setdefault("gates", list(GATES))
    level, count = exact(claim["level"]), blocks["count"]
    enough = (wins for wins in range(count + 1) if tail(wins, count) <= level)
    claim["required_wins"] = next(enough, None)
    methods = {}
    for label, given in raw["methods"].items():
        sources = given if isinstance(given, list) else [given]
        if isinstance(given, str) and "{seed}" in given:
            sources = [given.replace("{seed}", str(seed)) for seed in seeds]
        methods[label] = sources
    limits = LIMITS | raw.get("limits", {})
    limits |= {name: float(limits[name]) for name in ("memory_gib", "silence_s")}
    first = (blocks["sumo_seed"], blocks["demand_seed"])
    return (
        PLAN
        | raw
        | {
            "claim": claim,
            "methods": methods,
            "blocks": [[number + i for number in first] for i in range(count)],
            "levels": [float(level) for level in raw["levels"]],
            "limits": limits,
        }
    )


def sources(plan: dict[str, Any]) -> list[tuple[str, int | None, str]]:
    """Every policy of a plan: its method, its training seed if it has one, and its source."""
    return [
        (label, seed, source)
        for label, of_label in plan["methods"].items()
        for seed, source in zip(
            plan["seeds"] if len(of_label) == len(plan["seeds"]) else [None], of_label, strict=True
        )
    ]


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def moment(text: Any) -> datetime:
    """A time as our files have it; a date that is none raises an error."""
    if not re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z", text):
        raise ValueError(f"{str(text)[:40]!r} is not a time")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def check_events(
    folder: Path, trial: dict[str, Any], events: list[dict[str, Any]], opinion: Opinion
) -> None:
    """Check that every event is one that a journal can have, with what belongs to it, in order."""
    began, methods = moment(trial["registered_at"]), trial["plan"]["methods"]
    ended = closing(folder, opinion)
    jobs, gone, last = expected_jobs(trial), [], began
    for number, event in enumerate(events, start=1):
        where, kind = f"journal.jsonl line {number}", event["event"]
        if not opinion.expect(kind in EVENTS, where, f"has an unknown event {kind!r:.40}"):
            continue
        good = event.keys() == EVENTS[kind] | {"at", "event", "previous"}
        opinion.expect(good, where, f"is not as an event {kind!r} is")
        at = moment(event["at"])
        opinion.expect(at >= began - SKEW, where, "is before the registration")
        opinion.expect(at >= last - SKEW, where, "is before the line above it")
        opinion.expect(
            number > 1 or at <= began + REGISTERING, where, "is long after registered_at"
        )
        opinion.expect(ended is None or at <= ended + SKEW, where, "is after the closeout")
        last = max(last, at)
        opinion.expect((number == 1) == (kind == "registered"), where, "registers the trial again")
        if kind in ("deviation", "withdrawn"):
            good = all(isinstance(event[key], str) and event[key].strip() for key in ("why", "by"))
            opinion.expect(good, where, "has no reason or no name")
        if kind == "peek":
            good = is_count(event["records"]) and event["records"] <= len(jobs)
            opinion.expect(good, where, "shows more days than there are")
        if kind in ("quarantined", "released"):
            opinion.expect(event["job"] in jobs, where, "names no job of this trial")
        if kind == "withdrawn":
            good = event["method"] in methods and event["method"] not in gone
            opinion.expect(good, where, "withdraws no method of this trial")
            gone.append(event["method"])


# -- a packed trial -------------------------------------------------------------------------------


def is_packed(folder: Path) -> bool:
    """Whether a folder has its records in files of blocks."""
    return not (folder / "records").exists() and any(folder.glob("block-*.xz"))


def expand(packed: Path, folder: Path, opinion: Opinion) -> None:
    """Fill a folder with the files of a packed trial, each record in a file of its own."""
    for path in sorted(packed.iterdir()):
        name = BLOCK.fullmatch(path.name)
        with reading(path.name, opinion):
            if name is not None and path.is_file() and not path.is_symlink():
                expand_block(path, name, folder / "records", opinion)
            elif path.is_dir() and not path.is_symlink():
                shutil.copytree(path, folder / path.name, symlinks=True)
            else:  # what does not belong there is found in the expanded folder
                shutil.copyfile(path, folder / path.name, follow_symlinks=False)


def expand_block(path: Path, name: re.Match[str], records: Path, opinion: Opinion) -> None:
    """Write the records of a block; its file is named by its seeds and its own hash."""
    content = path.read_bytes()
    same = hashlib.sha256(content).hexdigest().startswith(name[3])
    if not opinion.expect(same, path.name, "changed since it was packed (its hash differs)"):
        return
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    lines = decoder.decompress(content, LARGEST_BLOCK).splitlines()
    whole = decoder.eof and not decoder.unused_data
    opinion.expect(whole, path.name, "is not one whole xz stream")
    records.mkdir(exist_ok=True)
    for line in lines:
        record = json.loads(line)
        cell, target = record["cell"], records / f"{record['job']}.json"
        inside = [str(cell[key]) for key in ("sumo_seed", "demand_seed")] == [name[1], name[2]]
        inside = inside and re.fullmatch("[0-9a-f]{64}", record["job"]) is not None
        inside = inside and not target.exists()
        if opinion.expect(inside, path.name, "has a record that does not belong to the block"):
            target.write_bytes(as_written(record))


# -- files and hashes -----------------------------------------------------------------------------


def load(path: Path, opinion: Opinion) -> Any:
    """Read a JSON file; return None, and note a problem, if it cannot be read."""
    try:
        return json.loads(content_of(path).decode(), object_pairs_hook=each_once)
    except (OSError, ValueError, RecursionError) as error:
        opinion.expect(False, path.name, f"cannot be read ({error})")
        return None


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; one that says two things of one key says different things to readers."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


@contextmanager
def reading(where: str, opinion: Opinion) -> Iterator[None]:
    """Note a problem if a file is valid JSON, but its keys or types are not those of a trial."""
    try:
        yield
    except MALFORMED as error:
        what = f"is not as a trial's files are ({type(error).__name__}: {error})"
        opinion.expect(False, where, what)


def content_of(path: Path) -> bytes:
    """The content of a regular file; a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file")
    return path.read_bytes()


def file_hash(path: Path) -> str:
    return hashlib.sha256(content_of(path)).hexdigest()


def as_written(value: Any) -> bytes:
    """The bytes of a value in the form in which a trial's files are written."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def value_hash(value: Any) -> str:
    return hashlib.sha256(as_written(value)).hexdigest()


def results_hash(records: dict[str, dict[str, Any]]) -> str:
    """One hash for all results."""
    return value_hash({address: record["result_sha256"] for address, record in records.items()})


def hashes_below(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in paths}


def read_journal(path: Path, opinion: Opinion) -> list[dict[str, Any]]:
    """Read the journal's lines, each of which has the hash of the previous line."""
    try:
        lines = content_of(path).splitlines(keepends=True)
        events: list[dict[str, Any]] = [
            json.loads(line, object_pairs_hook=each_once) for line in lines
        ]
    except (OSError, ValueError, RecursionError) as error:
        opinion.expect(False, path.name, f"cannot be read ({error})")
        return []
    if not opinion.expect(all(isinstance(e, dict) for e in events), path.name, "has no events"):
        return []
    before = ""
    for number, (line, event) in enumerate(zip(lines, events, strict=True), start=1):
        follows = event.get("previous") == before
        opinion.expect(follows, f"{path.name} line {number}", "does not follow from the one before")
        before = hashlib.sha256(line).hexdigest()
    return events


def withdrawn(events: list[dict[str, Any]]) -> set[str]:
    """The controls whose remaining days were given up."""
    return {event["method"] for event in events if event["event"] == "withdrawn"}


def check_registration(
    folder: Path, trial: dict[str, Any], events: list[dict[str, Any]], opinion: Opinion
) -> None:
    """Check that city, bundles and plan are the registered files.

    Tensors may be absent from a packed trial, and where only withdrawn methods use them.
    """
    claim, gone = trial["plan"]["claim"], withdrawn(events)
    for role in ("candidate", "parent"):
        opinion.expect(claim[role] not in gone, "journal.jsonl", f"withdraws the {role}")
    kept = {policy["path"] for policy in trial["policies"] if policy["method"] not in gone}
    if (folder / "plan.toml").is_file():
        same = file_hash(folder / "plan.toml") == trial["plan_sha256"]
        opinion.expect(same, "plan.toml", "changed since it was registered")
    else:
        opinion.expect(False, "plan.toml", "is missing")
    present, registered = hashes_below(folder / "inputs"), trial["inputs"]
    for name in sorted(present.keys() | registered.keys()):
        where = f"inputs/{name}"
        needed = not opinion.packed and str(Path(name).parent) in kept
        if name not in present and not needed and DETACHABLE.fullmatch(name):
            opinion.detached[where] = registered[name]
        elif name not in present:
            opinion.expect(False, where, "is missing, though it was registered")
        elif name not in registered:
            opinion.expect(False, where, "was not registered")
        else:
            same = present[name] == registered[name]
            opinion.expect(same, where, "changed since it was registered (SHA-256 differs)")
    check_city(folder, trial, opinion)
    digests: dict[str, str] = {}
    for policy in trial["policies"]:
        where = f"policy of {policy['method']} {policy['seed']}"
        place = policy["path"].partition(":")[0]  # for the user's own rule, the copied file
        for name, digest in policy["files"].items():
            path = place if place.endswith(".py") else f"{place}/{name}"
            same = registered.get(path) == digest
            opinion.expect(same, where, f"{name} is not among the registered inputs")
        one = digests.setdefault(policy["path"], policy["digest"]) == policy["digest"]
        opinion.expect(one, where, "has another digest than the same policy elsewhere")
        if policy["path"].startswith("policies/"):
            check_bundle(folder, policy, where, opinion)
        else:
            builtin = not policy["files"]
            same = not builtin or policy["path"] == policy["source"]
            opinion.expect(same, where, "is not its built-in source")
            check_spec(trial, policy, where, opinion)
        stable = is_stable(folder / "inputs" / policy["path"] / "policy.json", opinion)
        opinion.expect(policy["stable"] == stable, where, "stability is not as its bundle says")


def check_city(folder: Path, trial: dict[str, Any], opinion: Opinion) -> None:
    """Check that city and calibration are those that the registration names."""
    registered, city = trial["inputs"], trial["city"]
    where, manifest = "inputs/city", load(folder / "inputs" / "city" / "manifest.json", opinion)
    same = registered.get("city/manifest.json") == city["digest"]
    opinion.expect(same, where, "is not the registered city")
    opinion.expect(manifest["name"] == city["name"], where, "has another name than registered")
    for name, digest in manifest["files"].items():
        same = registered.get(f"city/{name}") == digest
        opinion.expect(same, where, f"{name} is not the file of the city's manifest")
    fitted = registered.get("city/calibration.json")
    if "calibration" in trial:
        same = trial["calibration"] == fitted
        opinion.expect(same, where, "its calibration is not the registered one")


def check_bundle(folder: Path, policy: dict[str, Any], where: str, opinion: Opinion) -> None:
    """Check that a bundle's digest, folder and list of hashes follow from its files."""
    files, digest = policy["files"], policy["digest"]
    known = {"policy.json", "tensors.safetensors", "hashes.json"}
    parts = [files[name] for name in sorted(known - {"hashes.json"}) if name in files]
    same = bool(parts) and hashlib.sha256("".join(parts).encode()).hexdigest() == digest
    opinion.expect(same, where, "its digest is not that of its bundle")
    same = policy["path"] == f"policies/{digest[:16]}" and files.keys() <= known
    opinion.expect(same, where, "its bundle is not named by its digest")
    listed = load(folder / "inputs" / policy["path"] / "hashes.json", opinion)
    same = listed == {
        name: file_digest for name, file_digest in files.items() if name != "hashes.json"
    }
    opinion.expect(same, where, "hashes.json does not list the files of its bundle")


def check_spec(trial: dict[str, Any], policy: dict[str, Any], where: str, opinion: Opinion) -> None:
    """Check that the digest of a policy that is no bundle follows from its specification, and that
    the specification is what its name says.
    """
    spec = policy.get("spec")
    if spec is None:  # as in the registrations from before they said what gates check
        earlier = not {"gates", "subject"} & trial.keys()
        opinion.expect(earlier, where, "has no specification")
        return
    digest = hashlib.sha256(value_hash(spec).encode()).hexdigest()
    opinion.expect(digest == policy["digest"], where, "its digest is not that of its specification")
    rest, plus, chain = policy["source"].rpartition("+")
    if not plus or "/" in chain:
        rest, chain = policy["source"], "raw"
    place, *settings = rest.split(":")
    rule, constants = spec.get("rule"), spec["constants"]
    if policy["files"]:
        same = spec["kind"] == "own" and spec["code"] in policy["files"].values()
    elif place == "lookahead":
        same = spec["kind"] == place and rule is None
    else:  # some settings of a rule are named after it, as `headway-0.4`
        same = spec["kind"] == "rule" and (place == rule or place.startswith(f"{rule}-"))
    for name, equals, value in (setting.partition("=") for setting in settings):
        same = same and (not equals or constants.get(name) == float(value))
    same = same and spec["chain"] == chain
    opinion.expect(same, where, "its specification is not what its name says")


def absent(folder: Path, trial: dict[str, Any], opinion: Opinion) -> set[str]:
    """Registered files that are gone, or were when the trial was closed."""
    there = set(hashes_below(folder / "inputs"))
    closed = (folder / CLOSEOUT).is_file()
    files = closed_files(folder, opinion) if closed else None
    if files is not None:
        there = {name.removeprefix("inputs/") for name in files if name.startswith("inputs/")}
    return set(trial["inputs"]) - there


def closed_files(folder: Path, opinion: Opinion) -> dict[str, str] | None:
    """The files that a closeout lists; None, noted as its problem elsewhere, if it lists none."""
    manifest = load(folder / CLOSEOUT, opinion)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    return files if isinstance(files, dict) else None


def is_stable(path: Path, opinion: Opinion) -> bool:
    """Whether a trained actor is recorded as stable; an untrained policy counts as stable."""
    if not path.is_file():
        return True
    spec = load(path, opinion)
    if not isinstance(spec, dict):
        return False
    provenance = spec.get("provenance", {})
    if spec.get("kind") == "lookahead" and ACTOR_BASE.match(str(spec.get("base"))):
        provenance = provenance.get("base") if isinstance(provenance, dict) else None
    elif spec.get("kind") != "actor":
        return True
    return isinstance(provenance, dict) and provenance.get("stable") is True


def source_hashes(folder: Path, source: Path | None, opinion: Opinion) -> dict[str, str] | None:
    """Hashes of source files: of the given package, else as closed, else next to this program."""
    if source is None and (folder / CLOSEOUT).is_file():
        files = closed_files(folder, opinion)
        if files is None:
            return None
        return {name[7:]: digest for name, digest in files.items() if name.startswith("source/")}
    package = source or PACKAGE
    return hashes_below(package) if (package / "trial" / "registration.py").is_file() else None


def check_source(
    folder: Path,
    trial: dict[str, Any],
    events: list[dict[str, Any]],
    source: Path | None,
    opinion: Opinion,
) -> None:
    """Check that the source files are as registered, or as signed off since."""
    signed = {
        (name, digest)
        for event in events
        if event["event"] == "deviation"
        for name, digest in event["source"].items()
    }
    current = source_hashes(folder, source, opinion)
    for part in ("evaluator", "analyser"):
        files = trial[part]["files"]
        same = value_hash(files) == trial[part]["sha256"]
        opinion.expect(same, "trial.json", f"hash of the {part} is not that of its files")
    if current is None:
        return  # this program was copied alone: there is no source to compare with
    for name, digest in sorted((trial["evaluator"]["files"] | trial["analyser"]["files"]).items()):
        now = current.get(name)
        same = now == digest or (name, now) in signed
        opinion.expect(same, f"source {name}", "is not the registered source")


# -- records --------------------------------------------------------------------------------------


def expected_jobs(trial: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The jobs that records must belong to, by the hash that names them."""
    jobs = {}
    for sumo_seed, demand_seed in trial["plan"]["blocks"]:
        for level in trial["plan"]["levels"]:
            for policy in trial["policies"]:
                job = {
                    "method": policy["method"],
                    "seed": policy["seed"],
                    "policy": policy["digest"],
                    "cell": {"sumo_seed": sumo_seed, "demand_seed": demand_seed, "demand": level},
                    "city": trial["city"]["digest"],
                    "sumo": trial["sumo"],
                    "evaluator": trial["evaluator"]["sha256"],
                }
                if trial.get("versions") is not None:
                    job |= {key: trial[key] for key in ("world", "calibration", "versions")}
                if trial.get("network") is not None:
                    job["network"] = trial["network"]
                jobs[value_hash(job)] = job
    return jobs


def check_records(
    folder: Path,
    trial: dict[str, Any],
    trial_sha256: str,
    events: list[dict[str, Any]],
    opinion: Opinion,
) -> dict[str, dict[str, Any]]:
    """Check that every job has one record, every record has a job, and each record is valid.

    The jobs of a withdrawn method may lack theirs.
    """
    jobs, gone = expected_jobs(trial), withdrawn(events)
    plan = trial["plan"]
    policies = sum(len(sources) for sources in plan["methods"].values())
    planned = len(plan["blocks"]) * len(plan["levels"]) * policies
    opinion.expect(len(jobs) == trial["jobs"] == planned, "trial.json", "jobs are not the plan's")
    signed = {event["evaluator"] for event in events if event["event"] == "deviation"}
    evaluators = signed | {trial["evaluator"]["sha256"]}
    records = {}
    for address, job in jobs.items():
        path = folder / "records" / f"{address}.json"
        seed = "" if job["seed"] is None else f" {job['seed']}"
        name = f"{job['method']}{seed} {'-'.join(map(str, job['cell'].values()))}"
        if job["method"] in gone and not path.is_file():
            continue
        if opinion.expect(path.is_file(), f"records/{path.name}", f"is missing ({name})"):
            record = load(path, opinion)
            if isinstance(record, dict) and check_record(
                path,
                record,
                job,
                address,
                trial_sha256,
                evaluators,
                policy_files(trial, job),
                opinion,
            ):
                records[address] = record
    for path in sorted((folder / "records").glob("*")):
        stranger = path.stem not in jobs or path.suffix != ".json"
        opinion.expect(not stranger, f"records/{path.name}", "is no job of this trial")
    for path in sorted((folder / "quarantine").glob("*.json")):
        opinion.expect(False, f"quarantine/{path.name}", "a job is quarantined")
    check_same_days(records, opinion)
    check_running(folder, trial, records, opinion)
    return records


def check_running(
    folder: Path, trial: dict[str, Any], records: dict[str, dict[str, Any]], opinion: Opinion
) -> None:
    """Check that the days ran when and as they could: after the registration, before the closeout,
    with their seeds, over the city's horizon.
    """
    city = load(folder / "inputs" / "city" / "manifest.json", opinion)
    began, horizon_s = moment(trial["registered_at"]), city["horizon_s"]
    ended = closing(folder, opinion)
    rows = csv.reader(content_of(folder / "inputs" / "city" / "trips.csv").decode().splitlines())
    trips, shared, span, more = sum(1 for _ in rows) - 1, None, ("0", str(horizon_s)), set()
    scenario = city.get("carried") or {}
    if scenario.get("own_buses"):  # it runs by its own clock, with options of its own
        span = (str(scenario["begin_s"]), scenario["options"].get("end"))
        more = {f"--{option}" for option in scenario["options"]}
    for address, record in records.items():
        where, day, run = f"records/{address}.json", record["outcome"], record["run"]
        at = moment(run["finished_at"])
        opinion.expect(at >= began - SKEW, where, "ended before the trial was registered")
        opinion.expect(ended is None or at <= ended + SKEW, where, "ended after the closeout")
        since_s = (at - began + SKEW).total_seconds()
        good = is_number(run["duration_s"]) and 0 <= run["duration_s"] <= max(since_s, 0)
        opinion.expect(good, where, "took no time that there is")
        most_s = day["departed"] * horizon_s
        possible = day["waiting_s"] + day["riding_s"] <= most_s
        opinion.expect(possible, where, "its passengers spent more time than the day has")
        possible = day["trips_completed"] <= trips
        opinion.expect(possible, where, "completed more trips than the timetable has")
        possible = day["trip_duration_total_s"] <= trips * horizon_s
        possible = possible and day["hold_total_s"] <= day["decisions"] * horizon_s
        opinion.expect(possible, where, "its buses spent more time than the day has")
        words = record["sumo"]["options"]
        if trial["sumo"] is None:
            opinion.expect(words == [], where, "has options of SUMO without SUMO")
            continue
        given = dict(zip(words[::2], words[1::2], strict=True))
        seed = str(record["cell"]["sumo_seed"])
        opinion.expect(given.get("--seed") == seed, where, "ran with another seed of SUMO")
        opinion.expect(len(given) == len(words) / 2, where, "has an option of SUMO twice")
        same = (given.get("--begin"), given.get("--end")) == span
        opinion.expect(same, where, "did not run over the city's horizon")
        for name in sorted(given.keys() - OPTIONS - more):
            opinion.expect(False, where, f"has an option {name:.40} that no day of the city has")
        options = given | {"--seed": ""}
        shared = options if shared is None else shared
        opinion.expect(options == shared, where, "ran with other options than the rest")


def closing(folder: Path, opinion: Opinion) -> datetime | None:
    """When a trial was closed; None if it was not."""
    closed = load(folder / CLOSEOUT, opinion) if (folder / CLOSEOUT).is_file() else None
    return (
        moment(closed["closed_at"]) if isinstance(closed, dict) and "closed_at" in closed else None
    )


def policy_files(trial: dict[str, Any], job: dict[str, Any]) -> dict[str, str]:
    """The registered files of a job's bundle, including tensors."""
    for policy in trial["policies"]:
        if (policy["method"], policy["seed"]) == (job["method"], job["seed"]):
            return dict(policy["files"])
    return {}


def check_record(
    path: Path,
    record: dict[str, Any],
    job: dict[str, Any],
    address: str,
    trial_sha256: str,
    evaluators: set[str],
    files: dict[str, str],
    opinion: Opinion,
) -> bool:
    """Check one record: its two seals, its job, and its arithmetic."""
    where, before = f"records/{path.name}", len(opinion.problems)
    try:
        outer = {k: v for k, v in record.items() if k != "record_sha256"}
        inner = {k: v for k, v in outer.items() if k not in ("trial", "run", "result_sha256")}
        sealed = value_hash(outer) == record["record_sha256"]
        opinion.expect(sealed, where, "changed since it was written (its seal differs)")
        sealed = value_hash(inner) == record["result_sha256"]
        opinion.expect(sealed, where, "its result changed since it was written (seal differs)")
        bound = {
            "trial": (record["trial"], trial_sha256),
            "job": (record["job"], address),
            "method": (record["method"], job["method"]),
            "seed": (record["seed"], job["seed"]),
            "cell": (record["cell"], job["cell"]),
            "city": (record["city"], job["city"]),
            "policy": (record["policy"]["digest"], job["policy"]),
            "policy files": (record["policy"]["files"], files),
            "SUMO": (record["sumo"]["version"], job["sumo"]),
        }
        for name in ("world", "versions"):
            if name in job:
                bound[name] = (record[name], job[name])
        if "network" in job:
            bound["network"] = (record["sumo"]["network"], job["network"])
        if record.get("calibration") is not None:
            bound["calibration"] = (record["calibration"], job.get("calibration"))
        for name, (recorded, wanted) in bound.items():
            opinion.expect(recorded == wanted, where, f"holds {name} {recorded!r}, not {wanted!r}")
        known = record["evaluator"] in evaluators
        opinion.expect(known, where, "was made by other source than registered")
        form = record["format"] == "evenline-trial-record-1"
        opinion.expect(form, where, "is not in the format of a record")
        check_arithmetic(where, record["outcome"], record["ledger"], opinion)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        opinion.expect(False, where, f"is not a record ({type(error).__name__}: {error})")
    return len(opinion.problems) == before


def check_arithmetic(
    where: str, day: dict[str, Any], ledger: dict[str, Any], opinion: Opinion
) -> None:
    """Check that the ledger adds up and that the endpoints follow from it."""
    counts = {name: day[name] for name in COUNTS}
    counts |= {name: day[name] for name in MORE_COUNTS if name in day}
    for name, value in counts.items():
        opinion.expect(is_count(value), where, f"{name} = {value!r:.40} is not a count")
    opinion.expect(ledger.keys() == LEDGER, where, "its ledger is not one")
    cost = 2 * day["waiting_s"] + day["riding_s"]
    opinion.expect(
        cost == day["cost"] == day["pre_control_cost"] + day["token_cost"],
        where,
        "the ledger does not add up to the cost",
    )
    same = all(ledger[name] == day[name] for name in ledger)
    opinion.expect(same, where, "ledger and outcome differ")
    possible = 0 <= day["completed"] <= day["departed"]
    opinion.expect(possible, where, "more passengers completed than departed")
    decisions, trips, hold_s = day["decisions"], day["trips_completed"], day["hold_total_s"]
    possible = max(day["holds_zero"], day["zero_duration_tokens"]) <= decisions
    opinion.expect(possible, where, "has more holds than decisions")
    opinion.expect(is_number(hold_s) and hold_s >= 0, where, "its holds are no time")
    derived = {name: float(value) for name, value in endpoints(day).items()} | {
        "mean_hold_s": hold_s / decisions if decisions else 0.0,
        "zero_hold_share": day["holds_zero"] / decisions if decisions else 1.0,
        "trip_duration_s": day["trip_duration_total_s"] / trips if trips else 0.0,
    }
    for name, value in derived.items():
        same = value == day[name] and type(day[name]) is not bool
        opinion.expect(same, where, f"{name} does not follow from the ledger")


def check_same_days(records: dict[str, dict[str, Any]], opinion: Opinion) -> None:
    """Check that all methods of a cell met the same passengers."""
    departed: dict[str, int] = {}
    for address, record in records.items():
        cell = json.dumps(record["cell"], sort_keys=True)
        first = departed.setdefault(cell, record["outcome"]["departed"])
        same = record["outcome"]["departed"] == first
        opinion.expect(same, f"records/{address}.json", "met other passengers than its cell's rest")


def check_matrix(
    folder: Path, trial_sha256: str, records: dict[str, dict[str, Any]], opinion: Opinion
) -> None:
    """Check that `matrix.json`, written when the last job was done, lists these files."""
    matrix = load(folder / "matrix.json", opinion)
    if not isinstance(matrix, dict):
        return
    opinion.expect(matrix.get("trial") == trial_sha256, "matrix.json", "belongs to another trial")
    listed = {name: value for block in matrix["blocks"].values() for name, value in block.items()}
    for address, wanted in listed.items():
        path = folder / "records" / f"{address}.json"
        same = path.is_file() and file_hash(path) == wanted
        opinion.expect(same, f"records/{path.name}", "is not the file that matrix.json lists")
    form = matrix["format"] == "evenline-trial-matrix-1"
    opinion.expect(form, "matrix.json", "is not in the format of a matrix")
    for name, block in matrix["blocks"].items():
        for address in block.keys() & records.keys():
            cell = records[address]["cell"]
            inside = name == f"{cell['sumo_seed']}-{cell['demand_seed']}"
            opinion.expect(inside, "matrix.json", f"lists {address} in another block")
    for address in records.keys() - listed.keys():
        opinion.expect(False, f"records/{address}.json", "is not listed in matrix.json")
    same = matrix["jobs"] == len(records) and matrix["results_sha256"] == results_hash(records)
    opinion.expect(same, "matrix.json", "hash of all results differs")


# -- figures --------------------------------------------------------------------------------------


def endpoints(day: dict[str, Any]) -> dict[str, Fraction]:
    """Y, completion and unfinished passengers of a day, from its whole numbers."""
    departed, completed = day["departed"], day["completed"]
    cost = 2 * day["waiting_s"] + day["riding_s"]
    return {
        "generalized_s": Fraction(cost, departed) if departed else Fraction(0),
        "completion": Fraction(completed, departed) if departed else Fraction(1),
        "unfinished": Fraction(departed - completed),
    }


def exact(text: str) -> Fraction:
    """A decimal number as a plan may have it; a huge exponent would take forever."""
    if not DECIMAL.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a decimal number")
    return Fraction(text)


def average(values: list[Fraction]) -> Fraction:
    return sum(values, start=Fraction(0)) / len(values)


def tail(wins: int, blocks: int) -> Fraction:
    """The probability of at least `wins` heads among fair coins."""
    return sum((Fraction(comb(blocks, k), 2**blocks) for k in range(wins, blocks + 1)), Fraction(0))


def recompute(
    trial: dict[str, Any], records: list[dict[str, Any]], whole: bool = True
) -> dict[str, Any]:
    """The registered figures of the trial, in exact arithmetic, as `analysis.json` has them.

    `whole`: no registered file is gone. That none was changed is a condition for getting here.
    """
    plan, claim = trial["plan"], trial["plan"]["claim"]
    days = days_of(records, plan["seeds"])
    gaps = gap_table(days, claim["candidate"], claim["parent"])
    blocks = sorted(tuple(block) for block in plan["blocks"])
    by_block = {
        name: [
            average([gap[name] for key, gap in gaps.items() if key[2:4] == block])
            for block in blocks
        ]
        for name in FIGURES
    }
    margin = exact(claim["completion_margin"])
    primary = sign_test(sum(d < 0 for d in by_block["generalized_s"]), claim, len(blocks))
    service = sign_test(sum(d + margin > 0 for d in by_block["completion"]), claim, len(blocks))
    both = primary["passed"] and service["passed"]
    by_level = {str(d): means(gaps, 4, d) for d in plan["levels"]}
    overall = means(gaps)
    described = [label for label in plan["methods"] if any(key[0] == label for key in days)]
    roles = (claim["candidate"], claim["parent"])
    checks = {
        "mean direction": overall["generalized_s"] < 0,
        "demand direction": all(row["generalized_s"] < 0 for row in by_level.values()),
        "completeness": len(records) == trial["jobs"],
        "artifacts": whole,
        "stability": all(p["stable"] for p in trial["policies"] if p["method"] in roles),
    }
    controls = {
        label: against_control(gap_table(days, claim["candidate"], label))
        for label in described
        if label not in roles
    }
    gates, beside = (
        {gate: passes(gate, checks, controls, primary) for gate in claim.get(part, ())}
        for part in ("gates", "robustness")
    )
    return {
        "claim": {
            "primary": primary
            | {"block_differences": [float(d) for d in by_block["generalized_s"]]},
            "completion": service
            | {"block_differences": [float(d) for d in by_block["completion"]]},
            "unfinished_block_differences": [float(d) for d in by_block["unfinished"]],
            "intersection_union_passed": both,
        },
        "gates": gates,
        **({"robustness": beside} if "robustness" in claim else {}),
        "confirmed": both and all(gates.values()),
        "means": {label: means(days, 0, label) for label in described},
        "difference": overall,
        "by_level": by_level,
        "by_seed": {str(seed): means(gaps, 1, seed) for seed in plan["seeds"]},
        "controls": controls,
    }


def days_of(records: list[dict[str, Any]], seeds: list[int]) -> dict[Episode, dict[str, Fraction]]:
    """The endpoints of every day; a method without training seeds counts as the same under all."""
    days: dict[Episode, dict[str, Fraction]] = {}
    for record in records:
        cell = record["cell"]
        place = (cell["sumo_seed"], cell["demand_seed"], cell["demand"])
        for seed in seeds if record["seed"] is None else [record["seed"]]:
            days[record["method"], seed, *place] = endpoints(record["outcome"])
    return days


def against_control(gaps: dict[Episode, dict[str, Fraction]]) -> dict[str, Any]:
    """The candidate minus a control, and the blocks in which it takes less time."""
    blocks = sorted({key[2:4] for key in gaps})
    return {
        "difference": means(gaps),
        "blocks": len(blocks),
        "favourable_blocks": sum(
            average([gap["generalized_s"] for key, gap in gaps.items() if key[2:4] == block]) < 0
            for block in blocks
        ),
    }


def passes(
    gate: str, checks: dict[str, bool], controls: dict[str, Any], primary: dict[str, Any]
) -> bool:
    """Whether a gate passes; a withdrawn control may have no day."""
    asked = LESS_TIME.fullmatch(gate)
    if asked is None:
        return checks[gate]
    won: int = controls.get(asked[1], {"favourable_blocks": -1})["favourable_blocks"]
    return won >= int(asked[2] or primary["required_wins"])


def gap_table(
    days: dict[Episode, dict[str, Fraction]], one: str, other: str
) -> dict[Episode, dict[str, Fraction]]:
    """One method minus another, day by day."""
    return {
        key: {name: day[name] - days[other, *key[1:]][name] for name in FIGURES}
        for key, day in days.items()
        if key[0] == one and (other, *key[1:]) in days
    }


def means(
    table: dict[Episode, dict[str, Fraction]], place: int | None = None, wanted: object = None
) -> dict[str, float]:
    """Means over all rows, or over those whose key has a given value at a given position."""
    rows = [row for key, row in table.items() if place is None or key[place] == wanted]
    return {name: float(average([row[name] for row in rows])) for name in FIGURES}


def sign_test(wins: int, claim: dict[str, Any], blocks: int) -> dict[str, Any]:
    """The exact one-sided sign test."""
    chance = tail(wins, blocks)
    level = exact(claim["level"])
    needed = min(w for w in range(blocks + 1) if tail(w, blocks) <= level)
    return {
        "wins": wins,
        "blocks": blocks,
        "required_wins": needed,
        "p": float(chance),
        "passed": wins >= needed,
    }


# -- what was written of it -----------------------------------------------------------------------


def notices(
    folder: Path, trial: dict[str, Any], events: list[dict[str, Any]], opinion: Opinion
) -> list[str]:
    """The notices that every output shows: a world other than SUMO, what the city says of itself,
    deviations, broken seals.
    """
    world = trial["plan"].get("world", "sumo")
    lines = [] if world == "sumo" else [f"run in the world {world!r}, not in SUMO"]
    lines += [
        f"repeats trial {other}: the same plan has used these days, so they are not fresh"
        for other in trial.get("repeats", ())
    ]
    city = folder / "inputs" / "city"
    lines += load(city / "manifest.json", opinion).get("notes", [])
    if world == "fast":
        note = load(city / "calibration.json", opinion).get("note")
        lines += [note] if note and note not in lines else []  # a city from records says it itself
    for event in events:
        if event["event"] == "deviation":
            files = ", ".join(event["source"]) or "no source file"
            lines.append(f"deviation ({event['at']}, {event['by']}): {event['why']} [{files}]")
        if event["event"] == "peek":
            lines.append(f"seal broken ({event['at']}): outcomes of {event['records']} jobs shown")
        if event["event"] == "withdrawn":
            lines.append(
                f"withdrawn ({event['at']}, {event['by']}): {event['method']}: {event['why']}"
            )
    return lines


def check_analysis(
    folder: Path,
    trial_sha256: str,
    figures: dict[str, Any],
    results_sha256: str,
    opinion: Opinion,
) -> None:
    """Check that every figure of `analysis.json` follows from the records, and is one of its."""
    analysis = load(folder / "analysis.json", opinion)
    if not isinstance(analysis, dict):
        return
    opinion.expect(
        analysis.get("trial") == trial_sha256, "analysis.json", "belongs to another trial"
    )
    shown = analysis.get("notices") == figures["notices"]
    opinion.expect(shown, "analysis.json", "does not show the journal's notices")
    wanted = figures | {
        "format": "evenline-trial-analysis-1",
        "trial": trial_sha256,
        "results_sha256": results_sha256,
        "controls": {
            label: control | {"note": DESCRIPTIVE} for label, control in figures["controls"].items()
        },
    }
    if analysis.get("robustness") == {}:
        wanted.setdefault("robustness", {})
    beyond = analysis.pop("beyond_the_claim", None)
    compare("analysis.json", wanted, analysis, opinion, strict=True)
    claim = figures["claim"]
    check_effects(
        {
            "generalized_s": claim["primary"]["block_differences"],
            "completion": claim["completion"]["block_differences"],
            "unfinished": claim["unfinished_block_differences"],
        },
        beyond,
        opinion,
    )


def check_effects(blocks: dict[str, list[float]], given: Any, opinion: Opinion) -> None:
    """Check the sizes of effects: exactly what is exact, and the bootstrap by another generator."""
    where = "analysis.json beyond_the_claim"
    same = isinstance(given, dict) and given.keys() == blocks.keys()
    if not opinion.expect(same, where, "has not one effect for each endpoint"):
        return
    for name, values in blocks.items():
        place, effect = f"{where} {name}", given[name]
        good = effect.keys() == {"note", "hodges_lehmann", "bca_mean"}
        good = good and effect["note"] == DESCRIPTIVE
        opinion.expect(good, place, "is not as an effect is")
        wanted = hodges_lehmann(values)
        same = near(effect["hodges_lehmann"], wanted)
        opinion.expect(same, f"{place} hodges_lehmann", f"the records give {wanted}")
        good = is_bca(values, effect["bca_mean"])
        opinion.expect(good, f"{place} bca_mean", "is not the bootstrap of the records' blocks")


def near(given: dict[str, Any], wanted: dict[str, float]) -> bool:
    """Whether two rows of figures are equal but for the last digits."""
    return given.keys() == wanted.keys() and all(
        is_number(given[key]) and abs(given[key] - value) <= 1e-9 * (1 + abs(value))
        for key, value in wanted.items()
    )


def hodges_lehmann(values: list[float]) -> dict[str, float]:
    """The median of pairwise means, and the interval that inverts the exact signed-rank test."""
    n = len(values)
    means = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    ways = [1]  # of the signed-rank sum: how many sets of ranks have each sum
    for rank in range(1, n + 1):
        ways = [
            (ways[total] if total < len(ways) else 0)
            + (ways[total - rank] if 0 <= total - rank < len(ways) else 0)
            for total in range(len(ways) + rank)
        ]
    cut, below = 0, Fraction(0)  # so many sums are left out on each side
    while 2 * (below + Fraction(ways[cut], 2**n)) <= Fraction(1, 20):
        below += Fraction(ways[cut], 2**n)
        cut += 1
    if cut == 0:
        cut, below = 1, Fraction(ways[0], 2**n)
    return {
        "estimate": median(means),
        "low": means[cut - 1],
        "high": means[len(means) - cut],
        "confidence": float(1 - 2 * below),
    }


def is_bca(values: list[float], given: Any) -> bool:
    """Whether an interval is a BCa bootstrap of the mean over blocks, as far as it can be said.

    With few or equal blocks, many resamples tie with the mean, and rounding decides on which side
    they count; then the interval must only lie within the blocks.
    """
    n = len(values)
    if n < 2 or min(values) == max(values):
        return given is None
    clear = n >= 6 and len(set(values)) == n
    if given is None:
        return not clear
    wanted = {"estimate": fmean(values), "confidence": 0.95}
    if given.keys() != wanted.keys() | {"low", "high"} or not near(
        {name: given[name] for name in wanted}, wanted
    ):
        return False
    ends = bca_ends(values) if clear else [(min(values), max(values))] * 2
    return given["low"] <= given["high"] and all(
        least - 1e-9 * (1 + abs(least)) <= given[side] <= most + 1e-9 * (1 + abs(most))
        for side, (least, most) in zip(("low", "high"), ends, strict=True)
    )


def bca_ends(values: list[float]) -> list[tuple[float, float]]:
    """Between which resampled means each end of the BCa interval lies. The resamples are other ones
    than those of the analysis, so each end may be a neighbouring quantile.
    """
    n, normal, generator, mean = len(values), NormalDist(), random.Random(1), fmean(values)
    drawn = sorted(fmean(generator.choices(values, k=n)) for _ in range(RESAMPLES))
    below = (sum(value < mean for value in drawn) + sum(value <= mean for value in drawn)) / 2
    shift = normal.inv_cdf(min(max(below, 1), RESAMPLES - 1) / RESAMPLES)
    gaps = [(value - mean) / (n - 1) for value in values]  # of the means without one block
    skew = sum(gap**3 for gap in gaps) / (6 * sum(gap**2 for gap in gaps) ** 1.5)
    ends = []
    for chance in (0.025, 0.975):
        z = shift + normal.inv_cdf(chance)
        place = normal.cdf(shift + z / (1 - skew * z))
        first, last = (min(max(place + step, 0.0), 1.0) for step in (-LEEWAY, LEEWAY))
        ends.append((drawn[int(first * (RESAMPLES - 1))], drawn[round(last * (RESAMPLES - 1))]))
    return ends


def compare(
    where: str,
    mine: Any,
    theirs: Any,
    opinion: Opinion,
    by: str = "the records give",
    strict: bool = False,
) -> None:
    """Compare two values recursively, and name each figure that differs; with `strict`, also each
    that should not be there.
    """
    if strict and isinstance(mine, dict) and isinstance(theirs, dict):
        for name in theirs.keys() - mine.keys():
            opinion.expect(False, f"{where} {name}", "does not belong there")
    if isinstance(mine, dict) and mine:
        for name, value in mine.items():
            other = theirs.get(name) if isinstance(theirs, dict) else None
            compare(f"{where} {name}", value, other, opinion, by, strict)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for number, (value, other) in enumerate(zip(mine, theirs, strict=True), start=1):
            compare(f"{where} {number}", value, other, opinion, by, strict)
    else:
        same = mine == theirs and type(mine) is type(theirs)
        says = "has another hash, says" if where.endswith(" sha256") else "says"
        opinion.expect(same, where, f"{says} {theirs!r}, {by} {mine!r}")


def compare_file(path: Path, mine: Any, theirs: Any, opinion: Opinion, by: str) -> None:
    """Compare a whole JSON file, to the byte, with the content that it must have."""
    before = len(opinion.problems)
    compare(path.name, mine, theirs, opinion, by)
    if len(opinion.problems) == before:
        same = path.read_bytes() == as_written(mine)
        opinion.expect(same, path.name, "is not in the form in which it was written")


def check_closeout(
    folder: Path, manifest: Any, wanted: dict[str, Any], root: str | None, opinion: Opinion
) -> None:
    """Check that the manifest lists every file with its hash, and that the rest of it is right."""
    files = manifest["files"]
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    for name, digest in files.items():
        if opinion.detached.get(name) != digest and not name.startswith("source/"):
            same = name in there and there[name].is_file() and file_hash(there[name]) == digest
            opinion.expect(same, name, "is not the file that closeout.json binds")
    for name in strangers(folder, files):
        opinion.expect(False, name, "is not in closeout.json")
    for name in BOUND:
        opinion.expect(name in files, CLOSEOUT, f"does not list {name}")
    leaves = [f"{digest}  {name}\n".encode() for name, digest in sorted(files.items())]
    computed_root = tree([hashlib.sha256(b"\x00" + leaf).digest() for leaf in leaves]).hex()
    opinion.expect(computed_root == manifest["merkle_root"], CLOSEOUT, "its Merkle root is wrong")
    kept = root is None or computed_root == root
    opinion.expect(kept, CLOSEOUT, f"its Merkle root is {computed_root}, not the one you kept")
    # Where the records are wrong, the problems say so already. The statement has the time and the
    # version.
    given = ("confirmed", "results_sha256", "trial", "name", "notices", "closed_at", "evenline")
    whole = {key: manifest.get(key) for key in given} | wanted
    whole |= {"format": "evenline-trial-closeout-1", "files": files, "merkle_root": computed_root}
    compare_file(folder / CLOSEOUT, whole, manifest, opinion, "the trial's files give")


def strangers(folder: Path, files: dict[str, str]) -> list[str]:
    """What is in the folder but no part of the closed trial: also links, and locks with content."""
    listed = {name for name in files if not name.startswith("source/")} | {CLOSEOUT, STATEMENT}
    folders = {parent.as_posix() for name in listed for parent in Path(name).parents}
    folders.add("quarantine")  # may be empty
    names = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            known = False
        elif path.is_dir():
            known = name in folders
        elif LOCKS.fullmatch(name):
            known = path.is_file() and path.stat().st_size == 0
        else:
            known = path.is_file() and name in listed
        if not known:
            names.append(name)
    return names


def check_statement(
    folder: Path, manifest: Any, trial: Any, events: list[dict[str, Any]], opinion: Opinion
) -> None:
    """Check that the provenance says, to the byte, what follows from the other files."""
    given = load(folder / STATEMENT, opinion)
    if given is None or not (isinstance(trial, dict) and events):
        return  # the problems say why
    plan, files = trial["plan"], manifest["files"]
    with reading(STATEMENT, opinion):
        stated_plan = given["predicate"]["buildDefinition"]["externalParameters"]["plan"]
        plan = {key: value for key, value in LATER.items() if key in stated_plan} | plan
    inputs = [name for name in files if name.startswith(("inputs/", "source/"))]
    whole = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            *({"name": n, "digest": {"sha256": files.get(n)}} for n in BOUND[3:]),
            {"name": "merkle-root", "digest": {"sha256": manifest["merkle_root"]}},
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:evenline:trial:1",
                "externalParameters": {"plan": plan, "trial": manifest["trial"]},
                "internalParameters": {"sumo": trial["sumo"], "jobs": trial["jobs"]},
                "resolvedDependencies": [
                    {"name": name, "digest": {"sha256": files[name]}}
                    for name in sorted(inputs, key=lambda name: name.split("/"))
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:evenline", "version": {"evenline": manifest["evenline"]}},
                "metadata": {
                    "invocationId": manifest["trial"],
                    "startedOn": events[0]["at"],
                    "finishedOn": manifest["closed_at"],
                },
            },
        },
    }
    compare_file(folder / STATEMENT, whole, given, opinion, "closeout.json and trial.json give")


def tree(hashes: list[bytes]) -> bytes:
    """The Merkle tree of RFC 6962 over leaf hashes."""
    if len(hashes) <= 1:
        return hashes[0] if hashes else hashlib.sha256().digest()
    left = 1
    while left * 2 < len(hashes):
        left *= 2
    return hashlib.sha256(b"\x01" + tree(hashes[:left]) + tree(hashes[left:])).digest()


def told(
    folder: Path,
    source: Path | None = None,
    root: str | None = None,
    registration: str | None = None,
) -> bool:
    """Verify a folder and print what was found. Returns True if there is no problem."""
    opinion = verify(folder, source, root, registration)
    for line in opinion.problems or summary(opinion):
        print(shown(line))
    return not opinion.problems


def summary(opinion: Opinion) -> list[str]:
    """What was verified, and what could not be because it is not there."""
    lines = [
        f"detached, bound by SHA-256 {digest}: {name}" for name, digest in opinion.detached.items()
    ]
    if lines:
        lines.append(f"{len(lines)} files of tensors are detached; all else is here")
    return [*lines, f"{opinion.report['records']:,} records checked, no problems"]


def print_summaries(folder: Path) -> bool:
    """Verify every closed trial inside a folder; name those that are not closed."""
    trials = sorted(path for path in folder.glob("*") if is_trial(path))
    closed = [path for path in trials if (path / CLOSEOUT).is_file()]
    for path in trials:
        if path not in closed:
            blocks = len(list(path.glob("block-*.xz")))
            line = f"{path}: not closed, {blocks} blocks so far; docs/trial.md says how to continue"
            print(shown(line))
    if not closed:
        print(shown(f"{folder} has no closed trial to verify; docs/trial.md says how to make one"))
    good = True
    for path in closed:
        print(shown(f"{path}:"))
        if told(path):
            manifest = json.loads((path / CLOSEOUT).read_text(encoding="utf-8"))
            verdict = "confirmed" if manifest["confirmed"] else "not confirmed"
            print(shown(f"{manifest['name']}: {verdict}, root {manifest['merkle_root']}"))
        else:
            good = False
    return good


def main() -> int:
    """Verify a folder from the command line; exit code 1 if there is a problem, 2 if it is no
    trial.
    """
    parser = argparse.ArgumentParser(description="Verify a trial's folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="every closed trial inside the folder")
    parser.add_argument("--source", type=Path, help="the package's folder, to compare its files")
    parser.add_argument("--registration", help="the hash that was printed at registration")
    parser.add_argument("--root", help="the Merkle root that was printed at closeout")
    given = parser.parse_args()
    if given.all:
        return 0 if print_summaries(given.folder) else 1
    if not is_trial(given.folder):
        place = shown(str(given.folder))
        print(f"{place} has no trial.json; name the folder of a trial", file=sys.stderr)
        return 2
    return 0 if told(given.folder, given.source, given.root, given.registration) else 1


if __name__ == "__main__":
    sys.exit(main())
