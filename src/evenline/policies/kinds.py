"""The kinds of policies, one row each: how a bundle of the kind is checked, opened and exported.

A `Spec` and its tensors describe a policy completely. What depends on the kind is in its row of
`KINDS`. The kind `own` is the user's rule, which has no bundle.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from evenline.city.model import City
from evenline.control.event import Array, new_headways
from evenline.control.state import Contract, contract_of
from evenline.policies.actor import ActorPolicy, actor_of
from evenline.policies.knowing import Knowing
from evenline.policies.lookahead import (
    Lookahead,
    check_tables,
    forecast_of,
    forecast_tables,
    lookahead_constants,
)
from evenline.policies.names import SETTINGS, Source, split_name, whole_name
from evenline.rules.chain import CHAINS, chain_code
from evenline.rules.policy import ChainedPolicy, RulePolicy, due_times
from evenline.rules.table import RULES, Rule
from evenline.support.errors import InputError, choice
from evenline.support.own import Own
from evenline.support.records import Line, Number, Record, Sha256, Word
from evenline.support.tensors import Tensors
from evenline.worlds.calibration import Calibration

FORMAT = "evenline-policy-1"
TIMETABLE = "timetable_s"
_ACTOR, _OF_BASE = "actor", "base."  # a base that is an actor, and the prefix of its tensors


class Spec(Record, kw_only=True):
    """The specification of a policy: what `policy.json` holds."""

    format: Word = FORMAT
    kind: Literal["rule", "actor", "lookahead", "own"]
    rule: Line | UnsetType = UNSET
    base: Line | UnsetType = UNSET  # of a look-ahead: what the buses of its forecast follow
    code: Sha256 | UnsetType = UNSET
    constants: dict[Line, Number]  # names and ranges are in the table of rules
    chain: Word
    contract: Contract | UnsetType = UNSET
    provenance: dict[Line, Any] | UnsetType = UNSET  # free: nothing of it is used


@dataclass(frozen=True, eq=False)
class Bundle:
    """A policy as data: the content of a bundle's folder, or the meaning of a name."""

    name: str
    spec: Spec
    tensors: Tensors = field(default_factory=dict)
    code: Own | None = None  # the user's file, of the kind `own`
    row: Rule | None = None  # from the table, or the user's own

    @property
    def kind(self) -> "Kind":
        return KINDS[self.spec.kind]

    @property
    def rule(self) -> Rule:
        """The rule of a policy that is a rule."""
        assert self.row is not None
        return self.row

    @property
    def needs_calibration(self) -> bool:
        """Whether it is made from the fast world: it looks ahead, or holds to the usual times."""
        timed = self.row is not None and self.row.timed
        from_fast = timed or self.kind.forecasts or self.knowing is not None
        return not self.tensors and from_fast

    @property
    def knowing(self) -> Knowing | None:
        """What makes the policy of each day, if it knows something of the day."""
        thing = None if self.code is None else self.code.thing
        return thing if isinstance(thing, Knowing) else None


@dataclass(frozen=True)
class Kind:
    """What a kind does. A look-ahead can follow the kinds with a `base_name`."""

    check: Callable[[Spec, Tensors, Contract], None]
    open: Callable[[Bundle, City, Calibration | None], ChainedPolicy]
    export: Callable[[Bundle, City, Calibration | None], Tensors]
    base_name: Callable[[Bundle], str] | None = None
    trained: bool = False  # a network: one call decides for many days, and there is a graph of it
    forecasts: bool = False  # takes long to decide


def check_spec(spec: Spec, tensors: Tensors) -> None:
    """Refuse the content of a bundle that no version of Evenline could have written."""
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
    KINDS[spec.kind].check(spec, tensors, spec.contract)


def open_bundle(bundle: Bundle, city: City, calibration: Calibration | None) -> ChainedPolicy:
    """Make a policy ready for a city; refuse it if their contracts differ."""
    if bundle.knowing is not None:
        raise InputError(f"policy {bundle.name} knows the day, so it can only be compared")
    if isinstance(bundle.spec.contract, Contract):
        agree(bundle.name, bundle.spec.contract, contract_of(city))
    return bundle.kind.open(bundle, city, calibration)


