"""A stranger's rule in one file: it goes wherever a built-in rule goes, and fails in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

import evenline as el
from calibrated import calibration_of, policy_in
from door import Door, outcome_in
from evenline.city.cells import demo_cell
from evenline.control.event import RAW_FEATURES
from evenline.control.world import run_episode
from evenline.policies.bundle import policy_digest, read_policy
from evenline.rules.own import Bus, rule
from evenline.rules.policy import RulePolicy
from evenline.support.errors import InputError
from evenline.support.own import load_own
from evenline.worlds.fast.world import FastWorld
from small_actors import town

STEADY = """
import evenline as el


@el.rule(gain=(0.3, 0.0, 1.5), most_s=(60.0, 0.0, 60.0){more})
def steady(bus, gain, most_s):
    return min(max(gain * (bus.target_ahead_s - bus.headway_ahead_s), 0.0), most_s)
"""
PLAIN, COMPILED = STEADY.format(more=""), STEADY.format(more=", compiled=True")
BARE = "def half_a_minute(bus):\n    return 30.0\n"


@pytest.fixture(autouse=True)
def strangers_files(elsewhere: None, tmp_path: Path) -> None:
    """The stranger's files lie in the working directory."""
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "compiled.py").write_text(COMPILED)


@pytest.mark.parametrize(
    ("constants", "line"),
    [
        ({"gain": 0.3}, r"^constant gain: give \(value, lowest, highest\), not 0\.3$"),
        ({"gain": (0.3, 0.0)}, r"^constant gain: give \(value, lowest, highest\)"),
        ({"gain": (2.0, 0.0, 1.5)}, r"^constant gain: .* must be in order"),
        ({"gain": (0.3, 0.0, float("nan"))}, r"^constant gain: .* must be in order"),
    ],
)
def test_a_constant_is_three_numbers_in_order(constants: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        rule(**constants)


# -- wherever a built-in rule goes ----------------------------------------------------------------


def test_compiled_is_plain_to_the_bit(tmp_path: Path) -> None:
    world = FastWorld(town(), calibration_of(town()))
    days = []
    for name, text in (("plain.py", PLAIN), ("compiled.py", COMPILED)):
        (tmp_path / name).write_text(text)
        policy = policy_in(f"{tmp_path / name}:steady:gain=0.7+candidate", town())
        assert isinstance(policy, RulePolicy) and policy.rule.compiled == (name == "compiled.py")
        by_batch = run_episode(world, demo_cell(1), policy)
        days += [(world.run_day(demo_cell(1), policy), world.arrivals_s.tolist())]
        assert days[-1][0] == by_batch
    assert days[0] == days[1] and days[0][0].mean_hold_s > 1.0


def test_a_rule_of_ones_own_equals_the_built_in_it_copies(tmp_path: Path) -> None:
    """`forward` without slack is the same formula, where the bus ahead is known."""
    (tmp_path / "mine.py").write_text(
        "import evenline as el\n"
        "@el.rule(gain=(0.3, 0.0, 9.0), compiled=True)\n"
        "def again(bus, gain):\n"
        "    missing_s = bus.bus_ahead * (bus.target_ahead_s - bus.headway_ahead_s)\n"
        "    return min(max(gain * missing_s, 0.0), 60.0)\n"
    )
    world = FastWorld(town(), calibration_of(town()))
    mine = policy_in(f"{tmp_path / 'mine.py'}:again:gain=0.4", town())
    theirs = policy_in("forward:gain=0.4", town())
    assert world.run_day(demo_cell(2), mine) == world.run_day(demo_cell(2), theirs)


def test_a_timed_rule_is_told_how_late_the_bus_is(tmp_path: Path) -> None:
    text = BARE.replace("return 30.0", "return min(max(-bus.late_s, 0.0), 60.0)")
    (tmp_path / "timed.py").write_text(text)
    world = FastWorld(town(), calibration_of(town()))
    mine = policy_in(str(tmp_path / "timed.py"), town())
    theirs = policy_in("schedule:slack_s=0", town())
    assert world.run_day(demo_cell(2), mine) == world.run_day(demo_cell(2), theirs)


@pytest.mark.parametrize("kind", ["plain", "compiled"])
def test_simulate_compare_and_tune_take_it(evenline: Door, tmp_path: Path, kind: str) -> None:
    own = f"{kind}.py:steady"
    evenline("simulate", "--world", "fast", "--policy", f"{own}:gain=0.4", "--out", "day").done()
    told = json.loads((tmp_path / "day" / "outcome.json").read_text())
    assert told["policy"]["digest"] == policy_digest(f"{own}:gain=0.4")
    assert list(told["policy"]["files"]) == [f"{kind}.py"]
    assert told["outcome"]["mean_hold_s"] > 0.5

    policies = f"zero,{own}:gain=0.4+candidate,{own}"
    compare = ("compare", "--policies", policies, "--blocks", 1, "--workers", 1, "--out", "c")
    said = evenline(*compare, "--json").done()
    zero, held, default = json.loads(said)["policies"]
    assert held["sha256"] == policy_digest(f"{own}:gain=0.4+candidate")
    assert default["mean"]["mean_hold_s"] > 0.0 == zero["mean"]["mean_hold_s"]

    said = evenline("tune", own, "--blocks", 1, "--budget", 3, "--out", "t").done()
    tuned = said.splitlines()[-1]
    assert tuned.startswith(f"{own}:gain=") and tuned.endswith("+raw")
    front = json.loads((tmp_path / "t" / "front.json").read_text())
    chosen = dict(zip(front["constants"], front["chosen"]["constants"], strict=True))
    assert front["policy"] == tuned and read_policy(tuned).spec.constants == chosen
    assert not list(tmp_path.glob("t/*-tuned")), "a bundle brings no code"
    checked = json.loads(evenline("policy", "check", tuned).done())
    assert checked["sha256"] == policy_digest(tuned)


def test_it_runs_in_sumo(evenline: Door, tmp_path: Path) -> None:
    for kind in ("plain", "compiled"):
        source = f"{kind}.py:steady:gain=0.4"
        evenline("simulate", "--policy", source, "--out", kind).done()
    assert outcome_in(tmp_path / "plain") == outcome_in(tmp_path / "compiled")
    assert outcome_in(tmp_path / "plain")["decisions"] > 400


def test_a_function_alone_is_a_rule_without_constants(evenline: Door, tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(BARE)
    for source in ("bare.py", "bare.py:half_a_minute"):
        evenline("simulate", "--world", "fast", "--policy", source, "--out", "day").done()
        assert outcome_in(tmp_path / "day")["mean_hold_s"] == pytest.approx(30.0)
    evenline("tune", "bare.py", "--out", "t").refused("'bare.py' has no constants to tune")


def test_it_is_found_by_the_name_of_its_module(
    evenline: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "on-path" / "strangers_rules"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "calm.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=":")
    source = "strangers_rules.calm:steady:gain=0.4"
    evenline("simulate", "--world", "fast", "--policy", source, "--out", "module").done()
    same = "plain.py:steady:gain=0.4"
    evenline("simulate", "--world", "fast", "--policy", same, "--out", "file").done()
    assert outcome_in(tmp_path / "module") == outcome_in(tmp_path / "file")
    compare = ("compare", "--policies", f"zero,{source}", "--blocks", 1, "--workers", 1)
    evenline(*compare, "--out", "c").done()
    evenline("policy", "show", "strangers_rules.wild:steady").refused("strangers_rules.wild")


# -- what fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize("decorated", ["", "@rule\n", "@rule(compiled=True)\n"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return 61.0", ["bus 1", "at stop", "hold 61.0 s is not from 0 to 60 s"]),
        ("return -0.5", ["bus 1", "at stop", "hold -0.5 s"]),
        ("return float('nan')", ["bus 1", "hold nan s"]),
        ("return None", ["broken"]),
        ("return 'a while'", ["broken"]),
        ("return bus.wheels", ["broken", "wheels"]),
        ("raise ValueError('no idea')", ["broken", "no idea", "broken.py line"]),
    ],
)
def test_a_rule_that_fails_is_one_line(
    tmp_path: Path, decorated: str, line: str, words: list[str]
) -> None:
    text = f"from evenline.rules.own import rule\n\n\n{decorated}def broken(bus):\n"
    (tmp_path / "broken.py").write_text(f"{text}    {line}\n")
    if "compiled" in decorated and "bus 1" not in words:
        words = ["broken"]  # refused when it is compiled, or when it is called
    with pytest.raises(InputError) as refused:
        el.run_day("town", "broken.py:broken")
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("decorated", ["", "@rule(compiled=True)\n"])
def test_a_rule_that_fails_in_a_worker_is_one_line(
    evenline: Door, tmp_path: Path, decorated: str
) -> None:
    text = f"from evenline.rules.own import rule\n\n\n{decorated}def broken(bus):\n"
    (tmp_path / "broken.py").write_text(f"{text}    return 61.0\n")
    for command in (
        ("simulate", "--world", "fast", "--policy", "broken.py:broken"),
        ("compare", "--policies", "broken.py:broken", "--blocks", 1, "--workers", 1),
    ):
        evenline(*command, "--out", "day").refused("bus 1", "at stop", "hold 61.0 s")
    assert not (tmp_path / "day" / "outcome.json").exists()


@pytest.mark.parametrize(
    ("text", "source", "words"),
    [
        ("def f(:", "f.py:f", ["f.py: cannot be loaded (SyntaxError"]),
        ("import nowhere_to_be_found", "f.py:f", ["f.py: cannot be loaded", "nowhere_to_be_found"]),
        ("raise SystemExit(0)", "f.py:f", ["f.py: cannot be loaded (SystemExit"]),
        ("", "f.py", ["f.py: name the object to use, as in f.py:NAME"]),
        ("", "f.py:f", ["f.py has no 'f'"]),
        ("f = 3", "f.py:f", ["f.py:f: f is not a function"]),
        (BARE + BARE.replace("half_a", "a"), "f.py", ["name the object to use, as in f.py:NAME"]),
        (BARE, "g.py:f", ["g.py: no such file"]),
        (BARE, "no_such_module:f", ["module no_such_module: cannot be imported"]),
        (BARE.replace("(bus)", "(raw, constants, late_s)"), "f.py", ["half_a_minute(bus)"]),
        (PLAIN.replace("(bus,", "("), "f.py:steady", ["steady(bus, gain, most_s)"]),
        (COMPILED.replace("bus.target_ahead_s", "bus.wheels"), "f.py", ["cannot be compiled"]),
        (PLAIN, "f.py:steady:alpha=1", ["unknown constant 'alpha'; choose 'gain' or 'most_s'"]),
        (PLAIN, "f.py:steady:gain=9", ["constant gain is 9; must be from 0 to 1.5"]),
        (PLAIN, "f.py:steady:gain=much", ["constant gain: 'much' is not a number"]),
        (PLAIN, "f.py:steady+v20", ["unknown chain 'v20'"]),
        (COMPILED.replace("min(", "open("), "f.py:steady", ["f.py:steady: cannot be compiled"]),
        (
            PLAIN.replace("most_s=(60.0, 0.0, 60.0)", "**{f'c{n}': (0, 0, 1) for n in range(9)}"),
            "f.py:steady",
            ["has 10 constants; use at most 8"],
        ),
    ],
)
def test_what_does_not_load_is_one_line(
    evenline: Door, tmp_path: Path, text: str, source: str, words: list[str]
) -> None:
    (tmp_path / "f.py").write_text(text)
    evenline("policy", "show", source).refused(*words)
    if source == "f.py:f":  # the day of a worker is refused in the same words
        evenline("simulate", "--world", "fast", "--policy", source, "--out", "day").refused(*words)
        assert not (tmp_path / "day").exists()


# -- what results say of it -----------------------------------------------------------------------


def test_the_digest_is_of_the_files_content_and_the_constants(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLAIN)
    plain = policy_digest(f"{path}:steady")
    assert plain == policy_digest(str(path)) == policy_digest(f"{path}:steady:gain=0.3+raw")
    (tmp_path / "copy.py").write_text(PLAIN)
    assert policy_digest(str(tmp_path / "copy.py")) == plain, "where it lies does not matter"
    others = [
        policy_digest(f"{path}:steady:gain=0.4"),
        policy_digest(f"{path}:steady+candidate"),
    ]
    path.write_text(PLAIN + "\n# another file\n")
    others.append(policy_digest(f"{path}:steady"))
    assert len({plain, *others}) == 4


def test_no_bundle_brings_code(evenline: Door, tmp_path: Path) -> None:
    refusal = evenline("policy", "export", "plain.py:steady", "--out", "b")
    refusal.refused("a bundle contains no code; name the file of the rule instead")
    assert not (tmp_path / "b").exists()
    shown = json.loads(evenline("policy", "show", "plain.py:steady").done())
    assert (shown["kind"], shown["rule"]) == ("own", "steady")
    with pytest.raises(InputError, match="no such file"):
        read_policy("gone.py:steady")


# -- in Python ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [PLAIN, COMPILED, BARE])
def test_one_function_gives_one_day_in_python_and_on_the_command_line(
    evenline: Door, tmp_path: Path, text: str
) -> None:
    (tmp_path / "f.py").write_text(text)
    function = load_own("f.py").thing
    evenline("simulate", "--world", "fast", "--policy", "f.py", "--out", "day").done()
    assert (
        el.run_day("town", function).outcome.mean_hold_s
        == outcome_in(tmp_path / "day")["mean_hold_s"]
    )


def test_a_bus_has_the_features_of_an_event_by_name_and_its_lateness() -> None:
    assert Bus._fields == (*RAW_FEATURES, "late_s")


def test_a_rule_that_divides_is_silent_and_the_same_compiled(
    evenline: Door, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Without a bus ahead, there is no headway to divide by."""
    line = "return min(max(60.0 * (1.0 - bus.headway_ahead_s / bus.target_ahead_s), 0.0), 60.0)"
    text = BARE.replace("return 30.0", f"{line} if bus.bus_ahead else 0.0 * (bus.waiting / 1.0)")
    compiled = f"from evenline.rules.own import rule\n\n\n@rule(compiled=True)\n{text}"
    for name, content in (("plain.py", text), ("compiled.py", compiled)):
        (tmp_path / name).write_text(content)
        ended = evenline("simulate", "--world", "fast", "--policy", name, "--out", name[:-3])
        assert ended.code == 0 and "Warning" not in ended.err + ended.out, ended
        evenline("policy", "check", name).done()
    assert outcome_in(tmp_path / "plain") == outcome_in(tmp_path / "compiled")
    assert not recwarn.list


def test_a_lateness_that_nobody_computed_is_no_number() -> None:
    """What a helper reads is not seen from outside, and a wrong 0 would be worse."""

    def late_s(bus: Bus) -> float:
        return bus.late_s

    with pytest.raises(InputError, match="hold nan s"):
        el.run_day("town", lambda bus: late_s(bus))
