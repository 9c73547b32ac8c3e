"""The steps of a study, from a city to its page. Each uses the code of the single commands.

The layout of a study's folder is fixed: `city/`, `replay/`, `replay-audit/`, `calibration/`,
`fidelity/`, `train/`, `policies/<method>-<seed>/`, `trial/`, `report.html`.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from evenline.city.slowness import needs_slowing
from evenline.city.tables import digest, open_city, save_city
from evenline.learn.own import actor_name
from evenline.policies.bundle import policy_digest, read_policy
from evenline.study import trial_steps as trial
from evenline.study.engine import Step, Study
from evenline.study.plan import CALIBRATION, Method, StudyPlan, content_of
from evenline.support.errors import InputError
from evenline.support.files import new_folder, sha256
from evenline.support.own import is_own
from evenline.support.progress import progress_bar
from evenline.support.records import read_toml
from evenline.support.sources import closure, digest_of, file_hashes, package_files
from evenline.trial.used import check_fresh, other_used_cells
from evenline.worlds.open import open_city as open_calibrated
from evenline.worlds.sumo.runtime import installed_version

_BEHAVIOURS, _LEVELS = 8, 3  # of the replay, per block


# -- city, replay, calibration --------------------------------------------------------------------


def _city(study: Study) -> str:
    from evenline.experiments.streets import slowed

    city, days = study.plan.open_city(), study.folder / ".streets"
    parts = [f"{len(city.services)} services", f"{len(city.stops)} stops"]
    parts.append(f"{city.decisions:,} decisions")
    if needs_slowing(city):
        city, services = slowed(city, days, executor=study.executor)
        parts.append(f"{sum(s.within for s in services)} services keep their times in SUMO")
        blocks, others = study.plan.checked_trial().blocks, other_used_cells(study.folder)
        check_fresh(blocks, digest(city), *others)  # it was checked for the city as it came
    save_city(city, study.folder / "city")
    shutil.rmtree(days, ignore_errors=True)
    return ", ".join(parts)


def _replay(study: Study) -> str:
    from evenline.experiments.collect import collect, missing_episodes, planned

    folder, blocks = study.folder / "replay", study.plan.replay.blocks
    source = _reused(study)
    if source is not None and not folder.exists():
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


def _reused(study: Study) -> Path | None:
    """The replay that the plan names, if it is there."""
    source = Path(study.plan.place(study.plan.replay.reuse))
    return source if study.plan.replay.reuse and source.is_dir() else None


def _take_over(study: Study, source: Path, folder: Path) -> None:
    """Copy a sealed replay after checking its files, city and size."""
    from evenline.replay.sealed import check_sealed

    sealed = check_sealed(source).plan
    wanted = {"city": digest(open_city(study.city)), "blocks": study.plan.replay.blocks}
    for name, value in wanted.items():
        if getattr(sealed, name) != value:
            raise InputError(
                f"{source} is a replay with another {name}; remove `reuse` from the plan"
            )
    ignored = shutil.ignore_patterns(".*", "log.txt")
    with new_folder(folder) as aside:
        shutil.copytree(source, aside, dirs_exist_ok=True, ignore=ignored)


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
    fitted, _ = calibrate(study.city, folder, study.plan.calibration.blocks, study.executor)
    return f"fitted to {fitted.residuals['runs']:,.0f} runs between stops"


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


def _check_device(study: Study) -> None:
    """Refuse a study that would collect days for hours, and then has no JAX to train with."""
    from evenline.learn.run import chosen_device

    chosen_device(study.plan.train.device)


def _train(study: Study) -> str:
    from evenline.experiments.train import run_training

    asked = study.plan.train
    slot, fused, hidden = asked.widths
    curve = run_training(
        study.city,
        ",".join(study.plan.learners),
        ",".join(str(seed) for seed in study.plan.seeds),
        study.folder / "replay",
        study.folder / "train",
        asked.device,
        asked.budget,
        (slot, fused, hidden),
        asked.curve_blocks,
        calibration_file=study.folder / CALIBRATION,
        centred=asked.centred,
        chain=asked.chain,
    )["curve"]
    ends = [r["generalized_s"] for n, r in curve.items() if n != "zero" and "-at-" not in n]
    return (
        f"{len(ends)} actors; on fresh days of the fast world the best takes {min(ends):,.0f} s, "
        f"no holding {curve['zero']['generalized_s']:,.0f} s"
    )


def _policies(study: Study) -> str:
    """Export a bundle of every method, and of every training seed of one that learns."""
    from evenline.policies.bundle import export_bundle

    opened, bundles = open_calibrated(study.city, study.folder / CALIBRATION), 0
    made_by = {"made_by": "evenline study run", "city": digest(opened.city)}
    for label, method in study.plan.methods.items():
        folder = study.folder / "policies" / label
        if isinstance(method, Method):
            for seed in study.plan.seeds:
                actor, origin = _actor(study, study.plan.learner(method), seed)
                target = Path(f"{folder}-{seed}")
                export_bundle(target, actor, opened.city, method.chain, made_by | origin)
                bundles += 1
        elif read_policy(source := study.plan.policy(method)).code is None:
            origin = {"source": method}
            export_bundle(folder, source, opened.city, None, made_by | origin, opened.calibration)
            bundles += 1  # of a file of the user's the trial takes a copy
    return f"{bundles} bundles"


def _actor(study: Study, learner: str, seed: int) -> tuple[str, dict[str, object]]:
    """The file of a trained actor, and what it was made from."""
    from evenline.experiments.train import training_is_stable

    folder, name = study.folder, actor_name(learner)
    origin: dict[str, object] = {
        "replay": sha256(folder / "replay" / "manifest.json"),
        "calibration": sha256(folder / CALIBRATION),
        "learner": name,
        "seed": seed,
        "stable": is_own(learner) or training_is_stable(folder / "train", name, seed),
    }
    return str(folder / "train" / "actors" / f"{name}-{seed}.safetensors"), origin


# -- the page ------------------------------------------------------------------------------------


def _report(study: Study) -> str:
    from evenline.report.page import write_report

    return str(write_report(study.folder, force=True))  # a study makes what has changed again


# -- the graph ------------------------------------------------------------------------------------


def _sumo() -> dict[str, Any]:
    return {"sumo": installed_version()}


def _city_settings(plan: StudyPlan) -> dict[str, Any]:
    city = plan.open_city()
    return {"city": digest(city)} | (_sumo() if needs_slowing(city) else {})


def _train_settings(plan: StudyPlan) -> dict[str, Any]:
    names = [content_of(name) for name in plan.learners]
    return asdict(plan.train) | {"learner": names, "seeds": plan.seeds}


def _policy_settings(plan: StudyPlan) -> dict[str, Any]:
    """Methods by content: a bundle counts by its files, not by its path."""
    methods = {
        name: policy_digest(plan.policy(method))
        if isinstance(method, str)
        else {"learner": plan.learner(method), "chain": method.chain}
        for name, method in plan.methods.items()
    }
    return {"methods": methods, "seeds": plan.seeds}


def _register_settings(plan: StudyPlan) -> dict[str, Any]:
    registered = plan.registration(Path())
    return {
        **{name: registered[name] for name in ("name", "seeds", "levels", "blocks", "limits")},
        "claim": read_toml(plan.file)["claim"],
        "world": content_of(registered["world"]),
        **_sumo(),
    }


def _report_settings(plan: StudyPlan) -> dict[str, Any]:
    """The page depends on the plan's hash and on our own source."""
    assets = [path for path in package_files() if path.parent.name == "assets"]
    page = [*closure("evenline.report.page"), *assets]
    return {"plan": sha256(plan.file), "source": digest_of(file_hashes(page))}


