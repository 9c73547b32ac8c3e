"""The steps of a study's trial, from its registration to its closeout.

A trial with outcomes is never deleted: when it is replaced, it moves to `earlier/`. Nothing before
it may change once there are outcomes, or somebody could look at them and try again.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import tomli_w
from msgspec.structs import replace

from evenline.city.tables import digest, open_city
from evenline.policies.bundle import policy_digest
from evenline.runs.day import library_versions
from evenline.study.engine import Study
from evenline.support.errors import InputError
from evenline.support.files import sha256, to_json, write_text
from evenline.support.progress import progress_bar
from evenline.support.records import write_record
from evenline.trial.plan import plan_of
from evenline.trial.records import read_registered
from evenline.trial.used import (
    USED_CELLS,
    Blocks,
    Used,
    check_fresh,
    has_outcomes,
    other_used_cells,
)
from evenline.worlds.sumo.runtime import installed_version

_TRIAL, _EARLIER, _TRIAL_PLAN = "trial", "earlier", "trial.toml"
_FRESH = "name fresh seeds under [trial] in the plan"


def refuse_used(study: Study) -> None:
    """Refuse cells that another trial has used, before any long work starts."""
    blocks, city = study.plan.checked_trial().blocks, digest(study.plan.open_city())
    try:
        lists = other_used_cells(study.folder)
        check_fresh(blocks, city, *lists, subject=study.plan.subject)
    except InputError as error:
        raise InputError(f"{study.folder}: {error}; {_FRESH}") from None


def seen(study: Study) -> str | None:
    """Once a trial has outcomes, its cells cannot test policies that are made later."""
    if not has_outcomes(study.folder):
        return None
    blocks = read_registered(study.folder / _TRIAL).plan.blocks
    shared = _seeds(blocks) & _seeds(study.plan.checked_trial().blocks)
    return f"the trial already has outcomes of seed {min(shared)}; {_FRESH}" if shared else None


def _seeds(blocks: Blocks) -> set[int]:
    return {seed for block in blocks for seed in block}


def register_trial(study: Study) -> str:
    """Register the trial. Keeps an equal registration, and moves a trial with outcomes aside."""
    from evenline.trial.registration import register
    from evenline.trial.used import UsedCells, registering

    folder, trial = study.folder, study.folder / _TRIAL
    if (trial / "trial.json").exists() and _is_registered(study):
        return f"already registered as {sha256(trial / 'trial.json')}"
    places = {folder.resolve().parent, *(p.resolve() for p in (Path("results"),) if p.is_dir())}
    with registering(*places - {folder.resolve()}):  # `register` takes the turn in this one
        write_record(folder / USED_CELLS, UsedCells(trials=_earlier(folder)))
        blocks, city = study.plan.checked_trial().blocks, digest(open_city(study.city))
        others, subject = other_used_cells(folder), study.plan.subject
        check_fresh(blocks, city, folder / USED_CELLS)  # outcomes of this study are known here
        check_fresh(blocks, city, *others, subject=subject)
        _retire(study)
        write_text(folder / _TRIAL_PLAN, trial_toml(study.plan.registration(folder)))
        made = register(folder / _TRIAL_PLAN, trial, folder / USED_CELLS, others, subject)
    return f"{made.registered.jobs:,} jobs, registered as {made.sha256}"


def _is_registered(study: Study) -> bool:
    """Whether the existing trial tests the same claim about the same policies."""
    registered = read_registered(study.folder / _TRIAL)
    places = {n: getattr(registered.plan, n) for n in ("city", "methods", "calibration")}
    same = registered.plan == replace(study.plan.checked_trial(), **places)  # wherever they lie
    methods = plan_of(study.plan.registration(study.folder), "trial").methods
    policies = {(m, policy_digest(source)) for m, named in methods.items() for source in named}
    same = same and policies == {(p.method, p.digest) for p in registered.policies}
    return same and overtaken(study) is None


def overtaken(study: Study) -> str | None:
    """Why a trial without outcomes has to be registered again: source or SUMO have changed.

    Once there are outcomes, this is a deviation, which only a person can sign off.
    """
    from evenline.trial.registration import Trial, changed_source

    path = study.folder / _TRIAL / "trial.json"
    if not path.exists() or has_outcomes(study.folder):
        return None
    registered, sumo = read_registered(path.parent), installed_version()
    if changed := changed_source(Trial(path.parent, registered, "")):
        return f"evenline/{changed[0][0]} differs from the registered source"
    if registered.versions not in (None, library_versions()):
        return f"library versions are {library_versions()}, were {registered.versions}"
    same = registered.sumo in (None, sumo)
    return None if same else f"sumo is {sumo}, was {registered.sumo}"


def trial_toml(plan: dict[str, Any]) -> str:
    """A trial's plan as TOML."""
    return "# Made from the study's plan.\n" + tomli_w.dumps(plan)


def _earlier(folder: Path) -> tuple[Used, ...]:
    """The outcomes of this study's trials: the replaced ones and the current one."""
    from evenline.trial.registration import read_trial

    places = [*sorted((folder / _EARLIER).glob("*")), folder / _TRIAL]
    return tuple(read_trial(place).used for place in places if any(place.glob("records/*.json")))


def _retire(study: Study) -> None:
    """Keep a trial that has outcomes under another name; delete one that has none."""
    trial = study.folder / _TRIAL
    if not trial.exists():
        return
    if has_outcomes(study.folder):
        aside = study.folder / _EARLIER / f"trial-{sha256(trial / 'trial.json')[:12]}"
        aside.parent.mkdir(exist_ok=True)
        os.replace(trial, aside)
    else:
        shutil.rmtree(trial)


def run_trial(study: Study) -> str:
    from evenline.trial import matrix
    from evenline.trial.registration import open_trial

    folder = study.folder / _TRIAL
    trial = open_trial(folder)
    before = len(matrix.standing(trial).done)
    with progress_bar() as bar:
        task = bar.add_task("days", total=trial.registered.jobs, completed=before)
        standing = matrix.run(
            folder,
            study.executor,
            retry=True,
            on_end=lambda job, finished: bar.advance(task, int(finished)),
        )
    if standing.quarantined:
        raise InputError(matrix.quarantine_lines(trial, standing)[0])
    return f"{len(standing.done):,} days, {len(standing.done) - before:,} of them simulated now"


def analyse(study: Study) -> str:
    from evenline.trial.evidence import write_analysis

    analysis = write_analysis(study.folder / _TRIAL)
    primary = analysis.claim.primary
    return (
        f"{'confirmed' if analysis.confirmed else 'not confirmed'}: lower generalized time in "
        f"{primary.wins} of {primary.blocks} blocks, {primary.required_wins} required"
    )


def verify_trial(study: Study) -> str:
    from evenline.trial.journal import CLOSEOUT
    from evenline.trial.verify import VERIFICATION, verify

    folder = study.folder / _TRIAL
    opinion = verify(folder)
    if opinion.problems:
        raise InputError(f"{folder}: {opinion.problems[0]} ({len(opinion.problems)} problems)")
    if not (folder / CLOSEOUT).exists():
        write_text(folder / VERIFICATION, to_json(opinion.report))
    return f"{opinion.report['records']:,} records checked, no problems"


def close_trial(study: Study) -> str:
    from evenline.trial.closeout import closeout

    return f"root {closeout(study.folder / _TRIAL).merkle_root}"
