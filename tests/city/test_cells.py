"""No purpose sees another's days: the seed registry is disjoint, and an overlap is an error."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.cells import PURPOSES, Purpose, check_disjoint, demo_cell
from evenline.city.demand import Cell
from evenline.support.errors import InputError


def seeds(purpose: Purpose, kind: str) -> set[int]:
    return {getattr(cell, kind) for cell in purpose.cells(levels=(1.0,))}


@pytest.mark.parametrize("kind", ["sumo_seed", "demand_seed"])
def test_no_two_purposes_share_a_seed(kind: str) -> None:
    owned = {name: seeds(purpose, kind) for name, purpose in PURPOSES.items()}
    for first, second in itertools.combinations(owned, 2):
        assert not owned[first] & owned[second], (first, second)


def test_the_trial_uses_the_papers_ten_blocks_at_three_levels() -> None:
    cells = PURPOSES["trial"].cells()
    assert sorted({cell.sumo_seed for cell in cells}) == list(range(8101, 8111))
    assert sorted({cell.demand_seed for cell in cells}) == list(range(8201, 8211))
    assert {(c.demand_seed - c.sumo_seed, c.demand) for c in cells} == {
        (100, 0.75),
        (100, 1.00),
        (100, 1.25),
    }
    assert len(set(cells)) == 30


def test_the_replay_has_thirty_cells_block_by_block() -> None:
    cells = PURPOSES["replay"].cells()
    assert len(set(cells)) == 30
    assert cells[:3] == PURPOSES["replay"].cells(1) and len({c.sumo_seed for c in cells[:3]}) == 1


ranges = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 12))


@settings(deadline=None)
@given(st.lists(ranges, min_size=2, max_size=6))
def test_an_overlap_is_an_error_exactly_where_two_ranges_meet(
    rows: list[tuple[int, int, int]],
) -> None:
    purposes = [Purpose(f"p{i}", *row) for i, row in enumerate(rows)]
    overlap = any(
        seeds(first, kind) & seeds(second, kind)
        for first, second in itertools.combinations(purposes, 2)
        for kind in ("sumo_seed", "demand_seed")
    )
    if not overlap:
        check_disjoint(purposes)
        return
    with pytest.raises(InputError, match=r"seed registry: p\d and p\d share"):
        check_disjoint(purposes)


def test_an_overlap_names_both_purposes_and_the_seed() -> None:
    first, second = Purpose("one", 10, 100, 5), Purpose("two", 20, 104, 5)
    with pytest.raises(InputError, match="one and two share demand_seed 104"):
        check_disjoint([second, first])


@pytest.mark.parametrize("blocks", [0, -1, 11])
def test_more_blocks_than_a_purpose_owns_are_refused(blocks: int) -> None:
    with pytest.raises(InputError, match=f"{blocks} blocks: choose 1 to 10 for replay"):
        PURPOSES["replay"].cells(blocks)


def test_a_plain_seed_is_a_demo_cell_and_nothing_else() -> None:
    demo = PURPOSES["demo"].cells(levels=(1.0,))
    assert [demo_cell(seed) for seed in range(1, 501)] == demo
    assert demo_cell(7, 0.75) == Cell(7, 507, 0.75)
    for seed in (0, 501, -3):
        with pytest.raises(InputError, match=f"seed {seed} is out of range; choose 1 to 500"):
            demo_cell(seed)
