"""Cities from Python: what the commands import, the functions import to the byte."""

from pathlib import Path

import pytest

import evenline as el
from evenline.city.tables import digest
from evenline.importing.gtfs import read_gtfs
from evenline.importing.timetable import Wanted
from evenline.importing.writing import Demand, write_city
from evenline.interface.cities import _day
from feeds import DATE, EXAMPLE
from tides_folder import write_tides


def test_a_feed_becomes_the_city_that_the_command_writes(tmp_path: Path) -> None:
    city = el.import_gtfs(
        EXAMPLE, tmp_path / "mine", routes=["10", "11"], date=DATE, demand="gravity", passengers=300
    )
    wanted = Wanted(("10", "11"), _day(DATE), 0, 48 * 3600, False)
    again, _ = write_city(
        read_gtfs(EXAMPLE, wanted, "mine"), tmp_path / "again", Demand("gravity", 300)
    )
    assert digest(city.city) == digest(again.city) and city.calibration is not None
    assert el.run_day(city).outcome.departed == 300


@pytest.mark.parametrize(
    ("wrong", "line"),
    [({"date": "3 March"}, r"^date '3 March'"), ({"passengers": 5}, "^passengers need a demand")],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, wrong: dict[str, object], line: str
) -> None:
    given = {"routes": ["10"], "date": DATE} | wrong
    with pytest.raises(el.InputError, match=line):
        el.import_gtfs(EXAMPLE, tmp_path / "mine", **given)  # type: ignore[arg-type]
    assert not (tmp_path / "mine").exists()


def test_records_show_themselves_and_become_a_city(tmp_path: Path) -> None:
    records = el.read_records(write_tides(tmp_path / "records"))
    assert records.days == ("2026-03-02",) and "2026-03-02" in str(records)
    city = records.fit(tmp_path / "tiny", hours=(7, 9))
    assert len(city.city.trips) == 2
    with pytest.raises(el.InputError, match="the city was fitted to it"):
        records.judge(city, ["2026-03-02"])
