"""A policy in one folder: what it is, its numbers, and their hashes. Nothing in it is executed.

`policy.json` says the kind, the chain, the constants, the city's contract and where the policy
came from; `tensors.safetensors` holds arrays where the kind needs them; `hashes.json` the SHA-256
of both. Wherever a policy is asked for, a built-in name or the path of such a folder will do.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from evenline.city.model import City
from evenline.control.event import RAW_FEATURES, Array, new_headways
from evenline.control.state import contract_of
from evenline.policies.actor import ActorController, actor_of
from evenline.rules.behaviours import BEHAVIOURS
from evenline.rules.chain import CHAINS, chain_code
from evenline.rules.classics import CLASSICS
from evenline.rules.controller import Chained, RuleController, due_times
from evenline.support.errors import InputError
from evenline.support.files import (
    new_folder,
    read_json,
    refuse_foreign,
    sha256,
    to_json,
    write_bytes,
    write_text,
)

FORMAT = "evenline-policy-1"
POLICY, TENSORS, HASHES = "policy.json", "tensors.safetensors", "hashes.json"
TIMETABLE = "timetable_s"
KINDS = ("rule", "actor", "rollout")

Tensors = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Bundle:
    """A policy as data: what a bundle's folder holds, or what a built-in name stands for."""

    name: str
    spec: dict[str, Any]
    tensors: Tensors = field(default_factory=dict)


# -- names ----------------------------------------------------------------------------------------


def _built_in() -> dict[str, dict[str, Any]]:
    """Every built-in controller as the specification a bundle would hold."""
    named = {classic.kind: (name, classic) for name, classic in CLASSICS.items()}
    specs: dict[str, dict[str, Any]] = {}
    for rule in BEHAVIOURS.values():
        name, classic = named[rule.kind]
        values = zip(classic.constants, (rule.a, rule.b), strict=False)
        constants = {constant.name: value for constant, value in values}
        specs[rule.name] = {"kind": "rule", "rule": name, "constants": constants}
    for name, classic in CLASSICS.items():
        constants = {constant.name: constant.default for constant in classic.constants}
        specs.setdefault(name, {"kind": "rule", "rule": name, "constants": constants})
    del specs["random"]  # its two settings are behaviours by name
    return specs | {"rollout": {"kind": "rollout", "constants": {}}}


BUILT_IN = _built_in()


def read_policy(source: str) -> Bundle:
    """A built-in name, with `+CHAIN` if wanted (such as `headway+candidate`), or a folder."""
    name, _, chain = source.partition("+")
    if name in BUILT_IN:
        chain_code(chain or "raw")
        return Bundle(source, {"format": FORMAT, **BUILT_IN[name], "chain": chain or "raw"})
    if (Path(source) / POLICY).is_file():
        return load_bundle(Path(source))
    raise InputError(
        f"policy {source!r}: not a bundle's folder, and the built-in ones are {', '.join(BUILT_IN)}"
    )


def policy_digest(source: str) -> str:
    """A SHA-256 of what a policy does: of a bundle's files, or of a built-in's specification."""
    bundle = read_policy(source)
    parts = [to_json(bundle.spec).encode()]
    if bundle.tensors:
        parts.append(safetensors.numpy.save(bundle.tensors))
    hashes = "".join(hashlib.sha256(part).hexdigest() for part in parts)
    return hashlib.sha256(hashes.encode()).hexdigest()


# -- files ----------------------------------------------------------------------------------------


def contract_json(city: City) -> dict[str, Any]:
    """What a policy and a city must agree on, as a bundle keeps it."""
    contract = contract_of(city)
    return {
        "services": list(contract.services),
        "stops": list(contract.stops),
        "horizon_s": contract.horizon_s,
        "capacity": contract.capacity,
        "features": list(RAW_FEATURES),
    }


def actor_spec(city: City, chain: str, provenance: dict[str, Any]) -> dict[str, Any]:
    """The specification of an actor's bundle; the tensors come beside it."""
    chain_code(chain)
    contract = contract_json(city)
    return {"kind": "actor", "chain": chain, "contract": contract, "provenance": provenance}


