"""A stranger's SUMO scenario is read in a worker: a crash or a hang there is one line here."""

import os
import re
import signal
from pathlib import Path

import pytest

from evenline.city.demand import Cell
from evenline.city.tables import digest
from evenline.experiments import importing
from evenline.experiments.importing import import_sumo
from evenline.importing.scenario import import_scenario
from evenline.runs.executors import Worker
from evenline.runs.job import Limits
from evenline.runs.worker import Said
from evenline.support.errors import InputError
from scenarios import written
from small_cities import streets


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    city = streets(services=1, trips=3, headway_s=120, horizon_s=900)
    return written(city, Cell(7, 8, 1.0), tmp_path_factory.mktemp("scenario"))


def test_a_worker_reads_the_same_city(config: Path) -> None:
    told: list[Said] = []
    made, here = import_sumo(config, "read", progress=told.append), import_scenario(config, "read")
    assert digest(made.city) == digest(here.city) and made.remarks == here.remarks
    seconds = [said.now_s for said in told]
    assert seconds == sorted(range(10, 901, 10)) and told[0].end_s == 900


def test_a_crash_of_sumo_is_one_line(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[Worker] = []

    class Kept(Worker):
        def __init__(self, sumo: str | None, folder: Path, memory_gib: float) -> None:
            super().__init__(sumo, folder, memory_gib)
            workers.append(self)

    monkeypatch.setattr(importing, "Worker", Kept)
    with pytest.raises(InputError, match=r"^[^\n]*day.sumocfg: SUMO crashes on it[^\n]*$"):
        import_sumo(
            config, "read", progress=lambda _: os.kill(workers[0].process.pid, signal.SIGSEGV)
        )


def test_a_scenario_without_end_is_ended(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bus type that multiplies its traffic by a million."""
    for path in config.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    road = re.findall(r'edges="(\S+)', (tmp_path / "buses.rou.xml").read_text())[0]
    (tmp_path / "cars.rou.xml").write_text(
        '<routes><vType id="car" scale="1000000"/><flow id="x" type="car" begin="0" end="900" '
        f'period="1" from="{road}" to="{road}"/></routes>'
    )
    monkeypatch.setattr(importing, "SCENARIO", Limits(time_s=8, memory_gib=4.0, tries=1))
    with pytest.raises(InputError, match=r"^[^\n]*day.sumocfg: SUMO [^\n]*$") as refused:
        import_sumo(tmp_path / "day.sumocfg", "read")
    assert "8 s and 4 GiB" in str(refused.value) or "crashes on it" in str(refused.value)
