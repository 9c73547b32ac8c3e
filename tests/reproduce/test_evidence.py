"""The page of evidence: the verdict first, the paper's numbers next to ours, no early outcomes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evenline.city.embedded import embedded_city
from evenline.city.tables import digest
from evenline.control.outcome import Outcome
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import actor_spec, policy_digest, save_bundle
from evenline.replay.audit import audit_replay
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import sha256, to_json, write_bytes, write_text
from evenline.trial.matrix import Shard, run
from evenline.trial.packed import pack
from evenline.trial.registration import read_trial
from made import closed_trial, day, made_up, registered
from reproduce.evidence import write_evidence
from reproduce.guard import guard_shares
from reproduce.paper import paper
from reproduce.ratio import ROWS
from reproduce.training import training_values
from reproduce.unheld import unheld
from small import fast_store

TRAINED = Path(__file__).parents[2] / "data" / "train-city"


Days = Callable[[str, Job], Outcome]  # of a method's day


def bundles(where: Path) -> dict[str, str]:
    """Bundles of the paper's candidate, parent and two controls, under names of our own."""
    town, made = embedded_city("town"), {}
    for name, learner, chain in (
        ("mine", "v14", "candidate"),
        ("before", "v14", "parent"),
        ("bare", "v14", "raw"),
        ("first", "base", "raw"),
    ):
        for seed in (6201, 6202):
            tensors = random_tensors(len(town.services), seed)
            spec = actor_spec(town, chain, {"stable": True, "learner": learner, "seed": seed})
            save_bundle(where / f"{name}-{seed}", spec, tensors)
            made[f"policies/{policy_digest(str(where / f'{name}-{seed}'))[:16]}"] = name
    return made


def papers(where: Path) -> dict[str, str]:
    """The changes of a plan that make it the paper's claim, with one method more."""
    names = ("mine", "before", "bare", "first")
    methods = ", ".join(f'{name} = "{where}/bundles/{name}-{{seed}}"' for name in names)
    gates = '["mean direction", "demand direction", "stability", "less time than other"]'
    beside = '["less time than bare in 6 of 6 blocks"]'
    return {
        "seeds": "[6201, 6202]",
        "methods": f"{{ {methods}, other = 'myopic' }}",
        "claim": f'{{ candidate = "mine", parent = "before", gates = {gates}, '
        f"robustness = {beside} }}",
    }


def closed(where: Path, of: Days) -> Path:
    named = bundles(where / "bundles")
    return closed_trial(
        where, lambda order: of(named.get(order.policy, "other"), order), **papers(where)
    ).folder


def page_of(folder: Path, **places: Path) -> str:
    document = folder.parent / "evidence.md"
    write_evidence(document, folder, **places)
    return document.read_text()


def more_with_demand(method: str, order: Job) -> Outcome:
    """The candidate saves more the higher the demand."""
    return day(order, int(1_000 - 80 * order.cell.demand)) if method == "mine" else day(order)


def all_the_same(method: str, order: Job) -> Outcome:
    return day(order)


def write_training(training: Path, bundle: Path, **changes: str) -> Path:
    """The folder of the training that made a bundle's actor."""
    town = digest(embedded_city("town"))
    config = json.loads((TRAINED / "config.json").read_text()) | {"city": town} | changes
    write_text(training / "config.json", to_json(config))
    content = (bundle / "tensors.safetensors").read_bytes()
    write_bytes(training / "actors" / "v14-6201.safetensors", content)
    return training


def write_audits(audits: Path, actor: Path | None = None, **changes: str) -> Path:
    """Both audits of `town`, and the diagnostic of an actor."""
    if actor is not None:
        row = dict.fromkeys(ROWS, 0.5) | {"actor": sha256(actor)}
        write_text(audits / "ratio.json", to_json({"rows": {"v14-6201": row}}))
    town = {"city_digest": digest(embedded_city("town"))} | changes
    figure = {"name": "share of guard rows", "paper": 0.0391, "value": 0.0782, "passed": None}
    replay = {"sumo": "1.27.1", "figures": [figure | {"low": 0.07, "high": 0.08}]}
    write_text(audits / "replay.json", to_json(replay))
    printed = paper()["fidelity"]
    lines = [
        {"audit": "response", "quantity": name, "low": -0.001, "high": 0.9, "passed": True}
        for name in printed["response"]
    ]
    fidelity = town | {"accepted": True, "lines": lines, "largest_zero_gaps": printed["zero"]}
    write_text(audits / "fidelity.json", to_json(fidelity))
    return audits


