"""A feed's timetable is that of its rows: calendars, blank times, frequencies, patterns."""

import datetime
import io
import itertools
import os
import random
import re
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.importing.calendars import WEEKDAYS, read_calendars
from evenline.importing.calls import seconds_of
from evenline.importing.feed import LONG_TABLES, open_feed
from evenline.importing.ids import route_ids
from evenline.importing.listing import listed_routes
from evenline.importing.timetable import Timetable, Wanted, read_timetable
from evenline.support.errors import InputError

MONDAY = datetime.date(2026, 3, 2)
REAL = Path(__file__).parents[3] / "shared" / "data"

Tables = dict[str, str]


def feed_tables() -> Tables:
    """One route with two directions and a short pattern; most times are blank."""
    stops = [f"s{i},Stop {i},{-30 + 0.01 * i:.2f},-51.0" for i in range(6)]
    calls = []
    for trip, order, start in (
        ("out-1", range(6), 8),
        ("out-2", range(6), 9),
        ("back-1", range(5, -1, -1), 8),
        ("short-1", range(3), 10),
    ):
        for n, i in enumerate(order):
            blank = n not in (0, len(order) - 1)
            time = "" if blank else f"{start:02d}:{30 * (n > 0):02d}:00"
            calls.append(f"{trip},{time},{time},s{i},{n + 1}")
    return {
        "routes.txt": "route_id,route_short_name\nr1,10\nr2,11\n",
        "calendar.txt": f"service_id,{','.join(WEEKDAYS)},start_date,end_date\n"
        "week,1,1,1,1,1,0,0,20260101,20261231\n",
        "trips.txt": "route_id,service_id,trip_id,direction_id,block_id\n"
        "r1,week,out-1,0,b1\nr1,week,out-2,0,b2\nr1,week,back-1,1,b1\nr1,week,short-1,0,b1\n",
        "stops.txt": "\n".join(["stop_id,stop_name,stop_lat,stop_lon", *stops]) + "\n",
        "stop_times.txt": "\n".join(
            ["trip_id,arrival_time,departure_time,stop_id,stop_sequence", *calls]
        )
        + "\n",
    }


