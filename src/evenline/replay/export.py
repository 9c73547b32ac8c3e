"""Export of a replay to Minari's format, which other offline-RL libraries can read.

Observations are canonical states, actions are from -1 to 1, rewards are minus passenger-seconds.
Minari stores one more observation than actions; the horizon has none, so the last one is repeated.
The episode terminates there, so nothing is bootstrapped.
"""

from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

from evenline.control.state import CANONICAL_WIDTH
from evenline.replay.store import Store
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.files import new_folder


def export_minari(store: Store, name: str, folder: Path, episodes: int | None = None) -> Path:
    """Write a Minari dataset (`name` such as evenline/town-v0) below `folder`."""
    with extra("minari"):
        import minari
        from minari.data_collector import EpisodeBuffer
        from minari.dataset.minari_storage import MinariStorage

    target = folder / name
    if target.exists():
        raise InputError(f"{target} already exists; choose another folder")
    with new_folder(target) as aside:
        (aside / "data").mkdir()
        storage = MinariStorage.new(
            aside / "data",
            observation_space=Box(-np.inf, np.inf, (CANONICAL_WIDTH,), np.float32),
            action_space=Box(-1.0, 1.0, (1,), np.float32),
            data_format="hdf5",
        )
        actions, rewards = store.action, store.reward
        for number, episode in enumerate(store.episodes[:episodes]):
            rows = np.arange(episode.first, episode.last)
            states = store.canonical(rows)
            over = np.zeros(len(rows), bool)
            over[-1] = True
            storage.update_episodes(
                [
                    EpisodeBuffer(
                        id=number,
                        seed=episode.cell.demand_seed,
                        observations=np.concatenate([states, states[-1:]]),
                        actions=actions[rows, None],
                        rewards=rewards[rows],
                        terminations=over,
                        truncations=np.zeros(len(rows), bool),
                    )
                ]
            )
        storage.update_metadata(
            {
                "dataset_id": name,
                "description": f"Bus holding in {store.city.name}, SUMO {store.manifest.sumo}",
                "minari_version": minari.__version__,
                "total_steps": int(storage.total_steps),
            }
        )
    return target
