"""A recording plays again bit for bit, survives a kill, and shows every change."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evenline.live import poll
from evenline.live.feed import FeedError, Position, Snapshot, write_message
from evenline.live.log import Linked, Log, read_log
from evenline.live.poll import Poller
from evenline.live.polls import paced, record
from evenline.live.record import INDEX, Recorder, played
from evenline.support.errors import InputError
from evenline.support.records import Line
from feed_server import Served, serving


def message(number: int) -> bytes:
    return write_message(Snapshot(1e9 + number, (Position("bus", 1e9 + number, 47.0, 8.0),)))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path / "day")
    for number in range(3):
        recorder.keep(1e9 + 30 * number, message(number))
    recorder.close()
    return tmp_path / "day"


def test_a_recording_plays_what_was_polled(recording: Path) -> None:
    polls = list(played(recording, 30))
    assert [polled.content for polled in polls] == [message(n) for n in range(3)]
    assert [polled.at_s for polled in polls] == [1e9, 1e9 + 30, 1e9 + 60]


def test_speed_changes_when_answers_come_and_nothing_else(recording: Path) -> None:
    waited: list[float] = []
    slow = list(paced(played(recording, 30), 60, waited.append))
    assert slow == list(played(recording, 30))
    assert waited == pytest.approx([0.5, 1.0], abs=0.2)


def test_a_recording_goes_on_where_it_stopped(recording: Path) -> None:
    recorder = Recorder(recording)
    recorder.keep(1e9 + 90, message(3))
    recorder.close()
    assert [polled.content for polled in played(recording, 30)] == [message(n) for n in range(4)]


def test_a_changed_message_is_refused(recording: Path) -> None:
    (recording / "000002.pb").write_bytes(message(9))
    with pytest.raises(InputError, match=r"000002\.pb is missing or has changed"):
        list(played(recording, 30))


def test_a_folder_of_messages_without_an_index_is_played_by_name(recording: Path) -> None:
    (recording / INDEX).unlink()
    assert [polled.at_s for polled in played(recording, 30)] == [1e9, 1e9 + 1, 1e9 + 2]
    (recording / "000004.pb").write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match=r"000004\.pb: the feed is not"):
        list(played(recording, 30))


def test_what_a_server_says_is_recorded_and_failures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "_LEAST_EVERY_S", 0.2)
    served, lines, ended = Served(message(1)), [], threading.Event()

    def tell(line: str) -> None:
        lines.append(line)
        served.content = b"\xff\xff" if len(lines) == 1 else message(2)
        if line == "2 messages":
            ended.set()

    with serving(served) as url:
        kept = record(Poller(url, every_s=0.2), tmp_path / "r", ended, tell)
    assert kept == 2
    assert "not a GTFS-Realtime" in lines[1]
    assert len(list(played(tmp_path / "r", 30))) == 2


# -- the log --------------------------------------------------------------------------------------


class Note(Linked):
    text: Line = ""


def notes(path: Path) -> list[str]:
    return [entry.text for _, entry in read_log(path, Note)]


def test_a_log_keeps_entries_in_order_and_goes_on(tmp_path: Path) -> None:
    for part in ("ab", "cd"):
        log: Log[Note] = Log(tmp_path / "log", Note)
        for letter in part:
            log.add(Note(text=letter))
        log.close()
    assert notes(tmp_path / "log") == list("abcd")


@pytest.mark.parametrize("change", ["flip", "remove", "insert"])
def test_a_change_of_any_line_is_found(tmp_path: Path, change: str) -> None:
    log: Log[Note] = Log(tmp_path / "log", Note)
    for letter in "abcd":
        log.add(Note(text=letter))
    log.close()
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    if change == "flip":
        lines[1] = lines[1].replace(b'"b"', b'"x"')
    elif change == "remove":
        del lines[1]
    else:
        lines.insert(1, lines[1])
    (tmp_path / "log").write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"line [23] does not contain the hash"):
        notes(tmp_path / "log")


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    log: Log[Note] = Log(tmp_path / "log", Note)
    with pytest.raises(InputError, match="another process"):
        Log(tmp_path / "log", Note)
    log.close()


WRITER = """
import sys
sys.path[:0] = [{here!r}]
from pathlib import Path
from evenline.live.log import Log
from test_record import Note
log = Log(Path({path!r}), Note)
n = len(log.entries)
while True:
    log.add(Note(text=str(n)))
    log.sync()
    print(n, flush=True)
    n += 1
"""


def test_a_kill_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    path, last = tmp_path / "log", -1
    code = WRITER.format(here=str(Path(__file__).parent), path=str(path))
    helpers = str(Path(__file__).parents[1] / "helpers")
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{helpers}:{os.environ.get('PYTHONPATH', '')}"},
        )
        assert child.stdout is not None
        for _ in range(50):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
        last = max([last, *map(int, rest[:-1])])
        child.wait()
        with path.open("ab") as file:
            file.write(b'{"previous": "torn')  # as a kill within a write would leave it
    log: Log[Note] = Log(path, Note)
    assert [entry.text for entry in log.entries] == [str(n) for n in range(len(log.entries))]
    assert len(log.entries) > last
    log.close()
    assert len(notes(path)) > last


def test_a_message_that_is_no_feed_is_a_failed_poll(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(message(0))
    (answer,) = played(tmp_path, 30)
    assert answer.snapshot() is not None
    with pytest.raises(FeedError):
        answer._replace(content=b"\xff\xff").snapshot()
