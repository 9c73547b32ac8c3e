"""Policies by name: built-in policies, your own rules, and bundles (policies saved as folders).

A source such as `forward:gain=0.4+candidate`, `mine.py:steady` or a folder's path names a policy in
every command. In a bundle, `policy.json` gives the kind, the chain, the constants, the city's
contract and the provenance; `tensors.safetensors` has the arrays, if the kind needs any;
`hashes.json` has the SHA-256 of both. Nothing in a bundle is executed.
"""

import hashlib
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from evenline.city.model import City
from evenline.city.ranges import DAYS_S, MOST_CAPACITY
from evenline.control.event import RAW_FEATURES, Array, new_headways
from evenline.control.state import contract_of
from evenline.policies.actor import ActorPolicy, actor_of, check_tensors
from evenline.policies.lookahead import (
    LOOKAHEAD,
    USUAL_BASE,
    Lookahead,
    check_tables,
    forecast_of,
    forecast_tables,
    lookahead_constants,
)
from evenline.rules.chain import CHAINS, chain_code
from evenline.rules.own import Function, load_rule, rule_of
from evenline.rules.policy import BEHAVIOURS, ChainedPolicy, RulePolicy, due_times
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
from evenline.support.own import Own, is_own
from evenline.support.records import (
    Hashes,
    Line,
    Number,
    Record,
    Sha256,
    Whole,
    Word,
    plain,
    read_record,
)
from evenline.support.tensors import Tensors, tensors_bytes, tensors_of
from evenline.worlds.calibration import Calibration

FORMAT = "evenline-policy-1"
POLICY, TENSORS, HASHES = "policy.json", "tensors.safetensors", "hashes.json"
TIMETABLE = "timetable_s"
ACTOR, OF_BASE = "actor", "base."  # a base that is an actor, and the prefix of its tensors


class Contract(Record):
    """The facts that a policy and a city must share."""

    services: tuple[Line, ...]
    stops: tuple[Whole, ...]
    horizon_s: Annotated[int, Meta(ge=0, le=DAYS_S)]
    capacity: Annotated[int, Meta(ge=0, le=MOST_CAPACITY)]
    features: tuple[Word, ...]

    def __post_init__(self) -> None:
        if len(self.services) != len(self.stops):
            raise ValueError("each service needs its number of stops")


class Spec(Record, kw_only=True):
    """The specification of a policy. Kind `own` has no bundle: its code stays in the user's
    file.
    """

    format: Word = FORMAT
    kind: Literal["rule", "actor", "lookahead", "own"]
    rule: Line | UnsetType = UNSET
    base: Line | UnsetType = UNSET  # of a look-ahead: what the buses of its forecast follow
    code: Sha256 | UnsetType = UNSET
    constants: dict[Line, Number]  # the table of rules says which, and their ranges
    chain: Word
    contract: Contract | UnsetType = UNSET
    provenance: dict[Line, Any] | UnsetType = UNSET  # free: nothing of it is used


@dataclass(frozen=True, eq=False)
class Bundle:
    """A policy as data: the content of a bundle's folder, or the meaning of a name."""

    name: str
    spec: Spec
    tensors: Tensors = field(default_factory=dict)
    own: Own | None = None
    row: Rule | None = None  # from the table, or the user's own

    @property
    def rule(self) -> Rule:
        """The rule of a policy that is a rule."""
        assert self.row is not None
        return self.row


# -- names ----------------------------------------------------------------------------------------


def _built_in() -> dict[str, tuple[str, dict[str, float]]]:
    """Every built-in setting of a rule: the rule's name and the constants."""
    named = {p.name: (p.rule.name, p.rule.named(p.values)) for p in BEHAVIOURS.values()}
    for name, rule in RULES.items():
        if name != "random":  # its two settings have names of behaviours
            named.setdefault(name, (name, rule.named(rule.values({}))))
    return named


SETTINGS = _built_in()
BUILT_IN = (*SETTINGS, LOOKAHEAD)


