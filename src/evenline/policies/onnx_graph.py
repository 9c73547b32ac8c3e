"""An actor for machines without Python: normalisation, network and chain in one ONNX graph.

In: `state`, rows of the 245-wide packed state (the raw events of a batch, the token, the actions
taken), in double precision. Out: `hold_s` and, for checks, `logit` and `mu`. Nothing but standard
operators; all sums are in double precision, as in our own code.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from evenline.control.action import MAX_HOLD_S
from evenline.control.event import (
    BASE_DWELL,
    BUS_AHEAD,
    BUS_BEHIND,
    CAPACITY,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    ON_BOARD,
    RATE,
    SYSTEM_ON_BOARD,
    SYSTEM_WAITING,
    TARGET_AHEAD,
    TARGET_BEHIND,
    TIME,
    WAITING,
    Array,
)
from evenline.control.state import (
    DWELL_CAP,
    DWELL_UNIT_S,
    HEADWAY_CAP,
    HEADWAY_UNIT_S,
    LOCAL,
    MAX_SLOTS,
    PACKED_WIDTH,
    PREFIX,
    RATE_CAP,
    RATE_WINDOW_S,
    RAW_SLOT,
    WAITING_CAP,
    canonical,
)
from evenline.policies.actor import PLAIN_COLUMNS, ActorPolicy
from evenline.rules import chain as ch
from evenline.support.files import write_bytes

OPSET = 18
TENSOR = str  # the name of a value in the graph


class _Graph:
    """Collects nodes; every operation returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def op(self, kind: str, *inputs: TENSOR, out: str | None = None, **attributes: Any) -> TENSOR:
        name = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def const(self, value: npt.ArrayLike, dtype: Any = np.float64) -> TENSOR:
        name = f"const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def whole(self, *values: int) -> TENSOR:
        return self.const(values, np.int64)

    def all(self, first: TENSOR, *others: TENSOR) -> TENSOR:
        for other in others:
            first = self.op("And", first, other)
        return first

    def double(self, x: TENSOR) -> TENSOR:
        return self.op("Cast", x, to=TensorProto.DOUBLE)

    def single(self, x: TENSOR) -> TENSOR:
        """Rounded to single precision, as the canonical state is kept."""
        return self.double(self.op("Cast", x, to=TensorProto.FLOAT))

    def column(self, x: TENSOR, index: int) -> TENSOR:
        """One column, kept as a column (last axis)."""
        return self.op("Gather", x, self.whole(index), axis=-1)


def write_onnx(path: Path, controller: ActorPolicy) -> None:
    """Write the graph of an actor and its chain."""
    write_bytes(path, actor_graph(controller).SerializeToString())


def actor_graph(controller: ActorPolicy) -> Any:
    """The graph of an actor and its chain, checked by ONNX itself."""
    g = _Graph()
    prefix = g.op("Slice", "state", g.whole(0), g.whole(PREFIX), g.whole(1))
    flat = g.op("Slice", "state", g.whole(PREFIX), g.whole(PACKED_WIDTH), g.whole(1))
    slots = g.op("Reshape", flat, g.whole(-1, MAX_SLOTS, RAW_SLOT))
    places = g.const(np.arange(MAX_SLOTS).reshape(1, MAX_SLOTS, 1))
    token = g.op("Reshape", g.column(prefix, 2), g.whole(-1, 1, 1))
    _network(g, controller, prefix, slots, places, token)
    _chain(g, controller, prefix, slots, places, token)
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n"])
        for name in ("hold_s", "logit", "mu")
    ]
    state = helper.make_tensor_value_info("state", TensorProto.DOUBLE, ["n", PACKED_WIDTH])
    used = {name for node in g.nodes for name in node.input}
    tensors = [tensor for tensor in g.initializers if tensor.name in used]
    graph = helper.make_graph(g.nodes, "evenline-actor", [state], outputs, tensors)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="evenline"
    )
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


