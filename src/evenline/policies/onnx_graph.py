"""Export of an actor to ONNX: normalisation, network and chain in one graph.

Input: `state`, rows of the 245-wide packed state (the raw events of a batch, the index of the
decision, the actions taken), in double precision. Output: `hold_s` and, for checks, `logit` and
`mu`. The graph uses only standard operators; all sums are in double precision, as in our own code.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from evenline.control import event
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import Array
from evenline.control.state import (
    LOCAL,
    MAX_SLOTS,
    PACKED_WIDTH,
    PREFIX,
    RAW_SLOT,
    canonical,
    prefix_features,
    slot_formulas,
)
from evenline.policies.actor import FUSED_LAYERS, HEAD_LAYERS, LAST, SLOT_LAYERS, ActorPolicy
from evenline.rules import chain as ch
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.files import write_bytes

with extra("onnx"):
    import onnx
    import onnx_ir as ir
    import onnxruntime
    from google.protobuf.message import DecodeError
    from onnxscript import build_graph

OPSET, IR_VERSION = 18, 9
PRODUCER, HASH = "evenline", "evenline_sha256"
SINGLE, DOUBLE, WHOLE = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64


def write_onnx(path: Path, policy: ActorPolicy) -> None:
    """Write the graph of an actor and its chain, with its hash, which reveals later changes."""
    model = _actor_graph(policy)
    model.metadata_props.add(key=HASH, value=_hash(model))
    write_bytes(path, model.SerializeToString())


def refuse_other_file(path: Path, force: bool = False) -> None:
    """Refuse to replace a file that is not a graph of ours, unchanged; a plain one goes by force.

    A link, a folder or a device is never replaced.
    """
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path} is not a plain file; choose another --onnx")
    if force:
        return
    choose = "choose another --onnx, or use --force to replace it"
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except DecodeError:
        model = onnx.ModelProto()
    notes = {prop.key: prop.value for prop in model.metadata_props}
    if model.producer_name != PRODUCER or HASH not in notes:
        raise InputError(f"{path} was not written by Evenline, or by an old version; {choose}")
    if notes[HASH] != _hash(model):
        raise InputError(f"{path} has changed since Evenline wrote it; {choose}")


def _hash(model: Any) -> str:
    """The SHA-256 of a model without its metadata."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    bare.ClearField("metadata_props")
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()


def _actor_graph(policy: ActorPolicy) -> Any:
    """The graph of an actor and its chain, checked by ONNX's own checker."""

    def graph_of(op: Any, state: Any) -> list[Any]:
        before = ir.set_value_magic_handler(op)  # operators such as `x / y` add nodes
        try:
            prefix = [op.Gather(state, [column], axis=1) for column in range(PREFIX)]
            flat = op.Slice(state, [PREFIX], [PACKED_WIDTH], [1])
            slots = op.Reshape(flat, [-1, MAX_SLOTS, RAW_SLOT])
            places = _constant(op, "places", np.arange(float(MAX_SLOTS)).reshape(1, -1, 1))
            relative = places - op.Reshape(prefix[2], [-1, 1, 1])
            logit, mu = _network(op, policy, prefix, slots, relative)
            proposal_s = op.Where(op.Less(logit, 0.0), 0.0, op.Sigmoid(mu) * MAX_HOLD_S)
            hold_s = _chain(op, policy, prefix[0], slots, relative, proposal_s)
            return [op.Squeeze(x, [1]) for x in (hold_s, logit, mu)]
        finally:
            ir.set_value_magic_handler(before)

    state = ir.val("state", DOUBLE, ["n", PACKED_WIDTH])
    outputs = [ir.val(name, DOUBLE, ["n"]) for name in ("hold_s", "logit", "mu")]
    graph = build_graph(
        graph_of, [state], outputs, opset_imports={"": OPSET}, name="evenline-actor"
    )
    model = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, producer_name=PRODUCER))
    onnx.checker.check_model(model)
    return model


def _constant(op: Any, name: str, value: Any) -> Any:
    return op.builder.initializer(ir.tensor(value), name=name)


def _double(op: Any, x: Any) -> Any:
    return op.Cast(x, to=DOUBLE)


def _features(op: Any, policy: ActorPolicy, slots: Any) -> Any:
    """The plain columns of each slot in single precision, and its service as ones and zeros."""
    active, *raw, action = (op.Gather(slots, [column], axis=2) for column in range(RAW_SLOT))
    service = op.Cast(raw[0], to=WHOLE)
    last_stops = _constant(op, "last_stops", policy.contract.scale[2:])
    features = slot_formulas(op.Min, op.Max)(*raw, op.Gather(last_stops, service))
    plain = op.Concat(active, *features[1:], action, axis=2)
    numbers = _constant(op, "services", np.arange(len(policy.contract.services)))
    return _rounded(op, plain), _double(op, op.Equal(service, numbers))


def _rounded(op: Any, x: Any) -> Any:
    """Round to single precision, as in the canonical state."""
    return _double(op, op.Cast(x, to=SINGLE))


