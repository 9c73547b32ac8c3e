"""Tuning: the front, the search, and going on after a kill."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenline.experiments.tune as module
from evenline.city.embedded import embedded_city
from evenline.experiments.tune import Try, front, tune
from evenline.policies.bundle import load_bundle, open_policy
from evenline.support.errors import InputError

tries = st.lists(
    st.builds(Try, st.just((0.0,)), st.integers(0, 9).map(float), st.integers(0, 9).map(float)),
    min_size=1,
    max_size=30,
)


def betters(a: Try, b: Try) -> bool:
    """Whether a is at least as good in both respects and better in one."""
    return (
        a.generalized_s <= b.generalized_s
        and a.completion >= b.completion
        and (a.generalized_s, a.completion) != (b.generalized_s, b.completion)
    )


@given(tries)
def test_the_front_is_what_nothing_betters(points: list[Try]) -> None:
    found = front(points)
    kept = {(each.generalized_s, each.completion) for each in found}
    assert len(kept) == len(found)
    for each in points:
        beaten = any(betters(other, each) for other in points)
        assert ((each.generalized_s, each.completion) in kept) == (not beaten)


def test_tuned_constants_are_better_on_the_tuning_days_and_open_as_a_policy(
    tmp_path: Path,
) -> None:
    chosen, best, tuned = tune("virtual-schedule", "town", tmp_path / "out", blocks=1, budget=60)
    kept = json.loads((tmp_path / "out" / "front.json").read_text())
    assert chosen == best[0] and chosen.generalized_s < kept["default"]["generalized_s"]
    folder = tmp_path / "out" / "virtual-schedule-tuned"
    assert tuned == str(folder)
    policy = open_policy(str(folder), embedded_city("town"))
    assert tuple(policy.values) == pytest.approx(chosen.constants)  # type: ignore[attr-defined]
    assert told(folder)["tries"] == kept["tries"]
    assert (tmp_path / "out" / "front.png").stat().st_size > 10_000


def test_a_rule_of_one_constant_can_be_tuned(tmp_path: Path) -> None:
    chosen, *_ = tune("headway", "town", tmp_path / "out", blocks=1, budget=30)
    assert len(chosen.constants) == 1 and 0.0 <= chosen.constants[0] <= 2.0


def told(folder: Path) -> dict[str, Any]:
    """Where a bundle says it came from."""
    provenance = load_bundle(folder).spec.provenance
    assert isinstance(provenance, dict)
    return provenance


def interrupted(monkeypatch: pytest.MonkeyPatch, at: int) -> list[tuple[float, ...]]:
    """Every try from here on, the search being interrupted in the generation of one."""
    judge, runs = module._judge, list[tuple[float, ...]]()

    def counted(*arguments: Any) -> Any:
        plain = judge(*arguments)

        def judged(points: Sequence[tuple[float, ...]]) -> list[Try]:
            before = len(runs)
            runs.extend(points)
            if before < at <= len(runs):
                raise KeyboardInterrupt
            return plain(points)

        return judged

    monkeypatch.setattr(module, "_judge", counted)
    return runs


def test_a_killed_search_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune("forward", "town", tmp_path / "whole", blocks=1, budget=60)
    runs = interrupted(monkeypatch, 40)
    with pytest.raises(KeyboardInterrupt):
        tune("forward", "town", tmp_path / "part", blocks=1, budget=60)
    before = len(runs)
    again = tune("forward", "town", tmp_path / "part", blocks=1, budget=60)
    assert again[:2] == whole[:2]
    assert len(runs) - before < 60 - 30, "what was known is not run again"
    for name in ("front.json", "tries.json", "forward-tuned/policy.json"):
        assert (tmp_path / "part" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_a_search_killed_in_its_first_generation_keeps_the_default_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = interrupted(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        tune("forward", "town", tmp_path / "part", blocks=1, budget=3)
    killed = set(runs[1:])
    tune("forward", "town", tmp_path / "part", blocks=1, budget=3)
    made = json.loads((tmp_path / "part" / "tries.json").read_text())["tries"]
    twice = [point for point in set(runs) if runs.count(point) > 1]
    assert set(twice) == killed, "nothing but the generation that was killed is run twice"
    assert len(runs) == len(made) + len(killed)


def test_a_tuned_bundle_tells_the_search_it_came_from(tmp_path: Path) -> None:
    tune("forward", "town", tmp_path / "out", blocks=1, budget=3, seed=7)
    tuning = told(tmp_path / "out" / "forward-tuned")["tuning"]
    assert (tuning["seed"], tuning["budget"], len(tuning["cells"])) == (7, 3, 3)
    with pytest.raises(InputError, match="belongs to another search"):
        tune("forward", "town", tmp_path / "out", blocks=1, budget=3, seed=8)


def test_a_floor_of_completion_is_kept(tmp_path: Path) -> None:
    _, best, _ = tune("forward", "town", tmp_path / "out", blocks=1, budget=60)
    floor = best[-1].completion
    chosen, *_ = tune(
        "forward", "town", tmp_path / "out", blocks=1, budget=60, least_completion=floor
    )
    assert chosen.completion >= floor
    with pytest.raises(
        InputError, match=r"no constants reach a completion of 99\.99%; the highest is"
    ):
        tune("forward", "town", tmp_path / "out", blocks=1, budget=60, least_completion=0.9999)


def test_a_rule_without_constants_is_refused(tmp_path: Path) -> None:
    for rule in ("myopic", "no-such"):
        with pytest.raises(InputError, match=f"'{rule}'.*; choose .*'headway'.*'forward'"):
            tune(rule, "town", tmp_path / "out")