def zipped(path: Path, tables: Tables, inside: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in tables.items():
            archive.writestr(f"{inside}{name}", text)
    return path


def read(path: Path, routes: Iterable[str] = ("10",), **options: object) -> Timetable:
    wanted = Wanted(tuple(routes), MONDAY, **options)  # type: ignore[arg-type]
    return read_timetable(open_feed(path), wanted)


# -- what is read ---------------------------------------------------------------------------------


def test_the_main_pattern_of_each_direction_is_kept_and_the_rest_is_listed(tmp_path: Path) -> None:
    found = read(zipped(tmp_path / "feed.zip", feed_tables()))
    assert [(p.direction, len(p.stops), len(p.runs)) for p in found.patterns] == [
        (0, 6, 2),
        (1, 6, 1),
    ]
    assert [run.trip for run in found.patterns[0].runs] == ["out-1", "out-2"]
    assert [(p.stops, len(p.runs)) for p in found.left_out] == [(("s0", "s1", "s2"), 1)]
    assert found.patterns[0].runs[0].block == "b1" and found.routes == {"r1": "10"}
    assert found.places["s3"].name == "Stop 3"
    every = read(tmp_path / "feed.zip", all_patterns=True)
    assert len(every.patterns) == 3 and not every.left_out


def test_a_folder_and_a_folder_inside_the_zip_are_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    for name, text in feed_tables().items():
        (folder / name).write_text("\ufeff" + text)  # as spreadsheets write them
    inside = zipped(tmp_path / "feed.zip", feed_tables(), "google_transit/")
    assert read(folder) == read(inside)


def test_blank_times_lie_along_the_distance(tmp_path: Path) -> None:
    """The stops are equally far apart, so 30 minutes are divided equally."""
    run = read(zipped(tmp_path / "feed.zip", feed_tables())).patterns[0].runs[0]
    assert run.arrival_s == tuple(8 * 3600 + 360 * n for n in range(6)) == run.departure_s


def test_only_trips_that_start_in_the_window_count(tmp_path: Path) -> None:
    path = zipped(tmp_path / "feed.zip", feed_tables())
    found = read(path, start_s=9 * 3600, end_s=10 * 3600)
    assert [run.trip for p in found.patterns for run in p.runs] == ["out-2"]
    with pytest.raises(InputError, match="no trip starts in the window on 2026-03-02"):
        read(path, start_s=20 * 3600)


def test_trips_by_frequency_are_written_out(tmp_path: Path) -> None:
    tables = feed_tables() | {
        "frequencies.txt": "trip_id,start_time,end_time,headway_secs\n"
        "out-1,06:00:00,07:00:00,600\nout-1,24:30:00,25:00:00,900\n"
    }
    runs = read(zipped(tmp_path / "feed.zip", tables)).patterns[0].runs
    starts = [run.departure_s[0] for run in runs if run.trip.startswith("out-1")]
    assert starts == [*range(6 * 3600, 7 * 3600, 600), 88_200, 89_100]
    assert len({run.trip for run in runs}) == len(runs) == 9
    assert all(run.arrival_s[-1] - run.departure_s[0] == 1800 for run in runs)


def test_directions_that_the_feed_does_not_give_are_found(tmp_path: Path) -> None:
    tables = feed_tables()
    trips = tables["trips.txt"].replace(",0,b", ",,b").replace(",1,b", ",,b")
    found = read(zipped(tmp_path / "feed.zip", tables | {"trips.txt": trips}))
    assert [(p.direction, p.stops[0]) for p in found.patterns] == [(0, "s0"), (1, "s5")]


def test_a_trip_by_frequency_keeps_clear_of_the_ids_of_others(tmp_path: Path) -> None:
    tables = feed_tables()
    for table in ("trips.txt", "stop_times.txt"):
        tables[table] = tables[table].replace("out-2", "out-1.1")
    tables["frequencies.txt"] = (
        "trip_id,start_time,end_time,headway_secs\nout-1,06:00:00,07:00:00,1800\n"
    )
    runs = read(zipped(tmp_path / "feed.zip", tables)).patterns[0].runs
    assert [run.trip for run in runs] == ["out-1.1~2", "out-1.2", "out-1.1"]
    assert [run.block for run in runs] == ["", "", "b2"], "no vehicle runs all repetitions"


def test_a_direction_that_some_trips_lack_is_that_of_their_stops(tmp_path: Path) -> None:
    """Blank ones do not become direction 0 and do not compete with those that have one."""
    tables = feed_tables()
    tables["trips.txt"] = "\n".join(
        ["route_id,service_id,trip_id,direction_id", "r1,week,out-1,1", "r1,week,out-2,",
         "r1,week,back-1,", "r1,week,short-1,1", ""]
    )  # fmt: skip
    found = read(zipped(tmp_path / "feed.zip", tables))
    assert [(p.direction, p.stops[0], len(p.runs)) for p in found.patterns] == [
        (0, "s5", 1),
        (1, "s0", 2),
    ]


def test_a_route_without_a_trip_in_the_window_is_told(tmp_path: Path) -> None:
    path = zipped(tmp_path / "feed.zip", feed_tables())
    assert read(path, ["10", "11"]).remarks == (
        "left out: route 11 (r2): none of its trips starts in the window on 2026-03-02",
    )
    assert read(path).remarks == ()


def with_kinds(kinds: dict[str, str], tables: Tables) -> Tables:
    """Pickup and drop-off types by trip and stop_sequence."""
    head, *rows = tables["stop_times.txt"].splitlines()
    keys = [f"{row.split(',')[0]} {row.split(',')[-1]}" for row in rows]
    rows = [f"{row},{kinds.get(key, ',')}" for row, key in zip(rows, keys, strict=True)]
    text = "\n".join([f"{head},pickup_type,drop_off_type", *rows])
    return tables | {"stop_times.txt": f"{text}\n"}


def test_calls_without_people_are_left_out_and_restricted_ones_counted(tmp_path: Path) -> None:
    kinds = {f"out-1 {n}": "1,1" for n in (1, 3)}  # the first stop, and one between
    kinds |= {"out-2 1": "0,1", "out-2 6": "1,0"}  # what every trip does at its ends
    kinds |= {"back-1 2": "1,0", "back-1 3": "2,2", "back-1 1": "3,0"}
    kinds |= {f"short-1 {n}": "1,1" for n in (1, 2)}
    found = read(zipped(tmp_path / "feed.zip", with_kinds(kinds, feed_tables())), all_patterns=True)
    runs = {run.trip: (pattern, run) for pattern in found.patterns for run in pattern.runs}
    pattern, run = runs["out-1"]
    assert pattern.stops == ("s1", "s3", "s4", "s5")
    assert run.arrival_s == tuple(8 * 3600 + 360 * n for n in (1, 3, 4, 5))
    assert {trip: own.limited for trip, (_, own) in runs.items()} == {
        "out-1": 0, "out-2": 0, "back-1": 3,
    }  # fmt: skip
    assert found.remarks == (
        "left out: 1 trip: people may get on or off at fewer than two of their stops",
        "left out: 2 calls: nobody may get on or off there (pickup_type and drop_off_type are 1)",
    )


def test_line_breaks_in_names_and_ids_are_harmless(tmp_path: Path) -> None:
    tables = feed_tables()
    tables["stops.txt"] = (
        tables["stops.txt"].replace("Stop 3", '"Stop\n 3"').replace("s4,", '"s\n4",')
    )
    tables["stop_times.txt"] = tables["stop_times.txt"].replace("s4,", '"s\n4",')
    found = read(zipped(tmp_path / "feed.zip", tables))
    assert found.places["s3"].name == "Stop 3" and "s\n4" in found.places


def test_a_stop_served_twice_stays_twice(tmp_path: Path) -> None:
    tables = feed_tables()
    tables["stop_times.txt"] = tables["stop_times.txt"].replace("s5,6", "s0,6")
    found = read(zipped(tmp_path / "feed.zip", tables))
    assert found.patterns[0].stops == ("s0", "s1", "s2", "s3", "s4", "s0")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.sampled_from(["", "1", "2"]),
)
def test_a_service_runs_on_the_days_of_its_calendar(
    tmp_path_factory: pytest.TempPathFactory, days: list[bool], first: int, last: int, extra: str
) -> None:
    folder = tmp_path_factory.mktemp("feed")
    text = [f"{MONDAY + datetime.timedelta(n):%Y%m%d}" for n in (first, last)]
    row = ",".join(["a", *("1" if day else "0" for day in days), *text])
    header = f"service_id,{','.join(WEEKDAYS)},start_date,end_date"
    (folder / "calendar.txt").write_text(f"{header}\n{row}\n")
    if extra:
        exception = f"service_id,date,exception_type\na,{MONDAY:%Y%m%d},{extra}\n"
        (folder / "calendar_dates.txt").write_text(exception)
    runs = days[0] and first <= 0 <= last
    expected = extra == "1" or (runs and extra != "2")
    calendars = read_calendars(open_feed(folder))
    assert ("a" in calendars.active(MONDAY)) == expected
    week = [MONDAY + datetime.timedelta(n) for n in range(-20, 21)]
    for step in (1, -1):
        nearest = next(
            (d for d in week[::step] if (d - MONDAY).days * step >= 0 and calendars.active(d)), None
        )
        assert calendars.nearest(["a"], MONDAY, step) == nearest


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 999), st.integers(0, 59), st.integers(0, 59))
def test_a_time_may_be_past_midnight(hours: int, minutes: int, seconds: int) -> None:
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    assert seconds_of("", text) == 3600 * hours + 60 * minutes + seconds