def places(where: Path) -> dict[str, Path]:
    """Results of training and audits, made up for `town`."""
    bundle = where / "bundles" / "mine-6201"
    training = write_training(where.parent / "train", bundle)
    audits = write_audits(where.parent / "audit", bundle / "tensors.safetensors")
    return {"training": training, "audits": audits}


def test_an_unfinished_trial_shows_no_outcome(tmp_path: Path) -> None:
    bundles(tmp_path / "half" / "bundles")
    trial = registered(tmp_path / "half", **papers(tmp_path / "half"))
    run(trial.folder, made_up(trial), Shard(1, 2))
    bare, page = page_of(trial.folder), page_of(trial.folder, **places(tmp_path / "half"))
    assert page.startswith("# Evidence: the trial is running, 0 of 6 blocks done\n")
    assert trial.sha256 in page and "## Candidate" not in page and "mine" not in page
    assert "Share of guard rows: 2.00 times the paper's. Every audited claim holds." in page
    assert "5 of 11 figures are at most the paper's" in page and "All are the paper's." in page
    assert "None that belongs to this trial: `evenline city judge town`" in bare
    assert "cannot tell SUMO from the fast world" in page
    run(trial.folder, made_up(trial))
    pack(trial.folder, trial.folder.parent / "packed")
    for place in (trial.folder, trial.folder.parent / "packed"):
        first = page_of(place).splitlines()[0]
        assert first == "# Evidence: the trial is complete but not closed, 6 of 6 blocks done"


def test_a_confirmed_trial_says_so_first(tmp_path: Path) -> None:
    folder = closed(tmp_path / "one", more_with_demand)
    pack(folder, tmp_path / "one" / "packed")
    named = places(tmp_path / "one")
    page = page_of(folder, **named)
    assert page.startswith("# Evidence: confirmed\n")
    assert "| difference | -92.12 | -80.00 | +0.00466 | +0.00000 | -77.22 | +0.00 |" in page
    assert "-80.0 s here and -92.1 s in the paper: the same direction, 87% of its size" in page
    assert "(the paper: -3.71%)" in page and "(the paper: -11.78%)" in page
    assert "are 11,351, 15,089, 18,858 people at its three levels; ours are 2,000, 2,000." in page
    assert "The saving grows with demand, as in the paper." in page
    assert "| 1.25 | -148.46 | -100.00 |" in page and "| 9101-9201 | -80.00 |" in page
    assert "No method has less time than the candidate." in page
    assert (tmp_path / "one" / "images" / "evidence-blocks.png").is_file()
    packed = page_of(tmp_path / "one" / "packed", **named)
    assert packed.replace(str(tmp_path / "one" / "packed"), str(folder)) == page


def test_the_page_tells_when_the_effect_accrues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(method: str, job: Job) -> Outcome:
        return replace(more_with_demand(method, job), service_cost=2_000 * 500)

    monkeypatch.chdir(tmp_path)
    folder = closed(tmp_path / "one", of)
    assert "python -m reproduce.unheld" in page_of(folder)
    trial = read_trial(folder)
    unheld(folder, tmp_path / "data" / "unheld-town", made_up(trial, lambda job: of("", job)))
    page = page_of(folder)
    assert "| candidate minus parent | -80.0 | +0.0 | -80.0 |  | +0.00 |" in page
    assert "| bare minus no holding | +0.0 | +0.0 | +0.0 |  | +0.00 |" in page
    assert "The 12 days without holding ran beside the trial after it was closed" in page