def _normalised(g: _Graph, controller: ActorPolicy, slots: TENSOR) -> dict[str, TENSOR]:
    """Each slot's features without units (control/state.py, `write_slot`), as columns."""
    scale = controller.contract.scale

    def raw(feature: int) -> TENSOR:
        return g.column(slots, 1 + LOCAL.index(feature))

    def capped(x: TENSOR, cap: float) -> TENSOR:
        return g.op("Min", x, g.const(cap))

    room = g.op("Max", raw(CAPACITY), g.const(1.0))
    service = g.op("Cast", g.column(slots, 1), to=TensorProto.INT64)
    headways = (HEADWAY_AHEAD, HEADWAY_BEHIND, TARGET_AHEAD, TARGET_BEHIND)
    arrivals = g.op("Mul", raw(RATE), g.const(RATE_WINDOW_S))
    columns = [
        g.column(slots, 0),
        g.op("Div", g.column(slots, 2), g.op("Gather", g.const(scale[2:]), service)),
        *(capped(g.op("Div", raw(f), g.const(HEADWAY_UNIT_S)), HEADWAY_CAP) for f in headways),
        capped(g.op("Div", raw(WAITING), room), WAITING_CAP),
        g.op("Div", raw(ON_BOARD), room),
        capped(g.op("Div", arrivals, room), RATE_CAP),
        capped(g.op("Div", raw(BASE_DWELL), g.const(DWELL_UNIT_S)), DWELL_CAP),
        raw(BUS_AHEAD),
        raw(BUS_BEHIND),
        g.column(slots, RAW_SLOT - 1),
    ]
    assert len(columns) == len(PLAIN_COLUMNS)
    numbers = g.const(np.arange(len(scale) - 2), np.int64)
    return {
        "plain": g.single(g.op("Concat", *columns, axis=2)),
        "service": g.double(g.op("Equal", service, numbers)),
    }


def _network(
    g: _Graph, controller: ActorPolicy, prefix: TENSOR, slots: TENSOR, places: TENSOR,
    token: TENSOR,
) -> None:  # fmt: skip
    """Gate logit, mu and the proposal, from the packed state."""
    scale = controller.contract.scale
    units = g.const([scale[0], MAX_SLOTS, MAX_SLOTS, scale[1], scale[1]])
    features = _normalised(g, controller, slots)
    relative = g.op("Sub", places, token)
    zero, active = g.const(0.0), g.column(slots, 0)
    here = g.double(g.op("Equal", relative, zero))
    before = g.double(g.op("Less", relative, zero))
    after = g.op("Mul", g.double(g.op("Greater", relative, zero)), active)
    nearness = g.op("Div", relative, g.const(float(MAX_SLOTS)))
    x = g.op("Concat", features["plain"], features["service"], here, before, nearness, axis=2)
    for name in ("slot0", "slot1"):
        x = _layer(g, controller, name, x)
    x = g.op("Mul", x, active)

    def mean(weight: TENSOR) -> TENSOR:
        total = g.op("ReduceSum", g.op("Mul", x, weight), g.whole(1), keepdims=0)
        count = g.op("ReduceSum", weight, g.whole(1), keepdims=0)
        return g.op("Div", total, g.op("Max", count, g.const(1.0)))

    most = g.op("ReduceMax", x, g.whole(1), keepdims=0)  # nothing is below 0 after a ReLU
    views = (mean(here), mean(active), most, mean(before), mean(after))
    x = g.op("Concat", g.single(g.op("Div", prefix, units)), *views, axis=1)
    for name in ("fuse0", "fuse1", "head0", "head1"):
        x = _layer(g, controller, name, x)
    tensors = controller.actor.tensors
    out = g.op("Add", g.op("MatMul", x, g.const(tensors["out.w"])), g.const(tensors["out.b"]))
    logit = g.op("Squeeze", g.column(out, 0), g.whole(1), out="logit")
    mu = g.op("Squeeze", g.column(out, 1), g.whole(1), out="mu")
    hold = g.op("Mul", g.op("Sigmoid", mu), g.const(MAX_HOLD_S))
    g.op("Where", g.op("Less", logit, zero), zero, hold, out="proposal_s")


def _layer(g: _Graph, controller: ActorPolicy, name: str, x: TENSOR) -> TENSOR:
    tensors = controller.actor.tensors
    y = g.op("MatMul", x, g.const(tensors[f"{name}.w"]))
    return g.op("Relu", g.op("Add", y, g.const(tensors[f"{name}.b"])))