# -- what is refused ------------------------------------------------------------------------------


def without(name: str) -> Callable[[Tables], Tables]:
    return lambda tables: {each: text for each, text in tables.items() if each != name}


def changed(name: str, old: str, new: str) -> Callable[[Tables], Tables]:
    def change(tables: Tables) -> Tables:
        assert old in tables[name]
        return tables | {name: tables[name].replace(old, new, 1)}

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("stops.txt"), "stops.txt: missing; a GTFS feed must have it"),
        (without("calendar.txt"), "has neither calendar.txt nor calendar_dates.txt"),
        (changed("trips.txt", "trip_id", "trip"), "trips.txt: no column trip_id"),
        (changed("trips.txt", "direction_id", "trip_id"), "column trip_id appears twice"),
        (changed("trips.txt", "out-2", "out-1"), "row 3: trip 'out-1' appears twice"),
        (changed("trips.txt", "out-2,0", "out-2,2"), "direction_id is '2'; must be 0 or 1"),
        (changed("routes.txt", "r1,10", "r1,12"), "no route '10'; choose '12' or '11'"),
        (changed("calendar.txt", "week,1", "week,x"), "row 2: monday is 'x'; must be 0 or 1"),
        (changed("calendar.txt", "20260101", "20260199"), "'20260199' is not a date such as"),
        (
            changed("calendar.txt", "week,1", "week,0"),
            "no trip of 10 on 2026-03-02; the feed has some from 2026-01-01 to 2026-12-31, the "
            "nearest on Friday 2026-02-27 and Tuesday 2026-03-03",
        ),
        (changed("calendar.txt", "week,1,1,1,1,1", "week,0,0,0,0,0"), "has none on any day"),
        (changed("stops.txt", "s4", "s9"), "uses stop 's4', which stops.txt lacks"),
        (changed("stops.txt", "s4", "s3"), "row 6 (s3): appears twice"),
        (changed("stops.txt", "-51.0", "-251.0"), "is not a latitude and a longitude"),
        (changed("stops.txt", "-51.0", "nan"), "is not a latitude and a longitude"),
        (changed("stops.txt", "-29.97,-51.0", "0,0"), "stops.txt: row 5 (s3): 0.0, 0.0 is 6,"),
        (changed("stop_times.txt", "08:00:00", "8h"), "row 2: '8h' is not a time such as"),
        (changed("stop_times.txt", "s1,2", "s1,-2"), "stop_sequence is '-2'; must be a number"),
        (
            lambda tables: tables | {"stop_times.txt": "trip_id,stop_id,stop_sequence\n"},
            "has fewer",
        ),
        (lambda tables: tables | {"a/stops.txt": "stop_id\n"}, "has stops.txt twice"),
    ],
)
def test_a_feed_that_is_wrong_is_refused_by_file_and_row(
    tmp_path: Path, change: Callable[[Tables], Tables], said: str
) -> None:
    with pytest.raises(InputError) as refused:
        read(zipped(tmp_path / "feed.zip", change(feed_tables())))
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_frequency_that_would_never_end_is_refused(tmp_path: Path) -> None:
    columns = "trip_id,start_time,end_time,headway_secs\n"
    for row, said in (
        ("out-1,06:00:00,07:00:00,0", "at least 1"),
        ("out-1,00:00:00,999:00:00,1", "more than"),
        ("out-1,07:00:00,07:00:00,60", "row 2: end_time 07:00:00 is not after start_time 07:00:00"),
    ):
        tables = feed_tables() | {"frequencies.txt": f"{columns}{row}\n"}
        with pytest.raises(InputError, match=said):
            read(zipped(tmp_path / "feed.zip", tables))


