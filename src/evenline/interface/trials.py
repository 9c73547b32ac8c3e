"""Trials from Python: register a claim, run its days, analyse and verify them.

A trial is a folder; `register` makes one before any outcome exists, and `open_trial` opens one that
is there. Every step is the command of the same name, and can be interrupted and called again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evenline.interface.shown import facts, html_facts
from evenline.support.errors import InputError

if TYPE_CHECKING:
    from evenline.trial.analyse import Analysis


@dataclass(frozen=True)
class Trial:
    """A registered trial in its folder."""

    folder: Path

    def rows(self) -> dict[str, str]:
        """What is registered and how far it is, without outcomes."""
        from evenline.trial.matrix import standing
        from evenline.trial.registration import open_trial

        trial = open_trial(self.folder)
        claim, done = trial.plan.claim, len(standing(trial).done)
        return {
            "name": trial.registered.name,
            "claim": f"{claim.candidate} takes less time than {claim.parent} and completes no less",
            "registered as": trial.sha256,
            "days done": f"{done:,} of {trial.registered.jobs:,}",
        }

    def run(self, workers: int | None = None) -> "Trial":
        """Run every day that has no record yet."""
        from evenline.runs.executors import processes
        from evenline.trial import matrix

        progress = matrix.run(self.folder, processes(workers))
        if progress.quarantined:
            raise InputError(
                f"{self.folder}: {len(progress.quarantined)} days failed every try; see: "
                f"evenline trial status {self.folder}"
            )
        return self

    def analyse(self) -> "Analysis":
        """The registered analysis; refuses a trial that is not complete."""
        from evenline.trial.evidence import write_analysis

        return write_analysis(self.folder)

    def close(self) -> str:
        """Bind all files under one root hash, make them read-only, and return the root."""
        from evenline.trial.closeout import closeout

        return closeout(self.folder).merkle_root

    def verify(self) -> list[str]:
        """What is wrong with the trial, by independent code; nothing if it is in order."""
        return verify(self.folder)

    def __str__(self) -> str:
        return facts(f"{self.folder}", self.rows())

    def _repr_html_(self) -> str:
        return html_facts(f"{self.folder}", self.rows())


def register(
    plan: str | Path, out: str | Path, used_cells: str | Path = "results/used-cells.json"
) -> Trial:
    """Register a plan, a file or the name of a built-in one, before any outcome exists.

    `used_cells` is the list of cells that earlier trials used; another plan may not use them again.
    """
    from evenline.study.plan import find_plan
    from evenline.trial.registration import register as freeze

    freeze(find_plan(str(plan)), Path(out), Path(used_cells))
    return Trial(Path(out))


def open_trial(folder: str | Path) -> Trial:
    """Open a registered trial."""
    from evenline.trial.registration import open_trial as read

    read(Path(folder))
    return Trial(Path(folder))


def verify(folder: str | Path) -> list[str]:
    """What is wrong with a trial's folder, open, closed or packed, by independent code."""
    from evenline.trial.verify import is_trial
    from evenline.trial.verify import verify as check

    if not is_trial(Path(folder)):
        raise InputError(f"{folder} has no trial.json; register a plan first")
    return list(check(Path(folder)).problems)
