"""The plan of a study: one short TOML file, checked strictly.

A plan names the city, the training seeds, the amounts of data and training, the methods and the
claim of the final trial. Values that are not given have the paper's defaults; unknown keys are
refused.
"""

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from evenline.city.cells import PURPOSES
from evenline.city.embedded import PLANS as EMBEDDED
from evenline.city.model import City
from evenline.city.tables import open_city
from evenline.learn.schedule import (
    Budget,
    Learner,
    check_chain,
    check_schedule,
    named_learners,
    scaled,
)
from evenline.policies.bundle import BUILT_IN, open_policy, parse_source, read_policy
from evenline.rules.chain import chain_code
from evenline.runs.job import Limits
from evenline.support.errors import InputError
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
from evenline.worlds.open import WORLDS, check_world_name

CALIBRATION = "calibration/calibration.json"  # in a study's folder
MOST_UPDATES = 1_000_000_000
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
    iql_updates: Annotated[int, Meta(ge=0, le=MOST_UPDATES)] = 50_000
    events: Annotated[int, Meta(ge=1, le=MOST_UPDATES)] = 25_000
    widths: tuple[Width, Width, Width] = (128, 256, 256)
    device: Word = "cpu"
    diagnostic: bool = True
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
    """One method of the trial: a chain on a learner's actor, or a policy by name or bundle."""

    source: Line = ""
    learner: Line = ""
    chain: Word = "raw"


class Chain(Record):
    """A method in the form of the plan: a chain on the actor of a learner (default: the plan's)."""

    chain: Word = "raw"
    learner: Line = ""


class Trial(Record):
    """The blocks, levels and world of the trial."""

    levels: Levels
    blocks: Blocks
    world: Line = "sumo"


class Tables(Record):
    """The sections of a plan in the form that a study uses."""

    name: Word
    city: Line
    claim: Claim
    seeds: Seeds = (6201,)  # of training; a study without learners does not use them
    limits: Limits = Limits()
    replay: Replay = Replay()
    calibration: Calibration = Calibration()
    fidelity: Fidelity = Fidelity()
    train: Training = Training()


class WrittenStudy(Tables, kw_only=True):
    """A plan in the form of its TOML file."""

    methods: dict[Word, Line | Chain]
    trial: Trial


class StudyPlan(Tables, kw_only=True):
    """A whole study."""

    file: Path
    methods: dict[str, Method]
    levels: tuple[float, ...]
    blocks: Blocks  # of the trial
    world: str = "sumo"  # of the trial

    def open_city(self) -> City:
        """The city, embedded or from its folder."""
        return open_city(self.city if self.city in EMBEDDED else self.place(self.city))

    def policy(self, method: Method) -> str:
        """A method's built-in policy by name, or the path of its bundle or own file."""
        place = parse_source(method.source).place
        if place in BUILT_IN:
            return method.source
        file = place.partition(":")[0] if is_own(place) else method.source
        return self.place(file) + method.source.removeprefix(file)

    def place(self, named: str) -> str:
        """The path of a file that the plan names: next to the plan, in a folder above it, or
        here.
        """
        for base in (*self.file.resolve().parents, Path()):
            if (base / named).exists():
                return str(base / named)
        return named

    @property
    def learners(self) -> list[str]:
        """Every learner that a method needs, each once."""
        named = [self.learner(method) for method in self.methods.values() if not method.source]
        return list(dict.fromkeys(named))

    def learner(self, method: Method) -> str:
        """A method's learner by name, or the path of its own file."""
        return self.own_file(method.learner)

    def own_file(self, source: str) -> str:
        """The name of one of ours as it is; of the user's own code, with the path of its file."""
        file, colon, name = source.partition(":")
        return f"{self.place(file)}{colon}{name}" if is_own(source) else source

    def trial(self, folder: Path) -> dict[str, Any]:
        """The plan of the trial over the bundles and the city in a study's folder."""
        policies: dict[str, str | list[str]] = {}
        for label, method in self.methods.items():
            place = (folder / "policies" / label).as_posix()
            if method.source:
                own = is_own(parse_source(method.source).place)
                policies[label] = self.policy(method) if own else place
            else:
                policies[label] = [f"{place}-{seed}" for seed in self.seeds]
        return {
            "name": f"{self.name}-study",
            "city": (folder / "city").as_posix(),
            "seeds": list(self.seeds),
            "levels": list(self.levels),
            "blocks": plain(self.blocks),
            "methods": policies,
            "claim": {k: v for k, v in plain(self.claim).items() if v is not None},
            "limits": plain(self.limits),
            "world": self.own_file(self.world),
            "calibration": (folder / CALIBRATION).as_posix(),
        }

    def checked_trial(self) -> TrialPlan:
        """The trial as it will be registered, or an error that says what is wrong with it."""
        return plan_of(self.trial(Path()), "trial")


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
    with about(str(path)):
        plan = StudyPlan(
            **{name: getattr(written, name) for name in Tables.__struct_fields__},
            file=path,
            methods={
                label: _method(label, given, written.train.learner)
                for label, given in written.methods.items()
            },
            levels=written.trial.levels,
            blocks=written.trial.blocks,
            world=written.trial.world,
        )
        _check(plan)
        return plan


def _method(label: str, given: str | Chain, learner: str) -> Method:
    convert(Word, label, f"methods: {label!r}")
    if isinstance(given, str):
        return Method(source=given)
    with about(f"methods.{label}.chain"):
        chain_code(given.chain)
    return Method(learner=given.learner or learner, chain=given.chain)


# -- checking -------------------------------------------------------------------------------------


def _check(plan: StudyPlan) -> None:
    """Check everything that a later step would refuse, before any work starts."""
    trial = plan.checked_trial()
    with about("trial"):
        check_fresh(trial.blocks, "")
    with about("trial.world"):
        check_world_name(trial.world)
        if trial.world not in WORLDS:
            load_own(trial.world)
    with about("city"):
        city = plan.open_city()
    with about("trial.levels"):
        check_levels(city, plan.levels)
    _check_methods(plan, city)
    _check_training(plan)


def _check_methods(plan: StudyPlan, city: City) -> None:
    for label, method in plan.methods.items():
        with about(f"methods.{label}"):
            if not method.source and is_own(method.learner):
                load_own(plan.learner(method))
            elif not method.source:
                _one_learner(method.learner)
            else:
                bundle = read_policy(plan.policy(method))
                if bundle.spec.kind == "actor" or bundle.tensors:  # refuses another city
                    open_policy(bundle, city)


def _one_learner(name: str) -> Learner:
    """A single learner by name; a list, or all, is not a method."""
    if len(found := named_learners(name)) != 1:
        raise InputError(f"learner {name!r}: name exactly one")
    return found[0]


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
        _one_learner(asked.learner)
    for learner in (name for name in plan.learners if not is_own(name)):
        with about(f"train.events = {asked.events}"):
            check_schedule(scaled(_one_learner(learner), asked.budget), asked.budget)
    for name in plan.learners:
        with about("train.chain"):
            check_chain(name, 0 if is_own(name) else _one_learner(name).lessons, asked.chain)
    if asked.device != "cpu":  # always available; checking another takes seconds
        from evenline.learn.run import chosen_device

        with about("train.device"):
            chosen_device(asked.device)
