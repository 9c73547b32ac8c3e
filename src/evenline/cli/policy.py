"""Commands for policies: bundles, tuning, comparison."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenline.cli.options import (
    AddressOption,
    BlocksOption,
    CalibrationOption,
    CityOption,
    DocsOption,
    ExecutorOption,
    ForceOption,
    JsonOption,
    OutOption,
    ReplayOption,
    ShardOption,
    SumoOption,
    WorkersOption,
    WorldOption,
    executor_of,
    print_notes,
)
from evenline.support.columns import aligned
from evenline.support.errors import InputError
from evenline.support.terminal import stderr

if TYPE_CHECKING:
    from evenline.policies.kinds import Bundle
    from evenline.worlds.open import OpenCity

app = typer.Typer(no_args_is_help=True, help="Export, show and check policies.")

Source = Annotated[
    str, typer.Argument(help="A policy: a name, a bundle's folder, or FILE.py:FUNCTION.")
]
CHECKED_STATES = 10_000
ONNX_TOLERANCE_S = 1e-5


@app.command()
def export(
    source: Annotated[
        str,
        typer.Argument(help="A built-in policy, a bundle, or an actor's .safetensors file."),
    ],
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="Folder for the bundle.")] = None,
    chain: Annotated[
        str | None, typer.Option(help="raw, h16, parent or candidate (default: the policy's own).")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Base of a look-ahead: a rule such as zero+candidate, or a bundle."),
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(help="Also write an actor and its chain as an ONNX graph.")
    ] = None,
    replay: ReplayOption = None,
    calibration: CalibrationOption = None,
    force: ForceOption = False,
) -> None:
    """Save a policy for a city as a bundle; with --onnx also as a checked ONNX graph."""
    from evenline.city.tables import digest
    from evenline.policies.bundle import export_bundle, open_policy, read_policy
    from evenline.worlds.open import open_city

    opened = open_city(city, calibration)
    if onnx is not None:  # refused before anything is written
        from evenline.policies.onnx_graph import refuse_other_file

        if not source.endswith(".safetensors") and not read_policy(source).kind.trained:
            raise InputError(f"{source} is not an actor; only actors can be exported to ONNX")
        refuse_other_file(onnx, force)
    folder = out or Path("results") / "policies" / f"{Path(city).name}-{Path(source).stem}"
    provenance: dict[str, object] = {
        "made_by": "evenline policy export",
        "source": source,
        "city": digest(opened.city),
    }
    if source.endswith(".safetensors"):
        from evenline.experiments.train import training_of

        training = training_of(Path(source))
        provenance |= training
        chain = chain or training.get("taught_behind")
    fitted = opened.calibration

    def made(where: Path, force: bool) -> "Bundle":
        return export_bundle(where, source, opened.city, chain, provenance, fitted, force, base)

    if not force:
        _refuse_another(folder, made)
    bundle = made(folder, force)
    print(folder)
    if onnx is not None:
        _write_graph(onnx, open_policy(bundle, opened.city, opened.calibration), opened, replay)


def _refuse_another(folder: Path, made: Callable[[Path, bool], "Bundle"]) -> None:
    """Refuse to replace a bundle that somebody changed, or that is of another policy."""
    from evenline.policies.bundle import policy_digest, refuse_changed_bundle
    from evenline.policies.names import POLICY
    from evenline.support.files import ScratchFolder

    refuse_changed_bundle(folder)
    if not (folder / POLICY).is_file():
        return
    with ScratchFolder() as scratch:
        if policy_digest(made(Path(scratch) / "new", False)) != policy_digest(str(folder)):
            raise InputError(
                f"{folder} has another policy; choose another --out, or use --force to replace it"
            )


def _write_graph(path: Path, policy: Any, opened: "OpenCity", replay: Path | None) -> None:
    """Write an actor's graph, and say how far it is from our own code."""
    from evenline.policies.onnx_graph import worst_error_s, write_onnx

    write_onnx(path, policy)
    states, origin = _states(opened, replay)
    error_s = worst_error_s(path, policy, states)
    print(f"{path}: differs by at most {error_s:.1e} s on {len(states):,} states of {origin}")
    if not error_s <= ONNX_TOLERANCE_S:  # also refuses NaN
        raise typer.Exit(1)


