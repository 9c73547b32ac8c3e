"""A SUMO configuration and the files it names, read as data from a stranger.

Files lie beside the configuration or below it, and are XML without entities and includes. Settings
that change what happens are kept, settings of outputs and reports are left out, and all others are
refused. `evenline.worlds.sumo.config` says what a city may carry.
"""

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element
from xml.parsers.expat import ExpatError, ParserCreate

from evenline.support.errors import InputError
from evenline.support.files import read_file
from evenline.worlds.sumo.config import (
    KEPT,
    NOWHERE,
    OWN_SEED,
    WHOLE,
    WRITES,
    check_harmless,
    check_options,
    parsed,
    whole_option,
)
from evenline.worlds.sumo.streets import unpacked

_GZIPPED = b"\x1f\x8b"  # how such files begin
_MOST_DEEP = 100  # elements inside each other; SUMO needs fewer than ten
_FILES = {
    "n": "net-file",
    "net": "net-file",
    "r": "route-files",
    "a": "additional-files",
    "additional": "additional-files",
    "b": "begin",
    "e": "end",
}
# These say what is written, printed or shown.
_LEFT_OUT = re.compile(
    r".*(output|-log\b|-log$)|log(\.|$)|.*dump|duration-log|no-(step-log|warnings)|verbose|v$"
    r"|print-options|xml-validation|aggregate-warnings|language|step-log|precision|human-readable"
    r"|write-(license|metadata)|summary|statistic|save-|gui|start$|quit-on-end|delay$|window-"
    r"|tracker|breakpoints|disable-textures|registry|threads$|emissions\.|(person-)?device\.(fcd|"
    r"emissions|tripinfo|vehroute|ssm|bt(sender|receiver))\.|remote-port|num-clients|output\."
    r"|tripinfo|vehroute|fcd|stop-output|edgedata-files|selection-file|demo$|game"
)


@dataclass(frozen=True, eq=False)
class Configuration:
    """A scenario as its configuration describes it; files by name, unpacked, in their order."""

    path: Path
    network: bytes
    additional: Mapping[str, bytes]
    routes: Mapping[str, bytes]
    options: Mapping[str, str]
    begin_s: int
    end_s: int | None
    seed: int


def read_configuration(path: Path) -> Configuration:
    """Read a configuration and every file it names, or say in one line what is wrong."""
    root = parsed(read_file(path), str(path))
    if root.tag not in ("configuration", "sumoConfiguration"):
        raise InputError(f"{path}: <{root.tag}> is not a SUMO configuration; name a .sumocfg file")
    options: dict[str, str] = {}
    for option in _options(root):
        value = option.get("value", option.get("v"))
        if value is None:
            raise InputError(f"{path}: {option.tag} has no value")
        options[_FILES.get(option.tag, option.tag)] = value.strip()
    if not options.get("net-file"):
        raise InputError(f"{path}: names no net-file")
    taken: set[str] = set()
    additional, routes = (
        {
            _free_name(file, taken): _file(path, file)
            for file in re.split(r"\s*,\s*|\s+", options.get(kind, ""))
            if file
        }
        for kind in ("additional-files", "route-files")
    )
    step = _seconds(path, options, "step-length", "1")
    if step != 1:
        raise InputError(f"{path}: step-length {step:g} is not supported; set it to 1")
    if options.get("random", "false").lower() not in ("false", "0", "off", "no", "x", ""):
        raise InputError(f"{path}: random draws another seed each time; set a seed instead")
    begin, end = _seconds(path, options, "begin", "0"), _seconds(path, options, "end", "-1")
    if begin % 1 or begin < 0 or end % 1 or 0 <= end <= begin:
        raise InputError(f"{path}: begin {begin:g} and end {end:g} must be whole seconds in order")
    return Configuration(
        path=path,
        network=_file(path, options["net-file"]),
        additional=additional,
        routes=routes,
        options=_kept(path, options),
        begin_s=int(begin),
        end_s=int(end) if end >= 0 else None,
        seed=whole_option({"seed": str(OWN_SEED), **options}, "seed", str(path)),
    )


def packed(content: bytes) -> bytes:
    """Gzipped, with the same bytes every time."""
    return gzip.compress(content, mtime=0)


def _options(root: Element) -> Iterator[Element]:
    """Options stand in groups or directly below the root."""
    for child in root:
        if len(child):
            yield from child
        elif child.attrib:
            yield child


def _file(config: Path, name: str) -> bytes:
    """A file of the scenario, without its outputs."""
    home = config.resolve().parent
    place = (home / name).resolve()
    if not place.is_relative_to(home):
        raise InputError(
            f"{config}: {name} lies outside the folder of the configuration; copy it there"
        )
    where = str(config.parent / name)
    if not place.is_file():
        raise InputError(f"{where}: no such file; {config.name} names it")
    content = place.read_bytes()
    if content.startswith(_GZIPPED):
        content = unpacked(content, where)
    content = WRITES.sub(lambda output: bytes(output.group(1)) + NOWHERE, content)
    check_harmless(content, where)
    _check_shallow(content, where)
    return content


def _check_shallow(content: bytes, where: str) -> None:
    """Refuse what is no XML, and elements inside each other without end, before SUMO reads them."""
    parser, depth = ParserCreate(), 0

    def start(tag: str, attributes: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_DEEP:
            raise InputError(f"{where}: has more than {_MOST_DEEP} elements inside each other")

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(content, True)
    except ExpatError as error:
        raise InputError(f"{where}: not XML ({error})") from None


def _free_name(file: str, taken: set[str]) -> str:
    """The name of a file in the city's folder, where all files lie side by side."""
    base = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(file).name.removesuffix(".gz")).lstrip(".-")
    name, number = base or "scenario.xml", 1
    if not name.endswith(".xml"):
        name += ".xml"
    while name in taken:
        number += 1
        name = f"{number}-{base}"
    taken.add(name)
    return name


def _kept(path: Path, options: Mapping[str, str]) -> dict[str, str]:
    read = {*_FILES.values(), *WHOLE, "step-length", "random"}
    kept = {}
    for name, value in options.items():
        if name in read or not value:
            continue
        if KEPT.match(name):
            kept[name] = value
        elif not _LEFT_OUT.match(name):
            raise InputError(f"{path}: option {name} is not supported; remove it")
    check_options(kept, str(path))
    return kept


def _seconds(path: Path, options: Mapping[str, str], name: str, default: str) -> float:
    """A time in seconds, or as hours, minutes and seconds with colons."""
    value: Any = options.get(name) or default
    try:
        total = 0.0
        for part in value.split(":"):
            total = 60 * total + float(part)
    except ValueError:
        raise InputError(f"{path}: {name} {value!r} is not a time in seconds") from None
    return total