def test_what_is_no_feed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such feed; name a GTFS zip or folder"):
        open_feed(tmp_path / "nothing.zip")
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(InputError, match="not a zip file"):
        open_feed(tmp_path / "text.zip")
    tables: dict[str, str | bytes] = dict(feed_tables())
    with zipfile.ZipFile(tmp_path / "latin.zip", "w") as archive:
        for name, text in tables.items():
            archive.writestr(name, text if name != "stops.txt" else b"stop_id,stop_lat\n\xff\xfe")
    with pytest.raises(InputError, match=r"stops\.txt: not UTF-8 text"):
        read(tmp_path / "latin.zip")
    whole = zipped(tmp_path / "cut.zip", feed_tables()).read_bytes()
    spoilt = whole.replace(whole[60:64], b"\0\0\0\0", 1)
    (tmp_path / "cut.zip").write_bytes(spoilt)
    with pytest.raises(InputError, match=r"cannot be read|not a zip|no column|missing"):
        read(tmp_path / "cut.zip")
    monkeypatch.setitem(LONG_TABLES, "stop_times.txt", 2**16)
    bomb = io.StringIO()
    bomb.write(feed_tables()["stop_times.txt"] + ",,,,\n" * 50_000)
    zipped(tmp_path / "bomb.zip", feed_tables() | {"stop_times.txt": bomb.getvalue()})
    assert os.path.getsize(tmp_path / "bomb.zip") < 2**14
    with pytest.raises(InputError, match=r"stop_times\.txt: more than 0 MiB; too large"):
        read(tmp_path / "bomb.zip")


