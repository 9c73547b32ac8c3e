"""A world as a parallel PettingZoo environment: the buses of a batch decide together.

`infos` names the buses that decide now; the actions of the others are ignored. Unlike in
`HoldingAEC`, a bus does not see the actions that earlier buses of its batch take. The rewards are
the same: the last bus of a batch is credited with minus the cost until the next batch.
"""

from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv

from evenline.control.agents import TripAgents
from evenline.control.cycle import State
from evenline.support.errors import InputError

Infos = dict[str, dict[str, Any]]


class HoldingParallel(TripAgents, ParallelEnv[str, State, State]):  # type: ignore[misc]  # untyped
    """Bus holding with simultaneous decisions over any world.

    `infos[bus]["decides"]` is True for every bus that needs an action now; its `stop` and `time_s`
    are given, too. The other buses see an empty batch. `executed_hold_s` is the hold that happened
    in this step at the stop of a bus. The seed of a reset chooses the cell; without a seed, the
    next cell is drawn:

        env = HoldingParallel(lambda: SumoWorld(city), lambda seed: demo_cell(1 + seed % 500))
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, State], Infos]:
        """Start the day of the seed's cell."""
        self._begin(seed)
        return self._seen()

    def step(
        self, actions: Mapping[str, State]
    ) -> tuple[
        dict[str, State], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]
    ]:
        """Apply the actions of all buses that decide now; a refused action changes nothing."""
        buses = [str(turn.trip) for turn in self.cycle.batch]
        for turn in self.cycle.batch:
            if turn.trip not in actions:
                raise InputError(f"bus {turn.trip} at stop {turn.stop}: got no action; add one")
        cost = self.cycle.act_together([actions[bus] for bus in buses])
        everyone, over = self.agents, self.cycle.over
        rewards = dict.fromkeys(everyone, 0.0) | {buses[-1]: -float(cost)}
        states, infos = self._seen()
        if over:
            self.agents = []
        ended, cut = dict.fromkeys(everyone, over), dict.fromkeys(everyone, False)
        return states, rewards, ended, cut, infos

    def _seen(self) -> tuple[dict[str, State], Infos]:
        """The states and infos of all buses."""
        cycle, idle = self.cycle, self.cycle.idle_state()
        states = {agent: idle.copy() for agent in self.agents}
        infos: Infos = {agent: {"decides": False} for agent in self.agents}
        for decision, (trip, stop, time_s) in enumerate(cycle.batch):
            states[str(trip)] = cycle.blind_state(decision)
            infos[str(trip)] = {"decides": True, "stop": stop, "time_s": time_s}
        for bus, hold_s in cycle.executed_s.items():
            infos[bus]["executed_hold_s"] = hold_s
        return states, infos
