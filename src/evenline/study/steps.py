"""The steps of a study, from a city to its page. Each uses the code of the single commands.

The layout of a study's folder is fixed: `city/`, `replay/`, `replay-audit/`, `calibration/`,
`fidelity/`, `train/`, `policies/<method>-<seed>/`, `trial/`, `report.html`. A trial with outcomes
is never deleted: when it is replaced, it moves to `earlier/`.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w
from msgspec.structs import asdict, replace

import evenline
from evenline.city.tables import digest, open_city, save_city
from evenline.learn.own import actor_name
from evenline.policies.bundle import policy_digest, read_policy
from evenline.runs.day import library_versions
from evenline.study.engine import TRIAL, Step, Study
from evenline.study.plan import CALIBRATION, StudyPlan
from evenline.support.errors import InputError
from evenline.support.files import new_folder, sha256, to_json, write_text
from evenline.support.own import is_own, load_own
from evenline.support.progress import progress_bar
from evenline.support.records import read_toml, write_record
from evenline.support.sources import closure, digest_of, file_hashes, package_files
from evenline.trial.plan import plan_of
from evenline.trial.records import read_registered
from evenline.trial.used import LEDGER, Used, has_outcomes, other_used_cells
from evenline.worlds.open import WORLDS
from evenline.worlds.open import open_city as open_calibrated
from evenline.worlds.sumo.runtime import installed_version

EARLIER, TRIAL_PLAN = "earlier", "trial.toml"
BEHAVIOURS, LEVELS = 8, 3  # of the replay, per block


# -- city, replay, calibration --------------------------------------------------------------------


def _city(study: Study) -> str:
    city = study.plan.open_city()
    save_city(city, study.folder / "city")
    return f"{len(city.services)} services, {len(city.stops)} stops, {city.decisions:,} decisions"


def _replay(study: Study) -> str:
    from evenline.experiments.collect import collect, missing_episodes, planned

    folder, blocks = study.folder / "replay", study.plan.replay.blocks
    source = Path(study.plan.place(study.plan.replay.reuse))
    if study.plan.replay.reuse and source.is_dir() and not folder.exists():
        _take_over(study, source, folder)
    every = planned(folder, study.city, blocks)
    missing = missing_episodes(folder, study.city, blocks)
    with progress_bar() as bar:
        task = bar.add_task("days", total=len(every), completed=len(every) - len(missing))
        failures = collect(
            folder, study.city, blocks, study.executor, on_end=lambda ended: bar.advance(task)
        )
    if failures:
        raise InputError(f"{folder}: {len(failures)} days failed; first: {failures[0].error}")
    return f"{len(every)} days, {len(missing)} of them simulated now"


def _take_over(study: Study, source: Path, folder: Path) -> None:
    """Copy a sealed replay after checking its files, city and size."""
    from evenline.replay.sealed import check_sealed

    asked = check_sealed(source).plan
    wanted = {"city": digest(open_city(study.city)), "blocks": study.plan.replay.blocks}
    for name, value in wanted.items():
        if getattr(asked, name) != value:
            raise InputError(
                f"{source} is a replay with another {name}; remove `reuse` from the plan"
            )
    with new_folder(folder) as aside:
        shutil.copytree(
            source, aside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", "log.txt")
        )


def _replay_audit(study: Study) -> str:
    from evenline.experiments.replay_audit import write_audit

    figures = write_audit(study.folder / "replay", study.city, study.folder / "replay-audit")
    failed = [figure.name for figure in figures if figure.passed is False]
    if failed:
        raise InputError(f"{study.folder / 'replay'}: failed: {', '.join(failed)}")
    judged = sum(figure.passed is not None for figure in figures)
    return f"{len(figures)} figures recomputed; all {judged} checks pass"


def _calibration(study: Study) -> str:
    from evenline.experiments.calibrate import calibrate

    folder = study.folder / "calibration"
    found, _ = calibrate(study.city, folder, study.plan.calibration.blocks, study.executor)
    return f"fitted to {found.residuals['runs']:,.0f} runs between stops"


def _fidelity(study: Study) -> str:
    from evenline.experiments.fidelity import fidelity_audit
    from evenline.worlds.fidelity import accepted

    lines = fidelity_audit(
        study.city, study.folder / CALIBRATION, study.folder / "replay",
        study.folder / "fidelity", study.executor, blocks=study.plan.replay.blocks,
    )  # fmt: skip
    outside = sum(not line.passed for line in lines)
    if not accepted(lines) and study.plan.fidelity.required:
        raise InputError(
            f"{study.folder / 'fidelity'}: {outside} of {len(lines)} intervals are outside their "
            "limits, and the plan requires the fast world to be accepted"
        )
    return f"{len(lines) - outside} of {len(lines)} intervals within their limits"


# -- learning -------------------------------------------------------------------------------------


def _train(study: Study) -> str:
    from evenline.experiments.train import run_training

    asked = study.plan.train
    slot, fused, hidden = asked.widths
    found = run_training(
        study.city,
        ",".join(study.plan.learners),
        ",".join(str(seed) for seed in study.plan.seeds),
        study.folder / "replay",
        study.folder / "train",
        asked.device,
        asked.budget,
        (slot, fused, hidden),
        asked.diagnostic,
        asked.curve_blocks,
        calibration_file=study.folder / CALIBRATION,
        centred=asked.centred,
        chain=asked.chain,
    )
    curve = found["curve"]
    ends = [r["generalized_s"] for n, r in curve.items() if n != "zero" and "-at-" not in n]
    return (
        f"{len(ends)} actors; on fresh days of the fast world the best takes {min(ends):,.0f} s, "
        f"no holding {curve['zero']['generalized_s']:,.0f} s"
    )


def _policies(study: Study) -> str:
    from evenline.experiments.train import training_is_stable
    from evenline.policies.bundle import export_bundle

    folder = study.folder
    opened = open_calibrated(study.city, folder / CALIBRATION)
    city = opened.city
    made_from = {"made_by": "evenline study run", "city": digest(city)}
    made = 0
    for label, method in study.plan.methods.items():
        target = folder / "policies" / label
        if method.source:
            source = study.plan.policy(method)
            if read_policy(source).own is None:  # a trial copies its file
                origin = made_from | {"source": method.source}
                export_bundle(target, source, city, None, origin, opened.calibration)
                made += 1
            continue
        for seed in study.plan.seeds:
            learner = actor_name(study.plan.learner(method))
            told: dict[str, object] = made_from | {
                "replay": sha256(folder / "replay" / "manifest.json"),
                "calibration": sha256(folder / CALIBRATION),
                "learner": learner,
                "seed": seed,
            }
            actor = folder / "train" / "actors" / f"{learner}-{seed}.safetensors"
            own = is_own(method.learner)
            told |= {"stable": own or training_is_stable(folder / "train", learner, seed)}
            export_bundle(Path(f"{target}-{seed}"), str(actor), city, method.chain, told)
            made += 1
    return f"{made} bundles"


# -- trial ----------------------------------------------------------------------------------------


def _register(study: Study) -> str:
    """Register the trial. Keeps an equal registration, and moves a trial with outcomes aside."""
    from evenline.trial.registration import register
    from evenline.trial.used import Ledger, check_fresh

    folder, trial = study.folder, study.folder / TRIAL
    if (trial / "trial.json").exists() and _is_registered(study):
        return f"already registered as {sha256(trial / 'trial.json')}"
    write_record(folder / LEDGER, Ledger(trials=_earlier(folder)))
    blocks, own = study.plan.checked_trial().blocks, digest(open_city(study.city))
    check_fresh(blocks, own, folder / LEDGER, *other_used_cells(folder))
    _retire(study)
    write_text(folder / TRIAL_PLAN, trial_toml(study.plan.trial(folder)))
    made = register(folder / TRIAL_PLAN, trial, folder / LEDGER)
    return f"{made.registered.jobs:,} jobs, registered as {made.sha256}"


def _is_registered(study: Study) -> bool:
    """Whether the existing trial tests the same claim about the same policies."""
    found = read_registered(study.folder / TRIAL)
    asked = study.plan.checked_trial()
    # Paths do not matter here.
    lay = {name: getattr(found.plan, name) for name in ("city", "methods", "calibration")}
    trial = plan_of(study.plan.trial(study.folder), "trial")
    policies = {(p.method, p.digest) for p in found.policies}
    here = {(m, policy_digest(source)) for m, named in trial.methods.items() for source in named}
    same = found.plan == replace(asked, **lay)
    return same and policies == here and _overtaken(study) is None


def _overtaken(study: Study) -> str | None:
    """Why a trial without outcomes has to be registered again: source or SUMO have changed.

    Once there are outcomes, this is a deviation, which only a person can sign off.
    """
    from evenline.trial.registration import Trial, changed_source

    path = study.folder / TRIAL / "trial.json"
    if not path.exists() or has_outcomes(study.folder):
        return None
    found = read_registered(path.parent)
    if changed := changed_source(Trial(path.parent, found, "")):
        return f"evenline/{changed[0][0]} differs from the registered source"
    sumo = installed_version()
    if found.versions not in (None, library_versions()):
        return f"library versions are {library_versions()}, were {found.versions}"
    same = found.sumo in (None, sumo)
    return None if same else f"sumo is {sumo}, was {found.sumo}"


def trial_toml(plan: dict[str, Any]) -> str:
    """A trial's plan as TOML."""
    return "# Made from the study's plan.\n" + tomli_w.dumps(plan)


