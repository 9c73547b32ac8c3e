"""The plan of a study: one short TOML file, checked strictly.

A plan names the city, the training seeds, the amounts of data and training, the methods and the
claim of the final trial. Values that are not given have the paper's defaults; unknown keys are
refused.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from evenline.city.cells import PURPOSES
from evenline.city.embedded import PLANS as EMBEDDED
from evenline.city.model import City
from evenline.city.tables import digest, open_city
from evenline.learn.schedule import (
    Budget,
    Learner,
    check_chain,
    check_schedule,
    named_learners,
    scaled,
)
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.policies.names import BUILT_IN, parse_source
from evenline.rules.chain import chain_code
from evenline.runs.job import Limits
from evenline.support.errors import InputError
from evenline.support.files import to_json
from evenline.support.own import is_own, load_own
from evenline.support.records import Line, Record, Word, convert, plain, read_toml
from evenline.trial.plan import (
    Blocks,
    Claim,
    Levels,
    Seeds,
    about,
    check_levels,
    exact_claim,
    plan_of,
)
from evenline.trial.plan import Plan as TrialPlan
from evenline.trial.used import check_fresh
from evenline.worlds.open import check_world_name

CALIBRATION = "calibration/calibration.json"  # in a study's folder
_MOST_UPDATES = 1_000_000_000
Width = Annotated[int, Meta(ge=1, le=65_536)]
Some = Annotated[int, Meta(ge=0, le=100_000)]  # blocks; `city/cells.py` says how many there are


class Replay(Record):
    """Days in SUMO to learn from; `reuse` names a sealed replay of the same city, used if it
    exists.
    """

    blocks: Some = 10
    reuse: Line = ""


class Calibration(Record):
    """Days in SUMO that the fast world is fitted to."""

    blocks: Some = 8


class Fidelity(Record):
    """Whether the study stops if the fast world is not accepted."""

    required: bool = False


class Training(Record):
    """Learner, budget, network widths and device."""

    learner: Line = "v14"
    iql_updates: Annotated[int, Meta(ge=0, le=_MOST_UPDATES)] = 50_000
    events: Annotated[int, Meta(ge=1, le=_MOST_UPDATES)] = 25_000
    widths: tuple[Width, Width, Width] = (128, 256, 256)
    device: Word = "cpu"
    centred: bool = False
    chain: Word = "raw"  # behind which lessons are taken
    curve_blocks: Some = 3

    @property
    def budget(self) -> Budget:
        """The paper's phases with the planned lengths."""
        whole = Budget()
        warmup = round(self.events * whole.warmup_events / whole.events)
        return Budget(self.iql_updates, warmup, self.events)


class Method(Record):
    """A method that learns: a chain on the actor of a learner (default: the plan's)."""

    chain: Word = "raw"
    learner: Line = ""


class Trial(Record):
    """The blocks, levels and world of the trial."""

    levels: Levels
    blocks: Blocks
    world: Line = "sumo"


class WrittenStudy(Record):
    """A plan as its TOML file has it. A method is a policy, by name or bundle, or learns."""

    name: Word
    city: Line
    methods: dict[Word, Line | Method]
    trial: Trial
    claim: Claim
    seeds: Seeds = (6201,)  # of training; a study without learners does not use them
    limits: Limits = Limits()
    replay: Replay = Replay()
    calibration: Calibration = Calibration()
    fidelity: Fidelity = Fidelity()
    train: Training = Training()


