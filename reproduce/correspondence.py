"""What of a trial corresponds to the paper, and which training and audits belong to a trial.

A method is one of the paper's by its learner and chain, whatever its name. A training belongs to a
trial if it made its actors, an audit if it is of its city; results of others are never shown.
"""

from pathlib import Path

from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256
from evenline.trial.records import FrozenPolicy
from evenline.trial.registration import Trial

FINAL = "v14"  # the learner whose actors the candidate uses
CHAIN_LABELS = {"candidate": "reserve", "parent": "parent", "raw": "raw"}  # of its actors
RAW_LABELS = {
    "base": "h2oplus", "sac": "online", "v10": "delayed", "v11": "hold", "v12": "ramp",
    "v13": "proximal",
}  # fmt: skip


def papers_labels(trial: Trial) -> dict[str, str]:
    """The paper's label of each method that is one of its: by learner and chain, not by name.

    Empty unless candidate and parent are the paper's.
    """
    labels: dict[str, str] = {}
    for method in trial.plan.methods:
        of = {_label(trial, p) for p in trial.registered.policies if p.method == method}
        label = of.pop() if len(of) == 1 else None
        if label is not None and label not in labels.values():
            labels[method] = label
    claim = trial.plan.claim
    roles = (labels.get(claim.candidate), labels.get(claim.parent))
    return labels if roles == ("reserve", "parent") else {}


def _label(trial: Trial, policy: FrozenPolicy) -> str | None:
    """The paper's label of a policy: an actor of one of its learners, behind its chain."""
    path = trial.inputs / policy.path / "policy.json"
    if policy.seed is None or not path.is_file():
        return None
    spec = read_json(path)
    told = spec.get("provenance")
    if spec["kind"] != "actor" or not isinstance(told, dict):
        return None
    if told.get("learner") == FINAL and spec["chain"] in CHAIN_LABELS:
        return CHAIN_LABELS[spec["chain"]]
    return RAW_LABELS.get(str(told.get("learner"))) if spec["chain"] == "raw" else None


def training_of(trial: Trial, named: Path | None) -> Path | None:
    """The folder of the training that made the trial's actors, if it is known."""
    city = trial.registered.city
    if named is not None:
        if why := _is_foreign(trial, named):
            raise InputError(f"{named} {why}; name the training of the trial's actors")
        return named
    study = trial.folder.resolve().parent / "train"
    places = [study, *(Path(place) / f"train-{city.name}" for place in ("data", "results"))]
    return next((place for place in places if not _is_foreign(trial, place)), None)


def _is_foreign(trial: Trial, training: Path) -> str | None:
    """Why a folder is not that of the trial's training: city and actors must be the trial's."""
    if not (training / "config.json").is_file():
        return "is no folder of a training"
    if read_json(training / "config.json").get("city") != trial.registered.city.digest:
        return "belongs to another city than the trial"
    used = set(trial.registered.inputs.values())
    actors = (training / "actors").glob("*.safetensors")
    return None if any(sha256(actor) in used for actor in actors) else "has no actor of the trial"


def audit_of(trial: Trial, file: str, study: str, named: Path | None) -> Path | None:
    """The file of an audit of the trial's city, if it is known."""
    city = trial.registered.city
    if named is not None:
        if (named / file).is_file() and not _is_citys(named / file, city.digest):
            raise InputError(
                f"{named / file} belongs to another city than the trial; name an audit of "
                f"{city.name}"
            )
        return named / file
    places = [trial.folder.resolve().parent / study]
    places += [Path(place) / f"audit-{city.name}" for place in ("data", "results")]
    return next((p / file for p in places if _is_citys(p / file, city.digest)), None)


def ratio_of(trial: Trial, named: Path | None) -> Path | None:
    """The file of the domain-ratio diagnostic of the trial's actors, if it is known."""
    used = set(trial.registered.inputs.values())
    places = [Path(place) / f"audit-{trial.registered.city.name}" for place in ("data", "results")]
    for path in (place / "ratio.json" for place in ([named] if named else places)):
        if path.is_file() and any(
            row.get("actor") in used for row in read_json(path).get("rows", {}).values()
        ):
            return path
    return None


def replay_of(trial: Trial) -> Path | None:
    """The folder of a replay of the trial's city, if it is known."""
    city = trial.registered.city
    places = [trial.folder.resolve().parent / "replay"]
    places += [Path(place) / f"replay-{city.name}" for place in ("data", "results")]
    for place in (place for place in places if (place / "manifest.json").is_file()):
        if read_json(place / "manifest.json")["plan"]["city"] == city.digest:
            return place
    return None


def _is_citys(path: Path, digest: str) -> bool:
    """Whether an audit is of a city. Of an earlier replay audit, the fidelity audit beside it, or
    that of its study, says so.
    """
    beside = (path, path.with_name("fidelity.json"), path.parent.parent / "fidelity/fidelity.json")
    cities = [read_json(p).get("city_digest") for p in beside if path.is_file() and p.is_file()]
    return next((own for own in cities if own is not None), None) == digest
