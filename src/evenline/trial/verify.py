"""Independent verification of a trial. Uses only the standard library, and no other code of ours.

    python verify.py FOLDER [--source PACKAGE] [--root MERKLE_ROOT]
    python verify.py --all FOLDER      # every closed trial inside a folder

Reads the JSON files of a trial's folder, recounts the records, checks every hash, recomputes means,
differences, wins, p-values and gates in exact arithmetic, and compares them with `analysis.json`
and `closeout.json`. In a closed trial's folder it checks every byte of every file, and names what
does not belong there. A packed trial (`evenline trial pack`) has its records in one file per block
and may lack tensors of policies: these are named as detached. Every problem is one line that says
where and what. It is one file, to be read from top to bottom. It executes and changes nothing in
the folder.
"""

import argparse
import hashlib
import json
import lzma
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb
from pathlib import Path
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
        place = str(where) if str(where).isprintable() else ascii(str(where))
        if not truth and f"{place}: {what}" not in self.problems:
            self.problems.append(f"{place}: {what}")
        return truth


def is_trial(folder: Path) -> bool:
    """Whether a folder has any of the files that only a trial has."""
    return any((folder / name).is_file() for name in ("trial.json", "journal.jsonl", CLOSEOUT))


def verify(folder: Path, source: Path | None = None, root: str | None = None) -> Opinion:
    """Check a trial's folder, packed or not."""
    opinion = Opinion(packed=is_packed(folder))
    if not opinion.packed:
        check_folder(folder, source, root, opinion)
        return opinion
    with tempfile.TemporaryDirectory() as aside:
        expand(folder, Path(aside), opinion)
        check_folder(Path(aside), source, root, opinion)
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
    own, name = file_hash(folder / "trial.json"), "trial.json"
    opinion.expect(events[0].get("trial") == own, name, "changed since the journal's first line")
    wanted: dict[str, Any] = {"trial": own}
    records: dict[str, dict[str, Any]] = {}
    with reading(name, opinion):
        check_registration(folder, trial, events, opinion)
    with reading(name, opinion):
        check_source(folder, trial, events, source, opinion)
    with reading(name, opinion):
        wanted |= {"name": trial["name"], "notices": notices(folder, trial, events, opinion)}
        records = check_records(folder, trial, own, events, opinion)
    with reading("matrix.json", opinion):
        check_matrix(folder, own, records, opinion)
    with reading(name, opinion):
        if records and not opinion.problems:
            figures = {"notices": wanted["notices"]}
            figures |= recompute(trial, list(records.values()))
            check_analysis(folder, own, figures, opinion)
            wanted |= {"confirmed": figures["confirmed"], "results_sha256": results_hash(records)}
            opinion.report = {
                "format": "evenline-trial-verification-1",
                "trial": own,
                "records": len(records),
                "analysis_agrees": not opinion.problems,
                **figures,
            }
    return wanted


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
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        opinion.expect(False, path.name, f"cannot be read ({error})")
        return None


@contextmanager
def reading(where: str, opinion: Opinion) -> Iterator[None]:
    """Note a problem if a file is valid JSON, but its keys or types are not those of a trial."""
    try:
        yield
    except MALFORMED as error:
        what = f"is not as a trial's files are ({type(error).__name__}: {error})"
        opinion.expect(False, where, what)


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
        lines = path.read_bytes().splitlines(keepends=True)
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
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
    found, registered = hashes_below(folder / "inputs"), trial["inputs"]
    for name in sorted(found.keys() | registered.keys()):
        where = f"inputs/{name}"
        needed = not opinion.packed and str(Path(name).parent) in kept
        if name not in found and not needed and DETACHABLE.fullmatch(name):
            opinion.detached[where] = registered[name]
        elif name not in found:
            opinion.expect(False, where, "is missing, though it was registered")
        elif name not in registered:
            opinion.expect(False, where, "was not registered")
        else:
            same = found[name] == registered[name]
            opinion.expect(same, where, "changed since it was registered (SHA-256 differs)")
    city = registered.get("city/manifest.json")
    opinion.expect(city == trial["city"]["digest"], "inputs/city", "is not the registered city")
    for policy in trial["policies"]:
        where = f"policy of {policy['method']} {policy['seed']}"
        place = policy["path"].partition(":")[0]  # for the user's own rule, the copied file
        for name, own in policy["files"].items():
            path = place if place.endswith(".py") else f"{place}/{name}"
            same = registered.get(path) == own
            opinion.expect(same, where, f"{name} is not among the registered inputs")
        stable = is_stable(folder / "inputs" / policy["path"] / "policy.json", opinion)
        opinion.expect(policy["stable"] == stable, where, "stability is not as its bundle says")


