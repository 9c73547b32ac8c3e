"""Robustness: the hardest settings again; its days are kept, and its verdicts are told apart."""

from pathlib import Path

from evenline.city.cells import PURPOSES
from evenline.city.operations import Operations
from evenline.experiments.experiment import Arm, Variant, run_arms
from evenline.experiments.measures import Difference
from evenline.experiments.variants import operated
from evenline.worlds.open import open_city
from reproduce import robustness as r


def test_robustness_is_written_into_the_document_and_keeps_its_days(tmp_path: Path) -> None:
    document, kept = tmp_path / "page.md", tmp_path / "days"
    document.write_text(
        "before\n<!-- begin robustness town fast -->\nstale\n<!-- end robustness town fast -->\n"
        "after\n"
    )
    place = r.Place("town", "fast", 2, ("two-way", "lookahead"))
    r.robustness(document, kept, [place])
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert text.count("| held at: terminals only |") == 1 and "5 %" in text
    days = {path: path.stat().st_mtime_ns for path in (kept / "days").iterdir()}
    assert len(days) == 2 * 5, "two days of five settings; those of a rule take no time"
    r.robustness(document, kept, [place])
    assert document.read_text() == text
    assert {path: path.stat().st_mtime_ns for path in (kept / "days").iterdir()} == days


def test_a_day_without_holds_is_the_same_whatever_limits_holds() -> None:
    opened = open_city("town")
    city = operated(opened.city, hold_at="terminals", ignored_share=0.5, cancelled_share=0.05)
    limited = Variant(opened).changed("", "limited", city)
    free = r._unheld(limited)
    assert free.city.operations == Operations(cancelled_share=0.05)
    cells = PURPOSES["development"].cells(1, (1.0,))
    days = run_arms([Arm(limited, "zero"), Arm(free, "zero")], cells)
    assert days[0] == days[1]


def test_what_is_behind_is_said_apart_from_what_is_open() -> None:
    def found(policy: str, low: float, high: float) -> r.Finding:
        change = Difference((low + high) / 2, low, high)
        return r.Finding("as it is", policy, change, change)

    row = [found("a", -3.0, -1.0), found("b", 1.0, 3.0), found("c", -1.0, 1.0)]
    assert r.verdicts([row], 10) == [
        "Clearly behind no holding: b (as it is).",
        "Neither clearly ahead of no holding nor behind: c (as it is).",
    ]
    assert r.verdicts([row[:1]], 3) == [
        "All are clearly ahead of no holding in every setting.",
        "3 days decide little: an interval with 0 in it may only be wide.",
    ]