@dataclass(frozen=True)
class Source:
    """The parts of a policy's name: `PLACE[:NAME][:constant=value ...][+chain]`."""

    place: str
    constants: dict[str, float]
    chain: str | None


def parse_source(source: str) -> Source:
    """Split a policy's name into parts; the path of an existing folder is one part."""
    return Source(source, {}, None) if _is_bundle(source) else _split(source)


def _is_bundle(source: str) -> bool:
    return (Path(source) / POLICY).is_file()


def _split(source: str) -> Source:
    """Split a name into parts, whatever the folders here are called."""
    rest, plus, chain = source.rpartition("+")
    if not plus or "/" in chain:  # a path may contain a plus sign
        rest, plus, chain = source, "", ""
    place, *settings = rest.split(":")
    constants: dict[str, float] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals and place in RULES:
            raise InputError(f"policy {source!r}: write a constant as {place}:{setting}=VALUE")
        if not equals:
            place = f"{place}:{setting}"
            continue
        try:
            constants[name] = float(value)
        except ValueError:
            raise InputError(
                f"policy {source!r}: constant {name}: {value!r} is not a number"
            ) from None
    return Source(place, constants, chain if plus else None)


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
        return _setting(source, parts)
    if is_own(parts.place):
        chain_code(chain)
        row, own = load_rule(parts.place)
        constants = row.named(row.values(parts.constants))
        spec = replace(_rule_spec("own", row.name, constants, chain), code=own.sha256)
        return Bundle(source, spec, own=own, row=row)
    if _is_bundle(parts.place):
        if parts.constants or parts.chain is not None:
            raise InputError(
                f"policy {source!r}: a bundle says its own constants and chain; make another with: "
                f"evenline policy export {parts.place} --chain CHAIN"
            )
        return load_bundle(Path(parts.place))
    raise InputError(
        f"unknown policy {source!r}; choose {choice(BUILT_IN)}, or name a bundle's folder or "
        "your own rule as FILE.py:FUNCTION"
    )


def _own(row: Rule) -> Bundle:
    """Your own rule that has no file, with its usual constants."""
    return Bundle(row.name, _rule_spec("own", row.name, row.named(row.values({})), "raw"), row=row)


def _setting(source: str, parts: Source) -> Bundle:
    """A rule of the table by its parts."""
    chain = "raw" if parts.chain is None else parts.chain
    chain_code(chain)
    name, constants = SETTINGS.get(parts.place, (parts.place, {}))
    row = RULES[name]
    constants = row.named(row.values(constants | parts.constants))
    return Bundle(source, _rule_spec("rule", name, constants, chain), row=row)


def base_rule(source: str) -> Bundle:
    """The base of a look-ahead by its name: a rule of the table, with constants and a chain.

    A bundle may name it, so it must be neither a file nor code.
    """
    parts = _split(source)
    if parts.place not in SETTINGS:
        raise InputError(
            f"unknown base {source!r}; choose {choice(SETTINGS)}, or name the bundle of a rule or "
            "an actor"
        )
    bundle = _setting(source, parts)
    return changed(bundle, name=_whole_name(bundle))


def _whole_name(bundle: Bundle) -> str:
    """The name of a rule with every constant, to the last digit, and its chain."""
    given = [(c.name, bundle.spec.constants[c.name]) for c in bundle.rule.constants]
    exact = {name: f"{value:g}" if float(f"{value:g}") == value else value for name, value in given}
    constants = "".join(f":{name}={value}" for name, value in exact.items())
    return _chained(f"{bundle.rule.name}{constants}", bundle.spec.chain)


def _chained(name: str, chain: str) -> str:
    return name if chain == "raw" else f"{name}+{chain}"


def chosen_base(source: str) -> Bundle:
    """The base that a person chooses: by its name, or the tuned rule or the actor of a bundle."""
    if not _is_bundle(source):
        return base_rule(source)
    bundle = load_bundle(Path(source))
    if bundle.spec.kind == "actor":
        return changed(bundle, name=_chained(ACTOR, bundle.spec.chain))
    if bundle.spec.kind != "rule":
        raise InputError(
            f"base {source}: the buses of a forecast follow a rule or an actor; choose one"
        )
    return changed(bundle, name=_whole_name(bundle))


