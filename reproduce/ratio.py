"""The paper's domain-ratio diagnostic: can simulated transitions be told from recorded ones?

There are two classifiers, a joint one on (s, a, s', dt/T) and a marginal one on (s, a). Their
difference estimates the log ratio of the dynamics. They see what a continuation sees: the replay,
and simulated days that IQL's actor drives until the event of the actor's release, and the finished
actor afterwards. Whole blocks of the replay and whole simulated days are held out. No policy reads
their output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
import typer

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import Floats
from evenline.city.tables import digest
from evenline.cli.options import CityOption, DocsOption, OutOption, ReplayOption
from evenline.control.state import CANONICAL_WIDTH
from evenline.experiments.train import replay_folder
from evenline.figures.document import insert
from evenline.learn.data import Replay, Transitions, replay_batch, resident
from evenline.learn.hurdle import hurdle, sample
from evenline.learn.lanes import ACT, stream
from evenline.learn.network import Params, actor_outputs, layers, linear
from evenline.learn.online import executed
from evenline.learn.plan import Config, Plan
from evenline.learn.run import training_cell
from evenline.learn.schedule import FINAL
from evenline.replay.store import Store, open_store
from evenline.support.columns import markdown
from evenline.support.files import read_json, sha256, to_json, write_text
from evenline.support.records import read_record
from evenline.support.tensors import read_tensors
from evenline.worlds.fast.world import Fleet
from evenline.worlds.open import OpenCity, open_city
from reproduce.door import run
from reproduce.paper import paper

FILE = "ratio.json"
RATE, BATCH, HIDDEN = 1e-4, 128, 256  # BATCH transitions of each class
PRETRAINING, EVERY = 1_000, 4  # updates after the warm-up, events between two later ones
DIAGNOSE, HELD_OUT = 4, 5  # random streams of a seed, apart from those of its training
HELD_OUT_BLOCKS = 2  # of the replay, and of simulated days
ASSESSED = 4_096  # transitions of each class
ONE_LEVEL = 1.0
CHANCE = 0.05  # an AUC within this of one half cannot tell the worlds apart
ROWS = {
    "training_joint_auc": "training joint AUC",
    "held_out_joint_auc": "held-out joint AUC",
    "held_out_effective_share": "held-out raw ESS fraction",
    "one_level_joint_auc": "held-out joint AUC, simulated days at one level",
    "one_level_effective_share": "held-out raw ESS fraction, simulated days at one level",
}
Rows = npt.NDArray[Any]
_adam = optax.adam(RATE)


class Ratio(NamedTuple):
    """Both classifiers and the states of their optimisers."""

    joint: Params
    marginal: Params
    memory: Any


def new_ratio(key: jax.Array) -> Ratio:
    """New classifiers."""
    keys = jax.random.split(key)
    widths = (2 * CANONICAL_WIDTH + 2, CANONICAL_WIDTH + 1)
    joint, marginal = (_classifier(k, width) for k, width in zip(keys, widths, strict=True))
    return Ratio(joint, marginal, _adam.init((joint, marginal)))


def _classifier(key: jax.Array, width: int) -> Params:
    k = jax.random.split(key, 3)
    return {
        **linear(k[0], "in", width, HIDDEN),
        **linear(k[1], "mid", HIDDEN, HIDDEN),
        **linear(k[2], "out", HIDDEN, 1, gain=1e-4),
    }


def _logit(params: Params, x: jax.Array) -> jax.Array:
    h = layers(params, ("in", "mid"), x)
    return (h @ params["out.w"] + params["out.b"])[:, 0]


def logits(ratio: Ratio, t: Transitions) -> tuple[jax.Array, jax.Array]:
    """How much a transition looks recorded: joint and marginal. dt is the change of the clock."""
    pair = jnp.concatenate([t.state, t.action[:, None]], -1)
    until = jnp.where(t.goes_on > 0, t.next_state[:, 0], 1.0)
    after = jnp.where(t.goes_on[:, None] > 0, t.next_state, 0.0)
    both = jnp.concatenate([pair, after, (until - t.state[:, 0])[:, None]], -1)
    return _logit(ratio.joint, both), _logit(ratio.marginal, pair)


def ratio_update(ratio: Ratio, logged: Transitions, simulated: Transitions) -> Ratio:
    """One balanced step of both classifiers."""

    def loss(params: tuple[Params, Params]) -> jax.Array:
        now = ratio._replace(joint=params[0], marginal=params[1])
        losses = [
            optax.sigmoid_binary_cross_entropy(logit, jnp.full_like(logit, label)).mean()
            for transitions, label in ((logged, 1.0), (simulated, 0.0))
            for logit in logits(now, transitions)
        ]
        return jnp.asarray(sum(losses))

    params = (ratio.joint, ratio.marginal)
    steps, memory = _adam.update(jax.grad(loss)(params), ratio.memory)
    joint, marginal = optax.apply_updates(params, steps)
    return Ratio(joint, marginal, memory)


@jax.jit
def trained(
    replay: Replay, logged: jax.Array, days: Transitions, seed: jax.Array, events: jax.Array
) -> Ratio:
    """The classifiers after an update at each of `events`, from the days so far."""

    def step(ratio: Ratio, numbers: tuple[jax.Array, jax.Array]) -> tuple[Ratio, None]:
        number, until = numbers
        a, b = jax.random.split(stream(seed, DIAGNOSE, number))
        rows = logged[jax.random.randint(a, (BATCH,), 0, len(logged))]
        seen = jax.random.randint(b, (BATCH,), 0, until)
        return ratio_update(ratio, replay_batch(replay, rows), _rows(days, seen)), None

    start = new_ratio(stream(seed, DIAGNOSE))
    return jax.lax.scan(step, start, (events + jnp.arange(len(events)), events))[0]


def _rows(days: Transitions, rows: Any) -> Transitions:
    return Transitions(*(column[rows] for column in days))


# -- how well they tell ---------------------------------------------------------------------------


def auc(positive: Floats, negative: Floats) -> float:
    """Area under the receiver operating characteristic: P(positive > negative), ties half."""
    order = np.sort(negative)
    below = np.searchsorted(order, positive, "left") + np.searchsorted(order, positive, "right")
    return float(below.mean() / (2 * len(negative)))


def effective_share(log_weight: Floats) -> float:
    """Effective sample size of unnormalised weights, as a share of the sample."""
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.sum() ** 2 / (len(weight) * (weight**2).sum()))


_scores = jax.jit(logits)


def assess(ratio: Ratio, logged: Transitions, simulated: Transitions) -> tuple[float, float]:
    """Joint AUC, and the effective share of simulated transitions under the estimated ratio."""
    yes, _ = (np.asarray(x, float) for x in _scores(ratio, logged))
    no, marginal = (np.asarray(x, float) for x in _scores(ratio, simulated))
    return auc(yes, no), effective_share(no - marginal)


# -- days -----------------------------------------------------------------------------------------


@jax.jit
def _drawn(actor: Params, key: jax.Array, states: jax.Array) -> jax.Array:
    return sample(hurdle(actor_outputs(actor, states, False)), key)


def simulated(
    opened: OpenCity,
    actors: Sequence[tuple[float, Params]],
    cells: Sequence[Iterator[Cell]],
    key: Callable[[int], jax.Array],
) -> tuple[Transitions, Floats]:
    """The transitions of days side by side, and the demand level of each.

    Each actor drives until its event; days end where their cells do.
    """
    fleet, now = Fleet(opened.city, opened.fitted(), len(cells)), [next(days) for days in cells]
    states, event, parts = fleet.reset(now).copy(), 0, []
    for until, actor in actors:
        while event < until and not fleet.over.all():
            live, levels = ~fleet.over, [cell.demand for cell in now]
            actions = executed(fleet, np.asarray(_drawn(actor, key(event), states)))
            goes_on = 1.0 - fleet.over
            for w in np.flatnonzero(fleet.over & live).tolist():
                if (cell := next(cells[w], None)) is not None:
                    now[w] = cell
                    fleet.begin(w, cell)
            after = fleet.states.copy()
            parts.append([x[live] for x in (states, actions, after, goes_on, np.array(levels))])
            states, event = after, event + 1
    state, action, after, goes_on, level = (np.concatenate(x) for x in zip(*parts, strict=True))
    columns = (jnp.asarray(x, jnp.float32) for x in (state, action, 0 * action, after, goes_on))
    return Transitions(*columns), level


# -- the diagnostic -------------------------------------------------------------------------------


def diagnosed(
    opened: OpenCity, store: Store, training: Path, plan: Plan, seed: int
) -> dict[str, float]:
    """The diagnostic of a seed's final actor; simulated days are held out at every level of the
    replay, and at one level only.
    """
    (schedule,) = (learner for learner in plan.learners if learner.name == FINAL)
    actors: Any = (read_tensors(_actor(training, name, seed)) for name in ("iql", FINAL))
    first, final = actors
    warmup, end, key = max(plan.budget.warmup_events, 1), plan.budget.events, jnp.uint32(seed)
    course = [(schedule.actor_from, first), (end, final)]
    training_days = (training_cell(seed, day) for day in count())
    seen, _ = simulated(opened, course, [training_days], partial(stream, key, ACT))
    apart = [iter([cell]) for cell in PURPOSES["development"].cells(HELD_OUT_BLOCKS)]
    unseen, level = simulated(opened, [(inf, final)], apart, partial(stream, key, HELD_OUT))
    blocks = sorted({episode.cell.sumo_seed for episode in store.episodes})[-HELD_OUT_BLOCKS:]
    inside, outside = (
        np.concatenate(
            [
                np.arange(episode.first, episode.last)
                for episode in store.episodes
                if (episode.cell.sumo_seed in blocks) == held_out
            ]
        )
        for held_out in (False, True)
    )
    replay, events = resident(store), [warmup] * PRETRAINING
    events += range(warmup + EVERY, end + 1, EVERY)
    ratio = trained(replay, jnp.asarray(inside), seen, key, jnp.asarray(events))
    rng = np.random.Generator(np.random.PCG64(7))

    def told(logged: Rows, days: Transitions, chosen: Rows) -> tuple[float, float]:
        recorded = replay_batch(replay, jnp.asarray(rng.choice(logged, ASSESSED)))
        return assess(ratio, recorded, _rows(days, rng.choice(chosen, ASSESSED)))

    found = {"training_joint_auc": told(inside, seen, np.arange(end))[0]}
    for name, chosen in (("held_out", level > 0), ("one_level", level == ONE_LEVEL)):
        area, share = told(outside, unseen, np.flatnonzero(chosen))
        found |= {f"{name}_joint_auc": area, f"{name}_effective_share": share}
    return found


def _actor(training: Path, learner: str, seed: int) -> Path:
    return training / "actors" / f"{learner}-{seed}.safetensors"


def diagnosis(
    opened: OpenCity, store: Callable[[], Store], training: Path, out: Path
) -> dict[str, dict[str, float]]:
    """The diagnostic of every seed; those that the file has from the same actors are kept."""
    plan, path = read_record(training / "config.json", Config).plan, out / FILE
    known = read_json(path) if path.is_file() else {}
    rows: dict[str, Any] = known.get("rows", {}) if known.get("city") == digest(opened.city) else {}
    for seed in plan.seeds:
        name, own = f"{FINAL}-{seed}", sha256(_actor(training, FINAL, seed))
        if rows.get(name, {}).get("actor") != own:
            rows[name] = diagnosed(opened, store(), training, plan, seed) | {"actor": own}
            write_text(path, to_json({"city": digest(opened.city), "rows": rows}))
    return rows


def ratio_lines(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The diagnostic over seeds beside the paper's in Markdown, and in words."""
    printed = paper()["ratio"]["rows"]
    mean = {key: float(np.mean([row[key] for row in rows.values()])) for key in ROWS}
    table = [["Diagnostic", "paper", "ours"]]
    for key, title in ROWS.items():
        own = [row[key] for row in rows.values()]
        theirs = printed.get(key)
        cells = "" if theirs is None else "{mean:.4f} ({least:.4f} to {most:.4f})".format(**theirs)
        table.append([title, cells, f"{mean[key]:.4f} ({min(own):.4f} to {max(own):.4f})"])
    held, alone = mean["held_out_joint_auc"], mean["one_level_joint_auc"]
    theirs = printed["held_out_joint_auc"]["mean"]
    if abs(held - 0.5) <= CHANCE:
        verdict = "cannot tell SUMO from the fast world on held-out days, as in the paper"
    elif held > 0.5:
        verdict = "still tells SUMO from the fast world on held-out days, unlike the paper's"
    else:
        verdict = "is worse than chance on held-out days, as in the paper"
    return [
        *markdown(table),
        "",
        f"Means over {len(rows)} seeds of {FINAL} (least to most). The classifier {verdict}: its"
        f" AUC falls by {mean['training_joint_auc'] - held:.2f} to {held:.2f} (the paper: by"
        f" {printed['training_joint_auc']['mean'] - theirs:.2f} to {theirs:.2f}). Held-out days are"
        f" at the demand levels of the replay; at level {ONE_LEVEL:.2f} alone the AUC is"
        f" {alone:.2f}. No update of a policy uses it, here or there.",
    ]


def main(
    training: Annotated[Path, typer.Argument(help="Folder of the training run.")],
    city: CityOption = "city",
    replay: ReplayOption = None,
    out: OutOption = None,
    docs: DocsOption = None,
) -> None:
    """Train the domain classifiers beside the actors of a run, and see how well they tell."""
    opened = open_city(city)
    name = opened.city.name
    place = out or Path("results") / f"audit-{name}"
    store = cache(lambda: open_store(replay or replay_folder(name), opened.city))
    lines = ratio_lines(diagnosis(opened, store, training, place))
    print(*lines, sep="\n")
    if docs is not None:
        made = f"Made by `python -m reproduce.ratio {training} --city {city}`."
        insert(docs, f"ratio of {name}", "\n".join([made, "", *lines]))
    print(place / FILE)


if __name__ == "__main__":
    run("reproduce.ratio", main)
