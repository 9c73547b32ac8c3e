"""A trial repeats what its city and calibration say of themselves, in both programs."""

import datetime
from pathlib import Path

import pytest

from evenline.importing.gtfs import read_gtfs
from evenline.importing.timetable import Wanted
from evenline.importing.writing import write_city
from evenline.trial.registration import input_notes
from evenline.trial.verify import Opinion, notices
from feeds import EXAMPLE


@pytest.mark.parametrize("world", ["fast", "sumo"])
def test_both_programs_show_the_notes_of_city_and_calibration(world: str, tmp_path: Path) -> None:
    city = tmp_path / "inputs" / "city"
    made = read_gtfs(EXAMPLE, Wanted(("10", "11"), datetime.date(2026, 3, 3)))
    opened, _ = write_city(made, city)
    opinion = Opinion()
    shown = notices(tmp_path, {"plan": {"world": world}}, [], opinion)
    mine = input_notes(city, world)
    assert not opinion.problems and tuple(mine) == opened.notes(world)
    assert shown[len(shown) - len(mine) :] == mine
    assert any("declared variation" in note for note in mine) == (world == "fast")