@app.command()
def show(source: Source) -> None:
    """Print a policy's specification, tensors and digest as JSON."""
    from evenline.policies.bundle import policy_digest, read_policy
    from evenline.support.records import plain

    bundle = read_policy(source)
    tensors = {n: f"{t.dtype} {list(t.shape)}" for n, t in sorted(bundle.tensors.items())}
    shown = plain(bundle.spec) | {"sha256": policy_digest(bundle), "tensors": tensors}
    print(json.dumps(shown, indent=2, sort_keys=True))


@app.command()
def check(
    source: Source,
    city: CityOption = "town",
    replay: ReplayOption = None,
    calibration: CalibrationOption = None,
) -> None:
    """Run a policy for one fast day and time it; compare actors with ONNX Runtime.

    Exits with code 1 if the graph of an actor differs from our own code.
    """
    import numpy as np

    from evenline.city.cells import demo_cell
    from evenline.control.world import run_episode
    from evenline.policies.bundle import open_policy, policy_digest
    from evenline.policies.lookahead import Lookahead
    from evenline.worlds.open import open_city

    opened = open_city(city, calibration)
    policy = open_policy(source, opened.city, opened.calibration)
    spent_s: list[float] = []

    def timed(batch: Any) -> Any:
        began = time.perf_counter()
        holds = policy(batch)
        spent_s.append((time.perf_counter() - began) / len(batch.trips))
        return holds

    outcome = run_episode(opened.fast_world(), demo_cell(1), timed)
    result: dict[str, Any] = {
        "sha256": policy_digest(source),
        "decisions": outcome.decisions,
        "generalized_s": round(outcome.generalized_s, 1),
        "completion": round(outcome.completion, 4),
        "latency_ms_median": round(1e3 * float(np.median(spent_s)), 3),
        "latency_ms_p99": round(1e3 * float(np.percentile(spent_s, 99)), 3),
    }
    if isinstance(policy, Lookahead):
        counted = ("unseen_stops", "lost_buses", "repeated_reports", "unknown_buses")
        result |= {name: getattr(policy, name) for name in counted}
    if notes := opened.notes("fast"):
        result["notes"] = notes
    error_s = _against_onnx(policy, opened, replay, result)
    print(json.dumps(result, indent=2))
    if not error_s <= ONNX_TOLERANCE_S:
        raise typer.Exit(1)


def _against_onnx(
    policy: Any, city: "OpenCity", replay: Path | None, result: dict[str, Any]
) -> float:
    """The largest difference between an actor's graph in ONNX Runtime and our own code."""
    from evenline.policies.actor import ActorPolicy
    from evenline.support.files import ScratchFolder

    if not isinstance(policy, ActorPolicy):
        return 0.0
    from evenline.policies.onnx_graph import worst_error_s, write_onnx

    states, origin = _states(city, replay)
    with ScratchFolder() as folder:
        write_onnx(Path(folder) / "actor.onnx", policy)
        error_s = worst_error_s(Path(folder) / "actor.onnx", policy, states)
    result |= {"onnx_states": len(states), "onnx_states_of": origin, "onnx_error_s": error_s}
    return error_s


def _states(city: "OpenCity", replay: Path | None) -> tuple[Any, str]:
    """States for the check, and their origin."""
    from evenline.policies.states import fast_states
    from evenline.replay.states import replay_states
    from evenline.replay.store import open_store

    if replay is None:
        return fast_states(city, CHECKED_STATES, 1), "fast days"
    with stderr.status(f"reading {replay}"):
        return replay_states(open_store(replay, city.city), CHECKED_STATES, 1), str(replay)


