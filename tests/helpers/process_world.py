"""A world in a process of its own, for tests that need two SUMO worlds at the same time."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from evenline.city.demand import Cell
from evenline.city.embedded import embedded_city
from evenline.control.event import Batch
from evenline.control.outcome import Outcome
from evenline.worlds.sumo.world import SumoWorld


class ProcessWorld:
    """The SUMO world of an embedded city, at the other end of a pipe."""

    def __init__(self, name: str) -> None:
        self.city = embedded_city(name)
        self.charged = 0
        spawn = multiprocessing.get_context("spawn")
        self._ours, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, name), daemon=True)
        self._process.start()
        theirs.close()

    def reset(self, cell: Cell) -> Batch | None:
        batch: Batch | None = self._ask("reset", cell)
        return batch

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        batch: Batch | None = self._ask("step", holds_s)
        return batch

    def outcome(self) -> Outcome:
        outcome: Outcome = self._ask("outcome")
        return outcome

    def close(self) -> None:
        self._ours.close()
        self._process.join()

    def _ask(self, method: str, *arguments: Any) -> Any:
        self._ours.send((method, arguments))
        answer, self.charged = self._ours.recv()
        return answer


def _serve(pipe: Connection, name: str) -> None:
    with SumoWorld(embedded_city(name)) as world:
        while True:
            try:
                method, arguments = pipe.recv()
            except EOFError:
                return
            pipe.send((getattr(world, method)(*arguments), world.charged))
