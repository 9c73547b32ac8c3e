"""What both PettingZoo views share: every trip is an agent, and a seed is a day.

All trips are agents from reset to the horizon; a trip that has not started or has arrived makes no
decisions. At the horizon all are terminated, not truncated: the paper's day ends there, and nothing
after it has value.
"""

from typing import Any

from gymnasium.spaces import Space
from gymnasium.utils import seeding

from evenline.control.cycle import (
    SEEDS,
    CellOfSeed,
    Cycle,
    State,
    WorldFactory,
    action_space,
    state_space,
)


class TripAgents:
    """The trips of a world's city as agents."""

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "evenline_holding_v0",
        "render_modes": [],
        "is_parallelizable": False,
    }
    render_mode = None

    def __init__(
        self, make_world: WorldFactory, cell_of: CellOfSeed, state_version: int = 1
    ) -> None:
        self.cycle = Cycle(make_world(), state_version)
        self.cell_of = cell_of
        city = self.cycle.world.city
        self.possible_agents = [trip.id for trip in city.trips]
        self.agents: list[str] = []
        self._actions = {agent: action_space() for agent in self.possible_agents}
        self._states = state_space(city, state_version)
        self._random, _ = seeding.np_random()

    def observation_space(self, agent: str) -> Space[State]:
        return self._states

    def action_space(self, agent: str) -> Space[State]:
        return self._actions[agent]

    def close(self) -> None:
        self.cycle.close()

    def _begin(self, seed: int | None) -> None:
        """Start the day of the seed's cell with all agents; without a seed, draw the next cell."""
        if seed is None:
            seed = int(self._random.integers(SEEDS))
        else:
            self._random, _ = seeding.np_random(seed)
        self.cycle.begin(self.cell_of(seed))
        self.agents = list(self.possible_agents)
