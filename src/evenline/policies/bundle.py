"""Policies from names, and bundles: policies saved as folders.

In a bundle, `policy.json` gives the kind, the chain, the constants, the city's contract and the
provenance; `tensors.safetensors` has the arrays, if the kind needs any; `hashes.json` has the
SHA-256 of both. Nothing in a bundle is executed.
"""

import hashlib
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from evenline.city.model import City
from evenline.control.state import Contract, contract_of
from evenline.policies.kinds import (
    FORMAT,
    Bundle,
    Spec,
    agree,
    base_rule,
    check_spec,
    open_bundle,
    setting,
    with_base,
)
from evenline.policies.knowing import Knowing
from evenline.policies.lookahead import LOOKAHEAD, USUAL_BASE, lookahead_constants
from evenline.policies.names import BUILT_IN, POLICY, SETTINGS, Source, is_bundle, parse_source
from evenline.rules.chain import chain_code
from evenline.rules.own import Function, load_rule, rule_of
from evenline.rules.policy import ChainedPolicy
from evenline.rules.table import RULES, Rule
from evenline.support.errors import InputError, choice
from evenline.support.files import (
    new_folder,
    read_file,
    refuse_changed,
    refuse_foreign,
    sha256,
    to_json,
    write_bytes,
    write_text,
)
from evenline.support.own import Own, is_own, load_own
from evenline.support.records import Hashes, plain, read_record
from evenline.support.tensors import Tensors, tensors_bytes, tensors_of
from evenline.worlds.calibration import Calibration

TENSORS, HASHES = "tensors.safetensors", "hashes.json"
_BARE = ".safetensors"  # how the file of an actor without a bundle ends


def read_policy(source: str) -> Bundle:
    """Open a policy by name, with optional `:constant=value` and `+CHAIN`, or a bundle's folder."""
    parts = parse_source(source)
    chain = "raw" if parts.chain is None else parts.chain
    if parts.place == LOOKAHEAD:
        chain_code(chain)
        values = lookahead_constants(parts.constants)
        spec = Spec(kind="lookahead", base=USUAL_BASE.name, constants=values, chain=chain)
        return Bundle(source, spec)
    if parts.place in (*SETTINGS, "random"):
        return setting(source, parts)
    if is_own(parts.place):
        chain_code(chain)
        if isinstance((code := load_own(parts.place)).thing, Knowing):
            return _knowing(source, parts, code)
        row, code = load_rule(parts.place)
        constants = row.named(row.values(parts.constants))
        spec = Spec(kind="own", rule=row.name, constants=constants, chain=chain, code=code.sha256)
        return Bundle(source, spec, code=code, row=row)
    if is_bundle(parts.place):
        if parts.constants or parts.chain is not None:
            raise InputError(
                f"policy {source!r}: a bundle has its own constants and chain; make another with: "
                f"evenline policy export {parts.place} --chain CHAIN"
            )
        return load_bundle(Path(parts.place))
    raise InputError(
        f"unknown policy {source!r}; choose {choice(BUILT_IN)}, or name a bundle's folder or "
        "your own rule as FILE.py:FUNCTION"
    )


def _knowing(source: str, parts: Source, code: Own) -> Bundle:
    """A policy that is made anew for each day."""
    if parts.constants or parts.chain is not None:
        raise InputError(f"policy {source!r}: {code.name} has no constants and no chain")
    spec = Spec(kind="own", rule=code.name, constants={}, chain="raw", code=code.sha256)
    return Bundle(source, spec, code=code)


def _of_function(row: Rule) -> Bundle:
    """Your own rule that has no file, with its usual constants."""
    constants = row.named(row.values({}))
    spec = Spec(kind="own", rule=row.name, constants=constants, chain="raw")
    return Bundle(row.name, spec, row=row)


def chosen_base(source: str) -> Bundle:
    """The base that a person chooses: by its name, or the tuned rule or the actor of a bundle."""
    if not is_bundle(source):
        return base_rule(source)
    bundle = load_bundle(Path(source))
    if bundle.kind.base_name is None:
        raise InputError(
            f"base {source}: the buses of a forecast follow a rule or an actor; choose one"
        )
    return changed(bundle, name=bundle.kind.base_name(bundle))


def open_policy(
    source: str | Bundle | Rule | Function, city: City, calibration: Calibration | None = None
) -> ChainedPolicy:
    """Make a policy ready for a city; refuse it if their contracts differ. It is a name, a bundle,
    or your own rule.

    Policies that use a timetable or look ahead need the calibration of the fast world.
    """
    if not isinstance(source, Bundle):
        source = read_policy(source) if isinstance(source, str) else _of_function(rule_of(source))
    return open_bundle(source, city, calibration)


def policy_digest(source: str | Bundle) -> str:
    """The SHA-256 of a policy: of a bundle's files, or of a name's specification."""
    bundle = read_policy(source) if isinstance(source, str) else source
    parts = [to_json(plain(bundle.spec)).encode()]
    if bundle.tensors:
        parts.append(tensors_bytes(bundle.tensors))
    hashes = "".join(hashlib.sha256(part).hexdigest() for part in parts)
    return hashlib.sha256(hashes.encode()).hexdigest()


