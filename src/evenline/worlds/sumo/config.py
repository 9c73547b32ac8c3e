"""A SUMO configuration and the files it names, read as data from a stranger.

Files lie beside the configuration or below it, and are XML without entities and includes. Settings
that change what happens are kept, settings of outputs and reports are left out, and all others are
refused. Nothing that a scenario says makes SUMO write a file.
"""

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError
from xml.parsers.expat import ExpatError, ParserCreate

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from evenline.support.errors import InputError
from evenline.support.files import read_file
from evenline.worlds.sumo.streets import unpacked

GZIPPED = b"\x1f\x8b"  # how such files begin
MOST_DEEP = 100  # elements inside each other; SUMO needs fewer than ten
MOST_SCALE = 100.0  # times the traffic of a scenario
OWN_SEED = 23423  # SUMO's seed where a configuration names none
FILES = {
    "n": "net-file",
    "net": "net-file",
    "r": "route-files",
    "a": "additional-files",
    "additional": "additional-files",
    "b": "begin",
    "e": "end",
}
# What happens in SUMO depends on these. None of them names a file.
_KEPT = re.compile(
    r"default\.|time-to-|pedestrian\.(?!jupedsim\.wkt)|(intermodal-)?collision\.|lanechange\.|tls\."
    r"|railsignal|weights\.|persontrip\.|(person-)?device\.rerouting\.(?!output)|meso(sim|-)"
    r"|device\.(driverstate|bluelight|friction|glosa|toc|taxi)\.(?!(.*\.)?(output|file)$)"
    r"|max-(depart-delay|num-)|random-depart-offset|ride\.|mapmatch\.|parking\.|overhead-wire\."
    r"|(step-method\.ballistic|extrapolate-departpos|lateral-resolution|no-internal-links"
    r"|ignore-(junction-blocker|route-errors|accidents)|keep-after-arrival|scale(-suffix)?"
    r"|waiting-time-memory|startup-wait-threshold|(sloppy|eager|emergency)-insert|insertion-checks"
    r"|emergencydecel\.warning-threshold|use-stop-(ended|started)|routing-algorithm|junction-taz"
    r"|railway\.max-train-length|thread-rngs|route-steps)$"
)
# These say what is written, printed or shown.
_LEFT_OUT = re.compile(
    r".*(output|-log\b|-log$)|log(\.|$)|.*dump|duration-log|no-(step-log|warnings)|verbose|v$"
    r"|print-options|xml-validation|aggregate-warnings|language|step-log|precision|human-readable"
    r"|write-(license|metadata)|summary|statistic|save-|gui|start$|quit-on-end|delay$|window-"
    r"|tracker|breakpoints|disable-textures|registry|threads$|emissions\.|(person-)?device\.(fcd|"
    r"emissions|tripinfo|vehroute|ssm|bt(sender|receiver))\.|remote-port|num-clients|output\."
    r"|tripinfo|vehroute|fcd|stop-output|edgedata-files|selection-file|demo$|game"
)
_VALUE = re.compile(r"-?[0-9.]+|[A-Za-z0-9_][\w .,:;#()/-]{0,1000}")
WHOLE = ("seed", "end")  # carried too, and set by the cell
_WRITES = re.compile(rb"""(\s(?:file|output|dest)\s*=\s*)("[^"]*"|'[^']*')""")
_READS = re.compile(rb"<(rerouter|variableSpeedSign)\b[^>]*\sfile\s*=|<include\b|\shref\s*=")
_FILE_PARAM = re.compile(rb"""\skey\s*=\s*["'][^"']*(file|output)[^"']*["']""", re.I)
NOWHERE = b'"NUL"'  # SUMO discards what it writes there


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
    said = {}
    for option in _options(root):
        value = option.get("value", option.get("v"))
        if value is None:
            raise InputError(f"{path}: {option.tag} has no value")
        said[FILES.get(option.tag, option.tag)] = value.strip()
    if not said.get("net-file"):
        raise InputError(f"{path}: names no net-file")
    taken: set[str] = set()
    additional, routes = (
        {
            _free_name(file, taken): _file(path, file)
            for file in re.split(r"\s*,\s*|\s+", said.get(kind, ""))
            if file
        }
        for kind in ("additional-files", "route-files")
    )
    step = _seconds(path, said, "step-length", "1")
    if step != 1:
        raise InputError(f"{path}: step-length {step:g} is not supported; set it to 1")
    if said.get("random", "false").lower() not in ("false", "0", "off", "no", "x", ""):
        raise InputError(f"{path}: random draws another seed each time; set a seed instead")
    begin, end = _seconds(path, said, "begin", "0"), _seconds(path, said, "end", "-1")
    if begin % 1 or begin < 0 or end % 1 or 0 <= end <= begin:
        raise InputError(f"{path}: begin {begin:g} and end {end:g} must be whole seconds in order")
    return Configuration(
        path=path,
        network=_file(path, said["net-file"]),
        additional=additional,
        routes=routes,
        options=_kept(path, said),
        begin_s=int(begin),
        end_s=int(end) if end >= 0 else None,
        seed=whole_option({"seed": str(OWN_SEED), **said}, "seed", str(path)),
    )


