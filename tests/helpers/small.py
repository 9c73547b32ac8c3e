"""A small replay of `town` recorded in the fast world: enough to train on, made in a moment."""

from dataclasses import asdict
from pathlib import Path

import evenline
from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.city.tables import digest, open_city
from evenline.replay.episode import record_episode, write_episode
from evenline.replay.sealed import FORMAT, PLAN, ReplayPlan, episode_path, seal
from evenline.replay.store import Store, open_store
from evenline.rules.policy import BEHAVIOURS, recorded
from evenline.support.records import write_record
from evenline.worlds.fast.world import FastWorld


def fast_store(folder: Path, blocks: int = 3, rules: tuple[str, ...] = tuple(BEHAVIOURS)) -> Store:
    """Record, seal and open."""
    city = open_city("town")
    world = FastWorld(city, calibration_of(city))
    paths = []
    for name in rules:
        for cell in PURPOSES["replay"].cells(blocks):
            rule = BEHAVIOURS[name]
            path = episode_path(folder, name, cell)
            path.parent.mkdir(parents=True, exist_ok=True)
            tokens, outcome = record_episode(world, cell, rule)
            provenance = {
                "city": digest(city),
                "cell": asdict(cell),
                "policy": recorded(rule),
                "sumo": "none: the fast world",
                "evenline": evenline.__version__,
            }
            write_episode(path, tokens, outcome, provenance)
            paths.append(path)
    plan = ReplayPlan(
        format=FORMAT, city=digest(city), city_name=city.name, blocks=blocks, behaviours=()
    )
    write_record(folder / PLAN, plan)
    seal(folder, paths, None)
    return open_store(folder, city)
