"""The folder of a training that was made up: its settings, metrics and actors, without learning."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.numpy import save

from evenline.city.embedded import embedded_city
from evenline.learn.lineage import lineage
from evenline.learn.run import Config, Plan
from evenline.learn.schedule import named_learners
from evenline.policies.actor import random_tensors
from evenline.support.files import write_bytes, write_table, write_text

TERM = {"iql": "critic_loss", "online": "entropy", "lessons": "lesson_loss"}
Row = dict[str, Any]


def training_plan(learners: str, *seeds: int) -> Plan:
    """The plan of a training with the paper's budget."""
    return Plan(tuple(named_learners(learners)), seeds)


def metrics_of(plan: Plan) -> list[Row]:
    """A row for every stretch of updates, as training writes them."""
    rows = {
        (part.phase, part.lane, update): {TERM[part.phase]: 0.5}
        for learner in plan.learners
        for seed in plan.seeds
        for part in lineage(plan, f"{learner.name}-{seed}")
        for update in range(part.after + part.row_every, part.to + 1, part.row_every)
    }
    empty = dict.fromkeys(TERM.values())
    return [
        {"phase": phase, "lane": lane, "update": update} | empty | terms
        for (phase, lane, update), terms in rows.items()
    ]


def write_training(folder: Path, plan: Plan, rows: list[Row]) -> None:
    """Write the folder."""
    config = Config(city="0" * 64, replay=None, calibration="0" * 64, device="cpu", plan=plan)
    write_text(folder / "config.json", config.as_json())
    write_table(folder / "metrics.parquet", pa.Table.from_pylist(rows))
    actor = save(random_tensors(len(embedded_city("town").services), 3))
    for learner in plan.learners:
        for seed in plan.seeds:
            write_bytes(folder / "actors" / f"{learner.name}-{seed}.safetensors", actor)