def check_options(options: Mapping[str, str], where: str) -> None:
    """Refuse a setting that we would not have kept, or that hides another one in its value."""
    for name, value in options.items():
        if name in WHOLE:
            whole_option(options, name, where)
        elif not _KEPT.match(name):
            raise InputError(f"{where}: option {name!r} is not one that a city may carry")
        elif not _VALUE.fullmatch(value) or (name == "scale" and not _is_scale(value)):
            raise InputError(f"{where}: option {name} cannot be {value!r}")


def _is_scale(value: str) -> bool:
    try:
        return 0.0 <= float(value) <= MOST_SCALE
    except ValueError:
        return False


def whole_option(options: Mapping[str, str], name: str, where: str) -> int:
    """The seed or the end of a scenario."""
    value = options[name]
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) >= 2**31:
        raise InputError(f"{where}: {name} {value!r} must be a whole number from 0 to 2147483647")
    return int(value)


def parsed(content: bytes, where: str) -> Element:
    """The root of an XML document that defines no entities."""
    try:
        root: Element = fromstring(content, forbid_dtd=True)
    except DefusedXmlException:
        raise InputError(
            f"{where}: defines entities or names other documents; remove them"
        ) from None
    except (ParseError, ValueError, LookupError) as error:
        raise InputError(f"{where}: not XML ({error})") from None
    return root


def check_harmless(content: bytes, where: str) -> None:
    """Refuse a file that makes SUMO read or write other files, or that hides what it says."""
    if not content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<") or b"\0" in content:
        raise InputError(f"{where}: not XML in UTF-8")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise InputError(f"{where}: defines entities or names other documents; remove them")
    if found := _READS.search(content):
        element = found.group(1) or b"include"
        raise InputError(f"{where}: <{element.decode()}> reads another file; put its content here")
    if _FILE_PARAM.search(content):
        raise InputError(f"{where}: a parameter names an output file; remove it")
    for found in _WRITES.finditer(content):
        if found.group(2) != NOWHERE:
            name = found.group(2).decode(errors="replace")
            raise InputError(f"{where}: writes to {name}; a city's files may not write")


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
    if content.startswith(GZIPPED):
        content = unpacked(content, where)
    content = _WRITES.sub(lambda found: bytes(found.group(1)) + NOWHERE, content)
    check_harmless(content, where)
    _check_shallow(content, where)
    return content


def _check_shallow(content: bytes, where: str) -> None:
    """Refuse what is no XML, and elements inside each other without end, before SUMO reads them."""
    parser, depth = ParserCreate(), 0

    def start(tag: str, attributes: object) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_DEEP:
            raise InputError(f"{where}: has more than {MOST_DEEP} elements inside each other")

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


def _kept(path: Path, said: Mapping[str, str]) -> dict[str, str]:
    read = {*FILES.values(), *WHOLE, "step-length", "random"}
    kept = {}
    for name, value in said.items():
        if name in read or not value:
            continue
        if _KEPT.match(name):
            kept[name] = value
        elif not _LEFT_OUT.match(name):
            raise InputError(f"{path}: option {name} is not supported; remove it")
    check_options(kept, str(path))
    return kept


def _seconds(path: Path, said: Mapping[str, str], name: str, default: str) -> float:
    """A time in seconds, or as hours, minutes and seconds with colons."""
    value: Any = said.get(name) or default
    try:
        total = 0.0
        for part in value.split(":"):
            total = 60 * total + float(part)
    except ValueError:
        raise InputError(f"{path}: {name} {value!r} is not a time in seconds") from None
    return total
