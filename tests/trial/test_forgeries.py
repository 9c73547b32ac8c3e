"""A table of forgeries: every hash is computed again, and what contradicts itself is found.

A row is a name, words of a problem that must be told, and the change.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evenline.city.embedded import embedded_city
from evenline.control.outcome import Outcome
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import actor_spec, save_bundle
from evenline.runs.job import Job
from evenline.support.files import read_json, sha256, to_json, write_text
from evenline.trial import verify as module
from evenline.trial.closeout import closeout
from evenline.trial.evidence import write_analysis
from evenline.trial.verify import verify
from forger import Forger
from made import day, finished_trial

Forgery = Callable[[Forger], object]
ROWS: list[tuple[str, str, Forgery]] = []
# What a forger who computes every hash again never leaves behind.
HASHES = ("SHA-256 differs", "seal differs", "its Merkle root is", "closeout.json binds")


def saving(job: Job) -> Outcome:
    """Days in which the candidate saves something else in each block."""
    if job.policy in ("zero", "myopic"):
        return day(job)
    return day(job, 880 + 7 * (job.cell.sumo_seed - 9101) ** 2, 1_950)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed trial of one seed, six blocks and one level. Not to be changed."""
    where, town = tmp_path_factory.mktemp("honest"), embedded_city("town")
    spec = actor_spec(town, "raw", {"stable": True})
    save_bundle(where / "actor", spec, random_tensors(len(town.services), 1))
    folder = finished_trial(
        where,
        saving,
        seeds="[1]",
        levels="[0.75]",
        methods=f'{{ better = "{where}/actor", worse = "zero", control = "myopic" }}',
        claim='{ candidate = "better", parent = "worse", '
        'robustness = ["less time than control in 6 of 6 blocks"] }',
    ).folder
    write_analysis(folder)
    write_text(folder / "verification.json", to_json(verify(folder).report))
    closeout(folder)
    assert verify(folder).problems == []
    return folder


@pytest.fixture
def forger(honest: Path, tmp_path: Path) -> Forger:
    return Forger(Path(shutil.copytree(honest, tmp_path / "trial")))


def forgery(name: str, words: str) -> Callable[[Forgery], Forgery]:
    def row(change: Forgery) -> Forgery:
        ROWS.append((name, words, change))
        return change

    return row


def row(name: str, words: str, change: Forgery) -> None:
    ROWS.append((name, words, change))


# -- the plan -------------------------------------------------------------------------------------


def claim(**changes: Any) -> Forgery:
    """A claim in the registration other than that of plan.toml."""
    return lambda f: f.trial["plan"]["claim"].update(changes)


def plan(**changes: Any) -> Forgery:
    return lambda f: f.trial["plan"].update(changes)


def both(old: str, new: str, change: Forgery) -> Forgery:
    """The same change in plan.toml and in the registration."""

    def forge(f: Forger) -> None:
        f.planned(old, new)
        change(f)

    return forge


PARENT = 'parent = "worse"'
PLAN = "plan.toml gives"
row("another level", PLAN, claim(level="0.05"))
row("another margin", PLAN, claim(completion_margin="0.01"))
row("fewer wins", PLAN, claim(required_wins=3))
row("another direction", PLAN, claim(direction="higher"))
row("ties that win", PLAN, claim(ties="wins"))
row("another endpoint", PLAN, claim(endpoint="completion"))
row("another unit", PLAN, claim(unit="day"))
row("a gate less", PLAN, claim(gates=["mean direction"]))
row("a gate more", PLAN, claim(robustness=[]))
row("candidate and parent exchanged", PLAN, claim(candidate="worse", parent="better"))
row("another parent", PLAN, claim(parent="control"))
row("other limits", PLAN, lambda f: f.trial["plan"]["limits"].update(tries=9))
row("another calibration", PLAN, plan(calibration="mine.json"))
row("another source of a method", PLAN, lambda f: f.trial["plan"]["methods"].update(worse=["x"]))
row("an unknown key in the plan", "does not belong there", plan(note="x"))
row("another name", "is not named after its plan", lambda f: f.trial.update(name="other"))
row(
    "another trial's plan.toml",
    PLAN,
    lambda f: setattr(f, "plan", f.plan.replace("9101", "9301").replace("small", "other")),
)
row("a plan.toml without its claim", "plan.toml: is not as", lambda f: setattr(f, "plan", "a = 1"))
row(
    "another direction in both",
    "direction can only be",
    both(PARENT, f'{PARENT}, direction = "higher"', claim(direction="higher")),
)
row(
    "ties that win in both",
    "ties can only be",
    both(PARENT, f'{PARENT}, ties = "wins"', claim(ties="wins")),
)
row(
    "a level of one in both",
    "level or margin is out of range",
    both(PARENT, f'{PARENT}, level = "0.999e1"', claim(level="0.999e1", required_wins=0)),
)
row(
    "fewer wins than the level asks for, in both",
    PLAN,
    both(PARENT, f"{PARENT}, required_wins = 2", claim(required_wins=2)),
)
row(
    "a gate that no analysis has, in both",
    "gate 'luck' cannot be",
    both(PARENT, f'{PARENT}, gates = ["luck"]', claim(gates=["luck"])),
)
row(
    "candidate and parent the same, in both",
    "candidate and parent are not two methods",
    both(PARENT, 'parent = "better"', claim(parent="better")),
)


