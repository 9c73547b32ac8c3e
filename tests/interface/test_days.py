"""The front door: the first example runs, objects show themselves, importing stays quick."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import evenline as el
from evenline.rules.own import Bus

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_first_day.py"


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing opens while tests run; pictures go to a folder of their own."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("evenline.figures.picture._screen", lambda: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_first_example_is_short_and_shows_a_day_a_comparison_and_a_picture(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = [line for line in EXAMPLE.read_text().splitlines() if line and line[0] not in '"#']
    assert len(code) < 10
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "town: zero, fast world, seed 1" in said and "means of 30 days" in said
    picture = Path(said.splitlines()[-1])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_importing_the_package_loads_nothing_heavy_and_every_name_is_there() -> None:
    code = (
        "import sys, evenline as el\n"
        "print(el.__version__, sorted(m for m in ('numpy', 'numba', 'jax', 'matplotlib', 'libsumo')"
        " if m in sys.modules))\n"
        "assert all(hasattr(el, name) and name in dir(el) for name in el.__all__)\n"
        "assert 'libsumo' not in sys.modules and 'jax' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "[]"
    assert 8 <= len(el.__all__) <= 40  # an index that fits on a screen
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = el.nothing


def test_a_day_is_the_same_for_the_same_seed_and_the_world_of_the_commands() -> None:
    first, again = (el.run_day("town", "headway-0.4", seed=3) for _ in range(2))
    assert first.outcome == again.outcome and first.visits.equals(again.visits)
    assert first.outcome != el.run_day("town", "headway-0.4", seed=4).outcome
    assert {"service", "hold_s", "proposal_s", "changed_by"} <= set(first.visits.column_names)


def test_a_function_is_a_policy() -> None:
    def half_a_minute(bus: Bus) -> float:
        return 30.0

    day = el.run_day("town", half_a_minute)
    assert day.policy == "half_a_minute" and day.outcome.mean_hold_s == pytest.approx(30.0)
    found = el.compare_policies("town", "zero", half_a_minute, blocks=2)
    assert found.policies == ["zero", "half_a_minute"]
    assert found.difference("half_a_minute", "zero", "generalized_s").mean > 0


def test_everything_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    town = el.open_city("town")
    day = el.run_day(town)
    assert "<svg" in town._repr_html_() and "City town" in town._repr_html_()
    assert "generalized time" in day._repr_html_()
    assert "<table>" in el.compare_policies(town, "zero", "headway", blocks=2)._repr_html_()
    picture = el.time_space(day, day, service="1E")
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.save(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_an_environment_takes_steps() -> None:
    env = el.make_env("town")
    state, _ = env.reset(seed=1)
    after, reward, over, cut, _ = env.step(env.action_space.sample())
    assert state.shape == after.shape and reward <= 0 and not over and not cut


def test_bad_input_is_one_line() -> None:
    for bad, words in (
        (lambda: el.open_city("nowhere"), "nowhere"),
        (lambda: el.run_day("town", world="slow"), "choose 'fast' or 'sumo'"),
        (lambda: el.run_day("town", policy="nobody"), "nobody"),
        (lambda: el.run_day("town", policy=5), "policy 5: give a name"),  # type: ignore[arg-type]
        (lambda: el.run_day("town", lambda bus: None), "returned None"),  # type: ignore[arg-type, return-value]
        (lambda: el.run_day("town", lambda bus: "abc"), "returned 'abc'"),  # type: ignore[arg-type, return-value]
        (lambda: el.compare_policies("town", "zero", lambda bus: None), "returned None"),  # type: ignore[arg-type, return-value]
        (lambda: el.run_day("town", demand=0.0), "demand 0.0: no passenger travels"),
        (lambda: el.compare_policies("town", "headway", "headway-1.0"), "the same policy"),
        (lambda: el.compare_policies("town", "zero"), "at least two"),
        (lambda: el.time_space(), "at least one"),
        (lambda: el.time_space(el.run_day("town"), service="9"), "choose '1E'"),
    ):
        with pytest.raises(el.InputError, match=words) as told:
            bad()
        assert "\n" not in str(told.value)


def test_no_room_of_the_package_has_the_name_of_something_offered() -> None:
    """A room that is imported becomes an attribute of the package, and would replace it."""
    rooms = {path.stem for path in Path(el.__file__).parent.iterdir()}
    assert rooms.isdisjoint(el.__all__)


def test_built_in_policies_are_listed() -> None:
    assert {"zero", "headway", "schedule"} <= set(el.policy_names())