def is_stable(path: Path, opinion: Opinion) -> bool:
    """Whether a trained actor is recorded as stable; an untrained policy counts as stable."""
    if not path.is_file():
        return True
    spec = load(path, opinion)
    if not isinstance(spec, dict):
        return False
    return spec.get("kind") != "actor" or spec.get("provenance", {}).get("stable") is True


def source_hashes(folder: Path, source: Path | None, opinion: Opinion) -> dict[str, str] | None:
    """Hashes of source files: of the given package, else as closed, else next to this program."""
    if source is None and (folder / CLOSEOUT).is_file():
        manifest = load(folder / CLOSEOUT, opinion)
        files = manifest.get("files") if isinstance(manifest, dict) else None
        if not isinstance(files, dict):
            return None  # noted as a problem of the closeout
        return {name[7:]: own for name, own in files.items() if name.startswith("source/")}
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
        (name, own)
        for event in events
        if event["event"] == "deviation"
        for name, own in event["source"].items()
    }
    found = source_hashes(folder, source, opinion)
    for part in ("evaluator", "analyser"):
        files = trial[part]["files"]
        same = value_hash(files) == trial[part]["sha256"]
        opinion.expect(same, "trial.json", f"hash of the {part} is not that of its files")
    if found is None:
        return  # this program was copied alone: there is no source to compare with
    for name, own in sorted((trial["evaluator"]["files"] | trial["analyser"]["files"]).items()):
        now = found.get(name)
        same = now == own or (name, now) in signed
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
                jobs[value_hash(job)] = job
    return jobs


def check_records(
    folder: Path,
    trial: dict[str, Any],
    own: str,
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
                path, record, job, address, own, evaluators, policy_files(trial, job), opinion
            ):
                records[address] = record
    for path in sorted((folder / "records").glob("*")):
        stranger = path.stem not in jobs or path.suffix != ".json"
        opinion.expect(not stranger, f"records/{path.name}", "is no job of this trial")
    for path in sorted((folder / "quarantine").glob("*.json")):
        opinion.expect(False, f"quarantine/{path.name}", "a job is quarantined")
    check_same_days(records, opinion)
    return records


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
    own: str,
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
            "trial": (record["trial"], own),
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
        if record.get("calibration") is not None:
            bound["calibration"] = (record["calibration"], job.get("calibration"))
        for name, (found, wanted) in bound.items():
            opinion.expect(found == wanted, where, f"holds {name} {found!r}, not {wanted!r}")
        known = record["evaluator"] in evaluators
        opinion.expect(known, where, "was made by other source than registered")
        check_arithmetic(where, record["outcome"], record["ledger"], opinion)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        opinion.expect(False, where, f"is not a record ({type(error).__name__}: {error})")
    return len(opinion.problems) == before


def check_arithmetic(
    where: str, day: dict[str, Any], ledger: dict[str, Any], opinion: Opinion
) -> None:
    """Check that the ledger adds up and that the endpoints follow from it."""
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
    derived = endpoints(day)
    for name in FIGURES:
        same = float(derived[name]) == day[name]
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
    folder: Path, own: str, records: dict[str, dict[str, Any]], opinion: Opinion
) -> None:
    """Check that `matrix.json`, written when the last job was done, lists these files."""
    matrix = load(folder / "matrix.json", opinion)
    if not isinstance(matrix, dict):
        return
    opinion.expect(matrix.get("trial") == own, "matrix.json", "belongs to another trial")
    listed = {name: value for block in matrix["blocks"].values() for name, value in block.items()}
    for address, wanted in listed.items():
        path = folder / "records" / f"{address}.json"
        same = path.is_file() and file_hash(path) == wanted
        opinion.expect(same, f"records/{path.name}", "is not the file that matrix.json lists")
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


