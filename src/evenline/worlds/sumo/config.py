"""What a city may carry of a SUMO scenario: harmless files, and settings that change what happens.

Files are XML without entities and includes, and nothing in them makes SUMO read or write another
file. `evenline.importing.configuration` reads a scenario by these rules; they hold again each time
a city is run.
"""

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from evenline.support.errors import InputError

_MOST_SCALE = 100.0  # times the traffic of a scenario
OWN_SEED = 23423  # SUMO's seed where a configuration names none
# What happens in SUMO depends on these. None of them names a file.
KEPT = re.compile(
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
_VALUE = re.compile(r"-?[0-9.]+|[A-Za-z0-9_][\w .,:;#()/-]{0,1000}")
WHOLE = ("seed", "end")  # carried too, and set by the cell
WRITES = re.compile(rb"""(\s(?:file|output|dest)\s*=\s*)("[^"]*"|'[^']*')""")
_READS = re.compile(rb"<(rerouter|variableSpeedSign)\b[^>]*\sfile\s*=|<include\b|\shref\s*=")
_FILE_PARAM = re.compile(rb"""\skey\s*=\s*["'][^"']*(file|output)[^"']*["']""", re.I)
NOWHERE = b'"NUL"'  # SUMO discards what it writes there


def check_options(options: Mapping[str, str], where: str) -> None:
    """Refuse a setting that we would not have kept, or that hides another one in its value."""
    for name, value in options.items():
        if name in WHOLE:
            whole_option(options, name, where)
        elif not KEPT.match(name):
            raise InputError(f"{where}: option {name!r} is not one that a city may carry")
        elif not _VALUE.fullmatch(value) or (name == "scale" and not _is_scale(value)):
            raise InputError(f"{where}: option {name} cannot be {value!r}")


def _is_scale(value: str) -> bool:
    try:
        return 0.0 <= float(value) <= _MOST_SCALE
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
    if reads := _READS.search(content):
        element = reads.group(1) or b"include"
        raise InputError(f"{where}: <{element.decode()}> reads another file; put its content here")
    if _FILE_PARAM.search(content):
        raise InputError(f"{where}: a parameter names an output file; remove it")
    for output in WRITES.finditer(content):
        if output.group(2) != NOWHERE:
            name = output.group(2).decode(errors="replace")
            raise InputError(f"{where}: writes to {name}; a city's files may not write")
