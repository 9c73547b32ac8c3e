"""What a study asks, as a person writes it: one short TOML plan, checked word by word.

A plan names the city, the training seeds, how much of everything, the methods and the claim of the
trial at the end. What it does not say has the paper's value; what is not known is refused.
"""

import math
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell, realise
from evenline.city.embedded import PLANS as EMBEDDED
from evenline.city.model import City
from evenline.city.tables import open_city
from evenline.learn.schedule import Budget, Learner, check_schedule, named_learners, scaled
from evenline.policies.bundle import BUILT_IN, open_policy, read_policy
from evenline.rules.chain import chain_code
from evenline.support.errors import InputError
from evenline.trial.plan import Claim, Limits, plan_of
from evenline.trial.plan import Plan as TrialPlan
from evenline.trial.used import check_fresh

MOST_BLOCKS = 200  # of a trial; the exact sign test of many more takes for ever


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

    @property
    def budget(self) -> Budget:
        """The paper's phases in the length asked for."""
        whole = Budget()
        warmup = round(self.events * whole.warmup_events / whole.events)
        return Budget(self.iql_updates, warmup, self.events)


@dataclass(frozen=True)
class Method:
    """One side of the trial: a chain on a learner's actor, or a built-in controller by name."""

    source: str = ""
    learner: str = ""
    chain: str = "raw"


