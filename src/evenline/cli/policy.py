"""The commands about controllers: bundles, tuning, comparison. Parse, call, print."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from evenline.city.model import City
from evenline.support.errors import InputError
from evenline.support.progress import stderr

app = typer.Typer(no_args_is_help=True, help="Freeze, look at and check controllers.")

CityOption = Annotated[str, typer.Option("--city", help="An embedded city, or a city folder.")]
Source = Annotated[str, typer.Argument(help="A built-in controller, or a bundle's folder.")]
ReplayOption = Annotated[
    Path | None, typer.Option("--replay", help="A replay to take states from for the check.")
]
WorkersOption = Annotated[
    int | None, typer.Option(help="Worker processes; all cores if not given.")
]
CHECKED_STATES = 10_000
ONNX_TOLERANCE_S = 1e-5


@app.command()
def export(
    source: Annotated[
        str,
        typer.Argument(help="A built-in controller, a bundle, or an actor's .safetensors file."),
    ],
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="The bundle's folder.")] = None,
    chain: Annotated[
        str | None, typer.Option(help="raw, h16, parent or candidate; its own if not given.")
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(help="Also write an actor and its chain as an ONNX graph.")
    ] = None,
    replay: ReplayOption = None,
) -> None:
    """Freeze a controller for a city into a folder; with --onnx also into a graph, checked."""
    from evenline.city.tables import digest, open_city
    from evenline.policies.bundle import export_bundle, make_policy

    opened = open_city(city)
    folder = out or Path("results") / "policies" / f"{Path(city).name}-{Path(source).stem}"
    provenance = {"made_by": "evenline policy export", "source": source, "city": digest(opened)}
    bundle = export_bundle(folder, source, opened, chain, provenance)
    print(folder)
    if onnx is not None:
        from evenline.policies.actor import ActorController
        from evenline.policies.onnx_graph import worst_error_s, write_onnx

        policy = make_policy(bundle, opened)
        if not isinstance(policy, ActorController):
            raise InputError(f"{source}: only actors go into ONNX graphs")
        write_onnx(onnx, policy)
        states, origin = _states(opened, replay)
        error_s = worst_error_s(onnx, policy, states)
        print(f"{onnx}: differs by at most {error_s:.1e} s on {len(states):,} states of {origin}")
        if not error_s <= ONNX_TOLERANCE_S:  # also where it is no number at all
            raise typer.Exit(1)


@app.command()
def show(source: Source) -> None:
    """Print what a controller is: its specification, tensors and digest, as JSON."""
    from evenline.policies.bundle import policy_digest, read_policy

    bundle = read_policy(source)
    tensors = {n: f"{t.dtype} {list(t.shape)}" for n, t in sorted(bundle.tensors.items())}
    shown = bundle.spec | {"sha256": policy_digest(source), "tensors": tensors}
    print(json.dumps(shown, indent=2, sort_keys=True))


@app.command()
def check(source: Source, city: CityOption = "town", replay: ReplayOption = None) -> None:
    """Open a controller, drive a fast day, time it; actors also against ONNX Runtime.

    Exit code 1 if the graph of an actor differs from our own code.
    """
    from evenline.city.cells import demo_cell
    from evenline.city.tables import open_city
    from evenline.control.world import run_episode
    from evenline.policies.bundle import open_policy, policy_digest
    from evenline.worlds.calibration import embedded_calibration
    from evenline.worlds.fast.world import FastWorld

    opened = open_city(city)
    policy = open_policy(source, opened)
    spent_s: list[float] = []

    def timed(batch: Any) -> Any:
        began = time.perf_counter()
        holds = policy(batch)
        spent_s.append((time.perf_counter() - began) / len(batch.trips))
        return holds

    outcome = run_episode(FastWorld(opened, embedded_calibration(opened)), demo_cell(1), timed)
    found: dict[str, Any] = {
        "sha256": policy_digest(source),
        "decisions": outcome.decisions,
        "generalized_s": round(outcome.generalized_s, 1),
        "completion": round(outcome.completion, 4),
        "latency_ms_median": round(1e3 * float(np.median(spent_s)), 3),
        "latency_ms_p99": round(1e3 * float(np.percentile(spent_s, 99)), 3),
    }
    error_s = _against_onnx(policy, opened, replay, found)
    print(json.dumps(found, indent=2))
    if not error_s <= ONNX_TOLERANCE_S:
        raise typer.Exit(1)


def _against_onnx(policy: Any, city: City, replay: Path | None, found: dict[str, Any]) -> float:
    """The largest difference between an actor's graph in ONNX Runtime and our own code."""
    from evenline.policies.actor import ActorController
    from evenline.policies.onnx_graph import worst_error_s, write_onnx
    from evenline.support.files import ScratchFolder

    if not isinstance(policy, ActorController):
        return 0.0
    states, origin = _states(city, replay)
    with ScratchFolder() as folder:
        write_onnx(Path(folder) / "actor.onnx", policy)
        error_s = worst_error_s(Path(folder) / "actor.onnx", policy, states)
    found |= {"onnx_states": len(states), "onnx_states_of": origin, "onnx_error_s": error_s}
    return error_s