def follows_actor(spec: Spec) -> bool:
    """Whether the buses of a look-ahead's forecast follow an actor."""
    return spec.base is not UNSET and _split(str(spec.base)).place == ACTOR


def _named_base(spec: Spec, tensors: Tensors) -> Bundle:
    """The base of a look-ahead with the tensors that its bundle has for it.

    The tensors of an actor are there under names of their own; a rule may have its timetable.
    """
    if not follows_actor(spec):
        return changed(base_rule(str(spec.base)), tensors=tensors)
    chain = _split(str(spec.base)).chain or "raw"
    chain_code(chain)
    own = {n.removeprefix(OF_BASE): t for n, t in tensors.items() if n.startswith(OF_BASE)}
    actor = Spec(kind="actor", constants={}, chain=chain, contract=spec.contract)
    return Bundle(_chained(ACTOR, chain), actor, own)


def _rule_spec(
    kind: Literal["rule", "own"], rule: str, constants: dict[str, float], chain: str
) -> Spec:
    return Spec(kind=kind, rule=rule, constants=constants, chain=chain)


def policy_digest(source: str | Bundle) -> str:
    """The SHA-256 of a policy: of a bundle's files, or of a name's specification."""
    bundle = read_policy(source) if isinstance(source, str) else source
    parts = [to_json(plain(bundle.spec)).encode()]
    if bundle.tensors:
        parts.append(tensors_bytes(bundle.tensors))
    hashes = "".join(hashlib.sha256(part).hexdigest() for part in parts)
    return hashlib.sha256(hashes.encode()).hexdigest()


# -- files ----------------------------------------------------------------------------------------


def contract_record(city: City) -> Contract:
    """The facts that a policy and a city must share, as a bundle keeps it."""
    contract = contract_of(city)
    return Contract(
        services=tuple(contract.services),
        stops=tuple(contract.stops),
        horizon_s=contract.horizon_s,
        capacity=contract.capacity,
        features=RAW_FEATURES,
    )


def actor_spec(city: City, chain: str, provenance: dict[str, Any]) -> Spec:
    """The specification of an actor's bundle; the tensors are stored next to it."""
    chain_code(chain)
    return Spec(
        kind="actor",
        constants={},
        chain=chain,
        contract=contract_record(city),
        provenance=provenance,
    )


def rule_spec(
    rule: str, constants: dict[str, float], chain: str, city: City, provenance: dict[str, Any]
) -> Spec:
    """The specification of a rule's bundle."""
    spec = _rule_spec("rule", rule, constants, chain)
    return replace(spec, contract=contract_record(city), provenance=provenance)


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
    row = RULES[str(spec.rule)] if spec.kind == "rule" else None
    return Bundle(folder.resolve().name, spec, tensors, row=row)


def _check(folder: Path, spec: Spec, tensors: Tensors) -> None:
    """Refuse a bundle that no version of Evenline could have written."""
    try:
        contract = _check_spec(spec)
        if spec.kind == "actor":
            actor_of(tensors, len(contract.services))
        elif spec.kind == "rule" and RULES[str(spec.rule)].timed:
            _check_timetable(tensors, contract.stops)
        elif spec.kind == "lookahead":
            tables = _check_base(_named_base(spec, tensors), tensors, contract)
            check_tables(tables, sum(contract.stops), contract.horizon_s)
        elif tensors:
            raise InputError(
                f"unexpected tensor {min(tensors)}; a policy of kind {spec.kind} has none"
            )
    except InputError as error:
        raise InputError(f"{folder / POLICY}: {error}") from None


