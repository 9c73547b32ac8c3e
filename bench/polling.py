"""What a feed costs: the same policy inside the simulation and behind polls.

A simulated day is fed to a shadow at polls of some seconds, every advice is accepted, and the
street carries it out. The shadow's arrivals are compared with the true ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from bench.meter import Figures, print_figures
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import Ints
from evenline.control.outcome import Outcome
from evenline.control.world import run_episode
from evenline.live.feed import write_message
from evenline.live.record import Polled
from evenline.live.shadow import Shadow, rules_for
from evenline.live.street import Faults, Street, StreetFeed, open_street
from evenline.policies.bundle import open_policy
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.worlds.open import OpenCity, open_city, open_world
from reproduce.door import run


@dataclass(frozen=True, eq=False)
class Played:
    """A day on a simulated street with a shadow beside it."""

    shadow: Shadow
    outcome: Outcome
    seen_s: Ints  # arrivals as the shadow saw them, one entry per visit; -1 if not
    true_s: Ints


def play_street(
    street: Street,
    shadow: Shadow,
    poll_s: float,
    faults: Faults,
    rng: np.random.Generator,
    accept: bool = True,
) -> Played:
    """Run a whole day: poll, advise, accept, carry out."""
    feed, now_s = StreetFeed(street, faults, rng), 0.0
    try:
        while not street.over:
            now_s += poll_s
            message = write_message(feed.at(now_s))
            new = shadow.take(Polled(shadow.frame.moment(now_s), message))
            if accept:
                for advice in new:
                    shadow.answer(advice.number, True)
                    street.holds[advice.trip, advice.stop] = advice.until_s
        street.advance(street.city.horizon_s)
        return Played(shadow, street.outcome(), shadow.situation.seen_s, street.arrivals_s())
    finally:
        street.close()
        shadow.close()


def accuracy(played: Played) -> dict[str, float]:
    """Errors of arrivals in seconds, and the share of true visits that were seen."""
    true = played.true_s >= 0
    both = true & (played.seen_s >= 0)
    error_s = np.abs(played.seen_s[both] - played.true_s[both])
    p50, p95 = np.percentile(error_s, [50, 95]) if both.any() else (np.nan, np.nan)
    return {
        "arrival_error_p50_s": float(p50),
        "arrival_error_p95_s": float(p95),
        "visits_seen_share": float(both.sum() / max(true.sum(), 1)),
    }


def measure(
    opened: OpenCity,
    policy: str,
    polls_s: Sequence[float],
    days: int,
    faults: Faults,
    world: str = "fast",
    on_day: Callable[[], None] = lambda: None,
) -> Figures:
    """Generalized time per passenger without holding, with the policy inside the simulation, and
    through the shadow at each polling interval; accuracy of arrivals.
    """
    cells = PURPOSES["development"].cells(days, (1.0,))
    base = [_inside(opened, "zero", world, cell) for cell in cells]
    on_day()
    inside = [_inside(opened, policy, world, cell) for cell in cells]
    on_day()
    zero_s, inside_s = _mean(base), _mean(inside)
    result: Figures = {
        "city": opened.name,
        "world": world,
        "policy": policy,
        "days": days,
        "noise_m": faults.noise_m,
        "loss": faults.loss,
        "delay_s": faults.delay_s,
        "zero_generalized_s": round(zero_s, 1),
        "inside_generalized_s": round(inside_s, 1),
        "polls": {},
    }
    names = [service.id for service in opened.city.services]
    for poll_s in polls_s:
        rows = []
        for number, cell in enumerate(cells):
            shadow = Shadow(opened, policy, names, rules_for(poll_s))
            rng = np.random.default_rng([number, int(poll_s)])
            rows.append(play_street(open_street(world, opened, cell), shadow, poll_s, faults, rng))
            on_day()
        shadow_s = _mean([row.outcome for row in rows])
        errors = [accuracy(row) for row in rows]
        took_ms = np.concatenate([[ms for _, ms, _ in row.shadow.polls] for row in rows])
        gain = (zero_s - shadow_s) / (zero_s - inside_s) if zero_s != inside_s else float("nan")
        result["polls"][f"{poll_s:g}"] = {
            "generalized_s": round(shadow_s, 1),
            "share_of_gain": round(gain, 3),
            "advice_per_day": round(sum(len(row.shadow.advice) for row in rows) / days, 1),
            "decision_p99_ms": round(float(np.percentile(took_ms, 99)), 1),
            **{name: round(float(np.mean([e[name] for e in errors])), 3) for name in errors[0]},
        }
    return result


def _inside(opened: OpenCity, policy: str, world: str, cell: Cell) -> Outcome:
    """A day with a policy inside the simulation."""
    simulated = open_world(world, opened)
    try:
        return run_episode(simulated, cell, open_policy(policy, opened.city, opened.calibration))
    finally:
        getattr(simulated, "close", lambda: None)()


def _mean(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([outcome.generalized_s for outcome in outcomes]))


def main(
    city: Annotated[str, typer.Option(help="A city: its name or its folder.")] = "town",
    polls: Annotated[str, typer.Option(help="Polling intervals in seconds.")] = "15,30",
    policy: Annotated[str, typer.Option(help="A policy, as of `shadow run`.")] = "lookahead",
    days: Annotated[int, typer.Option(min=1, max=500, help="Number of days.")] = 5,
    world: Annotated[str, typer.Option(help="fast or sumo.")] = "fast",
    noise: Annotated[float, typer.Option(min=0, max=1000, help="Noise of places, metres.")] = 5.0,
    loss: Annotated[float, typer.Option(min=0, max=1, help="Share of lost reports.")] = 0.0,
    delay: Annotated[float, typer.Option(min=0, max=600, help="Delay of reports, seconds.")] = 0.0,
) -> None:
    """Compare a policy behind polls with the same one inside the simulation; prints JSON."""
    try:
        intervals_s = [float(text) for text in polls.split(",")]
    except ValueError:
        raise InputError(f"polls {polls!r}: write seconds, such as 15,30") from None
    if min(intervals_s) < 1:
        raise InputError(f"polls {polls!r}: choose at least 1 s")
    faults = Faults(noise_m=noise, loss=loss, delay_s=delay)
    with progress_bar() as bar:
        task = bar.add_task(f"{city}: days", total=2 + days * len(intervals_s))
        figures = measure(
            open_city(city), policy, intervals_s, days, faults, world, lambda: bar.advance(task)
        )
    print_figures(figures)


if __name__ == "__main__":
    run("bench.polling", main)
