"""What a study asks, as a person writes it: one short TOML plan, checked word by word.

A plan names the city, the training seeds, how much of everything, the methods and the claim of the
trial at the end. What it does not say has the paper's value; what is not known is refused.
"""

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import evenline
from evenline.city.cells import PURPOSES
from evenline.errors import InputError
from evenline.learn.schedule import named_learners
from evenline.policies.bundle import read_policy
from evenline.policies.chain import chain_code
from evenline.trial.plan import Plan as TrialPlan
from evenline.trial.plan import plan_of


@dataclass(frozen=True)
class Replay:
    """Days in SUMO to learn from; `reuse` names a sealed replay of the same city, if there."""

    blocks: int = 10
    reuse: str = ""


@dataclass(frozen=True)
class Calibration:
    """Days in SUMO that the fast world is fitted to."""

    blocks: int = 8


@dataclass(frozen=True)
class Fidelity:
    """Whether the study stops where the fast world is not accepted."""

    required: bool = False


@dataclass(frozen=True)
class Training:
    """Who learns, how long, with how large a network, and where."""

    learner: str = "v14"
    iql_updates: int = 50_000
    events: int = 25_000
    widths: tuple[int, ...] = (128, 256, 256)
    device: str = "cpu"
    diagnostic: bool = True
    curve_blocks: int = 3


@dataclass(frozen=True)
class Method:
    """One side of the trial: a chain on a learner's actor, or a built-in controller by name."""

    source: str = ""
    learner: str = ""
    chain: str = "raw"


@dataclass(frozen=True)
class StudyPlan:
    """A whole study."""

    name: str
    city: str
    seeds: tuple[int, ...]
    methods: dict[str, Method]
    levels: tuple[float, ...]
    blocks: dict[str, int]  # of the trial: first seeds and how many
    claim: dict[str, Any]
    limits: dict[str, Any]
    replay: Replay = field(default_factory=Replay)
    calibration: Calibration = field(default_factory=Calibration)
    fidelity: Fidelity = field(default_factory=Fidelity)
    train: Training = field(default_factory=Training)

    @property
    def learners(self) -> list[str]:
        """Every learner that a method needs, each once."""
        named = [method.learner for method in self.methods.values() if not method.source]
        return list(dict.fromkeys(named))

    def trial(self, folder: Path) -> dict[str, Any]:
        """The plan of the trial over the bundles and the city in a study's folder."""
        policies = {
            label: [(folder / "policies" / f"{label}-{seed}").as_posix() for seed in self.seeds]
            for label in self.methods
        }
        return {
            "name": f"{self.name}-study",
            "city": (folder / "city").as_posix(),
            "seeds": list(self.seeds),
            "levels": list(self.levels),
            "blocks": self.blocks,
            "methods": policies,
            "claim": self.claim,
            "limits": self.limits,
        }

    def checked_trial(self) -> TrialPlan:
        """The trial as it will be registered, or one line that says what is wrong with it."""
        return plan_of(self.trial(Path()))


def find_plan(name: str) -> Path:
    """A plan by path, or by the name of one that comes with the project."""
    beside = (Path(), Path(evenline.__file__).resolve().parents[2])
    places = [Path(name), *(base / "plans" / f"{name}.toml" for base in beside)]
    for path in places:
        if path.is_file():
            return path
    raise InputError(f"plan {name!r}: neither a file nor one of the project's: town, city")


def read_study_plan(path: Path) -> StudyPlan:
    """A plan from its TOML file, or one line that says what is wrong in it."""
    try:
        return _plan(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error})") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{path}: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: {error}") from None


def _plan(raw: dict[str, Any]) -> StudyPlan:
    known = {field.name for field in fields(StudyPlan)} - {"levels", "blocks"} | {"trial"}
    _only(raw, known, "plan")
    _only(raw["trial"], {"levels", "blocks"}, "trial")
    training = _table(Training, raw, "train")
    plan = StudyPlan(
        name=str(raw["name"]),
        city=str(raw["city"]),
        seeds=tuple(int(seed) for seed in raw["seeds"]),
        methods={n: _method(n, given, training.learner) for n, given in raw["methods"].items()},
        levels=tuple(float(level) for level in raw["trial"]["levels"]),
        blocks=dict(raw["trial"]["blocks"]),
        claim=dict(raw["claim"]),
        limits=dict(raw.get("limits", {})),
        replay=_table(Replay, raw, "replay"),
        calibration=_table(Calibration, raw, "calibration"),
        fidelity=_table(Fidelity, raw, "fidelity"),
        train=training,
    )
    _check(plan)
    return plan


def _check(plan: StudyPlan) -> None:
    """Refuse before any work what would be refused after hours of it."""
    plan.checked_trial()
    if not plan.learners:
        raise InputError("methods: none has a chain, so there is nothing to train")
    for learner in plan.learners:
        named_learners(learner)
    for label in plan.methods:
        if not label or not all(c.isalnum() or c in "-_." for c in label):
            raise InputError(f"methods: {label!r}: use letters, digits, - _ . only")
    for name, asked in (("replay", plan.replay), ("calibration", plan.calibration)):
        PURPOSES[name].cells(asked.blocks)
    if len(plan.train.widths) != 3 or min(plan.train.widths) < 1:
        raise InputError(f"train: widths {list(plan.train.widths)}: three positive numbers")
    if plan.train.iql_updates < 0 or plan.train.events < 0 or plan.train.curve_blocks < 1:
        raise InputError("train: iql_updates, events and curve_blocks cannot be negative")


def _method(label: str, given: Any, learner: str) -> Method:
    if isinstance(given, str):
        read_policy(given)
        return Method(source=given)
    if not isinstance(given, dict):
        raise InputError(f"methods: {label}: a controller's name, or {{ chain = ... }}")
    _only(given, {"learner", "chain"}, f"methods: {label}")
    chain = str(given.get("chain", "raw"))
    chain_code(chain)
    return Method(learner=str(given.get("learner", learner)), chain=chain)


T = TypeVar("T")


def _table(kind: type[T], raw: dict[str, Any], name: str) -> T:
    """A table whose entries have the names and kinds of a dataclass's defaults."""
    given, plain = dict(raw.get(name, {})), kind()
    _only(given, vars(plain), name)
    for key, value in given.items():
        default = getattr(plain, key)
        if isinstance(default, tuple) and isinstance(value, list):
            given[key] = tuple(int(part) for part in value)
        elif type(value) is not type(default):
            raise InputError(f"{name}: {key} = {value!r}: should be like {default!r}")
    return kind(**given)


def _only(table: dict[str, Any], known: Any, where: str) -> None:
    if unknown := sorted(set(table) - set(known)):
        raise InputError(f"{where}: {unknown[0]!r} is not known; there are {sorted(known)}")