class StudyPlan(WrittenStudy, kw_only=True):
    """A plan that was read from a file."""

    file: Path

    def open_city(self) -> City:
        """The city, embedded or from its folder."""
        return open_city(self.city if self.city in EMBEDDED else self.place(self.city))

    def place(self, named: str) -> str:
        """The path of a file that the plan names: next to the plan, in a folder above it, or
        here.
        """
        for base in (*self.file.resolve().parents, Path()):
            if (base / named).exists():
                return str(base / named)
        return named

    def code(self, source: str) -> str:
        """A name of ours as it is; of the user's code, with the path of its file."""
        file, colon, name = source.partition(":")
        return f"{self.place(file)}{colon}{name}" if is_own(source) else source

    def policy(self, source: str) -> str:
        """A built-in policy by name, or the path of a bundle or of the user's file."""
        place = parse_source(source).place
        if place in BUILT_IN:
            return source
        file = place.partition(":")[0] if is_own(place) else source
        return self.place(file) + source.removeprefix(file)

    def learner(self, method: Method) -> str:
        """A method's learner by name, or the path of the user's file."""
        return self.code(method.learner or self.train.learner)

    @property
    def learners(self) -> list[str]:
        """Every learner that a method needs, once."""
        learning = [method for method in self.methods.values() if isinstance(method, Method)]
        return list(dict.fromkeys(map(self.learner, learning)))

    def registration(self, folder: Path) -> dict[str, Any]:
        """The plan of the trial over the bundles and the city in a study's folder."""
        policies: dict[str, str | list[str]] = {}
        for label, method in self.methods.items():
            place = (folder / "policies" / label).as_posix()
            if isinstance(method, Method):
                policies[label] = [f"{place}-{seed}" for seed in self.seeds]
            else:
                is_code = is_own(parse_source(method).place)
                policies[label] = self.policy(method) if is_code else place
        return {
            "name": f"{self.name}-study",
            "city": (folder / "city").as_posix(),
            "seeds": list(self.seeds),
            "levels": list(self.trial.levels),
            "blocks": plain(self.trial.blocks),
            "methods": policies,
            "claim": {k: v for k, v in plain(self.claim).items() if v is not None},
            "limits": plain(self.limits),
            "world": self.code(self.trial.world),
            "calibration": (folder / CALIBRATION).as_posix(),
        }

    def checked_trial(self) -> TrialPlan:
        """The trial as it will be registered, or an error that says what is wrong with it."""
        return plan_of(self.registration(Path()), "trial")

    @property
    def subject(self) -> str:
        """A hash of what the plan asks, wherever its files lie: of an equal plan an equal one."""
        asked = read_toml(self.file) | {
            "city": digest(self.open_city()),
            "methods": {label: self._content(method) for label, method in self.methods.items()},
            "world": content_of(self.code(self.trial.world)),
        }
        return hashlib.sha256(to_json(asked).encode()).hexdigest()

    def _content(self, method: str | Method) -> str | list[str]:
        if isinstance(method, Method):
            return [content_of(self.learner(method)), method.chain]
        return policy_digest(self.policy(method))


def content_of(source: str) -> str:
    """A name of ours, or the hash of the user's file."""
    return load_own(source).sha256 if is_own(source) else source


def find_plan(name: str) -> Path:
    """Find the plan of a study or a trial: by path, or by name in `plans/` here or in the
    package.
    """
    ours = Path(__file__).parent / "plans"
    for path in (Path(name), Path("plans", f"{name}.toml"), ours / f"{name}.toml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(f"'{path.stem}'" for path in ours.glob("*.toml")))
    raise InputError(f"{name}: no such file or plan; give a file, or choose one of {known}")


def read_study_plan(path: Path) -> StudyPlan:
    """Read a plan from its TOML file, or raise an error that says what is wrong."""
    written = convert(WrittenStudy, exact_claim(read_toml(path)), str(path))
    fields = {name: getattr(written, name) for name in WrittenStudy.__struct_fields__}
    with about(str(path)):
        plan = StudyPlan(file=path, **fields)
        _check(plan)
        return plan


# -- checking -------------------------------------------------------------------------------------


def _check(plan: StudyPlan) -> None:
    """Check everything that a later step would refuse, before any work starts."""
    trial = plan.checked_trial()
    with about("trial"):
        check_fresh(trial.blocks, "")
    with about("trial.world"):
        check_world_name(trial.world)
        content_of(trial.world)
    with about("city"):
        city = plan.open_city()
    with about("trial.levels"):
        check_levels(city, plan.trial.levels)
    for label, method in plan.methods.items():
        convert(Word, label, f"methods: {label!r}")
        with about(f"methods.{label}"):
            _check_method(plan, city, method)
    _check_training(plan)


def _check_method(plan: StudyPlan, city: City, method: str | Method) -> None:
    if isinstance(method, Method):
        with about("chain"):
            chain_code(method.chain)
        _check_learner(plan.learner(method))
        return
    bundle = read_policy(plan.policy(method))
    if bundle.tensors:  # refuses another city
        open_policy(bundle, city)


def _check_learner(name: str) -> Learner | None:
    """A single learner of ours, or the user's (None); a list, or all, is not a method."""
    if is_own(name):
        load_own(name)
        return None
    if len(learners := named_learners(name)) != 1:
        raise InputError(f"learner {name!r}: name exactly one")
    return learners[0]


def _check_training(plan: StudyPlan) -> None:
    asked = plan.train
    for where, purpose, blocks in (
        ("replay.blocks", "replay", plan.replay.blocks),
        ("calibration.blocks", "calibration", plan.calibration.blocks),
        ("train.curve_blocks", "development", asked.curve_blocks),
    ):
        with about(where):
            PURPOSES[purpose].cells(blocks)
    with about("train.learner"):
        _check_learner(plan.code(asked.learner))
    for name in plan.learners:
        learner = _check_learner(name)
        if learner is not None:
            with about(f"train.events = {asked.events}"):
                check_schedule(scaled(learner, asked.budget), asked.budget)
        with about("train.chain"):
            check_chain(name, 0 if learner is None else learner.lessons, asked.chain)
    if asked.device != "cpu":  # always available; checking another takes seconds
        from evenline.learn.run import chosen_device

        with about("train.device"):
            chosen_device(asked.device)