@pytest.mark.parametrize(
    "limit",
    ["calls.MOST_CALLS", "calls.MOST_STOPS", "timetable.MOST_TRIPS", "calendars.MOST_ROUTES"],
)
def test_what_is_kept_of_a_feed_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(f"evenline.importing.{limit}", 1)
    with pytest.raises(InputError, match="more than 1 "):
        read(zipped(tmp_path / "feed.zip", feed_tables()))


def test_a_table_of_empty_rows_is_refused_soon(tmp_path: Path) -> None:
    """300 MiB of line breaks, in a folder; a zip of them swells as no timetable does."""
    folder = tmp_path / "feed"
    folder.mkdir()
    for name, text in feed_tables().items():
        (folder / name).write_text(text)
    rows = b"\n" * 2**20
    with open(folder / "stop_times.txt", "ab") as stream:
        for _ in range(300):
            stream.write(rows)
    with pytest.raises(InputError, match=r"stop_times\.txt: row 1000023: .* empty rows; remove"):
        read(folder)
    zipped(tmp_path / "feed.zip", feed_tables() | {"stop_times.txt": "\n" * 2**26})
    with pytest.raises(
        InputError, match=r"stop_times\.txt: unpacks to 64 MiB, more than 200 times"
    ):
        read(tmp_path / "feed.zip")


@pytest.mark.parametrize(
    ("spaces", "words"),
    [
        (" \n" * 2_000, r"stops\.txt: row 1008: more than 1,000 empty rows; remove them"),
        (" , \t,\n" * 2_000, r"stops\.txt: row 1008: more than 1,000 empty rows; remove them"),
        (" " * 2**23, r"stops\.txt: row [78]: field larger than field limit"),
    ],
)
def test_spaces_without_end_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spaces: str, words: str
) -> None:
    monkeypatch.setattr("evenline.importing.feed.MOST_EMPTY", 1_000)
    monkeypatch.setattr("evenline.importing.feed.MOST_BYTES", 2**22)
    tables = feed_tables()
    tables["stops.txt"] += spaces
    with pytest.raises(InputError, match=words):
        read(zipped(tmp_path / "feed.zip", tables))


# -- one trip at fault ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("stop_times.txt", "08:30:00,08:30:00", "07:30:00,07:30:00"), "go backward"),
        (changed("stop_times.txt", "08:30:00,08:30:00", "08:30:00,08:20:00"), "go backward"),
        (changed("stop_times.txt", "08:00:00,08:00:00", ","), "no time at its first or last stop"),
        (changed("stop_times.txt", "s1,2", "s1,1"), "has stop_sequence 1 twice"),
        (changed("trips.txt", "r1,week,out-2", "r1,week,lone,0,\nr1,week,out-2"), "fewer than two"),
    ],
)
def test_a_trip_at_fault_is_left_out_and_said(
    tmp_path: Path, change: Callable[[Tables], Tables], said: str
) -> None:
    found = read(zipped(tmp_path / "feed.zip", change(feed_tables())))
    trips = [run.trip for pattern in found.patterns for run in pattern.runs]
    assert len(trips) + ("out-1" not in trips) == 3 and "lone" not in trips
    (line,) = found.remarks
    assert line.startswith("left out: 1 trip at fault: stop_times.txt: ") and said in line