def _network(
    op: Any, policy: ActorPolicy, prefix: Any, slots: Any, relative: Any
) -> tuple[Any, Any]:
    """Gate logit and mu, from the packed state."""
    active = op.Gather(slots, [0], axis=2)
    here, before = _double(op, op.Equal(relative, 0.0)), _double(op, op.Less(relative, 0.0))
    after = _double(op, op.Greater(relative, 0.0)) * active
    features = _features(op, policy, slots)
    x = op.Concat(*features, here, before, relative / float(MAX_SLOTS), axis=2)
    for name in SLOT_LAYERS:
        x = op.Relu(_layer(op, policy, name, x))
    x = x * active

    def mean(weight: Any) -> Any:
        total = op.ReduceSum(x * weight, [1], keepdims=0)
        return total / op.Max(op.ReduceSum(weight, [1], keepdims=0), 1.0)

    most = op.ReduceMax(x, [1], keepdims=0)  # no value is below 0 after a ReLU
    common = op.Concat(*prefix_features(*[*prefix, policy.contract.scale]), axis=1)
    views = (mean(here), mean(active), most, mean(before), mean(after))
    x = op.Concat(_rounded(op, common), *views, axis=1)
    for name in (*FUSED_LAYERS, *HEAD_LAYERS):
        x = op.Relu(_layer(op, policy, name, x))
    out = _layer(op, policy, LAST, x)
    return op.Gather(out, [0], axis=1), op.Gather(out, [1], axis=1)


def _layer(op: Any, policy: ActorPolicy, name: str, x: Any) -> Any:
    weight, bias = (
        _constant(op, tensor, policy.actor.tensors[tensor].astype(np.float64))
        for tensor in (f"{name}.w", f"{name}.b")
    )
    return op.MatMul(x, weight) + bias


def _chain(op: Any, policy: ActorPolicy, time_s: Any, slots: Any, relative: Any, hold: Any) -> Any:
    """`evenline.rules.chain`, element by element, on the current bus."""
    bus = op.ReduceSum(slots * _double(op, op.Equal(relative, 0.0)), [1], keepdims=0)

    def raw(feature: int) -> Any:
        return op.Gather(bus, [1 + LOCAL.index(feature)], axis=1)

    rho = time_s / policy.horizon_s
    if policy.chain & ch.CALIBRATE:
        behind = raw(event.BUS_BEHIND) * (raw(event.HEADWAY_BEHIND) - raw(event.TARGET_BEHIND))
        ahead = raw(event.BUS_AHEAD) * (raw(event.HEADWAY_AHEAD) - raw(event.TARGET_AHEAD))
        reserve = op.Min(op.Max((behind - ahead) * 0.5, 0.0), MAX_HOLD_S)
        share = hold * ch.KEPT_SHARE
        supported = op.Min(hold, op.Max(share, reserve))
        early = op.And(op.Less(rho, ch.CALIBRATED_UNTIL), op.Greater(hold, 0.0))
        hold = op.Where(early, supported, share)
    floors = (
        (ch.TAIL_FLOOR, ch.FLOOR_S, ch.FLOOR_FROM, ch.FLOOR_UNTIL),
        (ch.COMPLETION_RESERVE, ch.RESERVE_S, ch.RESERVE_FROM, ch.RESERVE_UNTIL),
    )
    for element, floor_s, low, high in floors:
        if policy.chain & element:
            some = op.Greater(raw(event.CAPACITY), 0.0)
            load = raw(event.ON_BOARD) / op.Where(some, raw(event.CAPACITY), 1.0)
            guard = op.GreaterOrEqual(rho, low)
            for term in (
                op.Less(rho, high),
                op.Equal(raw(event.BUS_AHEAD), 1.0),
                op.Equal(raw(event.BUS_BEHIND), 0.0),
                op.Greater(raw(event.RATE), 0.0),
                some,
                op.LessOrEqual(load, ch.LOW_LOAD),
            ):
                guard = op.And(guard, term)
            hold = op.Where(guard, op.Max(hold, floor_s), hold)
    return hold


# -- the check ------------------------------------------------------------------------------------


def holds_of(policy: ActorPolicy, packed: Array) -> tuple[Array, Array]:
    """The holds and gate logits of an actor for packed states."""
    raw = current_events(packed)
    states = canonical(packed, policy.contract)
    out = policy.actor.outputs(states)
    proposals = policy.actor.proposals_s(states)
    return ch.apply_chain(policy.chain, raw, proposals, policy.horizon_s), out[:, 0]


def current_events(packed: Array) -> Array:
    """The raw event of the decision of each packed state."""
    n = len(packed)
    slots = packed[:, PREFIX:].reshape(n, MAX_SLOTS, RAW_SLOT)
    bus = slots[np.arange(n), packed[:, 2].astype(int)]
    raw = np.zeros((n, 16))
    raw[:, LOCAL] = bus[:, 1:-1]
    raw[:, [event.TIME, event.SYSTEM_WAITING, event.SYSTEM_ON_BOARD]] = packed[:, [0, 3, 4]]
    return raw


def worst_error_s(path: Path, policy: ActorPolicy, packed: Array) -> float:
    """The largest difference in seconds between the graph in ONNX Runtime and our own code."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    holds_s, _ = holds_of(policy, packed)
    (graph_s,) = session.run(["hold_s"], {"state": packed})
    return float(np.abs(holds_s - graph_s).max())
