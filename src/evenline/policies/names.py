"""The names of policies: built-in settings, and how a name is taken apart.

A source such as `forward:gain=0.4+candidate`, `mine.py:steady` or the path of a bundle's folder
names a policy in every command.
"""

from dataclasses import dataclass
from pathlib import Path

from evenline.policies.lookahead import LOOKAHEAD
from evenline.rules.policy import BEHAVIOURS
from evenline.rules.table import RULES
from evenline.support.errors import InputError

POLICY = "policy.json"  # the file that makes a folder a bundle


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
    chain: str | None  # None if the name has none


def parse_source(source: str) -> Source:
    """Split a policy's name into parts; the path of an existing bundle is one part."""
    return Source(source, {}, None) if is_bundle(source) else split_name(source)


def is_bundle(source: str) -> bool:
    """Whether a name is the path of a bundle's folder."""
    return (Path(source) / POLICY).is_file()


def split_name(source: str) -> Source:
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


def whole_name(name: str, constants: dict[str, float], chain: str) -> str:
    """A name with these constants, to the last digit, and a chain."""
    exact = {key: f"{value:g}" if float(f"{value:g}") == value else value
             for key, value in constants.items()}  # fmt: skip
    settings = "".join(f":{key}={value}" for key, value in exact.items())
    return f"{name}{settings}" if chain == "raw" else f"{name}{settings}+{chain}"
