"""The packed and the canonical state, against a slow reading of the paper's two lines.

The reference below is written slot by slot from the definition: five numbers the batch has in
common, then sixteen slots of an active flag, the local features and the action already taken.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.embedded import embedded_city
from evenline.control.event import RAW_FEATURES, Batch
from evenline.control.state import Contract, canonical, contract_of, pack
from evenline.support.errors import InputError

LOCAL = [
    name for name in RAW_FEATURES if name not in ("time_s", "system_waiting", "system_on_board")
]


def column(name: str) -> int:
    return RAW_FEATURES.index(name)


def random_batch(rng: np.random.Generator, contract: Contract, count: int) -> Batch:
    """A batch that could have happened, far beyond every cap now and then."""
    raw = np.zeros((count, 16))
    raw[:, column("service")] = np.sort(rng.integers(0, len(contract.services), count))
    last = np.array(contract.stops)[raw[:, column("service")].astype(int)] - 1
    raw[:, column("stop")] = rng.integers(0, np.maximum(last, 1))
    raw[:, column("time_s")] = rng.integers(0, contract.horizon_s)
    for name in ("headway_ahead_s", "headway_behind_s", "target_ahead_s", "target_behind_s"):
        raw[:, column(name)] = rng.integers(0, 8_000, count)
    raw[:, column("waiting")] = rng.integers(0, 2_000, count)
    raw[:, column("on_board")] = rng.integers(0, contract.capacity + 1, count)
    raw[:, column("arrival_rate_per_s")] = rng.random(count) * rng.choice([0.01, 5.0], count)
    raw[:, column("base_dwell_s")] = rng.integers(12, 1_000, count)
    raw[:, column("bus_ahead")] = rng.integers(0, 2, count)
    raw[:, column("bus_behind")] = rng.integers(0, 2, count)
    raw[:, column("capacity")] = contract.capacity
    raw[:, column("system_waiting")] = rng.integers(0, 9_000)
    raw[:, column("system_on_board")] = rng.integers(0, 9_000)
    return Batch(int(raw[0, column("time_s")]), np.arange(count, dtype=np.int32), raw)


def slow_canonical(
    batch: Batch, token: int, taken: list[float], contract: Contract
) -> list[np.float32]:
    """The canonical state from the event itself, without the packed one in between."""
    people = contract.capacity * len(contract.services)
    first = dict(zip(RAW_FEATURES, batch.raw[0].tolist(), strict=True))
    state = [first["time_s"] / contract.horizon_s, len(batch.raw) / 16, token / 16]
    state += [first["system_waiting"] / people, first["system_on_board"] / people]
    for slot in range(16):
        if slot < len(batch.raw):
            f = dict(zip(RAW_FEATURES, batch.raw[slot].tolist(), strict=True))
            last_stop = max(contract.stops[int(f["service"])] - 1, 1)
            state += [1.0, f["service"], f["stop"] / last_stop]
            for name in ("headway_ahead_s", "headway_behind_s", "target_ahead_s"):
                state.append(min(f[name] / 600, 6.0))
            state.append(min(f["target_behind_s"] / 600, 6.0))
            state.append(min(f["waiting"] / f["capacity"], 20.0))
            state.append(f["on_board"] / f["capacity"])
            state.append(min(f["arrival_rate_per_s"] * 600 / f["capacity"], 10.0))
            state.append(min(f["base_dwell_s"] / 60, 10.0))
            state += [f["bus_ahead"], f["bus_behind"]]
        else:
            state += [0.0] * 13
        state.append(taken[slot] if slot < token else -1.0)
    return [np.float32(value) for value in state]


def contract_with(stops: list[int], horizon_s: int, capacity: int) -> Contract:
    return Contract(
        services=tuple(f"line {i}" for i in range(len(stops))),
        stops=tuple(stops),
        horizon_s=horizon_s,
        capacity=capacity,
        features=RAW_FEATURES,
    )


contracts = st.builds(
    contract_with,
    st.lists(st.integers(2, 60), min_size=1, max_size=40),
    st.integers(1, 100_000),
    st.integers(1, 200),
)
cases = st.tuples(contracts, st.integers(1, 16), st.integers(0, 2**32 - 1))


@settings(deadline=None)
@given(cases)
def test_the_packed_state_is_245_wide_and_holds_the_batch_as_it_is(
    case: tuple[Contract, int, int],
) -> None:
    contract, count, seed = case
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, contract, count)
    taken = (2 * rng.random(count) - 1).tolist()
    for token in range(count):
        packed = pack(batch, token, taken)
        assert packed.shape == (245,) and packed.dtype == np.float64
        raw = dict(zip(RAW_FEATURES, batch.raw[0].tolist(), strict=True))
        assert packed[:5].tolist() == [
            *(raw["time_s"], count, token),
            *(raw["system_waiting"], raw["system_on_board"]),
        ]
        slots = packed[5:].reshape(16, 15)
        assert slots[:, 0].tolist() == [1.0] * count + [0.0] * (16 - count)
        assert np.array_equal(slots[:count, 1:14], batch.raw[:, [column(n) for n in LOCAL]])
        assert not slots[count:, :14].any()
        assert slots[:token, 14].tolist() == taken[:token]
        assert slots[token:, 14].tolist() == [-1.0] * (16 - token)


@settings(deadline=None)
@given(cases)
def test_the_canonical_state_is_the_slow_reading_of_the_definition(
    case: tuple[Contract, int, int],
) -> None:
    contract, count, seed = case
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, contract, count)
    taken = (2 * rng.random(count) - 1).tolist()
    token = int(rng.integers(count))
    state = canonical(pack(batch, token, taken), contract)
    assert state.shape == (229,) and state.dtype == np.float32
    assert state.tolist() == slow_canonical(batch, token, taken, contract)


@settings(deadline=None)
@given(contracts, st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_many_states_at_once_are_the_same_as_one_by_one(
    contract: Contract, seed: int, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    packed = np.array(
        [
            pack(random_batch(rng, contract, count), token, -np.ones(16))
            for count in rng.integers(1, 17, 2 * rows)
            for token in [int(rng.integers(count))]
        ]
    ).reshape(rows, 2, 245)
    together = canonical(packed, contract)
    assert together.shape == (rows, 2, 229)
    for i in range(rows):
        for j in range(2):
            assert np.array_equal(together[i, j], canonical(packed[i, j], contract))
    assert np.array_equal(canonical(packed[::-1], contract), together[::-1])
    assert canonical(packed[:0], contract).shape == (0, 2, 229)


@settings(deadline=None)
@given(cases, st.floats(allow_nan=True, allow_infinity=True))
def test_garbage_in_inactive_slots_never_leaks(
    case: tuple[Contract, int, int], garbage: float
) -> None:
    contract, count, seed = case
    batch = random_batch(np.random.default_rng(seed), contract, count)
    packed = pack(batch, 0, [])
    dirty = packed.copy()
    for slot in range(count, 16):
        dirty[5 + 15 * slot + 1 : 5 + 15 * slot + 14] = garbage
    assert np.array_equal(canonical(dirty, contract), canonical(packed, contract))


@settings(deadline=None)
@given(cases, st.floats(allow_nan=True, allow_infinity=True))
def test_an_action_not_yet_taken_is_never_seen(
    case: tuple[Contract, int, int], garbage: float
) -> None:
    """Neither the token's own nor a later one, whatever stands in the array of actions."""
    contract, count, seed = case
    rng = np.random.default_rng(seed)
    batch, token = random_batch(rng, contract, count), int(rng.integers(count))
    taken = 2 * rng.random(16) - 1
    dirty = taken.copy()
    dirty[token:] = garbage
    assert np.array_equal(pack(batch, token, dirty), pack(batch, token, taken))