row(
    "limits that no day keeps, in both",
    "its limits are not above 0",
    both("time_s = 60", "time_s = -60", lambda f: f.trial["plan"]["limits"].update(time_s=-60)),
)


@forgery("no blocks", "plan: blocks, seeds or levels cannot be")
def _no_blocks(f: Forger) -> None:
    f.planned("count = 6", "count = 0")
    f.trial["plan"]["blocks"], f.trial["jobs"], f.records = [], 0, []


@forgery("the same block twice", PLAN)
def _twice(f: Forger) -> None:
    f.trial["plan"]["blocks"][1] = f.trial["plan"]["blocks"][0]


# -- the registration -----------------------------------------------------------------------------


def policy(**changes: Any) -> Forgery:
    """Another policy of the candidate in the registration, and in its records."""

    def forge(f: Forger) -> None:
        of = next(p for p in f.trial["policies"] if p["method"] == "better")
        of.update(changes)
        for record in f.of("better"):
            record["policy"].update({k: v for k, v in changes.items() if k in ("digest", "files")})

    return forge


row("a digest that matches no bundle", "not that of its bundle", policy(digest="5" * 64))
row("an unstable actor called stable", "stability is not as", lambda f: unstable(f))
row("a source that is not the plan's", "its policies are not the plan's", policy(source="other"))
row("a training seed of nobody", "its policies are not the plan's", policy(seed=7))
row("another version of SUMO than none", "its version of SUMO", lambda f: no_sumo(f))
row(
    "another city's name",
    "another name than registered",
    lambda f: f.trial["city"].update(name="x"),
)
row(
    "a calibration of nobody",
    "its calibration is not",
    lambda f: f.trial.update(calibration="0" * 64),
)
row("gates in other words", "says of its gates", lambda f: f.trial["gates"].update(artifacts="x"))
row(
    "no such registration date",
    "is not as a",
    lambda f: f.trial.update(registered_at="2026-02-30T00:00:00Z"),
)
row(
    "a registration in another format", "is not in the format", lambda f: f.trial.update(format="x")
)
row("more jobs than the plan's", "jobs are not the plan's", lambda f: f.trial.update(jobs=99))


def built_in(digest: str | None = None, **changes: Any) -> Forgery:
    """Another specification of the parent, which is built in, with the digest that follows."""

    def forge(f: Forger) -> None:
        of = next(p for p in f.trial["policies"] if p["method"] == "worse")
        of["spec"].update(changes)
        own = hashlib.sha256(to_json(of["spec"]).encode()).hexdigest()
        of["digest"] = digest or hashlib.sha256(own.encode()).hexdigest()
        for record in f.of("worse"):
            record["policy"]["digest"] = of["digest"]

    return forge


MEANT = "its specification is not what its name says"
row("another digest of a built-in policy", "not that of its specification", built_in("5" * 64))
row("another rule under a built-in name", MEANT, built_in(rule="headway", constants={"gain": 1.0}))
row("a chain that the name has not", MEANT, built_in(chain="candidate"))
row("another kind of policy", MEANT, built_in(kind="lookahead"))
row(
    "a built-in policy without a specification",
    "has no specification",
    lambda f: [p.pop("spec", None) for p in f.trial["policies"]],
)


def unstable(f: Forger) -> None:
    """The bundle says that its training was not stable, the registration says that it was."""
    place = next((f.folder / "inputs" / "policies").iterdir())
    spec = read_json(place / "policy.json")
    spec["provenance"]["stable"] = False
    write_text(place / "policy.json", to_json(spec))
    tensors = sha256(place / "tensors.safetensors")
    listed = {"policy.json": sha256(place / "policy.json"), "tensors.safetensors": tensors}
    write_text(place / "hashes.json", to_json(listed))
    digest = hashlib.sha256("".join(listed.values()).encode()).hexdigest()
    target = place.rename(place.with_name(digest[:16]))
    files = listed | {"hashes.json": sha256(target / "hashes.json")}
    policy(digest=digest, files=files, path=f"policies/{digest[:16]}")(f)