def _day_s(study: Study) -> float:
    """The approximate time of a SUMO day on all cores here; one core takes 12 s for `city`."""
    return (0.1 + 0.0009 * study.plan.open_city().decisions) / (os.cpu_count() or 1)


def _city_s(study: Study) -> float:
    """The time to build the city, and of some thirty days if its streets are empty."""
    return 1.0 + 30.0 * _day_s(study) * needs_slowing(study.plan.open_city())


def _replay_s(study: Study) -> float:
    """The time to collect the replay, or to check and copy the one that the plan reuses."""
    if _reused(study) is not None:
        return 5.0
    return _day_s(study) * _BEHAVIOURS * _LEVELS * study.plan.replay.blocks


def _train_s(study: Study) -> float:
    """The time of all updates: 84 a second at the paper's widths on two idle cores."""
    asked, learners = study.plan.train, len(study.plan.learners)
    size = sum(width**2 for width in asked.widths) / (128**2 + 2 * 256**2)
    updates = asked.iql_updates + (asked.events - asked.budget.warmup_events) * learners
    return 40.0 + float(size**0.7) * len(study.plan.seeds) * updates / 84.0


def _analysis(name: str, title: str, needs: str, makes: str, run: Callable[[Study], str]) -> Step:
    return Step(name, title, (needs,), (f"trial/{makes}",), run)