@settings(deadline=None)
@given(cases)
def test_the_tokens_of_a_batch_differ_in_nothing_but_their_number_and_the_actions_before(
    case: tuple[Contract, int, int],
) -> None:
    contract, count, seed = case
    rng = np.random.default_rng(seed)
    batch, taken = random_batch(rng, contract, count), rng.random(16)
    states = [pack(batch, token, taken) for token in range(count)]
    for token in range(1, count):
        differ = np.flatnonzero(states[token] != states[token - 1])
        assert differ.tolist() == [2, 5 + 15 * (token - 1) + 14]


def test_a_token_without_the_actions_before_it_is_refused() -> None:
    contract = contract_with([10], 24_000, 50)
    batch = random_batch(np.random.default_rng(0), contract, 4)
    with pytest.raises((InputError, ValueError), match="action"):
        pack(batch, 3, [0.5, 0.5])


@pytest.mark.parametrize("name", ["city", "town"])
def test_a_citys_contract_is_its_services_day_and_buses(name: str) -> None:
    city = embedded_city(name)
    contract = contract_of(city)
    assert contract.services == tuple(service.id for service in city.services)
    assert contract.stops == tuple(len(service.stops) for service in city.services)
    assert (contract.horizon_s, contract.capacity) == (city.horizon_s, 50)
    assert contract == contract_of(city) and hash(contract) == hash(contract_of(city))