# -- files ----------------------------------------------------------------------------------------


def actor_spec(city: City, chain: str, provenance: dict[str, Any]) -> Spec:
    """The specification of an actor's bundle; the tensors are stored next to it."""
    chain_code(chain)
    contract = contract_of(city)
    return Spec(kind="actor", constants={}, chain=chain, contract=contract, provenance=provenance)


def rule_spec(
    rule: str, constants: dict[str, float], chain: str, city: City, provenance: dict[str, Any]
) -> Spec:
    """The specification of a rule's bundle."""
    spec = Spec(kind="rule", rule=rule, constants=constants, chain=chain)
    return replace(spec, contract=contract_of(city), provenance=provenance)


def save_bundle(folder: Path, spec: Spec, tensors: Tensors, force: bool = False) -> None:
    """Write a bundle atomically. Refuses a bundle that could not be loaded again.

    An earlier bundle is replaced if nothing in its folder was added or changed, or by `force`.
    """
    _check(Path(folder), spec, tensors)
    refuse_changed_bundle(folder, force)
    with new_folder(folder) as aside:
        write_text(aside / POLICY, to_json(plain(spec)))
        hashes = {POLICY: sha256(aside / POLICY)}
        if tensors:
            write_bytes(aside / TENSORS, tensors_bytes(tensors))
            hashes[TENSORS] = sha256(aside / TENSORS)
        write_text(aside / HASHES, to_json(hashes))


def refuse_changed_bundle(folder: Path, force: bool = False) -> None:
    """Refuse to replace a folder that is not an unchanged bundle, unless by force."""
    refuse_foreign(folder, POLICY, force=force)
    listing: dict[str, list[str]] = {}
    if not force and (folder / HASHES).is_file():
        hashes = read_record(folder / HASHES, Hashes)
        listing = {name: [hashes[name]] for name in (POLICY, TENSORS) if name in hashes}
        listing[HASHES] = [sha256(folder / HASHES)]
    refuse_changed(folder, listing, force)


def load_bundle(folder: Path) -> Bundle:
    """Read and check a bundle."""
    hashes = read_record(folder / HASHES, Hashes, folder=folder)
    present = {name for name in (POLICY, TENSORS) if (folder / name).is_file()}
    if hashes.keys() != present:
        raise InputError(
            f"{folder / HASHES} does not list the files in the folder; export the policy again"
        )
    contents = {name: read_file(folder / name, folder) for name in sorted(present)}
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != hashes[name]:
            raise InputError(
                f"{folder / name} has changed since it was saved (SHA-256 differs); "
                "export the policy again"
            )
    spec = read_record(folder / POLICY, Spec, FORMAT, folder)
    tensors = tensors_of(folder / TENSORS, contents[TENSORS]) if TENSORS in present else {}
    _check(folder, spec, tensors)
    return Bundle(folder.resolve().name, spec, tensors, row=RULES.get(str(spec.rule)))


def _check(folder: Path, spec: Spec, tensors: Tensors) -> None:
    try:
        check_spec(spec, tensors)
    except InputError as error:
        raise InputError(f"{folder / POLICY}: {error}") from None


def export_bundle(
    folder: Path,
    source: str,
    city: City,
    chain: str | None,
    provenance: dict[str, Any],
    calibration: Calibration | None = None,
    force: bool = False,
    base: str | None = None,
) -> Bundle:
    """Save a policy for a city as a bundle with all that it needs, such as a rule's timetable.

    The source may also be the tensors of a trained actor, a `.safetensors` file. `base` replaces
    the base of a look-ahead.
    """
    bare = source.endswith(_BARE)
    if base is not None and (bare or not read_policy(source).kind.forecasts):
        raise InputError(f"{source} does not look ahead, so it has no base; leave --base out")
    if bare:
        content = read_file(Path(source))
        provenance = provenance | {"tensors_sha256": hashlib.sha256(content).hexdigest()}
        tensors = tensors_of(Path(source), content)
        save_bundle(folder, actor_spec(city, chain or "raw", provenance), tensors, force)
        return load_bundle(folder)
    bundle, contract = read_policy(source), contract_of(city)
    spec = bundle.spec
    if isinstance(spec.contract, Contract):
        agree(bundle.name, spec.contract, contract)
    kept = provenance if spec.provenance is UNSET else spec.provenance
    if chain is not None:
        chain_code(chain)
    spec = replace(spec, contract=contract, provenance=kept, chain=chain or spec.chain)
    bundle = changed(bundle, spec=spec, tensors=bundle.kind.export(bundle, city, calibration))
    if base is not None:
        bundle = with_base(bundle, chosen_base(base))
        bundle = changed(bundle, tensors=bundle.kind.export(bundle, city, calibration))
    save_bundle(folder, bundle.spec, bundle.tensors, force)
    return load_bundle(folder)
