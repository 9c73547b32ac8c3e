"""What a policy is, in one line for a reader who does not know its name."""

from collections.abc import Callable
from pathlib import Path

from evenline.policies.bundle import read_policy
from evenline.policies.kinds import FORMAT, KINDS, Spec, follows_actor
from evenline.policies.names import POLICY
from evenline.rules.chain import CALIBRATE, COMPLETION_RESERVE, TAIL_FLOOR, chain_code
from evenline.support.own import is_own
from evenline.support.records import read_record

RULES = {
    "zero": "never holds a bus",
    "random": "holds some buses, drawn by chance, for a random time",
    "headway": "holds a bus that is closer to the bus ahead than to the bus behind",
    "myopic": "takes the hold that costs the people on board and at this stop least",
    "schedule": "holds a bus that is early until the timetable's time",
    "forward": "holds a bus that is too close to the bus ahead",
    "two-way": "balances the gaps to the bus ahead and to the bus behind",
    "virtual-schedule": "steers buses back to an even timetable with slack at every stop",
    "self-equalising": "holds at some stops for a share of the gap to the bus behind",
    "prediction": "leaves at the most regular pace that the buses behind can keep",
    "even-headway": "holds a bus until it is halfway between the buses ahead and behind",
}
_CORRECTIONS = {
    CALIBRATE: "cuts holds that the headways do not support to an eighth",
    TAIL_FLOOR: "holds a last bus with few people 20 s",
    COMPLETION_RESERVE: "holds a last bus with few people 60 s, so that more people catch it",
}


def spec_of(inputs: Path, path: str) -> Spec:
    """The specification of a registered policy; runs no code and opens no tensors of a folder."""
    if (inputs / path / POLICY).is_file():
        return read_record(inputs / path / POLICY, Spec, FORMAT)
    name = path.partition("+")[0]
    if is_own(name):
        return Spec(kind="own", rule=Path(name).name, constants={}, chain="raw")
    return read_policy(path).spec


def is_trained(spec: Spec) -> bool:
    """Whether a policy, or the base of its forecast, was trained."""
    return KINDS[spec.kind].trained or follows_actor(spec)


def what_it_is(spec: Spec) -> str:
    """A policy in one line: what it does, its constants, the corrections behind it."""
    line, constants = _ACTS[spec.kind](spec), spec.constants
    if constants and not KINDS[spec.kind].forecasts:  # a forecast's constants tell nobody anything
        line += f" ({', '.join(_setting(name, value) for name, value in constants.items())})"
    code = chain_code(spec.chain)
    acts = [words for element, words in _CORRECTIONS.items() if code & element]
    return line if not acts else f"{line}; then chain {spec.chain} {', '.join(acts)}"


def _network(spec: Spec) -> str:
    origin = spec.provenance if isinstance(spec.provenance, dict) else {}
    learner = f" as {origin['learner']}" if "learner" in origin else ""
    return f"asks a neural network, trained{learner} on simulated days"


_ACTS: dict[str, Callable[[Spec], str]] = {
    "rule": lambda spec: RULES[str(spec.rule)],
    "own": lambda spec: f"asks a rule of your own, {spec.rule}",
    "actor": _network,
    "lookahead": lambda spec: (
        "forecasts for holds from 0 to 60 s what the rest of the day would cost the passengers of "
        f"the line, and takes the cheapest; buses in its forecast follow {spec.base}"
    ),
}


def _setting(name: str, value: float) -> str:
    """A constant with its unit, such as `slack 7.59 s`."""
    return f"{name[:-2]} {value:.3g} s" if name.endswith("_s") else f"{name} {value:.3g}"