def save_bundle(folder: Path, spec: dict[str, Any], tensors: Tensors) -> None:
    """Write a bundle whole. What could not be loaded again is refused here already."""
    spec = {"format": FORMAT, "constants": {}, "provenance": {}, **spec}
    _check(Path(folder), spec, tensors)
    refuse_foreign(folder, POLICY)
    with new_folder(folder) as aside:
        write_text(aside / POLICY, to_json(spec))
        hashes = {POLICY: sha256(aside / POLICY)}
        if tensors:
            write_bytes(aside / TENSORS, safetensors.numpy.save(_plain(tensors)))
            hashes[TENSORS] = sha256(aside / TENSORS)
        write_text(aside / HASHES, to_json(hashes))


def _plain(tensors: Tensors) -> Tensors:
    """Contiguous copies: the format keeps bytes, not strides."""
    return {name: np.ascontiguousarray(tensor) for name, tensor in sorted(tensors.items())}


def load_bundle(folder: Path) -> Bundle:
    """Read and check a bundle."""
    hashes = read_json(folder / HASHES)
    spec = read_json(folder / POLICY)
    present = {name for name in (POLICY, TENSORS) if (folder / name).is_file()}
    if not isinstance(hashes, dict) or hashes.keys() != present:
        raise InputError(f"{folder / HASHES}: does not name the files that are there")
    for name in sorted(present):
        if sha256(folder / name) != hashes[name]:
            raise InputError(f"{folder / name}: is not the file that was saved (SHA-256 differs)")
    path = folder / TENSORS
    tensors = _tensors(path, path.read_bytes()) if TENSORS in present else {}
    _check(folder, spec, tensors)
    return Bundle(folder.resolve().name, spec, tensors)


def _tensors(path: Path, content: bytes) -> Tensors:
    """The arrays of a safetensors file."""
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def _check(folder: Path, spec: Any, tensors: Tensors) -> None:
    """Refuse what no version of ours would have written."""
    try:
        _check_spec(spec)
        match spec["kind"]:
            case "actor":
                actor_of(tensors, len(spec["contract"]["services"]))
            case "rule" if CLASSICS[spec["rule"]].timed:
                _check_timetable(tensors, spec["contract"]["stops"])
            case _ if tensors:
                raise InputError(f"tensor {min(tensors)}: kind {spec['kind']} has none")
    except InputError as error:
        raise InputError(f"{folder / POLICY}: {error}") from None


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, dict) or spec.get("format") != FORMAT:
        raise InputError(f"not of the format {FORMAT}")
    _check_name("kind", spec.get("kind"), KINDS)
    _check_name("chain", spec.get("chain"), CHAINS)
    known = {"format", "kind", "chain", "constants", "contract", "provenance"}
    known |= {"rule"} if spec["kind"] == "rule" else set()
    for name in sorted(known ^ spec.keys()):
        raise InputError(f"{name}: {'missing' if name in known else 'unknown'}")
    if not all(isinstance(spec[name], dict) for name in ("constants", "contract", "provenance")):
        raise InputError("constants, contract and provenance must be objects")
    _check_contract(spec["contract"])
    if spec["kind"] == "rule":
        _check_name("rule", spec["rule"], CLASSICS)
        CLASSICS[spec["rule"]].values(spec["constants"])
        for constant in CLASSICS[spec["rule"]].constants:
            if constant.name not in spec["constants"]:
                # A default of today may be another tomorrow: a bundle says what it means.
                raise InputError(f"constant {constant.name}: missing")
    elif spec["constants"]:
        raise InputError(f"constant {min(spec['constants'])!r}: kind {spec['kind']} has none")


def _check_name(part: str, name: Any, known: Collection[str]) -> None:
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{part} {name!r}: there are {', '.join(known)}")


def _check_contract(contract: dict[str, Any]) -> None:
    shape = {"services": list, "stops": list, "horizon_s": int, "capacity": int, "features": list}
    for name, kind in shape.items():
        if not isinstance(contract.get(name), kind):
            raise InputError(f"contract: {name} is not as it should be")
    if len(contract["services"]) != len(contract["stops"]):
        raise InputError("contract: a number of stops is due for each service")
    if not all(isinstance(count, int) for count in contract["stops"]):
        raise InputError("contract: stops are whole numbers")


