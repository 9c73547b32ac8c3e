"""A quarter of an hour of real buses, from the timetable to advice, where the recording is."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from door import Door
from evenline.live.entries import Entry, EventEntry
from evenline.live.log import read_log
from evenline.live.record import played
from evenline.live.shadow import MATCHED, Rules, Shadow
from evenline.worlds.open import open_city

WMATA = Path(__file__).parents[3] / "shared" / "data" / "wmata"
POLLS = 40  # of 30 s


@pytest.mark.skipif(not WMATA.is_dir(), reason=f"the recording is not at {WMATA}")
def test_real_buses_are_matched_followed_and_advised(tmp_path: Path, evenline: Door) -> None:
    evenline(
        "city", "import", "gtfs", str(WMATA / "gtfs.zip"), "--routes", "D40", "--date",
        "2026-02-16", "--hours", "9-15", "--patterns", "all", "--out", str(tmp_path / "d40"),
    ).done()  # fmt: skip
    opened = open_city(str(tmp_path / "d40"))
    lines = [service.id for service in opened.city.services]
    shadow = Shadow(opened, "forward:gain=1", lines, Rules(lead_s=60.0), tmp_path / "log")
    states: dict[str, int] = {}
    for polled in islice(played(WMATA / "vehicle_positions.csv.gz", 30.0), POLLS):
        shadow.take(polled)
        for name, count in shadow.situation.tracks.counts().items():
            states[name] = states.get(name, 0) + count
    shadow.close()
    ours = sum(count for name, count in states.items() if name != "unknown trip")
    assert sum(states.get(name, 0) for name in MATCHED) > 0.9 * ours
    events = [e for _, e in read_log(tmp_path / "log", Entry) if isinstance(e, EventEntry)]
    arrived = [e for e in events if e.what == "arrives"]
    assert len(arrived) > 100
    assert len(arrived) == len({(e.trip, e.stop) for e in arrived}), "a bus arrives once"
    bus_hours = sum(states.get(name, 0) for name in MATCHED) * 30 / 3600
    assert 0 < len(shadow.advice) < 6 * bus_hours, "people can read it"
    for trip in {advice.trip for advice in shadow.advice.values()}:
        made_s = [advice.made_s for advice in shadow.advice.values() if advice.trip == trip]
        assert (np.diff(made_s) >= max(shadow.situation.targets_s[trip])).all()