def _check_spec(spec: Spec) -> Contract:
    """Check a specification from a bundle and return its contract."""
    if spec.kind == "own" or spec.code is not UNSET:
        raise InputError("a bundle contains no code; name the file of the rule instead")
    if spec.chain not in CHAINS:
        raise InputError(f"unknown chain {spec.chain!r}; choose {choice(CHAINS)}")
    if not isinstance(spec.contract, Contract) or not isinstance(spec.provenance, dict):
        raise InputError("contract and provenance are missing")
    if (spec.rule is UNSET) != (spec.kind != "rule"):
        raise InputError("only a policy of kind 'rule' has a rule's name")
    if (spec.base is UNSET) != (spec.kind != "lookahead"):
        raise InputError("a policy of kind 'lookahead' has a base, and no other kind has one")
    if spec.kind == "rule":
        if spec.rule not in RULES:
            raise InputError(f"unknown rule {spec.rule!r}; choose {choice(RULES)}")
        row = RULES[spec.rule]
        row.values(spec.constants)
        for constant in row.constants:
            if constant.name not in spec.constants:
                # Defaults may change, so a bundle must give every constant.
                raise InputError(f"constant {constant.name}: missing")
    elif spec.kind == "lookahead":
        if lookahead_constants(spec.constants) != spec.constants:
            raise InputError("constants: a bundle must give every constant")
        whole = _named_base(spec, {}).name
        if spec.base != whole:
            raise InputError(f"base {spec.base!r}: a bundle must give every constant: {whole}")
    elif spec.constants:
        raise InputError(
            f"unexpected constant {min(spec.constants)!r}; a policy of kind {spec.kind} has none"
        )
    return spec.contract


def _check_base(base: Bundle, tensors: Tensors, contract: Contract) -> Tensors:
    """Check what a bundle has for the base of its look-ahead, and return the rest."""
    if base.row is None:
        check_tensors(base.tensors, len(contract.services))
        return {n: table for n, table in tensors.items() if not n.startswith(OF_BASE)}
    if base.row.timed:
        own = {TIMETABLE} & tensors.keys()
        _check_timetable({n: tensors[n] for n in own}, contract.stops)
        return {n: table for n, table in tensors.items() if n not in own}
    return tensors


def _check_timetable(tensors: Tensors, stops: tuple[int, ...]) -> None:
    table = tensors.get(TIMETABLE)
    if tensors.keys() != {TIMETABLE} or table is None or table.shape != (sum(stops),):
        raise InputError(f"must have exactly one tensor, {TIMETABLE}, with {sum(stops)} numbers")
    if table.dtype != np.float64 or not np.isfinite(table).all():
        raise InputError(f"tensor {TIMETABLE}: must be finite float64 numbers")


# -- policies -------------------------------------------------------------------------------------


def open_policy(
    source: str | Bundle | Rule | Function, city: City, calibration: Calibration | None = None
) -> ChainedPolicy:
    """Make a policy ready for a city; refuse it if their contracts differ. It is a name, a bundle,
    or your own rule.

    Policies that use a timetable or look ahead need the calibration of the fast world.
    """
    if not isinstance(source, Bundle):
        source = read_policy(source) if isinstance(source, str) else _own(rule_of(source))
    return _opened(source, city, calibration)


def _opened(bundle: Bundle, city: City, calibration: Calibration | None) -> ChainedPolicy:
    spec, chain = bundle.spec, CHAINS[bundle.spec.chain]
    if isinstance(spec.contract, Contract):
        _agree(bundle.name, spec.contract, contract_record(city))
    if spec.kind == "lookahead":
        tables = bundle.tensors or forecast_tables(city, _needed(bundle, city, calibration))
        base = base_policy(_named_base(spec, bundle.tensors), city, calibration)
        return Lookahead(
            bundle.name, city, forecast_of(city, tables, base), chain, **spec.constants
        )
    return base_policy(bundle, city, calibration)


def base_policy(
    bundle: Bundle, city: City, calibration: Calibration | None
) -> RulePolicy | ActorPolicy:
    """A rule or an actor, ready for a city; refuse it if their contracts differ."""
    if isinstance(bundle.spec.contract, Contract):
        _agree(bundle.name, bundle.spec.contract, contract_record(city))
    if bundle.spec.kind == "actor":
        actor = actor_of(bundle.tensors, len(city.services))
        return ActorPolicy(bundle.name, actor, contract_of(city), CHAINS[bundle.spec.chain])
    return _rule(bundle, city, calibration)


