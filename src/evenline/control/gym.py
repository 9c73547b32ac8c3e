"""A world as a Gymnasium environment: one policy for all buses, one decision per step.

The reward is minus the decision's own cost in passenger-seconds, so a day's rewards and the cost
before the first decision (`info["cost"]` of reset) add up to minus the day's cost. The horizon
terminates an episode and never truncates it: the paper's day ends there, and nothing after it has
value.
"""

from typing import Any

import gymnasium

from evenline.control.cycle import (
    SEEDS,
    CellOfSeed,
    Cycle,
    State,
    WorldFactory,
    action_space,
    state_space,
)


class HoldingEnv(gymnasium.Env[State, State]):
    """Bus holding for a single policy over any world.

    The seed of a reset chooses the cell; without a seed, the next cell is drawn. `info` names the
    bus that decides now (`trip`, `stop`, `time_s`; none at the horizon), gives the `cost` of the
    previous step, and in `executed_holds_s` the holds that happened at the stops of the batch that
    this step completed, in order. `state_version` 2 adds the time to each vehicle's next departure.

        env = HoldingEnv(lambda: SumoWorld(city), lambda seed: demo_cell(1 + seed % 500))
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, make_world: WorldFactory, cell_of: CellOfSeed, state_version: int = 1
    ) -> None:
        self.cycle = Cycle(make_world(), state_version)
        self.cell_of = cell_of
        self.observation_space = state_space(self.cycle.world.city, state_version)
        self.action_space = action_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        """Start the day of the seed's cell."""
        super().reset(seed=seed)
        self.cycle.begin(
            self.cell_of(int(self.np_random.integers(SEEDS)) if seed is None else seed)
        )
        return self.cycle.state(), self._info(self.cycle.world.charged)

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """Apply the action of the current decision."""
        cost = self.cycle.act(action)
        return self.cycle.state(), -float(cost), self.cycle.over, False, self._info(cost)

    def close(self) -> None:
        self.cycle.close()

    def _info(self, cost: int) -> dict[str, Any]:
        executed = tuple(self.cycle.executed_s.values())
        return {**self.cycle.turn._asdict(), "cost": cost, "executed_holds_s": executed}
