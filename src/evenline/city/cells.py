"""The registry of seeds. Each purpose has its own range, so no two purposes share a day.

A block is a pair of seeds; a purpose owns a range of blocks. `check_disjoint` runs at import:
two purposes that share a seed are an error, not a warning.
"""

from dataclasses import dataclass

from evenline.city.demand import DEMAND_LEVELS, Cell, check_some_demand
from evenline.support.errors import InputError


@dataclass(frozen=True)
class Purpose:
    """A range of blocks: SUMO seeds and demand seeds count up together."""

    name: str
    sumo_seed: int
    demand_seed: int
    blocks: int

    def cells(
        self, blocks: int | None = None, levels: tuple[float, ...] = DEMAND_LEVELS
    ) -> list[Cell]:
        """The first `blocks` blocks at each level, block by block."""
        count = self.blocks if blocks is None else blocks
        if not 1 <= count <= self.blocks:
            raise InputError(f"{count} blocks: choose 1 to {self.blocks} for {self.name}")
        return [
            Cell(self.sumo_seed + block, self.demand_seed + block, level)
            for block in range(count)
            for level in levels
        ]


PURPOSES = {
    purpose.name: purpose
    for purpose in (
        Purpose("demo", 1, 501, 500),
        Purpose("calibration", 1101, 1201, 20),
        Purpose("streets", 1301, 1401, 40),
        Purpose("replay", 2101, 2201, 10),  # also used by the fidelity audits
        Purpose("tuning", 3101, 3601, 500),
        Purpose("training", 100_001, 200_001, 100_000),
        Purpose("development", 5101, 5601, 500),
        Purpose("trial", 8101, 8201, 10),
    )
}


def check_disjoint(purposes: list[Purpose]) -> None:
    """Refuse two purposes that share a SUMO seed or a demand seed."""
    for kind in ("sumo_seed", "demand_seed"):
        ranges = sorted((getattr(p, kind), p.blocks, p.name) for p in purposes)
        for i in range(1, len(ranges)):
            (start, blocks, name), (after, _, other) = ranges[i - 1], ranges[i]
            if start + blocks > after:
                raise InputError(f"seed registry: {name} and {other} share {kind} {after}")


check_disjoint(list(PURPOSES.values()))


def demo_cell(seed: int, demand: float = 1.0) -> Cell:
    """The cell of a plain seed number on the command line."""
    if not 1 <= seed <= PURPOSES["demo"].blocks:
        raise InputError(f"seed {seed} is out of range; choose 1 to {PURPOSES['demo'].blocks}")
    check_some_demand(demand)
    return Cell(seed, 500 + seed, demand)