def _chain(
    g: _Graph, controller: ActorPolicy, prefix: TENSOR, slots: TENSOR, places: TENSOR,
    token: TENSOR,
) -> None:  # fmt: skip
    """`evenline.rules.chain`, element by element, on the current bus."""
    chosen = g.double(g.op("Equal", places, token))
    bus = g.op("ReduceSum", g.op("Mul", slots, chosen), g.whole(1), keepdims=0)

    def raw(feature: int) -> TENSOR:
        return g.op("Squeeze", g.column(bus, 1 + LOCAL.index(feature)), g.whole(1))

    zero, hold = g.const(0.0), "proposal_s"
    time_s = g.op("Squeeze", g.column(prefix, 0), g.whole(1))
    rho = g.op("Div", time_s, g.const(controller.horizon_s))
    if controller.chain & ch.CALIBRATE:

        def error(present: int, headway: int, target: int) -> TENSOR:
            return g.op("Mul", raw(present), g.op("Sub", raw(headway), raw(target)))

        behind = error(BUS_BEHIND, HEADWAY_BEHIND, TARGET_BEHIND)
        ahead = error(BUS_AHEAD, HEADWAY_AHEAD, TARGET_AHEAD)
        signal = g.op("Mul", g.const(0.5), g.op("Sub", behind, ahead))
        reserve = g.op("Min", g.op("Max", signal, zero), g.const(MAX_HOLD_S))
        share = g.op("Mul", g.const(ch.KEPT_SHARE), hold)
        early = g.op("Less", rho, g.const(ch.CALIBRATED_UNTIL))
        supported = g.op("Min", hold, g.op("Max", share, reserve))
        hold = g.op("Where", g.all(early, g.op("Greater", hold, zero)), supported, share)
    floors = (
        (ch.TAIL_FLOOR, ch.FLOOR_S, ch.FLOOR_FROM, ch.FLOOR_UNTIL),
        (ch.COMPLETION_RESERVE, ch.RESERVE_S, ch.RESERVE_FROM, ch.RESERVE_UNTIL),
    )
    for element, floor_s, low, high in floors:
        if controller.chain & element:
            room = g.op("Where", g.op("Greater", raw(CAPACITY), zero), raw(CAPACITY), g.const(1.0))
            guard = g.all(
                g.op("GreaterOrEqual", rho, g.const(low)),
                g.op("Less", rho, g.const(high)),
                g.op("Equal", raw(BUS_AHEAD), g.const(1.0)),
                g.op("Equal", raw(BUS_BEHIND), zero),
                g.op("Greater", raw(RATE), zero),
                g.op("Greater", raw(CAPACITY), zero),
                g.op("LessOrEqual", g.op("Div", raw(ON_BOARD), room), g.const(ch.LOW_LOAD)),
            )
            hold = g.op("Where", guard, g.op("Max", hold, g.const(floor_s)), hold)
    g.op("Identity", hold, out="hold_s")


# -- the check ------------------------------------------------------------------------------------


def own_holds(controller: ActorPolicy, packed: Array) -> tuple[Array, Array]:
    """(holds, gate logits) of our own code for packed states."""
    raw = current_events(packed)
    states = canonical(packed, controller.contract)
    out = controller.actor.outputs(states)
    proposals = controller.actor.proposals_s(states)
    return ch.apply_chain(controller.chain, raw, proposals, controller.horizon_s), out[:, 0]


def current_events(packed: Array) -> Array:
    """The raw event of each packed state's token."""
    n = len(packed)
    slots = packed[:, PREFIX:].reshape(n, MAX_SLOTS, RAW_SLOT)
    bus = slots[np.arange(n), packed[:, 2].astype(int)]
    raw = np.zeros((n, 16))
    raw[:, LOCAL] = bus[:, 1:-1]
    raw[:, [TIME, SYSTEM_WAITING, SYSTEM_ON_BOARD]] = packed[:, [0, 3, 4]]
    return raw


def worst_error_s(path: Path, controller: ActorPolicy, packed: Array) -> float:
    """The largest difference in seconds between the graph in ONNX Runtime and our own code."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    mine, _ = own_holds(controller, packed)
    (theirs,) = session.run(["hold_s"], {"state": packed})
    return float(np.abs(mine - theirs).max())