def agree(name: str, mine: Contract, citys: Contract) -> None:
    """Refuse a policy that was made for another city."""
    for key in Contract.__struct_fields__:
        if getattr(mine, key) != getattr(citys, key):
            raise InputError(f"policy {name} was made for a city with different {key}")


def _needed(bundle: Bundle, city: City, calibration: Calibration | None) -> Calibration:
    if calibration is None:
        raise InputError(
            f"policy {bundle.name} needs a calibration, but {city.name} has none; make one with: "
            "evenline city fit, or name one with --calibration"
        )
    return calibration


# -- rules ----------------------------------------------------------------------------------------


def setting(source: str, parts: Source) -> Bundle:
    """A rule of the table by the parts of its name."""
    chain = "raw" if parts.chain is None else parts.chain
    chain_code(chain)
    name, constants = SETTINGS.get(parts.place, (parts.place, {}))
    row = RULES[name]
    constants = row.named(row.values(constants | parts.constants))
    return Bundle(source, Spec(kind="rule", rule=name, constants=constants, chain=chain), row=row)


def _check_rule(spec: Spec, tensors: Tensors, contract: Contract) -> None:
    if spec.rule not in RULES:
        raise InputError(f"unknown rule {spec.rule!r}; choose {choice(RULES)}")
    row = RULES[str(spec.rule)]
    row.values(spec.constants)
    for constant in row.constants:
        if constant.name not in spec.constants:
            # Defaults may change, so a bundle must give every constant.
            raise InputError(f"constant {constant.name}: missing")
    if not row.timed and tensors:
        raise InputError(f"unexpected tensor {min(tensors)}; a policy of kind rule has none")
    if row.timed:
        table, size = tensors.get(TIMETABLE), sum(contract.stops)
        if tensors.keys() != {TIMETABLE} or table is None or table.shape != (size,):
            raise InputError(f"must have exactly one tensor, {TIMETABLE}, with {size} numbers")
        if table.dtype != np.float64 or not np.isfinite(table).all():
            raise InputError(f"tensor {TIMETABLE}: must be finite float64 numbers")


def _open_rule(bundle: Bundle, city: City, calibration: Calibration | None) -> RulePolicy:
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


def _export_rule(bundle: Bundle, city: City, calibration: Calibration | None) -> Tensors:
    if bundle.rule.timed:
        return {TIMETABLE: timetable_of(bundle, city, calibration)}
    return dict(bundle.tensors)


def _rule_name(bundle: Bundle) -> str:
    given = {c.name: bundle.spec.constants[c.name] for c in bundle.rule.constants}
    return whole_name(bundle.rule.name, given, bundle.spec.chain)


# -- actors ---------------------------------------------------------------------------------------


def _check_actor(spec: Spec, tensors: Tensors, contract: Contract) -> None:
    if spec.constants:
        raise InputError(
            f"unexpected constant {min(spec.constants)!r}; a policy of kind actor has none"
        )
    actor_of(tensors, len(contract.services))


def _open_actor(bundle: Bundle, city: City, calibration: Calibration | None) -> ActorPolicy:
    actor = actor_of(bundle.tensors, len(city.services))
    return ActorPolicy(bundle.name, actor, contract_of(city), CHAINS[bundle.spec.chain])


# -- look-aheads ----------------------------------------------------------------------------------


def base_rule(source: str) -> Bundle:
    """The base of a look-ahead by its name: a rule of the table, with constants and a chain.

    A bundle may name it, so it must be neither a file nor code.
    """
    parts = split_name(source)
    if parts.place not in SETTINGS:
        raise InputError(
            f"unknown base {source!r}; choose {choice(SETTINGS)}, or name the bundle of a rule or "
            "an actor"
        )
    bundle = setting(source, parts)
    return changed(bundle, name=_rule_name(bundle))


def follows_actor(spec: Spec) -> bool:
    """Whether the buses of a look-ahead's forecast follow an actor."""
    return spec.base is not UNSET and split_name(str(spec.base)).place == _ACTOR