def test_the_guard_holds_where_the_audit_of_the_replay_says(tmp_path: Path) -> None:
    store = fast_store(tmp_path, blocks=1)
    figures, _ = audit_replay(store.folder, store.city)
    audited = {figure.name: figure.value for figure in figures}
    share, early, last = guard_shares(store)
    assert share == pytest.approx(audited["share of guard rows"]) and share > last > 0
    assert 0 < early <= 1


def test_every_value_of_the_papers_table_has_ours() -> None:
    recorded = json.loads((TRAINED / "config.json").read_text())["plan"]
    printed = paper()["training"]["rows"]
    assert len(printed) == 30 and training_values(recorded) == printed


def test_a_denied_trial_says_so_first(tmp_path: Path) -> None:
    page = page_of(closed(tmp_path / "one", all_the_same))
    assert page.startswith("# Evidence: not confirmed\n")
    assert "blocks with less generalized time | 10 of 10, p = 0.0009766 | 0 of 6," in page
    assert "failed here: both tests (intersection-union), gate: demand direction" in page
    assert "no difference here" in page and "as it does in the paper; it is largest" in page


def test_only_what_corresponds_stands_beside_the_paper(tmp_path: Path) -> None:
    page = page_of(closed(tmp_path / "one", more_with_demand))
    assert "| mine: Reserve-augmented candidate | 2,392.73 |" in page
    assert "| first: Base H2O+ | 2,696.98 |" in page, "by learner and chain, not by name"
    assert "\n| other |  |" in page
    assert "| gate: less time than other |  | passed |" in page
    assert "| gate: stability | passed | passed |" in page
    assert "| robustness gate: less time than bare in 6 of 6 blocks | passed | passed |" in page
    assert "than a control: bare 6 of 6, first 6 of 6 (the paper: 10 of 10 against each)" in page


def test_a_trial_of_another_claim_is_refused(tmp_path: Path) -> None:
    for name, methods in (
        ("rules", {}),
        ("named", {"methods": '{ reserve = "headway-1.0", parent = "zero" }'}),
    ):
        claim = '{ candidate = "reserve", parent = "parent" }'
        trial = registered(tmp_path / name, **methods, **({"claim": claim} if methods else {}))
        with pytest.raises(InputError, match=r"its claim is not the paper's.*trial analyse"):
            page_of(trial.folder)


def test_training_and_audits_of_a_study_are_found_and_those_of_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    bundles(study / "bundles")
    trial = registered(study, **papers(study))
    elsewhere = tmp_path / "here"
    monkeypatch.chdir(tmp_path)
    foreign = write_training(tmp_path / "data" / "train-town", study / "bundles" / "mine-6201")
    (foreign / "actors" / "v14-6201.safetensors").write_bytes(b"of another training")
    write_audits(tmp_path / "data" / "audit-town", city_digest="0" * 64)
    page = page_of(trial.folder)
    assert page.count("None that belongs to this trial") == 3 and "## Training values" not in page
    with pytest.raises(InputError, match="has no actor of the trial"):
        page_of(trial.folder, training=foreign)
    with pytest.raises(InputError, match="belongs to another city than the trial"):
        page_of(trial.folder, audits=tmp_path / "data" / "audit-town")

    write_training(study / "train", study / "bundles" / "mine-6201")
    write_audits(elsewhere)
    for name, folder in (("replay", "replay-audit"), ("fidelity", "fidelity")):
        content = (elsewhere / f"{name}.json").read_bytes()
        write_bytes(study / folder / f"{name}.json", content)
    page = page_of(trial.folder)
    assert page.count("None that belongs") == 1 and "## Training values" in page
    assert "`python -m reproduce.ratio" in page


def test_results_of_another_city_and_changed_trials_are_refused(tmp_path: Path) -> None:
    folder = closed(tmp_path, more_with_demand)
    with pytest.raises(InputError, match="belongs to another city than the trial; name"):
        page_of(folder, training=TRAINED)
    path = folder / "analysis.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("-80.0", "-81.0"))
    with pytest.raises(InputError, match=r"analysis.json"):
        page_of(folder)
