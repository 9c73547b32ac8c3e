"""Publish a registered trial's cells as used, in the list that the package carries.

    python -m reproduce.used results/trial-city-trial

Nobody can register these cells again. Commit the list with the trial.
"""

from pathlib import Path
from typing import Annotated

import typer

from evenline.trial.registration import read_trial
from evenline.trial.used import PUBLISHED, note_used
from reproduce.door import run


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the trial.")],
    used_cells: Annotated[Path, typer.Option(help="File to add to.")] = PUBLISHED,
) -> None:
    """Publish a trial's cells as used, so that nobody registers them again."""
    note_used(used_cells, read_trial(folder).used)
    print(used_cells)


if __name__ == "__main__":
    run("reproduce.used", main)