def no_sumo(f: Forger) -> None:
    f.trial["sumo"] = None
    for record in f.records:
        record["sumo"]["version"] = None


@forgery("a table of the city that its manifest does not list", "is not the file of the city's")
def _another_table(f: Forger) -> None:
    table = f.folder / "inputs" / "city" / "stops.csv"
    table.write_text(table.read_text() + "\n")


@forgery("an actor's tensors exchanged", "its digest is not that of its bundle")
def _other_tensors(f: Forger) -> None:
    place = next((f.folder / "inputs" / "policies").iterdir())
    (place / "tensors.safetensors").write_bytes(b"other")
    files = {path.name: sha256(path) for path in place.iterdir()}
    policy(files=files)(f)


# -- the journal ----------------------------------------------------------------------------------


def event(**facts: Any) -> Forgery:
    return lambda f: f.events.append({"at": f.events[0]["at"], "previous": ""} | facts)


row("an unknown event", "has an unknown event 'approved'", event(event="approved", by="A. Person"))
row("a second registration", "registers the trial again", event(event="registered", trial="0" * 64))
row("an event of nobody", "has no reason or no name", event(
    event="deviation", why="late", by=" ", evaluator="0" * 64, source={}))  # fmt: skip
row("a look at more days than there are", "shows more days", event(event="peek", records=10**6))
row("a look at less than no day", "shows more days", event(event="peek", records=-1))
row("a withdrawal of nothing", "withdraws no method", event(
    event="withdrawn", method="other", why="lost", by="A. Person"))  # fmt: skip
row("a withdrawn candidate", "withdraws the candidate", event(
    event="withdrawn", method="better", why="lost", by="A. Person"))  # fmt: skip
row("a quarantine of nothing", "names no job of this trial", event(
    event="quarantined", job="0" * 64, name="x", errors=[]))  # fmt: skip
row("an event with more than belongs to it", "is not as an event", event(
    event="peek", records=1, by="A. Person"))  # fmt: skip
row("an event before the registration", "is before the registration", event(
    event="peek", records=1, at="2001-01-01T00:00:00Z"))  # fmt: skip
row("an event after the closeout", "is after the closeout", event(
    event="peek", records=1, at="2999-01-01T00:00:00Z"))  # fmt: skip
row("a registration long before its journal", "is long after registered_at",
    lambda f: f.trial.update(registered_at="2001-01-01T00:00:00Z"))  # fmt: skip


