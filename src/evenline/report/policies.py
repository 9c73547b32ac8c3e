"""What a policy is, in one line for a reader who does not know its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenline.policies.bundle import ACTOR, POLICY, read_policy
from evenline.policies.lookahead import LOOKAHEAD
from evenline.rules.chain import CALIBRATE, COMPLETION_RESERVE, TAIL_FLOOR, chain_code
from evenline.support.files import read_json
from evenline.support.own import is_own
from evenline.support.records import plain

Spec = Mapping[str, Any]

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
        return dict(read_json(inputs / path / POLICY))
    if is_own(path.partition("+")[0]):
        return {"kind": "own", "rule": path, "constants": {}, "chain": "raw"}
    return dict(plain(read_policy(path).spec))


def is_trained(spec: Spec) -> bool:
    """Whether a policy, or the base of its forecast, was trained."""
    return spec["kind"] == ACTOR or str(spec.get("base", "")).startswith(ACTOR)


def what_it_is(spec: Spec) -> str:
    """A policy in one line: what it does, its constants, the corrections behind it."""
    kind, settings = spec["kind"], dict(spec["constants"])
    if kind == LOOKAHEAD:
        line = (
            "forecasts for holds from 0 to 60 s what the rest of the day would cost the passengers "
            f"of the line, and takes the cheapest; buses in its forecast follow {spec['base']}"
        )
        settings = {}  # of the forecast: of use to nobody here
    elif kind == ACTOR:
        learner = spec.get("provenance", {}).get("learner")
        line = f"a neural network, trained{f' as {learner}' if learner else ''} on simulated days"
    elif kind == "own":
        line = f"a rule of your own: {Path(spec['rule']).name}"
    else:
        line = RULES[spec["rule"]]
    if settings:
        line += f" ({', '.join(_setting(name, value) for name, value in settings.items())})"
    code = chain_code(spec["chain"])
    acts = [words for element, words in _CORRECTIONS.items() if code & element]
    return line if not acts else f"{line}; then chain {spec['chain']} {', '.join(acts)}"


def _setting(name: str, value: float) -> str:
    """A constant with its unit, such as `slack 7.59 s`."""
    return f"{name[:-2]} {value:.3g} s" if name.endswith("_s") else f"{name} {value:.3g}"