def recompute(trial: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """The registered figures of the trial, in exact arithmetic, as `analysis.json` has them."""
    plan, claim = trial["plan"], trial["plan"]["claim"]
    days: dict[Episode, dict[str, Fraction]] = {}
    for record in records:
        cell = record["cell"]
        place = (cell["sumo_seed"], cell["demand_seed"], cell["demand"])
        # A method without training seeds counts as the same under every seed.
        for seed in plan["seeds"] if record["seed"] is None else [record["seed"]]:
            days[record["method"], seed, *place] = endpoints(record["outcome"])
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
    gates = {
        "mean direction": overall["generalized_s"] < 0,
        "demand direction": all(row["generalized_s"] < 0 for row in by_level.values()),
        "completeness": len(records) == trial["jobs"],
        "artifacts": True,  # reached only if every hash is right
        "stability": all(p["stable"] for p in trial["policies"] if p["method"] in roles),
    }
    controls = {
        label: {
            "difference": means(against),
            "favourable_blocks": sum(
                average([g["generalized_s"] for k, g in against.items() if k[2:4] == b]) < 0
                for b in sorted({key[2:4] for key in against})
            ),
        }
        for label in described
        if label not in roles
        for against in [gap_table(days, claim["candidate"], label)]
    }
    for label, control in controls.items():
        enough = control["favourable_blocks"] >= primary["required_wins"]
        gates[f"less time than {label}"] = enough
    gates = {name: gates.get(name, False) for name in claim["gates"]}
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
        "confirmed": both and all(gates.values()),
        "means": {label: means(days, 0, label) for label in described},
        "difference": overall,
        "by_level": by_level,
        "by_seed": {str(seed): means(gaps, 1, seed) for seed in plan["seeds"]},
        "controls": controls,
    }


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
    told = [] if world == "sumo" else [f"run in the world {world!r}, not in SUMO"]
    city = folder / "inputs" / "city"
    told += load(city / "manifest.json", opinion).get("notes", [])
    if world == "fast":
        own = load(city / "calibration.json", opinion).get("note")
        told += [own] if own and own not in told else []  # a city from records says it itself
    for event in events:
        if event["event"] == "deviation":
            files = ", ".join(event["source"]) or "no source file"
            told.append(f"deviation ({event['at']}, {event['by']}): {event['why']} [{files}]")
        if event["event"] == "peek":
            told.append(f"seal broken ({event['at']}): outcomes of {event['records']} jobs shown")
        if event["event"] == "withdrawn":
            told.append(
                f"withdrawn ({event['at']}, {event['by']}): {event['method']}: {event['why']}"
            )
    return told


def check_analysis(
    folder: Path,
    own: str,
    figures: dict[str, Any],
    opinion: Opinion,
) -> None:
    """Check that every registered figure of `analysis.json` equals the recomputed one."""
    analysis = load(folder / "analysis.json", opinion)
    if not isinstance(analysis, dict):
        return
    opinion.expect(analysis.get("trial") == own, "analysis.json", "belongs to another trial")
    shown = analysis.get("notices") == figures["notices"]
    opinion.expect(shown, "analysis.json", "does not show the journal's notices")
    compare("analysis.json", figures, analysis, opinion)


