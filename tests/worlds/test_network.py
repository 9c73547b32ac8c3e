"""The compiled network of a city: the same bytes everywhere, and checked before every use."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from evenline.city.cells import demo_cell
from evenline.city.model import City
from evenline.runs.executors import processes
from evenline.runs.job import Job
from evenline.worlds.sumo.network import compiled_network

JOB = Job(city="town", policy="zero", cell=demo_cell(1))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENLINE_CACHE", str(tmp_path))
    return tmp_path


def test_a_network_has_the_same_bytes_wherever_it_is_compiled(
    town: City, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = set()
    for name in ("here", "there"):
        monkeypatch.setenv("EVENLINE_CACHE", str(tmp_path / name))
        network = compiled_network(town)
        assert hashlib.sha256(network.path.read_bytes()).hexdigest() == network.sha256
        assert b"<!--" not in network.path.read_bytes()
        hashes.add(network.sha256)
    assert len(hashes) == 1


def test_cities_that_differ_only_in_their_signals_do_not_share_a_network(
    town: City, cache: Path
) -> None:
    later = tuple(replace(node, offset_s=(node.offset_s + 7) % 60) for node in town.nodes)
    assert compiled_network(town).sha256 != compiled_network(replace(town, nodes=later)).sha256


def test_a_day_on_an_edited_network_is_a_day_on_the_right_one_and_a_line_says_so(
    town: City, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    network = compiled_network(town)
    text = network.path.read_text()
    for edited in (text.replace('speed="13.90"', 'speed="5.00"'), text[:5000], ""):
        assert edited != text
        network.path.write_text(edited)
        ((ended,),) = [list(processes(1)([JOB]))]
        assert ended.answer is not None and ended.answer.simulator.network == network.sha256
        assert network.path.read_text() == text
        line = f"evenline: {network.path} is not what was put there; it is made again\n"
        assert capfd.readouterr().err == line