def _check_timetable(tensors: Tensors, stops: list[int]) -> None:
    table = tensors.get(TIMETABLE)
    if tensors.keys() != {TIMETABLE} or table is None or table.shape != (sum(stops),):
        raise InputError(f"needs the tensor {TIMETABLE} with {sum(stops)} numbers and no other")
    if table.dtype != np.float64 or not np.isfinite(table).all():
        raise InputError(f"tensor {TIMETABLE}: must be finite float64 numbers")


# -- policies -------------------------------------------------------------------------------------


def open_policy(source: str, city: City) -> Chained:
    """A policy ready for a city, from a built-in name or a bundle's folder."""
    return make_policy(read_policy(source), city)


def make_policy(bundle: Bundle, city: City) -> Chained:
    """A bundle's policy in a city; refused where their contracts differ."""
    spec, tensors = bundle.spec, bundle.tensors
    if "contract" in spec:
        _agree(bundle.name, spec["contract"], contract_json(city))
    chain = CHAINS[spec["chain"]]
    if spec["kind"] == "actor":
        actor = actor_of(tensors, len(city.services))
        return ActorController(bundle.name, actor, contract_of(city), chain)
    if spec["kind"] == "rollout":
        from evenline.policies.rollout import BASE, Rollout

        return Rollout(bundle.name, city, chain, _rule(read_policy(BASE), city))
    return _rule(bundle, city)


def _rule(bundle: Bundle, city: City) -> RuleController:
    spec = bundle.spec
    classic = CLASSICS[spec["rule"]]
    return RuleController(
        bundle.name,
        classic.kind,
        classic.values(spec["constants"]),
        CHAINS[spec["chain"]],
        float(city.horizon_s),
        new_headways(city).first_visit,
        due_times(city, timetable_of(bundle, city)) if classic.timed else np.zeros(0),
    )


def timetable_of(bundle: Bundle, city: City) -> Array:
    """The timetable that came with a bundle, or the city's usual times."""
    if TIMETABLE in bundle.tensors:
        return np.asarray(bundle.tensors[TIMETABLE])
    from evenline.policies.timetable import usual_times

    return usual_times(city)


def _agree(name: str, mine: dict[str, Any], citys: dict[str, Any]) -> None:
    for key, value in citys.items():
        if mine.get(key) != value:
            raise InputError(f"policy {name}: was made for a city with other {key}")


def rule_spec(
    rule: str, constants: dict[str, float], chain: str, city: City, provenance: dict[str, Any]
) -> dict[str, Any]:
    """The specification of a rule's bundle."""
    return {
        "kind": "rule",
        "rule": rule,
        "constants": constants,
        "chain": chain,
        "contract": contract_json(city),
        "provenance": provenance,
    }


def export_bundle(
    folder: Path, source: str, city: City, chain: str | None, provenance: dict[str, Any]
) -> Bundle:
    """Freeze a policy for a city into a folder; a timetable rule takes its timetable along.

    The source may also be a trained actor's bare tensors, a `.safetensors` file.
    """
    if source.endswith(".safetensors"):
        content = Path(source).read_bytes()
        provenance = provenance | {"tensors_sha256": hashlib.sha256(content).hexdigest()}
        tensors = _tensors(Path(source), content)
        save_bundle(folder, actor_spec(city, chain or "raw", provenance), tensors)
        return load_bundle(folder)
    bundle = read_policy(source)
    spec = {"provenance": provenance} | bundle.spec | {"contract": contract_json(city)}
    if "contract" in bundle.spec:
        _agree(bundle.name, bundle.spec["contract"], spec["contract"])
    if chain is not None:
        chain_code(chain)
        spec["chain"] = chain
    tensors = dict(bundle.tensors)
    if spec["kind"] == "rule" and CLASSICS[spec["rule"]].timed:
        tensors[TIMETABLE] = timetable_of(bundle, city)
    save_bundle(folder, spec, tensors)
    return load_bundle(folder)