def compare(
    where: str, mine: Any, theirs: Any, opinion: Opinion, by: str = "the records give"
) -> None:
    """Compare two values recursively, and name each figure that differs."""
    if isinstance(mine, dict) and mine:
        for name, value in mine.items():
            other = theirs.get(name) if isinstance(theirs, dict) else None
            compare(f"{where} {name}", value, other, opinion, by)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for number, (value, other) in enumerate(zip(mine, theirs, strict=True), start=1):
            compare(f"{where} {number}", value, other, opinion, by)
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
    for name, own in files.items():
        if opinion.detached.get(name) != own and not name.startswith("source/"):
            same = name in there and there[name].is_file() and file_hash(there[name]) == own
            opinion.expect(same, name, "is not the file that closeout.json binds")
    for name in strangers(folder, files):
        opinion.expect(False, name, "is not in closeout.json")
    for name in BOUND:
        opinion.expect(name in files, CLOSEOUT, f"does not list {name}")
    leaves = [f"{own}  {name}\n".encode() for name, own in sorted(files.items())]
    found = tree([hashlib.sha256(b"\x00" + leaf).digest() for leaf in leaves]).hex()
    opinion.expect(found == manifest["merkle_root"], CLOSEOUT, "its Merkle root is wrong")
    kept = root is None or found == root
    opinion.expect(kept, CLOSEOUT, f"its Merkle root is {found}, not the one you kept")
    # Where the records are wrong, the problems say so already. The statement has the time and the
    # version.
    given = ("confirmed", "results_sha256", "trial", "name", "notices", "closed_at", "evenline")
    whole = {key: manifest.get(key) for key in given} | wanted
    whole |= {"format": "evenline-trial-closeout-1", "files": files, "merkle_root": found}
    compare_file(folder / CLOSEOUT, whole, manifest, opinion, "the trial's files give")


def strangers(folder: Path, files: dict[str, str]) -> list[str]:
    """What is in the folder but no part of the closed trial: also links, and locks with content."""
    listed = {name for name in files if not name.startswith("source/")} | {CLOSEOUT, STATEMENT}
    folders = {parent.as_posix() for name in listed for parent in Path(name).parents}
    folders.add("quarantine")  # may be empty
    found = []
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
            found.append(name)
    return found


def check_statement(
    folder: Path, manifest: Any, trial: Any, events: list[dict[str, Any]], opinion: Opinion
) -> None:
    """Check that the provenance says, to the byte, what follows from the other files."""
    given = load(folder / STATEMENT, opinion)
    if given is None or not (isinstance(trial, dict) and events):
        return  # the problems say why
    plan, files = trial["plan"], manifest["files"]
    with reading(STATEMENT, opinion):
        told = given["predicate"]["buildDefinition"]["externalParameters"]["plan"]
        plan = {key: value for key, value in LATER.items() if key in told} | plan
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


def told(folder: Path, source: Path | None, root: str | None) -> bool:
    """Verify a folder and print what was found. Returns True if there is no problem."""
    opinion = verify(folder, source, root)
    for line in opinion.problems or summary(opinion):
        print(line)
    return not opinion.problems


def summary(opinion: Opinion) -> list[str]:
    """What was verified, and what could not be because it is not there."""
    lines = [f"detached, bound by SHA-256 {own}: {name}" for name, own in opinion.detached.items()]
    if lines:
        lines.append(f"{len(lines)} files of tensors are detached; all else is here")
    return [*lines, f"{opinion.report['records']:,} records checked, no problems"]


def told_all(folder: Path) -> bool:
    """Verify every closed trial inside a folder; name those that are not closed."""
    trials = sorted(path for path in folder.glob("*") if is_trial(path))
    closed = [path for path in trials if (path / CLOSEOUT).is_file()]
    for path in trials:
        if path not in closed:
            blocks = len(list(path.glob("block-*.xz")))
            print(f"{path}: not closed, {blocks} blocks so far; docs/trial.md says how to continue")
    if not closed:
        print(f"{folder} has no closed trial to verify; docs/trial.md says how to make one")
    good = True
    for path in closed:
        print(f"{path}:")
        if told(path, None, None):
            manifest = json.loads((path / CLOSEOUT).read_text(encoding="utf-8"))
            verdict = "confirmed" if manifest["confirmed"] else "not confirmed"
            print(f"{manifest['name']}: {verdict}, root {manifest['merkle_root']}")
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
    parser.add_argument("--root", help="the Merkle root that was printed at closeout")
    given = parser.parse_args()
    if given.all:
        return 0 if told_all(given.folder) else 1
    if not is_trial(given.folder):
        print(f"{given.folder} has no trial.json; name the folder of a trial", file=sys.stderr)
        return 2
    return 0 if told(given.folder, given.source, given.root) else 1


if __name__ == "__main__":
    sys.exit(main())