def _states(city: City, replay: Path | None) -> tuple[Any, str]:
    """States to check on, and where they are from."""
    from evenline.policies.states import own_states
    from evenline.replay.states import replay_states
    from evenline.replay.store import open_store

    if replay is None:
        return own_states(city, CHECKED_STATES, 1), "fast days"
    with stderr.status(f"reading {replay}"):
        return replay_states(open_store(replay, city), CHECKED_STATES, 1), str(replay)


def tune(
    rule: Annotated[str, typer.Argument(help="A built-in rule with constants, such as forward.")],
    city: CityOption = "town",
    blocks: Annotated[int, typer.Option(help="Tuning seeds, each at three demand levels.")] = 10,
    budget: Annotated[int, typer.Option(help="Constants to try, at least 3.")] = 240,
    chain: Annotated[str, typer.Option(help="A chain after the rule.")] = "raw",
    completion: Annotated[
        float, typer.Option(help="Choose among constants with at least this completion.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the search, at least 1.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The result's folder.")] = None,
) -> None:
    """Search a rule's constants in the fast world; save front, plot and tuned bundle. Resumes."""
    from evenline.experiments.tune import tune as run
    from evenline.experiments.tune import tuned_folder
    from evenline.rules.classics import CLASSICS

    folder = out or Path("results") / f"tune-{Path(city).name}-{rule}"
    chosen, front = run(rule, city, folder, blocks, budget, chain, completion, seed)
    names = [constant.name for constant in CLASSICS[rule].constants]
    print(f"{'time, s':>10}  {'completed':>9}  {', '.join(names)}")
    for each in front:
        values = ", ".join(f"{value:.4g}" for value in each.constants)
        mark = "  chosen" if each == chosen else ""
        print(f"{each.generalized_s:10,.1f}  {each.completion:9.4f}  {values}{mark}")
    print(tuned_folder(folder, rule))


def compare(
    city: CityOption = "town",
    world: Annotated[str, typer.Option(help="Who simulates: sumo or fast.")] = "fast",
    policies: Annotated[
        str,
        typer.Option(
            help="Built-in names and bundle folders, with commas; all is every quick one."
        ),
    ] = "all",
    blocks: Annotated[int, typer.Option(help="Seeds, each at three demand levels.")] = 10,
    out: Annotated[Path | None, typer.Option(help="The result's folder.")] = None,
    docs: Annotated[Path | None, typer.Option(help="A document to write the result into.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON and nothing else.")] = False,
    workers: WorkersOption = None,
) -> None:
    """Policies on the same days: means, paired differences with intervals by block, a figure."""
    from evenline.experiments.compare import compare as run
    from evenline.experiments.compare import named_policies, text_table

    folder = out or Path("results") / f"compare-{Path(city).name}-{world}"
    found = run(city, world, named_policies(policies), blocks, folder, workers, docs)
    if as_json:
        print(json.dumps(found.as_json(), sort_keys=True))
    else:
        print(text_table(found), end="")
        print(folder)
