"""What a feed costs is measured from the command line, and accepted advice is worth something."""

import json

import pytest

from door import door

Capture = pytest.CaptureFixture[str]


def test_accepted_advice_is_carried_out_and_most_of_the_gain_stays(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    run = door(monkeypatch, capfd, "bench.polling")
    figures = json.loads(run("--city", "town", "--polls", "30", "--days", 1).done())
    behind = figures["polls"]["30"]
    assert figures["inside_generalized_s"] < behind["generalized_s"] < figures["zero_generalized_s"]
    assert behind["share_of_gain"] > 0.5
    assert behind["advice_per_day"] > 20


@pytest.mark.parametrize("polls", ["x", "0.5", ""])
def test_polls_are_seconds(polls: str, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    door(monkeypatch, capfd, "bench.polling")("--polls", polls).refused(f"polls '{polls}'")