def tune(
    rule: Annotated[
        str, typer.Argument(help="A rule with constants: a name such as forward, or FILE.py:NAME.")
    ],
    city: CityOption = "town",
    blocks: Annotated[
        int, typer.Option(help="Number of tuning blocks, each at three demand levels.")
    ] = 10,
    budget: Annotated[int, typer.Option(help="Number of tries, at least 3.")] = 240,
    chain: Annotated[str, typer.Option(help="Chain to apply to the rule.")] = "raw",
    completion: Annotated[
        float, typer.Option(help="Lowest completion that the chosen constants may have.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the search, at least 1.")] = 1,
    out: OutOption = None,
    force: ForceOption = False,
    calibration: CalibrationOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Find the best constants of a rule in the fast world. Run it again to continue."""
    from evenline.experiments.tune import tunable
    from evenline.experiments.tune import tune as run

    name = tunable(rule).name
    folder = out or Path("results") / f"tune-{Path(city).name}-{name}"
    chosen_executor = executor_of(executor, address, workers)
    chosen, front, tuned = run(
        rule, city, folder, blocks, budget, chain, completion, seed, calibration, chosen_executor,
        force,
    )  # fmt: skip
    names = [constant.name for constant in tunable(rule).constants]
    print(f"{'time, s':>10}  {'completed':>9}  {', '.join(names)}")
    for one in front:
        values = ", ".join(f"{value:.4g}" for value in one.constants)
        mark = "  chosen" if one == chosen else ""
        print(f"{one.generalized_s:10,.1f}  {one.completion:9.4f}  {values}{mark}")
    print_notes(city, "fast", calibration)
    print(tuned)


def compare(
    city: CityOption = "town",
    world: WorldOption = "fast",
    policies: Annotated[
        str,
        typer.Option(help="Policies, separated by commas; all means every built-in policy."),
    ] = "all",
    blocks: BlocksOption = 10,
    out: OutOption = None,
    force: ForceOption = False,
    docs: DocsOption = None,
    as_json: JsonOption = False,
    calibration: CalibrationOption = None,
    sumo: SumoOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
    shard: ShardOption = "1/1",
    clairvoyant: Annotated[
        bool, typer.Option(help="Also say what share of a clairvoyant's gain each policy reaches.")
    ] = True,
) -> None:
    """Compare policies on the same days: means, differences with intervals over blocks, a
    figure.
    """
    from evenline.experiments.compare import compare as run
    from evenline.experiments.compare import named_policies, text_table
    from evenline.runs.executors import Shard

    folder = out or Path("results") / f"compare-{Path(city).name}-{Path(world).stem}"
    found = run(
        city, world, named_policies(policies), blocks, folder,
        executor_of(executor, address, workers), docs, calibration, sumo, Shard.parse(shard), force,
        clairvoyant,
    )  # fmt: skip
    if as_json:
        print(json.dumps(found.as_json(), sort_keys=True))
    else:
        print(text_table(found), end="")
        print(folder)


def whatif(
    city: CityOption = "city",
    policy: Annotated[
        str, typer.Option(help="A policy: a name, a bundle's folder, or FILE.py:FUNCTION.")
    ] = "lookahead",
    blocks: Annotated[int, typer.Option("--blocks", help="Number of days.")] = 3,
    out: OutOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    calibration: CalibrationOption = None,
    docs: DocsOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
    shard: ShardOption = "1/1",
) -> None:
    """Vary one thing of a city's operation at a time: holds, drivers, demand, headway, buses."""
    from evenline.experiments.whatif import RESULT, rows
    from evenline.experiments.whatif import whatif as run
    from evenline.runs.executors import Shard

    folder = out or Path("results") / f"whatif-{Path(city).name}"
    result = run(
        city, policy, folder, blocks, calibration, force, docs,
        executor_of(executor, address, workers), Shard.parse(shard),
    )  # fmt: skip
    if as_json:
        print(json.dumps(json.loads((folder / RESULT).read_text()), sort_keys=True))
        return
    print(*aligned(rows(result.findings), text=2), *result.answers, sep="\n")
    for note in result.frame.notes:
        print(f"note: {note}")
    print(folder)
