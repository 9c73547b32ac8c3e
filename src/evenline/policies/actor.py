"""The frozen actor: turns a state into a proposal in seconds, with NumPy only.

One small network processes the slots of a state; another processes five pooled views of them and
the prefix; a hurdle head decides whether to hold and how long. `network_layers` defines its layers;
training, the ONNX graph and the compiled formula use the same tensors, and one test compares all
four. Only active slots are computed. Sums are in double precision, so that a gate does not depend
on how states are batched.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.control.action import MAX_HOLD_S, action_of
from evenline.control.event import Array, Batch
from evenline.control.state import MAX_SLOTS, PREFIX, SLOT, Contract, canonical, pack
from evenline.rules.chain import apply_chain
from evenline.rules.policy import Decision
from evenline.support.errors import InputError

WIDTHS = (128, 256, 256)  # of the slot network, the fused features and the head: the paper's
VIEWS, OUTPUTS = 5, 3
SLOT_LAYERS = ("slot0", "slot1")  # each with a ReLU after it, as all but the last layer
FUSED_LAYERS = ("fuse0", "fuse1")
HEAD_LAYERS = ("head0", "head1")
LAST = "out"  # gate logit, mu and log_std
LOG_STD_RANGE = (-5.0, 2.0)
_SERVICE_COLUMN = 1  # within a slot of the canonical state
PLAIN_COLUMNS = (0, *range(2, SLOT))  # active flag, eleven local features, prior action
POSITION_COLUMNS = 3  # current, decided before, relative position


def network_layers(
    services: int, widths: tuple[int, int, int] = WIDTHS, extra: int = 0, outputs: int = OUTPUTS
) -> dict[str, tuple[int, int]]:
    """The definition of the network: how many numbers enter and leave each of its layers.

    `extra` numbers enter the head beside the features, as a critic's action does.
    """
    slot, fused, hidden = widths
    return {
        "slot0": (len(PLAIN_COLUMNS) + services + POSITION_COLUMNS, slot),
        "slot1": (slot, slot),
        "fuse0": (PREFIX + VIEWS * slot, fused),
        "fuse1": (fused, fused),
        "head0": (fused + extra, hidden),
        "head1": (hidden, hidden),
        LAST: (hidden, outputs),
    }


def tensor_shapes(
    services: int, widths: tuple[int, int, int] = WIDTHS
) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors of an actor for `services` services; weights are (in, out)."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (before, after) in network_layers(services, widths).items():
        shapes |= {f"{name}.w": (before, after), f"{name}.b": (after,)}
    return shapes


def check_tensors(tensors: dict[str, npt.NDArray[Any]], services: int) -> None:
    """Refuse tensors that are missing, unknown, of the wrong shape or type, or not finite."""
    first = (tensors.get(name) for name in ("slot0.b", "fuse0.b", "head0.b"))
    given = [len(t) if t is not None and t.ndim == 1 else 0 for t in first]
    slot, fused, hidden = (width or paper for width, paper in zip(given, WIDTHS, strict=True))
    shapes = tensor_shapes(services, (slot, fused, hidden))
    for name in sorted(shapes.keys() ^ tensors.keys()):
        raise InputError(f"tensor {name}: {'missing' if name in shapes else 'unknown'}")
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tensor.shape != shape or tensor.dtype != np.float32:
            raise InputError(
                f"tensor {name} has {tensor.dtype} {tensor.shape}; expected float32 {shape}"
            )
        if not np.isfinite(tensor).all():
            raise InputError(f"tensor {name} contains a value that is not finite")


@dataclass(frozen=True, eq=False)
class Actor:
    """The tensors of an actor, ready to compute with."""

    services: int
    tensors: dict[str, Array]

    def outputs(self, states: npt.NDArray[np.float32]) -> Array:
        """Gate logit, mu and log_std of each state (rows of canonical states)."""
        rows, slots, current = _active_slots(states)
        hidden = self._features(rows, slots, current)
        for name in SLOT_LAYERS:
            hidden = self._layer(name, hidden)
        fused = np.concatenate([states[:, :PREFIX], *_views(hidden, rows, current)], axis=1)
        for name in (*FUSED_LAYERS, *HEAD_LAYERS):
            fused = self._layer(name, fused)
        out = fused @ self.tensors[f"{LAST}.w"] + self.tensors[f"{LAST}.b"]
        np.clip(out[:, 2], *LOG_STD_RANGE, out=out[:, 2])
        return np.asarray(out)

    def proposals_s(self, states: npt.NDArray[np.float32]) -> Array:
        """The hold of the deterministic policy in seconds: exactly 0 if the gate is closed."""
        out = self.outputs(states)
        hold = MAX_HOLD_S / (1.0 + np.exp(-out[:, 1]))
        return np.asarray(np.where(out[:, 0] >= 0.0, hold, 0.0))

    def _layer(self, name: str, x: Array) -> Array:
        y = x @ self.tensors[f"{name}.w"]
        y += self.tensors[f"{name}.b"]
        np.maximum(y, 0.0, out=y)
        return np.asarray(y)

    def _features(self, rows: "_Slots", slots: Array, current: "_Slots") -> Array:
        """The inputs of the slot network, one row per active slot."""
        plain, relative = len(PLAIN_COLUMNS), rows.index - current.index[rows.state]
        out = np.zeros((len(slots), plain + self.services + POSITION_COLUMNS))
        out[:, 0] = slots[:, 0]
        out[:, 1:plain] = slots[:, _SERVICE_COLUMN + 1 :]
        out[np.arange(len(slots)), plain + slots[:, _SERVICE_COLUMN].astype(np.intp)] = 1.0
        out[:, -3] = relative == 0
        out[:, -2] = relative < 0
        out[:, -1] = relative / MAX_SLOTS
        return out


@dataclass(frozen=True, eq=False)
class _Slots:
    """Some slots: the state that each belongs to, and its index among the slots of the state."""

    state: npt.NDArray[np.intp]
    index: npt.NDArray[np.intp]


def _active_slots(states: npt.NDArray[np.float32]) -> tuple[_Slots, Array, _Slots]:
    """(active slots of all states, their columns, the slot of each state's decision)."""
    table = states[:, PREFIX:].reshape(len(states), MAX_SLOTS, SLOT)
    state, index = np.nonzero(table[:, :, 0])
    decision = np.rint(states[:, 2] * MAX_SLOTS).astype(np.intp)
    current = _Slots(np.arange(len(states)), decision)
    return _Slots(state, index), table[state, index].astype(float), current


def _views(hidden: Array, rows: _Slots, current: _Slots) -> tuple[Array, ...]:
    """Current slot, mean and maximum of all slots, mean of decided slots, mean of later slots."""
    first, decision = np.searchsorted(rows.state, current.state), current.index
    if len(hidden) == len(first):  # batches of one bus: every view is that bus, or empty
        none = np.zeros_like(hidden)
        return hidden, hidden, hidden, none, none
    count = np.diff(np.append(first, len(hidden)))
    total = np.add.reduceat(hidden, first)
    before = (rows.index < decision[rows.state])[:, None]
    decided = np.add.reduceat(np.where(before, hidden, 0.0), first)
    after = (rows.index > decision[rows.state])[:, None]
    later = np.add.reduceat(np.where(after, hidden, 0.0), first)
    return (
        hidden[first + decision],
        total / count[:, None],
        np.maximum.reduceat(hidden, first),
        decided / np.maximum(decision, 1)[:, None],
        later / np.maximum(count - 1 - decision, 1)[:, None],
    )


def actor_of(tensors: dict[str, npt.NDArray[Any]], services: int) -> Actor:
    """Check tensors and make an actor from them."""
    check_tensors(tensors, services)
    return Actor(services, {name: t.astype(np.float64) for name, t in tensors.items()})


def random_tensors(services: int, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """An untrained actor (He's initialisation), for tests."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return {
        name: np.asarray(
            rng.standard_normal(shape) * (np.sqrt(2.0 / shape[0]) if len(shape) == 2 else 0.0),
            np.float32,
        )
        for name, shape in tensor_shapes(services).items()
    }


@dataclass(frozen=True, eq=False)
class ActorPolicy:
    """An actor with a chain: the buses of a batch decide in turn, and each sees the earlier
    actions.
    """

    name: str
    actor: Actor
    contract: Contract
    chain: int

    @property
    def horizon_s(self) -> float:
        return float(self.contract.horizon_s)

    def decide(self, batch: Batch) -> Decision:
        count = len(batch.raw)
        proposals, holds, taken = np.empty(count), np.empty(count), np.empty(count)
        for i in range(count):
            state = canonical(pack(batch, i, taken), self.contract)
            proposals[i] = self.actor.proposals_s(state[None])[0]
            one = batch.raw[i : i + 1]
            holds[i] = apply_chain(self.chain, one, proposals[i : i + 1], self.horizon_s)[0]
            taken[i] = action_of(holds[i])
        return Decision(proposals, holds)

    def __call__(self, batch: Batch) -> list[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]