def _split_base(spec: Spec, tensors: Tensors) -> tuple[Bundle, Tensors]:
    """The base of a look-ahead with its tensors, and the look-ahead's other tensors.

    The names of an actor's tensors begin with a prefix; a rule may have its timetable.
    """
    if follows_actor(spec):
        chain, prefix = split_name(str(spec.base)).chain or "raw", _OF_BASE
        chain_code(chain)
        actor = Spec(kind="actor", constants={}, chain=chain, contract=spec.contract)
        base, names = Bundle(whole_name(_ACTOR, {}, chain), actor), set(tensors)
    else:
        base, prefix = base_rule(str(spec.base)), ""
        names = {TIMETABLE} & set(tensors) if base.rule.timed else set()
    of_base = {name for name in names if name.startswith(prefix)}
    mine = {name.removeprefix(prefix): tensors[name] for name in of_base}
    return changed(base, tensors=mine), {n: t for n, t in tensors.items() if n not in of_base}


def _with_base_tensors(tensors: Tensors, base: Bundle, of_base: Tensors) -> Tensors:
    prefix = _OF_BASE if base.kind.trained else ""
    return tensors | {f"{prefix}{name}": tensor for name, tensor in of_base.items()}


def with_base(bundle: Bundle, base: Bundle) -> Bundle:
    """Give a look-ahead another base, with the base's own tensors and provenance."""
    spec, tensors = bundle.spec, _split_base(bundle.spec, bundle.tensors)[1]
    if isinstance(base.spec.contract, Contract) and isinstance(spec.contract, Contract):
        agree(base.name, base.spec.contract, spec.contract)
    provenance = dict(spec.provenance) if isinstance(spec.provenance, dict) else {}
    provenance.pop("base", None)
    if isinstance(base.spec.provenance, dict):
        provenance["base"] = base.spec.provenance
    spec = replace(spec, base=base.name, provenance=provenance)
    return changed(bundle, spec=spec, tensors=_with_base_tensors(tensors, base, base.tensors))


def _check_lookahead(spec: Spec, tensors: Tensors, contract: Contract) -> None:
    if lookahead_constants(spec.constants) != spec.constants:
        raise InputError("constants: a bundle must give every constant")
    base, tables = _split_base(spec, tensors)
    if spec.base != base.name:
        raise InputError(f"base {spec.base!r}: a bundle must give every constant: {base.name}")
    base.kind.check(base.spec, base.tensors, contract)
    check_tables(tables, sum(contract.stops), contract.horizon_s)


def _open_lookahead(bundle: Bundle, city: City, calibration: Calibration | None) -> Lookahead:
    tables = bundle.tensors or forecast_tables(city, _needed(bundle, city, calibration))
    base = base_policy(_split_base(bundle.spec, bundle.tensors)[0], city, calibration)
    chain = CHAINS[bundle.spec.chain]
    forecast = forecast_of(city, tables, base)
    return Lookahead(bundle.name, city, forecast, chain, **bundle.spec.constants)


def base_policy(
    bundle: Bundle, city: City, calibration: Calibration | None
) -> RulePolicy | ActorPolicy:
    """The base of a look-ahead, ready for a city; refuse it if their contracts differ."""
    policy = open_bundle(bundle, city, calibration)
    assert isinstance(policy, RulePolicy | ActorPolicy)
    return policy


def _export_lookahead(bundle: Bundle, city: City, calibration: Calibration | None) -> Tensors:
    whole = bundle.tensors or dict(forecast_tables(city, _needed(bundle, city, calibration)))
    base, tables = _split_base(bundle.spec, whole)
    return _with_base_tensors(tables, base, base.kind.export(base, city, calibration))


def _refuse_code(spec: Spec, tensors: Tensors, contract: Contract) -> None:
    raise InputError("a bundle contains no code; name the file of the rule instead")


KINDS = {
    "rule": Kind(_check_rule, _open_rule, _export_rule, _rule_name),
    "actor": Kind(
        _check_actor,
        _open_actor,
        lambda bundle, city, calibration: dict(bundle.tensors),
        lambda bundle: whole_name(_ACTOR, {}, bundle.spec.chain),
        trained=True,
    ),
    "lookahead": Kind(_check_lookahead, _open_lookahead, _export_lookahead, forecasts=True),
    "own": Kind(_refuse_code, _open_rule, _export_rule),
}