@dataclass(frozen=True)
class StudyPlan:
    """A whole study."""

    file: Path
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

    def open_city(self) -> City:
        """The city, embedded or from its folder."""
        return open_city(self.city if self.city in EMBEDDED else self.place(self.city))

    def policy(self, method: Method) -> str:
        """A method's built-in controller, or where its bundle lies."""
        built_in = method.source.partition("+")[0] in BUILT_IN
        return method.source if built_in else self.place(method.source)

    def place(self, named: str) -> str:
        """Where a folder lies that the plan names: beside the plan, in a folder above, or here."""
        for base in (*self.file.resolve().parents, Path()):
            if (base / named).exists():
                return str(base / named)
        return named

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
    """A plan of a study or a trial: by path, or by name in `plans/` here or in the package."""
    ours = Path(__file__).parent / "plans"
    for path in (Path(name), Path("plans", f"{name}.toml"), ours / f"{name}.toml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(f"'{path.stem}'" for path in ours.glob("*.toml")))
    raise InputError(f"{name}: no such file or plan; give a file, or choose one of {known}")


def read_study_plan(path: Path) -> StudyPlan:
    """A plan from its TOML file, or one line that says what is wrong in it."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error})") from None
    with _about(str(path)):
        plan = _plan(path, raw)
        _check(plan)
        return plan


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Put before a refusal what it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


# -- reading --------------------------------------------------------------------------------------


def _plan(path: Path, raw: dict[str, Any]) -> StudyPlan:
    needed = {"name", "city", "seeds", "methods", "trial", "claim"}
    _only(raw, needed | {field.name for field in fields(StudyPlan)} - {"file", *TRIAL}, "plan")
    for key in sorted(needed - raw.keys()):
        raise InputError(f"{key!r} is missing")
    trial = _entries(raw, "trial")
    _only(trial, TRIAL, "trial")
    for key in sorted(TRIAL - trial.keys()):
        raise InputError(f"trial: {key!r} is missing")
    training = _table(Training, raw, "train")
    methods = _entries(raw, "methods")
    return StudyPlan(
        file=path,
        name=_like("", raw["name"], "name"),
        city=_like("", raw["city"], "city"),
        seeds=_like((1,), raw["seeds"], "seeds"),
        methods={label: _method(label, methods[label], training.learner) for label in methods},
        levels=_like((1.0,), trial["levels"], "trial: levels"),
        blocks=_blocks(trial),
        claim=_claim(_entries(raw, "claim")),
        limits=vars(_table(Limits, raw, "limits")),
        replay=_table(Replay, raw, "replay"),
        calibration=_table(Calibration, raw, "calibration"),
        fidelity=_table(Fidelity, raw, "fidelity"),
        train=training,
    )


TRIAL = {"levels", "blocks"}  # the study's own words for what the trial's plan has at its top


def _blocks(trial: dict[str, Any]) -> dict[str, int]:
    """The first seeds of the trial's blocks, and how many blocks."""
    given, where = _entries(trial, "blocks", "trial: "), "trial: blocks"
    names = ("sumo_seed", "demand_seed", "count")
    _only(given, names, where)
    for name in names:
        if name not in given:
            raise InputError(f"{where}: {name!r} is missing")
        _like(1, given[name], f"{where}: {name}")
    if not 1 <= given["count"] <= MOST_BLOCKS:
        raise InputError(f"{where}: count = {given['count']}: from 1 to {MOST_BLOCKS}")
    return given


def _claim(given: dict[str, Any]) -> dict[str, Any]:
    """The claim's entries, each of its kind; what they mean is checked with the trial."""
    plain = vars(Claim("", "")) | {"required_wins": 1}
    _only(given, plain, "claim")
    for key, value in given.items():
        where = f"claim: {key}"
        if key in ("completion_margin", "level"):
            try:
                Fraction(str(value))
            except (ValueError, ZeroDivisionError):
                raise InputError(f"{where} = {value!r}: should be like {plain[key]!r}") from None
        else:
            _like(plain[key], value, where)
    return given


def _method(label: str, given: Any, learner: str) -> Method:
    where = f"methods: {label}"
    if not label or not all(c.isalnum() or c in "-_." for c in label):
        raise InputError(f"methods: {label!r}: use letters, digits, - _ . only")
    if isinstance(given, str):
        return Method(source=given)
    if not isinstance(given, dict):
        raise InputError(f"{where}: a controller's name, or {{ chain = ... }}")
    _only(given, {"learner", "chain"}, where)
    chain = _like("", given.get("chain", "raw"), f"{where}: chain")
    with _about(f"{where}: chain"):
        chain_code(chain)
    return Method(
        learner=_like("", given.get("learner", learner), f"{where}: learner"), chain=chain
    )


T = TypeVar("T")


def _table(kind: type[T], raw: dict[str, Any], name: str) -> T:
    """A table whose entries have the names and kinds of a dataclass's defaults."""
    given, plain = _entries({name: {}} | raw, name), kind()
    _only(given, vars(plain), name)
    for key, value in given.items():
        given[key] = _like(getattr(plain, key), value, f"{name}: {key}")
    return kind(**given)


def _like(example: T, value: Any, where: str) -> T:
    """A value of the same kind as the example: whole numbers pass as decimal ones, no other do."""
    if isinstance(example, tuple) and isinstance(value, list):
        return tuple(_like(example[0], part, where) for part in value)  # type: ignore[return-value]
    if isinstance(example, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(example) or (isinstance(value, float) and not math.isfinite(value)):
        shown = list(example) if isinstance(example, tuple) else example
        raise InputError(f"{where} = {value!r}: should be like {shown!r}")
    return value


def _entries(raw: dict[str, Any], name: str, where: str = "") -> dict[str, Any]:
    if not isinstance(raw[name], dict):
        raise InputError(f"{where}{name}: should be a table")
    return dict(raw[name])


def _only(table: dict[str, Any], known: Any, where: str) -> None:
    if unknown := sorted(set(table) - set(known)):
        raise InputError(f"{where}: {unknown[0]!r} is not known; there are {sorted(known)}")


# -- checking -------------------------------------------------------------------------------------


def _check(plan: StudyPlan) -> None:
    """Refuse before any work what would be refused after hours of it."""
    if not all(0 <= seed < 2**31 for seed in plan.seeds):
        raise InputError(f"seeds = {list(plan.seeds)}: each must be from 0 to 2147483647")
    with _about("trial"):
        trial = plan.checked_trial()
        check_fresh(trial.blocks, "")
    with _about("city"):
        city = plan.open_city()
    for level in plan.levels:
        with _about("trial: levels"):
            if level <= 0:
                raise InputError(f"demand {level}: nobody would travel")
            realise(city, Cell(*trial.blocks[0], level))
    _check_methods(plan, city)
    _check_training(plan)


def _check_methods(plan: StudyPlan, city: City) -> None:
    if not plan.learners:
        raise InputError("methods: none has a chain, so there is nothing to train")
    for label, method in plan.methods.items():
        with _about(f"methods: {label}"):
            if not method.source:
                _one_learner(method.learner)
            elif method.source.partition("+")[0] in BUILT_IN:
                read_policy(method.source)
            else:
                open_policy(plan.place(method.source), city)  # what is not of this city is refused


def _one_learner(name: str) -> Learner:
    """A learner by its own name; a list of them, or all, is no method."""
    if len(found := named_learners(name)) != 1:
        raise InputError(f"learner {name!r}: name one")
    return found[0]


def _check_training(plan: StudyPlan) -> None:
    asked = plan.train
    for where, purpose, blocks in (
        ("replay: blocks", "replay", plan.replay.blocks),
        ("calibration: blocks", "calibration", plan.calibration.blocks),
        ("train: curve_blocks", "development", asked.curve_blocks),
    ):
        with _about(where):
            PURPOSES[purpose].cells(blocks)
    if len(asked.widths) != 3 or min(asked.widths) < 1:
        raise InputError(f"train: widths = {list(asked.widths)}: three positive numbers")
    if asked.iql_updates < 0 or asked.events < 1:
        raise InputError(
            f"train: iql_updates = {asked.iql_updates}, events = {asked.events}: no negative "
            "number of updates, and at least one event"
        )
    with _about("train: learner"):
        _one_learner(asked.learner)
    for learner in plan.learners:
        with _about(f"train: events = {asked.events}"):
            check_schedule(scaled(_one_learner(learner), asked.budget), asked.budget)
    if asked.device != "cpu":  # always there; asking for another takes seconds
        from evenline.learn.run import chosen_device

        with _about("train: device"):
            chosen_device(asked.device)