def _earlier(folder: Path) -> tuple[Used, ...]:
    """The outcomes of this study's trials: the replaced ones and the current one."""
    places = [*sorted((folder / EARLIER).glob("*")), folder / TRIAL]
    seen = {place: read_registered(place) for place in places if any(place.glob("records/*.json"))}
    return tuple(
        Used(
            name=found.name,
            trial=sha256(place / "trial.json"),
            city=found.city.digest,
            blocks=found.plan.blocks,
        )
        for place, found in seen.items()
    )


def _retire(study: Study) -> None:
    """Keep a trial that has outcomes under another name; delete one that has none."""
    trial = study.folder / TRIAL
    if not trial.exists():
        return
    if has_outcomes(study.folder):
        aside = study.folder / EARLIER / f"trial-{sha256(trial / 'trial.json')[:12]}"
        aside.parent.mkdir(exist_ok=True)
        os.replace(trial, aside)
    else:
        shutil.rmtree(trial)


def _trial(study: Study) -> str:
    from evenline.trial import matrix
    from evenline.trial.registration import open_trial

    folder = study.folder / TRIAL
    trial = open_trial(folder)
    done = len(matrix.standing(trial).done)
    with progress_bar() as bar:
        task = bar.add_task("days", total=trial.registered.jobs, completed=done)
        found = matrix.run(
            folder,
            study.executor,
            retry=True,
            on_end=lambda job, finished: bar.advance(task, int(finished)),
        )
    if found.quarantined:
        raise InputError(matrix.quarantine_lines(trial, found)[0])
    return f"{len(found.done):,} days, {len(found.done) - done:,} of them simulated now"


