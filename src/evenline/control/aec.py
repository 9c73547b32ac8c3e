"""A world as a PettingZoo environment: every trip is an agent, and agents decide in order.

The reward is minus the decision's own cost in passenger-seconds, credited to the bus that decided;
the cost before the first decision is credited to no bus.
"""

from typing import Any

from pettingzoo import AECEnv

from evenline.control.agents import TripAgents
from evenline.control.cycle import State


class HoldingAEC(TripAgents, AECEnv[str, State, State]):  # type: ignore[misc]  # PettingZoo is untyped
    """Bus holding as an agent-environment cycle over any world.

    `infos[bus]["executed_hold_s"]` is the hold that happened at the bus's last stop. The seed of a
    reset chooses the cell; without a seed, the next cell is drawn:

        env = HoldingAEC(lambda: SumoWorld(city), lambda seed: demo_cell(1 + seed % 500))
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start the day of the seed's cell."""
        self._begin(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._turn()

    def observe(self, agent: str) -> State:
        """The state of the current decision. It is central: every bus sees the same."""
        return self.cycle.state()

    def step(self, action: State | None) -> None:
        """Apply the action of the selected bus; the action must be None once the day is over."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        cost = self.cycle.act(action if action is not None else float("nan"))
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.rewards[agent] = -float(cost)
        self._accumulate_rewards()
        for bus, hold_s in self.cycle.executed_s.items():
            self.infos[bus]["executed_hold_s"] = hold_s
        self._turn()

    def _turn(self) -> None:
        """Select the bus that decides next, or end the day for all."""
        turn = self.cycle.turn
        if turn.trip is None:
            self.terminations = dict.fromkeys(self.agents, True)
            self.agent_selection = self.agents[0]
        else:
            self.agent_selection = turn.trip
            self.infos[turn.trip] |= {"stop": turn.stop, "time_s": turn.time_s}
