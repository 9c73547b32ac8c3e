"""Commands that measure speed and memory."""

import json
from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    CityOption,
    DocsOption,
    JsonOption,
    ReplayOption,
    print_notes,
    print_table,
)
from evenline.support.progress import progress_bar, stderr

app = typer.Typer(no_args_is_help=True, help="Measure speed and memory.")


@app.command("sumo")
def bench_sumo(
    city: CityOption = "city",
    repeats: Annotated[int, typer.Option(min=1, help="Number of alternating runs of each.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Compare a day in our SUMO world with the bare sumo program."""
    from evenline.bench.sumo import bench_sumo as run

    with stderr.status(f"{city}: {repeats} times in our world and in bare SUMO"):
        found = run(city, repeats)
    if as_json:
        print(json.dumps(found))
    else:
        print_table("SUMO world against bare SUMO", {k: str(v) for k, v in found.items()})
        print_notes(city, "sumo")


@app.command("fast")
def bench_fast(
    city: CityOption = "city",
    repeats: Annotated[int, typer.Option(min=1, help="Number of runs; the best one counts.")] = 5,
    sumo: Annotated[bool, typer.Option(help="Also run a day in SUMO, for the ratio.")] = True,
    scale: Annotated[
        bool, typer.Option(help="Also measure cities up to 100 times as large.")
    ] = False,
    docs: DocsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions per second of the fast world on one core, and compare with SUMO."""
    from evenline.bench.fast import bench_fast as run

    with stderr.status(f"{city}: the fast world"):
        found = run(city, repeats, sumo, scale, docs)
    if as_json:
        print(json.dumps(found))
    else:
        print_table("fast world", {k: str(v) for k, v in found.items()})
        print_notes(city, "fast")


@app.command("replay")
def bench_replay(
    city: CityOption = "city",
    replay: ReplayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast a replay loads and builds minibatches of states."""
    from evenline.bench.sumo import bench_replay as run

    found = run(city, replay or Path("results") / f"replay-{Path(city).name}")
    if as_json:
        print(json.dumps(found))
    else:
        print_table("replay", {k: str(v) for k, v in found.items()})


@app.command("learn")
def bench_learn(
    city: CityOption = "city",
    replay: Annotated[Path | None, typer.Option(help="Folder of the replay.")] = None,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of runs of each; the best one counts.")
    ] = 3,
    docs: DocsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure updates per second of our learner and of plain PyTorch, and an actor's latency."""
    from evenline.bench.learn import bench_learn as run
    from evenline.bench.learn import open_for_bench, write_figures
    from evenline.city.tables import open_city
    from evenline.experiments.train import replay_folder

    opened = open_city(city)
    store = open_for_bench(opened, replay or replay_folder(opened.name))
    found = run(opened, store, device, repeats)
    if docs is not None:
        write_figures(docs, found)
    if as_json:
        print(json.dumps(found))
    else:
        print_table("learner", {k: str(v) for k, v in found.items()})


@app.command("shadow")
def bench_shadow(
    buses: Annotated[int, typer.Option(min=1, help="Buses on the road at least.")] = 500,
    polls: Annotated[int, typer.Option(min=10, help="Number of polls.")] = 240,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two polls.")] = 15.0,
    day: Annotated[bool, typer.Option("--day", help="The polls of 24 hours, at once.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how long a shadow of many buses takes from poll to advice, its load and memory."""
    from evenline.bench.shadow import DAY_S
    from evenline.bench.shadow import bench_shadow as run

    polls = int(DAY_S / every) if day else polls
    with progress_bar() as bar:
        task = bar.add_task(f"{buses} buses: polls", total=polls)
        found = run(buses, polls, every, lambda: bar.advance(task))
    if as_json:
        print(json.dumps(found))
    else:
        print_table("shadow", {k: str(v) for k, v in found.items()})


@app.command("policy")
def bench_policy(
    city: CityOption = "city",
    docs: DocsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how long every built-in policy, and an actor if there is one, takes to answer."""
    from evenline.bench.policy import bench_policy as run

    with stderr.status(f"{city}: the policies"):
        found = run(city, docs)
    if as_json:
        print(json.dumps(found))
    else:
        times = {n: f"{v['p50_ms']} / {v['p99_ms']}" for n, v in found["policies"].items()}
        print_table("ms of an answer: median / 99th percentile", times)
        print_notes(city, "fast")
