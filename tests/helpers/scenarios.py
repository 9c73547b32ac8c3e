"""SUMO scenarios of our own making: a small city written as files with a configuration."""

import shutil
from pathlib import Path

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.worlds.sumo.scenario import write_scenario

OWN = ("--step-length", "--default.departspeed", "--default.departlane", "--pedestrian.model")
KEPT = (*OWN, "--time-to-teleport", "--max-depart-delay", "--begin", "--end", "--seed")


def written(city: City, cell: Cell, folder: Path) -> Path:
    """The configuration of a city's day, beside the files that it names."""
    scenario = write_scenario(city, cell, folder)
    options = dict(zip(scenario.options[::2], scenario.options[1::2], strict=True))
    shutil.copy(options["--net-file"], folder / "city.net.xml")
    said = {name.removeprefix("--"): options[name] for name in KEPT}
    return configured(folder, said)


def configured(folder: Path, options: dict[str, str]) -> Path:
    """A configuration that names the files of a folder."""
    files = {
        "net-file": "city.net.xml",
        "additional-files": "stops.add.xml",
        "route-files": "buses.rou.xml, cars.rou.xml,people.rou.xml",
        "tripinfo-output": "tripinfos.xml",
        "log": "log.txt",
    }
    lines = "".join(f'<{name} value="{value}"/>' for name, value in {**files, **options}.items())
    config = folder / "day.sumocfg"
    config.write_text(f"<configuration><input>{lines}</input></configuration>")
    return config
