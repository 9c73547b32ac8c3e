"""Write the verdict of a finished matrix, or show results before it is finished.

`analysis.json` depends only on the records and the registration: writing it twice gives the same
bytes. The journal permanently records an early look.
"""

from pathlib import Path

from msgspec.structs import asdict

from evenline.support.errors import InputError
from evenline.support.records import read_record as read_file
from evenline.support.records import write_record
from evenline.trial.analyse import FORMAT, Analysis, Figures, analyse, endpoints_of, figures, means
from evenline.trial.journal import CLOSEOUT, append_event, refuse_closed
from evenline.trial.matrix import finished, read_matrix, read_record, standing
from evenline.trial.records import Peek
from evenline.trial.registration import Trial, absent_inputs, notices, open_trial
from evenline.trial.verify import verify

ANALYSIS = "analysis.json"


def analysis_of(trial: Trial) -> Analysis:
    """The registered analysis of a complete matrix."""
    records = finished(trial)
    claim = trial.plan.claim
    roles = (claim.candidate, claim.parent)
    checks = {
        "completeness": len(records) == trial.registered.jobs,
        # Opening the trial has compared every file that is there with the registration.
        "artifacts": trial.registered.gates is None or not absent_inputs(trial),
        "stability": all(p.stable for p in trial.registered.policies if p.method in roles),
    }
    return Analysis(
        format=FORMAT,
        trial=trial.sha256,
        results_sha256=read_matrix(trial).results_sha256,
        notices=tuple(notices(trial.folder)),
        **asdict(analyse(endpoints_of(records.values(), trial.plan.seeds), claim, checks)),
    )


def read_analysis(folder: Path) -> Analysis:
    """Read the written verdict."""
    return read_file(folder / ANALYSIS, Analysis, FORMAT)


def write_analysis(folder: Path) -> Analysis:
    """Analyse a complete matrix and write the verdict to its folder.

    A closed trial keeps its verdict, even if our source has changed since: it is verified against
    the records by the independent verifier, and read.
    """
    if (folder / CLOSEOUT).exists():
        for problem in verify(folder).problems:
            raise InputError(f"{folder}: {problem}")
        return read_analysis(folder)
    analysis = analysis_of(open_trial(folder))
    write_record(folder / ANALYSIS, analysis)
    return analysis


def peek(folder: Path) -> dict[str, Figures]:
    """Return means by method of the finished jobs, and record the early look in the journal."""
    trial = open_trial(folder)
    refuse_closed(folder)
    done = standing(trial).done
    records = [read_record(trial, address, job) for address, job in done.items()]
    append_event(folder, Peek(records=len(records)))
    endpoints = endpoints_of(records, trial.plan.seeds)
    return {
        method: figures(means(endpoints, method=method))
        for method in dict.fromkeys(key.method for key in endpoints)
    }