def _rule(bundle: Bundle, city: City, calibration: Calibration | None) -> RulePolicy:
    row, due_s = bundle.rule, np.zeros(0)
    if row.timed:
        due_s = due_times(city, timetable_of(bundle, city, calibration))
    return RulePolicy(
        bundle.name,
        row,
        row.values(bundle.spec.constants),
        CHAINS[bundle.spec.chain],
        float(city.horizon_s),
        new_headways(city).first_visit,
        due_s,
    )


def timetable_of(bundle: Bundle, city: City, calibration: Calibration | None) -> Array:
    """The timetable that came with a bundle, or the city's usual times."""
    if TIMETABLE in bundle.tensors:
        return np.asarray(bundle.tensors[TIMETABLE])
    from evenline.policies.timetable import usual_times

    return usual_times(city, _needed(bundle, city, calibration))


def _needed(bundle: Bundle, city: City, calibration: Calibration | None) -> Calibration:
    if calibration is None:
        raise InputError(
            f"policy {bundle.name} needs a calibration, but {city.name} has none; make one with: "
            "evenline city fit, or name one with --calibration"
        )
    return calibration


def _agree(name: str, mine: Contract, citys: Contract) -> None:
    for key in Contract.__struct_fields__:
        if getattr(mine, key) != getattr(citys, key):
            raise InputError(f"policy {name} was made for a city with different {key}")


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
    """Save a policy for a city as a bundle; the bundle of a timetable rule includes its timetable.

    The source may also be the tensors of a trained actor, a `.safetensors` file. `base` replaces
    the base of a look-ahead.
    """
    trained = source.endswith(".safetensors")
    if base is not None and (trained or read_policy(source).spec.kind != "lookahead"):
        raise InputError(f"{source} does not look ahead, so it has no base; leave --base out")
    if trained:
        content = read_file(Path(source))
        provenance = provenance | {"tensors_sha256": hashlib.sha256(content).hexdigest()}
        tensors = tensors_of(Path(source), content)
        save_bundle(folder, actor_spec(city, chain or "raw", provenance), tensors, force)
        return load_bundle(folder)
    bundle, contract = read_policy(source), contract_record(city)
    spec = bundle.spec
    if isinstance(spec.contract, Contract):
        _agree(bundle.name, spec.contract, contract)
    kept = provenance if spec.provenance is UNSET else spec.provenance
    spec = replace(spec, contract=contract, provenance=kept)
    if chain is not None:
        chain_code(chain)
        spec = replace(spec, chain=chain)
    tensors, timed = dict(bundle.tensors), bundle
    if spec.kind == "lookahead":
        tensors = tensors or dict(forecast_tables(city, _needed(bundle, city, calibration)))
        if base is not None:
            spec, tensors = _with_base(spec, tensors, chosen_base(base))
        timed = _named_base(spec, tensors)
    if timed.row is not None and timed.row.timed:
        tensors[TIMETABLE] = timetable_of(timed, city, calibration)
    save_bundle(folder, spec, tensors, force)
    return load_bundle(folder)


def _with_base(spec: Spec, tensors: Tensors, base: Bundle) -> tuple[Spec, Tensors]:
    """Give a look-ahead another base, with the base's own tensors and provenance."""
    kept = {n: t for n, t in tensors.items() if n != TIMETABLE and not n.startswith(OF_BASE)}
    if isinstance(base.spec.contract, Contract) and isinstance(spec.contract, Contract):
        _agree(base.name, base.spec.contract, spec.contract)
    prefix = OF_BASE if base.spec.kind == "actor" else ""
    kept |= {f"{prefix}{name}": tensor for name, tensor in base.tensors.items()}
    told = dict(spec.provenance) if isinstance(spec.provenance, dict) else {}
    told.pop("base", None)
    if isinstance(base.spec.provenance, dict):
        told["base"] = base.spec.provenance
    return replace(spec, base=base.name, provenance=told), kept