def _analyse(study: Study) -> str:
    from evenline.trial.evidence import write_analysis

    found = write_analysis(study.folder / TRIAL)
    primary = found.claim.primary
    return (
        f"{'confirmed' if found.confirmed else 'not confirmed'}: lower generalized time in "
        f"{primary.wins} of {primary.blocks} blocks, {primary.required_wins} required"
    )


def _verify(study: Study) -> str:
    from evenline.trial.registration import CLOSEOUT
    from evenline.trial.verify import VERIFICATION, verify

    folder = study.folder / TRIAL
    opinion = verify(folder)
    if opinion.problems:
        raise InputError(f"{folder}: {opinion.problems[0]} ({len(opinion.problems)} problems)")
    if not (folder / CLOSEOUT).exists():
        write_text(folder / VERIFICATION, to_json(opinion.report))
    return f"{opinion.report['records']:,} records checked, no problems"


def _closeout(study: Study) -> str:
    from evenline.trial.closeout import closeout

    return f"root {closeout(study.folder / TRIAL).merkle_root}"


def _report(study: Study) -> str:
    from evenline.report.page import write_report

    return str(write_report(study.folder, force=True))  # a study makes what has changed again


# -- the graph ------------------------------------------------------------------------------------


def _sumo() -> dict[str, Any]:
    return {"sumo": installed_version()}


def _nothing(plan: StudyPlan) -> dict[str, Any]:
    return {}


def _city_settings(plan: StudyPlan) -> dict[str, Any]:
    return {"city": digest(plan.open_city())}


def _train_settings(plan: StudyPlan) -> dict[str, Any]:
    own = {name: load_own(name).sha256 for name in plan.learners if is_own(name)}
    names = [own.get(name, name) for name in plan.learners]
    return asdict(plan.train) | {"learner": names, "seeds": plan.seeds}


def _policy_settings(plan: StudyPlan) -> dict[str, Any]:
    """Methods by content: a bundle counts by its files, not by its path."""
    methods = {
        name: policy_digest(plan.policy(method)) if method.source else asdict(method)
        for name, method in plan.methods.items()
    }
    return {"methods": methods, "seeds": plan.seeds}


def _report_settings(plan: StudyPlan) -> dict[str, Any]:
    """The page depends on the plan's hash and on our own source."""
    assets = [path for path in package_files() if path.parent.name == "assets"]
    page = [*closure("evenline.report.page"), *assets]
    return {"plan": sha256(plan.file), "source": digest_of(file_hashes(page))}


def _register_settings(plan: StudyPlan) -> dict[str, Any]:
    trial = plan.trial(Path())
    named = ("name", "seeds", "levels", "blocks", "limits")
    world = trial["world"]
    code = {"world": world if world in WORLDS else load_own(world).sha256}
    claim = {"claim": read_toml(plan.file)["claim"]}  # as in the state of earlier versions
    return {key: trial[key] for key in named} | claim | code | _sumo()


