"""An actor is called stable only if all that it learned from is on record, and finite."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evenline.experiments.train import training_is_stable
from made_training import Row, metrics_of, training_plan, write_training

SEED = 6201


def is_stable(folder: Path, learner: str, kept: Callable[[Row], bool], **changed: float) -> bool:
    """The verdict on a training whose metrics lack some rows, or have others' values changed."""
    plan = training_plan("v11,v14,sac", SEED, 6202)
    rows = metrics_of(plan)
    assert [row for row in rows if not kept(row)], "the case changes a row"
    if changed:
        rows = [row if kept(row) else row | changed for row in rows]
    else:
        rows = [row for row in rows if kept(row)]
    write_training(folder, plan, rows)
    return training_is_stable(folder, learner, SEED)


def test_a_whole_and_finite_training_is_stable(tmp_path: Path) -> None:
    plan = training_plan("all", SEED)
    write_training(tmp_path, plan, metrics_of(plan))
    assert all(training_is_stable(tmp_path, learner.name, SEED) for learner in plan.learners)
    taught = training_plan("taught", SEED)
    write_training(tmp_path / "taught", taught, metrics_of(taught))
    assert training_is_stable(tmp_path / "taught", "taught", SEED)


LINEAGE_OF_V14 = [  # phase, lane, update
    ("iql", f"iql-{SEED}", 100),  # the very first
    ("iql", f"iql-{SEED}", 50_000),
    ("online", f"v11-{SEED}", 5_100),  # shared, before learners part
    ("online", f"v11-{SEED}", 10_000),
    ("online", f"v14-{SEED}", 10_100),
    ("online", f"v14-{SEED}", 25_000),
]
OTHERS = [
    ("iql", "iql-6202", 100),
    ("online", f"v11-{SEED}", 10_100),  # after learners have parted
    ("online", f"sac-{SEED}", 5_100),
    ("online", "v14-6202", 25_000),
]


@pytest.mark.parametrize(
    ("place", "counts"),
    [*((place, True) for place in LINEAGE_OF_V14), *((place, False) for place in OTHERS)],
)
def test_each_row_of_the_lineage_counts_and_no_other(
    tmp_path: Path, place: tuple[str, str, int], counts: bool
) -> None:
    def kept(row: Row) -> bool:
        return (row["phase"], row["lane"], row["update"]) != place

    terms = {"iql": "critic_loss", "online": "entropy"}
    bad = {terms[place[0]]: float("nan")}
    assert is_stable(tmp_path / "not-finite", "v14", kept, **bad) is not counts
    assert is_stable(tmp_path / "absent", "v14", kept) is not counts


def test_a_metric_that_a_row_of_the_phase_lacks_is_not_finite(tmp_path: Path) -> None:
    plan = training_plan("v14", SEED)
    rows = metrics_of(plan)
    rows[3]["critic_loss"] = None
    write_training(tmp_path, plan, rows)
    assert not training_is_stable(tmp_path, "v14", SEED)