STEPS = (
    Step(
        "city", "build the city", (), ("city/*",), _city,
        _city_settings, _city_s, owns="city",
    ),
    Step(
        "replay", "collect the replay in SUMO", ("city",),
        ("replay/manifest.json", "replay/plan.json", "replay/episodes/*/*.parquet"), _replay,
        lambda plan: {"blocks": plan.replay.blocks} | _sumo(), _replay_s,
        owns="replay", mends=True, leaves=("replay/log.txt",),
    ),
    Step(
        "replay-audit", "audit the replay", ("city", "replay"), ("replay-audit/*",), _replay_audit,
        about_s=lambda study: 2.0 + 0.3 * study.plan.replay.blocks, owns="replay-audit",
    ),
    Step(
        "calibration", "calibrate the fast world to SUMO", ("city",),
        ("calibration/calibration.json", "calibration/*.*", "calibration/visits/*/*.parquet"),
        _calibration, lambda plan: {"blocks": plan.calibration.blocks} | _sumo(),
        lambda study: 3.0 + _day_s(study) * 4 * study.plan.calibration.blocks,
        owns="calibration", mends=True,
    ),
    Step(
        "fidelity", "audit the fast world", ("city", "replay", "calibration"), ("fidelity/*",),
        _fidelity, lambda plan: {"required": plan.fidelity.required},
        lambda study: 5.0 + study.plan.replay.blocks, owns="fidelity",
    ),
    Step(
        "train", "train", ("city", "replay", "calibration"),
        ("train/actors/*", "train/config.json", "train/curve.json",
         "train/metrics.parquet"),
        _train, _train_settings, _train_s,
        owns="train", leaves=("train/*.safetensors", "train/summary.json", "train/events/**/*"),
        check=_check_device,
    ),
    Step(
        "policies", "export the policies", ("city", "calibration", "train"), ("policies/*/*",),
        _policies, _policy_settings, owns="policies",
    ),
    Step(
        "register", "register the trial", ("city", "policies"),
        ("trial/trial.json", "trial/plan.toml", "trial/inputs/**/*"),
        trial.register_trial, _register_settings, stale=trial.overtaken, check=trial.refuse_used,
    ),
    Step(
        "trial", "run the trial", ("register",),
        ("trial/matrix.json", "trial/journal.jsonl", "trial/records/*"), trial.run_trial,
        about_s=lambda study: _day_s(study) * study.plan.checked_trial().jobs, sealed=trial.seen,
    ),
    _analysis("analyse", "analyse", "trial", "analysis.json", trial.analyse),
    _analysis("verify", "verify by other code", "analyse", "verification.json", trial.verify_trial),
    _analysis("closeout", "close the trial", "verify", "closeout.json", trial.close_trial),
    Step(
        "report", "write the page",
        ("city", "replay", "replay-audit", "calibration", "fidelity", "train", "closeout"),
        ("report.html",), _report, _report_settings, lambda study: 20.0,
    ),
)  # fmt: skip
_LEARNING = ("replay", "replay-audit", "fidelity", "train")


def steps_of(plan: StudyPlan) -> tuple[Step, ...]:
    """The steps of a study; without learners, those that only learning needs are left out."""
    if plan.learners:
        return STEPS
    return tuple(
        dataclasses.replace(step, needs=tuple(n for n in step.needs if n not in _LEARNING))
        for step in STEPS
        if step.name not in _LEARNING
    )