@forgery("events out of order", "line 3: is before the line above it")
def _out_of_order(f: Forger) -> None:
    began = datetime.fromisoformat(f.events[0]["at"])
    for hours in (2, 1):
        at = (began + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        event(event="peek", records=1, at=at)(f)


row("an event on no date", "journal.jsonl: is not as", event(
    event="peek", records=1, at="2026-13-01T00:00:00Z"))  # fmt: skip


# -- the days -------------------------------------------------------------------------------------


def outcome(of: str, every: bool = False, **changes: Any) -> Forgery:
    """Other figures of a method's days, with ledger, cost and endpoints that follow from them."""

    def forge(f: Forger) -> None:
        for record in f.of(of)[: None if every else 1]:
            found = record["outcome"]
            found.update(changes)
            found["cost"] = 2 * found["waiting_s"] + found["riding_s"]
            found["token_cost"] = found["cost"] - found["pre_control_cost"]
            found["generalized_s"] = found["cost"] / found["departed"]
            found["completion"] = found["completed"] / found["departed"]
            found["unfinished"] = found["departed"] - found["completed"]
            record["ledger"] = {name: found[name] for name in record["ledger"]}

    return forge


def derived(**changes: Any) -> Forgery:
    """Other counts of a day of the candidate, with what is computed from them."""

    def forge(f: Forger) -> None:
        day = f.of("better")[0]["outcome"]
        day.update(changes)
        day["mean_hold_s"] = day["hold_total_s"] / day["decisions"]
        day["trip_duration_s"] = day["trip_duration_total_s"] / day["trips_completed"]

    return forge


def run(**changes: Any) -> Forgery:
    return lambda f: f.of("better")[0]["run"].update(changes)


def options(old: str, new: str, every: bool = True) -> Forgery:
    """Other options of SUMO in the days of the candidate."""

    def forge(f: Forger) -> None:
        for record in f.of("better")[: None if every else 1]:
            words = record["sumo"]["options"]
            assert old in words
            words[words.index(old) + 1] = new

    return forge


def options_more(*words: str) -> Forgery:
    """More options of SUMO in the days of the candidate, which its other options follow."""

    def forge(f: Forger) -> None:
        for record in f.of("better"):
            record["sumo"]["options"][:0] = words

    return forge


row(
    "a negative ledger", "waiting_s = -400000 is not a count", outcome("better", waiting_s=-400_000)
)
row("a negative ride", "is not a count", outcome("better", every=True, riding_s=-5))
row("half a passenger", "completed = 1950.5 is not a count", outcome("better", completed=1950.5))
row("a count that is true", "completed = True is not a count", outcome("better", completed=True))
row("a float of a count", "is not a count", outcome("better", completed=1950.0))
row("more completed than departed", "more passengers completed", outcome("better", completed=2_001))
row("less than nobody completed", "is not a count", outcome("better", completed=-3))
row("more time than the day has", "more time than the day has", outcome("worse", riding_s=10**12))
row("a negative cost before control", "is not a count", outcome("better", pre_control_cost=-10))
row("an empty ledger", "its ledger is not one", lambda f: f.of("better")[0].update(ledger={}))
row("more holds than decisions", "more holds than decisions", lambda f: f.of("better")[0][
    "outcome"].update(holds_zero=10**6))  # fmt: skip
row("a mean hold of nobody", "mean_hold_s does not follow", lambda f: f.of("better")[0][
    "outcome"].update(mean_hold_s=1.0))  # fmt: skip
row("other passengers", "met other passengers", outcome("better", departed=1_960))
row("more trips than there are", "more trips than the timetable", derived(trips_completed=10**9))
row("trips longer than the day", "its buses spent more", derived(trip_duration_total_s=10**15))
row("holds longer than the day", "its buses spent more", derived(hold_total_s=1e200))
row("another seed of SUMO", "ran with another seed of SUMO", options("--seed", "1"))
row("another seed of SUMO once", "another seed of SUMO", options("--seed", "9999", every=False))
row("another seed by another option", "has an option --random", options_more("--random", "true"))
row("an end by another name", "has an option -e", options_more("-e", "600"))
row("another scale", "has an option --scale", options_more("--scale", "0.5"))
row("another step", "ran with other options", options_more("--max-depart-delay", "9"))
row("a seed twice", "has an option of SUMO twice", options_more("--seed", "9", "--seed", "9"))
row("a shorter day", "did not run over the city's horizon", options("--end", "600"))
row("a later beginning", "did not run over the city's horizon", options("--begin", "3600"))
row("no options of SUMO", "ran with another seed of SUMO", lambda f: f.of("better")[0][
    "sumo"].update(options=[]))  # fmt: skip
row("a day that ended before the registration", "ended before the trial was registered", run(
    finished_at="2001-01-01T00:00:00Z"))  # fmt: skip
row("a day that ended after the closeout", "ended after the closeout", run(
    finished_at="2999-01-01T00:00:00Z"))  # fmt: skip
row("a day that ended on no date", "is not a time", run(finished_at="yesterday"))
row("a day on the 31st of June", "is not as", run(finished_at="2026-06-31T00:00:00Z"))
row("a day that took longer than there was", "took no time that there is", run(
    duration_s=1e200))  # fmt: skip
row("a day that took less than no time", "took no time that there is", run(duration_s=-1))
row(
    "a record of another format",
    "is not in the format",
    lambda f: f.of("better")[0].update(format="x"),
)


# -- what follows from the days -------------------------------------------------------------------


def late(name: str, change: Callable[[Any], object]) -> Forgery:
    return lambda f: f.late.update({name: change})


def effect(part: str, **changes: Any) -> Forgery:
    return late(
        "analysis.json", lambda a: a["beyond_the_claim"]["generalized_s"][part].update(changes)
    )


row("another estimate", "hodges_lehmann", effect("hodges_lehmann", estimate=-300.0))
row("a narrower exact interval", "hodges_lehmann", effect("hodges_lehmann", high=-95.0))
row("another confidence", "hodges_lehmann", effect("hodges_lehmann", confidence=0.999))
row("another mean", "is not the bootstrap", effect("bca_mean", estimate=-99.0))
row("a narrower bootstrap", "is not the bootstrap", effect("bca_mean", high=-70.0))
row("a bootstrap upside down", "is not the bootstrap", effect("bca_mean", low=1.0, high=-1.0))
row("no bootstrap", "is not the bootstrap", late(
    "analysis.json", lambda a: a["beyond_the_claim"]["unfinished"].update(
        bca_mean={"low": 0})))  # fmt: skip
row("no sizes of effects", "has not one effect for each", late(
    "analysis.json", lambda a: a.update(beyond_the_claim={})))  # fmt: skip
row("an effect that is not descriptive", "is not as an effect is", late(
    "analysis.json", lambda a: a["beyond_the_claim"]["completion"].update(
        note="proved")))  # fmt: skip
row("a control that has no day", "does not belong there", late(
    "analysis.json", lambda a: a["controls"].update(other=a["controls"]["control"])))  # fmt: skip
row("blocks of a control", "the records give", late(
    "analysis.json", lambda a: a["controls"]["control"].update(blocks=60)))  # fmt: skip
row("a robustness gate turned", "the records give", late(
    "analysis.json", lambda a: a.update(
        robustness={gate: not passed for gate, passed in a["robustness"].items()})))  # fmt: skip
row("no robustness gates", "analysis.json robustness", late(
    "analysis.json", lambda a: a.update(robustness={})))  # fmt: skip
row("another second opinion", "verification.json", late(
    "verification.json", lambda v: v["means"]["better"].update(generalized_s=1.0)))  # fmt: skip
row("a second opinion that agrees with more", "does not belong there", late(
    "verification.json", lambda v: v.update(reviewed_by="A. Person")))  # fmt: skip
row("a matrix with a day in another block", "in another block", late(
    "matrix.json", lambda m: m.update(blocks={"9101-9201": {
        name: own for block in m["blocks"].values() for name, own in block.items()}})))  # fmt: skip
row("closed on no date", "is not a", late(
    "closeout.json", lambda c: c.update(closed_at="2026-02-30T00:00:00Z")))  # fmt: skip
row("closed before it was registered", "ended after the closeout", late(
    "closeout.json", lambda c: c.update(closed_at="2001-01-01T00:00:00Z")))  # fmt: skip


# -- the table ------------------------------------------------------------------------------------


def test_a_sealed_trial_that_was_not_changed_passes(forger: Forger) -> None:
    forger.seal()
    assert verify(forger.folder).problems == []


def test_a_trial_made_up_without_a_contradiction_passes_until_a_kept_hash_is_named(
    forger: Forger, honest: Path
) -> None:
    """This is what hashes cannot prove by themselves."""
    kept, root = sha256(honest / "trial.json"), read_json(honest / "closeout.json")["merkle_root"]
    assert verify(honest, root=root, registration=kept).problems == []
    outcome("better", every=True, riding_s=600_000)(forger)
    forger.seal()
    assert verify(forger.folder).problems == []
    assert any("not the one you kept" in p for p in verify(forger.folder, root=root).problems)
    assert verify(forger.folder, registration=kept).problems == []  # the registration is the same
    forger.planned('name = "small"', 'name = "other"')
    forger.trial["plan"]["name"] = forger.trial["name"] = "other"
    forger.seal()
    assert verify(forger.folder).problems == []
    (problem,) = verify(forger.folder, registration=kept).problems
    assert problem.startswith("trial.json: was registered as ") and "you kept" in problem


@pytest.mark.parametrize(("words", "change"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_a_forgery_with_all_hashes_right_is_found(
    forger: Forger, words: str, change: Forgery
) -> None:
    change(forger)
    forger.seal()
    problems = verify(forger.folder).problems
    print(*problems, sep="\n")
    assert any(words in line for line in problems)
    assert not [line for line in problems if any(word in line for word in HASHES)]


def test_the_table_is_long_and_names_each_forgery_once() -> None:
    names = [name for name, _, _ in ROWS]
    assert len(names) == len(set(names)) >= 50


def test_a_key_that_a_file_has_twice_is_found(forger: Forger) -> None:
    """A reader sees the first value, and programs take the last."""
    forger.seal()
    for name in ("analysis.json", "journal.jsonl"):
        path = forger.folder / name
        path.write_text(path.read_text().replace("{", '{"trial": "x", "trial": "y", ', 1))
        problems = verify(forger.folder).problems
        assert any(line.startswith(f"{name}: cannot be read (a key is") for line in problems)


def test_a_trial_without_blocks_is_a_problem_and_no_traceback(forger: Forger) -> None:
    _no_blocks(forger)
    forger.seal()
    command = [sys.executable, "-I", "-S", str(module.__file__), str(forger.folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