def test_a_feed_of_trips_at_fault_is_refused(tmp_path: Path) -> None:
    tables = feed_tables()
    tables["stop_times.txt"] = tables["stop_times.txt"].replace(":30:00,", ":00:00,")
    tables["stop_times.txt"] = re.sub(r"\d\d:00:00,\d\d", "09:00:00,08", tables["stop_times.txt"])
    with pytest.raises(InputError, match=r"feed.zip: stop_times.txt: row 2: times of .* go back"):
        read(zipped(tmp_path / "feed.zip", tables))


@pytest.mark.parametrize("past", ["00:20:00", "24:20:00"])
def test_times_may_begin_again_at_midnight(tmp_path: Path, past: str) -> None:
    """Both ways to write a time after midnight give the same trip, and the first one is said."""
    tables = feed_tables()
    times = tables["stop_times.txt"].replace("08:00:00,08:00:00", "23:50:00,23:59:00")
    times = times.replace("08:30:00,08:30:00", f"{past},{past}")
    found = read(zipped(tmp_path / "feed.zip", tables | {"stop_times.txt": times}))
    (run,) = [run for run in found.patterns[0].runs if run.trip == "out-1"]
    assert (run.departure_s[0], run.arrival_s[-1]) == (86_340, 86_400 + 1200)
    assert list(run.arrival_s) == sorted(run.arrival_s)
    assert len(found.remarks) == (past == "00:20:00")
    assert not found.remarks or found.remarks[0].startswith(
        "2 trips past midnight: their times begin"
    )


def test_trips_that_two_calendars_repeat_are_one(tmp_path: Path) -> None:
    """Two in one calendar are two buses; the same trip at other times is another."""
    tables = feed_tables()
    tables["calendar.txt"] += "term,1,1,1,1,1,0,0,20260101,20261231\n"
    rows, calls = tables["trips.txt"].splitlines(), tables["stop_times.txt"].splitlines()
    for old, new, calendar in (("out-1", "out-9", "term"), ("back-1", "back-2", "week")):
        row = next(row for row in rows if f",{old}," in row)
        tables["trips.txt"] += row.replace(old, new).replace("week", calendar) + "\n"
        again = [call.replace(old, new) for call in calls if call.startswith(f"{old},")]
        tables["stop_times.txt"] += "\n".join(again) + "\n"
    found = read(zipped(tmp_path / "feed.zip", tables))
    assert [[run.trip for run in p.runs] for p in found.patterns] == [
        ["out-1", "out-2"],
        ["back-1", "back-2"],
    ]
    assert found.remarks == (
        "left out: 1 trip that another calendar of the day repeats, stop by stop and second by "
        "second (the first: out-9, which is out-1)",
    )
    later = tables["stop_times.txt"].replace("out-9,,,s3", "out-9,08:20:00,08:20:00,s3")
    found = read(zipped(tmp_path / "later.zip", tables | {"stop_times.txt": later}))
    assert len(found.patterns[0].runs) == 3 and found.remarks == ()


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_an_import_of_another_day_gives_a_pattern_the_same_id(
    tmp_path_factory: pytest.TempPathFactory, draw: random.Random, given_direction: bool
) -> None:
    """Whatever runs on a day, in whatever order: a route, direction and number name one sequence of
    stops in all imports of a feed.
    """
    ways = [range(6), range(5, -1, -1), range(3), range(5, 2, -1), range(1, 6)]
    trips, calls = [], []
    for number in range(draw.randrange(2, 30)):
        way, start = draw.choice(ways), draw.randrange(5, 20)
        direction = "" if not given_direction else str(int(way[0] > way[-1]))
        trips.append(f"r1,{draw.choice(['week', 'end'])},t{number},{direction},")
        calls += [f"t{number},{start}:{n:02d}:00,{start}:{n:02d}:00,s{i},{n}"
                  for n, i in enumerate(way)]  # fmt: skip
    draw.shuffle(trips)
    tables = feed_tables()
    head, times = tables["trips.txt"].splitlines()[0], tables["stop_times.txt"].splitlines()[0]
    tables["calendar.txt"] += "end,0,0,0,0,0,1,1,20260101,20261231\n"
    tables["trips.txt"] = "\n".join([head, *trips]) + "\n"
    tables["stop_times.txt"] = "\n".join([times, *calls]) + "\n"
    feed = open_feed(zipped(tmp_path_factory.mktemp("feed") / "f.zip", tables))
    named: dict[tuple[int, int], tuple[str, ...]] = {}
    for date in (MONDAY, MONDAY + datetime.timedelta(5)):
        for start_s, every in itertools.product((0, 9 * 3600, 15 * 3600), (True, False)):
            with suppress(InputError):
                wanted = Wanted(("10",), date, start_s, all_patterns=every)
                for pattern in read_timetable(feed, wanted).patterns:
                    name = pattern.direction, pattern.number
                    assert named.setdefault(name, pattern.stops) == pattern.stops