def _day_s(study: Study, alone: bool = False) -> float:
    """The approximate time of a SUMO day here, using all cores."""
    cores = os.cpu_count() or 1
    return (0.75 + 0.00075 * study.plan.open_city().decisions + 1.2 * alone) / cores


def _train_s(study: Study) -> float:
    asked, seeds = study.plan.train, len(study.plan.seeds)
    size: float = sum(width**2 for width in asked.widths) / (64**2 + 2 * 128**2)
    updates = asked.iql_updates + 1.5 * asked.events * len(study.plan.learners)
    return 40.0 + 0.006 * float(size**0.7) * seeds * updates


def _analysis(name: str, title: str, needs: str, makes: str, run: Callable[[Study], str]) -> Step:
    return Step(name, title, (needs,), _nothing, (f"{TRIAL}/{makes}",), run, lambda study: 2.0)


GRAPH = (
    Step("city", "build the city", (), _city_settings, ("city/*",), _city, lambda s: 1.0, "city"),
    Step(
        "replay", "collect the replay in SUMO", ("city",),
        lambda plan: {"blocks": plan.replay.blocks} | _sumo(),
        ("replay/manifest.json", "replay/plan.json", "replay/episodes/*/*.parquet"), _replay,
        lambda s: _day_s(s) * BEHAVIOURS * LEVELS * s.plan.replay.blocks, "replay", mends=True,
        leaves=("replay/log.txt",),
    ),
    Step(
        "replay-audit", "audit the replay", ("city", "replay"), _nothing, ("replay-audit/*",),
        _replay_audit, lambda s: 2.0 + 0.3 * s.plan.replay.blocks, "replay-audit",
    ),
    Step(
        "calibration", "calibrate the fast world to SUMO", ("city",),
        lambda plan: {"blocks": plan.calibration.blocks} | _sumo(),
        ("calibration/calibration.json", "calibration/*.*", "calibration/visits/*/*.parquet"),
        _calibration, lambda s: 3.0 + _day_s(s) * 4 * s.plan.calibration.blocks, "calibration",
        mends=True,
    ),
    Step(
        "fidelity", "audit the fast world", ("city", "replay", "calibration"),
        lambda plan: {"required": plan.fidelity.required}, ("fidelity/*",), _fidelity,
        lambda s: 5.0 + s.plan.replay.blocks, "fidelity",
    ),
    Step(
        "train", "train", ("city", "replay", "calibration"), _train_settings,
        ("train/actors/*", "train/config.json", "train/curve.json", "train/ratio.json",
         "train/metrics.parquet"),
        _train, _train_s, "train",
        leaves=("train/*.safetensors", "train/summary.json", "train/events/**/*"),
    ),
    Step(
        "policies", "export the policies", ("city", "calibration", "train"), _policy_settings,
        ("policies/*/*",), _policies, lambda s: 2.0, "policies",
    ),
    Step(
        "register", "register the trial", ("city", "policies"), _register_settings,
        (f"{TRIAL}/trial.json", f"{TRIAL}/plan.toml", f"{TRIAL}/inputs/**/*"), _register,
        lambda s: 2.0, stale=_overtaken,
    ),
    Step(
        TRIAL, "run the trial", ("register",), _nothing,
        (f"{TRIAL}/matrix.json", f"{TRIAL}/journal.jsonl", f"{TRIAL}/records/*"), _trial,
        lambda s: _day_s(s, alone=True) * s.plan.checked_trial().jobs,
    ),
    _analysis("analyse", "analyse", TRIAL, "analysis.json", _analyse),
    _analysis("verify", "verify by other code", "analyse", "verification.json", _verify),
    _analysis("closeout", "close the trial", "verify", "closeout.json", _closeout),
    Step(
        "report", "write the page",
        ("city", "replay", "replay-audit", "calibration", "fidelity", "train", "closeout"),
        _report_settings,
        ("report.html",), _report, lambda s: 20.0,
    ),
)  # fmt: skip


def _versioned(step: Step) -> Step:
    """The step, which runs again for another version of Evenline."""
    return dataclasses.replace(
        step, settings=lambda plan: step.settings(plan) | {"evenline": evenline.__version__}
    )


STEPS = tuple(_versioned(step) for step in GRAPH)
LEARNING = ("replay", "replay-audit", "fidelity", "train")


def steps_of(plan: StudyPlan) -> tuple[Step, ...]:
    """The steps of a study; without learners, those that only learning needs are left out."""
    if plan.learners:
        return STEPS
    return tuple(
        dataclasses.replace(step, needs=tuple(n for n in step.needs if n not in LEARNING))
        for step in STEPS
        if step.name not in LEARNING
    )
