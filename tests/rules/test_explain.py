"""The account of a day's decisions, beside its stop visits."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrated import calibration_of
from evenline.city.cells import demo_cell
from evenline.control.world import run_episode
from evenline.experiments.simulate import simulate
from evenline.policies.bundle import open_policy, policy_digest
from evenline.rules.chain import COMMON_TERMS, ELEMENTS, seconds_column
from evenline.rules.explain import Witness, activations
from evenline.worlds.fast.world import FastWorld
from small_actors import town, untrained


def explained(policy: object) -> tuple[object, object]:
    world = FastWorld(town(), calibration_of(town()), keep_visits=True)
    witness = Witness(policy)  # type: ignore[arg-type]
    outcome = run_episode(world, demo_cell(1), witness)
    return witness.table(town(), world.visits), outcome


@pytest.mark.parametrize("chain", ["raw", "candidate"])
def test_every_decision_has_an_account_that_adds_up_to_its_hold(chain: str) -> None:
    table, outcome = explained(untrained(chain))
    hold = np.array(table["hold_s"])
    proposal = np.array(table["proposal_s"].to_pylist(), float)
    change = np.array(table["change_s"].to_pylist(), float)
    decided = np.isfinite(proposal)
    assert decided.sum() == outcome.decisions
    assert np.allclose(proposal[decided] + change[decided], hold[decided], atol=1e-9)
    last = [len(s.stops) - 1 for s in town().services]
    names = [s.id for s in town().services]
    for service, stop in zip(
        np.array(table["service"].to_pylist())[~decided],
        np.array(table["stop_sequence"])[~decided],
        strict=True,
    ):
        assert stop == last[names.index(service)]


def test_a_witness_changes_no_day() -> None:
    world = FastWorld(town(), calibration_of(town()))
    policy = open_policy("headway+candidate", town())
    assert run_episode(world, demo_cell(2), Witness(policy)) == run_episode(
        world, demo_cell(2), policy
    )


def test_activations_count_every_element_that_changed_a_hold_by_service_and_hour() -> None:
    table, _ = explained(untrained("candidate"))
    rows, found = table.to_pylist(), activations(table)
    for element in ELEMENTS.values():
        acted = [row for row in rows if row[seconds_column(element)]]
        assert sum(sum(hours.values()) for hours in found[element].values()) == len(acted) > 0
        first = [row for row in acted if row["service"] == "1E" and row["arrival_s"] < 3600]
        assert found[element].get("1E", {}).get("hour 1", 0) == len(first)
    both = [row for row in rows if row["tail_floor_s"] and row["completion_reserve_s"]]
    assert both and all(row["changed_by"] == "completion reserve" for row in both)
    for element, window in (("tail floor", "floor"), ("completion reserve", "reserve")):
        for row in rows:
            if row[seconds_column(element)]:
                assert all(row[f"guard_{term}"] for term in (f"{window}_window", *COMMON_TERMS))


@pytest.mark.parametrize("world", ["fast", "sumo"])
def test_a_simulation_keeps_the_account(world: str, tmp_path: Path) -> None:
    simulate("town", world, "headway+candidate", demo_cell(1), tmp_path / "day")
    table = pq.read_table(tmp_path / "day" / "stop_visits.parquet")
    answer = json.loads((tmp_path / "day" / "outcome.json").read_text())
    assert answer["activations"] == activations(table)
    assert "completion reserve" in answer["activations"]
    assert answer["policy_name"] == "headway+candidate"
    assert answer["policy"] == {"digest": policy_digest("headway+candidate"), "files": {}}


def test_a_plain_rule_in_sumo_is_carried_out_as_proposed(tmp_path: Path) -> None:
    simulate("town", "sumo", "headway", demo_cell(1), tmp_path / "day")
    table = pq.read_table(tmp_path / "day" / "stop_visits.parquet")
    decided = table.filter(table["proposal_s"].is_valid())
    assert decided["proposal_s"].equals(decided["hold_s"])
    assert len(table) - len(decided) == 60, "one for each trip's last stop, where nobody is asked"
    assert json.loads((tmp_path / "day" / "outcome.json").read_text())["activations"] == {}