def test_the_id_of_a_service_does_not_depend_on_the_routes_chosen_with_it(tmp_path: Path) -> None:
    assert route_ids({"route-1": "1.0", "route-2": "1-0"}) == {"route-1": "1-0", "route-2": "1-0~2"}
    tables = feed_tables() | {"routes.txt": "route_id,route_short_name\nr1,1\nr2,1\n"}
    feed = open_feed(zipped(tmp_path / "feed.zip", tables))
    for routes in (("r1",), ("r2", "r1")):
        assert read_timetable(feed, Wanted(routes, MONDAY)).ids == {"r1": "r1", "r2": "r2"}


# -- what a feed has ------------------------------------------------------------------------------


def test_a_feed_lists_its_routes_with_their_trips_and_days(tmp_path: Path) -> None:
    tables = feed_tables()
    tables["routes.txt"] = "route_id,route_short_name,route_long_name\nr1,10,There\nr2,11,\n"
    tables["calendar.txt"] += "fair,0,0,0,0,0,0,0,20260101,20261231\n"
    tables["calendar_dates.txt"] = (
        "service_id,date,exception_type\nfair,20260307,1\nweek,20261231,2\n"
    )
    tables["trips.txt"] += "r1,fair,out-3,0,\nr1,fair,out-4,0,\n"
    tables["frequencies.txt"] = (
        "trip_id,start_time,end_time,headway_secs\nout-3,06:00:00,07:00:00,600\n"
    )
    feed = open_feed(zipped(tmp_path / "feed.zip", tables))
    first, second = listed_routes(feed)
    assert (first.id, first.name, first.long_name) == ("r1", "10", "There")
    assert first.trips == (4, 7, 0)  # six by frequency and one
    assert (first.first, first.last) == (datetime.date(2026, 1, 1), datetime.date(2026, 12, 30))
    assert second.trips == (0, 0, 0) and second.first is None
    for date, trips in (
        (MONDAY, 4),
        (datetime.date(2026, 3, 7), 7),
        (datetime.date(2026, 3, 8), 0),
    ):
        assert listed_routes(feed, date)[0].trips == (trips,)


def test_a_calendar_without_end_is_listed_at_once(tmp_path: Path) -> None:
    tables = feed_tables()
    tables["calendar.txt"] = tables["calendar.txt"].replace("20261231", "99991231")
    (route, _) = listed_routes(open_feed(zipped(tmp_path / "feed.zip", tables)))
    assert route.trips == (4, 0, 0) and route.last == datetime.date(9999, 12, 31)


# -- real feeds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("city", "routes", "date", "trips"),
    [
        ("cairns", ("110",), datetime.date(2014, 6, 2), 59),
        ("fortaleza", ("804-Aldeota",), datetime.date(2019, 6, 17), 92),
        ("wmata", ("C53", "D40", "D96"), datetime.date(2026, 2, 16), 388),
    ],
)
def test_real_feeds_are_read(
    city: str, routes: tuple[str, ...], date: datetime.date, trips: int
) -> None:
    path = REAL / city / "gtfs.zip"
    if not path.exists():
        pytest.skip(f"{path} is not there; it is no part of the project")
    found = read_timetable(open_feed(path), Wanted(routes, date))
    assert sum(len(pattern.runs) for pattern in found.patterns) == trips
    for pattern in found.patterns:
        for run in pattern.runs:
            assert list(run.arrival_s) == sorted(run.arrival_s)
