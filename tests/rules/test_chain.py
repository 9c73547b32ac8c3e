"""The chain against the paper's equations: a table worked out by hand, and every event at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.control.event import RAW_FEATURES
from evenline.rules.chain import (
    CHAINS,
    COMMON_TERMS,
    ELEMENTS,
    apply_chain,
    chain_code,
    explain,
    seconds_column,
)
from evenline.support.errors import InputError

HORIZON_S = 24_000
Event = dict[str, float]

# A bus of the tail: 10 of 50 places taken, a bus ahead, none behind, people still coming. The bus
# ahead is 540 s away where the timetable wants 600, so the headway reserve is (0 + 60) / 2 = 30 s.
TAIL: Event = {
    "time_s": 12_000,
    "headway_ahead_s": 540,
    "target_ahead_s": 600,
    "headway_behind_s": 0,
    "target_behind_s": 0,
    "on_board": 10,
    "arrival_rate_per_s": 0.01,
    "bus_ahead": 1,
    "bus_behind": 0,
    "capacity": 50,
}

# Proposal 8 s: an eighth is 1 s, the reserve 30 s, so h16 = min(8, 30) = 8 s before 0.75 of the
# horizon and 1 s from there on. Each row changes the tail bus in one respect.
TABLE = [
    ("time 0.15 exactly", {"time_s": 3_600}, 8.0, 8.0, 8.0, 60.0),
    ("a second before 0.15", {"time_s": 3_599}, 8.0, 8.0, 8.0, 8.0),
    ("a second before 0.50", {"time_s": 11_999}, 8.0, 8.0, 8.0, 60.0),
    ("time 0.50 exactly", {"time_s": 12_000}, 8.0, 8.0, 20.0, 60.0),
    ("a second before 0.75", {"time_s": 17_999}, 8.0, 8.0, 20.0, 60.0),
    ("time 0.75 exactly", {"time_s": 18_000}, 8.0, 1.0, 1.0, 1.0),
    ("load 0.25 exactly", {"capacity": 40}, 8.0, 8.0, 20.0, 60.0),
    ("load above 0.25", {"on_board": 13}, 8.0, 8.0, 8.0, 8.0),
    ("an empty bus", {"on_board": 0}, 8.0, 8.0, 20.0, 60.0),
    ("no arrivals", {"arrival_rate_per_s": 0.0}, 8.0, 8.0, 8.0, 8.0),
    ("capacity 0", {"capacity": 0}, 8.0, 8.0, 8.0, 8.0),
    ("capacity 0, empty", {"capacity": 0, "on_board": 0}, 8.0, 8.0, 8.0, 8.0),
    # Without a leader the reserve is 0, which leaves the eighth.
    ("no leader", {"bus_ahead": 0}, 8.0, 1.0, 1.0, 1.0),
    # A follower 700 s behind where 600 is wanted: the reserve is (100 + 60) / 2 = 80, cut to 60.
    (
        "a follower",
        {"bus_behind": 1, "headway_behind_s": 700, "target_behind_s": 600},
        48.0, 48.0, 48.0, 48.0,
    ),
    # No proposal, no calibrated hold; the guard alone decides.
    ("no proposal", {}, 0.0, 0.0, 20.0, 60.0),
    # Reserve 30 s: it caps a longer proposal and lets a shorter one be.
    ("a long proposal", {}, 60.0, 30.0, 30.0, 60.0),
    # The bus ahead is far: reserve 0, an eighth of 40 s remains.
    ("too late already", {"headway_ahead_s": 900}, 40.0, 5.0, 20.0, 60.0),
    # An eighth of 60 s is 7.5 s, the reserve (600 - 596) / 2 = 2 s.
    ("an eighth is more", {"headway_ahead_s": 596}, 60.0, 7.5, 20.0, 60.0),
    # After 0.75 the headways have no say.
    ("late and long", {"time_s": 20_000}, 60.0, 7.5, 7.5, 7.5),
]  # fmt: skip


def raw_of(event: Event) -> np.ndarray:
    return np.array([[event.get(name, 0.0) for name in RAW_FEATURES]])


def chained(chain: str, event: Event, proposal_s: float) -> float:
    return float(apply_chain(CHAINS[chain], raw_of(event), np.array([proposal_s]), HORIZON_S)[0])


@pytest.mark.parametrize(("name", "change", "proposal_s", "h16", "parent", "candidate"), TABLE)
def test_every_edge_comes_out_as_worked_out_by_hand(
    name: str, change: Event, proposal_s: float, h16: float, parent: float, candidate: float
) -> None:
    event = TAIL | change
    assert chained("raw", event, proposal_s) == proposal_s
    assert chained("h16", event, proposal_s) == h16
    assert chained("parent", event, proposal_s) == parent
    assert chained("candidate", event, proposal_s) == candidate


def reference(chain: str, e: Event, proposal_s: float) -> float:
    """The equations once more, in words of their own."""
    rho = e["time_s"] / HORIZON_S
    error_b = e["headway_behind_s"] - e["target_behind_s"] if e["bus_behind"] else 0
    error_f = e["headway_ahead_s"] - e["target_ahead_s"] if e["bus_ahead"] else 0
    h_hb = float(np.clip((error_b - error_f) / 2, 0, 60))
    guard = bool(
        e["bus_ahead"]
        and not e["bus_behind"]
        and e["arrival_rate_per_s"] > 0
        and e["capacity"] > 0
        and e["on_board"] / e["capacity"] <= 0.25
    )
    hold = proposal_s
    if chain != "raw":
        eighth = 0.125 * hold
        hold = min(hold, max(eighth, h_hb)) if rho < 0.75 and hold > 0 else eighth
    if chain in ("parent", "candidate") and guard and 0.50 <= rho < 0.75:
        hold = max(hold, 20)
    if chain == "candidate" and guard and 0.15 <= rho < 0.75:
        hold = max(hold, 60)
    return hold


seconds = st.integers(0, 1_500)
events = st.fixed_dictionaries(
    {
        "time_s": st.one_of(
            st.integers(0, HORIZON_S - 1), st.sampled_from([3_600, 12_000, 18_000])
        ),
        "headway_ahead_s": seconds,
        "target_ahead_s": seconds,
        "headway_behind_s": seconds,
        "target_behind_s": seconds,
        "on_board": st.integers(0, 50),
        "arrival_rate_per_s": st.sampled_from([0.0, 0.001, 0.05]),
        "bus_ahead": st.integers(0, 1),
        "bus_behind": st.integers(0, 1),
        "capacity": st.sampled_from([0, 40, 50]),
    }
)
proposals = st.one_of(st.just(0.0), st.just(60.0), st.floats(0.0, 60.0))


@settings(deadline=None)
@given(events, proposals, st.sampled_from(sorted(CHAINS)))
def test_every_event_comes_out_as_the_equations_say(
    event: Event, proposal_s: float, chain: str
) -> None:
    hold = chained(chain, event, proposal_s)
    assert hold == pytest.approx(reference(chain, event, proposal_s), abs=1e-12)
    assert 0.0 <= hold <= 60.0


@settings(deadline=None)
@given(st.lists(st.tuples(events, proposals), min_size=1, max_size=8))
def test_many_events_are_chained_as_one_by_one(rows: list[tuple[Event, float]]) -> None:
    raw = np.concatenate([raw_of(event) for event, _ in rows])
    proposals_s = np.array([proposal for _, proposal in rows])
    together = apply_chain(CHAINS["candidate"], raw, proposals_s, HORIZON_S)
    assert together.tolist() == [chained("candidate", event, p) for event, p in rows]


@settings(deadline=None)
@given(events, proposals, st.sampled_from(sorted(CHAINS)))
def test_an_explanation_adds_up(event: Event, proposal_s: float, chain: str) -> None:
    account = explain(CHAINS[chain], raw_of(event), np.array([proposal_s]), HORIZON_S)
    hold = chained(chain, event, proposal_s)
    assert account["proposal_s"][0] == proposal_s
    assert account["proposal_s"][0] + account["change_s"][0] == pytest.approx(hold, abs=1e-12)
    seconds = {name: float(account[seconds_column(name)][0]) for name in ELEMENTS.values()}
    assert sum(seconds.values()) == pytest.approx(account["change_s"][0], abs=1e-12)
    active = [name for name, changed_s in seconds.items() if changed_s != 0.0]
    assert account["changed_by"][0] == (active[-1] if active else "")
    for code, name in ELEMENTS.items():
        assert CHAINS[chain] & code or name not in active
    common = all(account[f"guard_{term}"][0] for term in COMMON_TERMS)
    for name, window in (("tail floor", "floor"), ("completion reserve", "reserve")):
        if name in active:
            assert common and account[f"guard_{window}_window"][0] and seconds[name] > 0.0


@settings(deadline=None)
@given(events, proposals)
def test_each_element_changes_what_the_chain_without_it_would_leave(
    event: Event, proposal_s: float
) -> None:
    account = explain(CHAINS["candidate"], raw_of(event), np.array([proposal_s]), HORIZON_S)
    before = proposal_s
    for name, chain in zip(ELEMENTS.values(), ("h16", "parent", "candidate"), strict=True):
        after = reference(chain, event, proposal_s)
        assert account[seconds_column(name)][0] == pytest.approx(after - before, abs=1e-12)
        before = after


@settings(deadline=None)
@given(events)
def test_the_account_has_every_term_of_the_guard(event: Event) -> None:
    account = explain(CHAINS["raw"], raw_of(event), np.array([8.0]), HORIZON_S)
    rho, places = event["time_s"] / HORIZON_S, event["capacity"]
    terms = {
        "floor_window": 0.50 <= rho < 0.75,
        "reserve_window": 0.15 <= rho < 0.75,
        "bus_ahead": event["bus_ahead"] == 1,
        "no_bus_behind": event["bus_behind"] == 0,
        "arrivals": event["arrival_rate_per_s"] > 0,
        "capacity": places > 0,
        "low_load": places > 0 and event["on_board"] / places <= 0.25,
    }
    assert {name: account[f"guard_{name}"].tolist() for name in terms} == {
        name: [holds] for name, holds in terms.items()
    }


def test_the_last_element_that_changed_a_hold_is_named() -> None:
    raw, proposal = raw_of(TAIL), np.array([60.0])
    assert explain(CHAINS["h16"], raw, proposal, HORIZON_S)["changed_by"][0] == "calibration"
    assert explain(CHAINS["parent"], raw, np.array([8.0]), HORIZON_S)["changed_by"][0] == (
        "tail floor"
    )
    assert explain(CHAINS["candidate"], raw, proposal, HORIZON_S)["changed_by"][0] == (
        "completion reserve"
    )


def test_an_unknown_chain_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="chain 'v20'; choose 'raw', 'h16', 'parent' or 'cand"):
        chain_code("v20")
