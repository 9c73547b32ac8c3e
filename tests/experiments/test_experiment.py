"""An experiment: variants of a city by policies by days, as a frame; its days are kept."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_files

import evenline as el
from evenline.city.cells import demo_cell
from evenline.experiments.experiment import Arm, Experiment, Variant, run, run_arms
from evenline.experiments.measures import difference
from evenline.experiments.variants import operated
from evenline.policies.bundle import open_policy
from evenline.rules.own import Bus
from evenline.runs.days import run_days
from evenline.runs.executors import Executor, Results, processes
from evenline.runs.job import Job
from evenline.runs.store import Store, day_key, setting_of
from evenline.support.errors import InputError
from evenline.worlds.open import open_city

DAYS = el.days(2, (1.0,))
TOWN = open_city("town")


def at_terminals() -> Variant:
    city = operated(TOWN.city, hold_at="terminals")
    return Variant(TOWN).changed("held at", "terminals only", city)


def noting(ran: list[Job]) -> Executor:
    def run(jobs: Sequence[Job], **options: object) -> Results:
        ran.extend(jobs)
        yield from processes(2)(jobs, **options)  # type: ignore[arg-type]

    return run


def test_a_frame_has_a_row_for_each_variant_policy_and_day() -> None:
    listed = el.variants("town", hold_at=["all", "terminals"], ignored_share=[0.5])
    frame = el.run(el.Experiment(listed, ["zero", "headway"], DAYS))
    assert frame.variants == ["hold_at: all", "hold_at: terminals", "ignored_share: 0.5"]
    rows = frame.to_arrow().to_pylist()
    assert len(rows) == 3 * 2 * len(DAYS)
    assert {"variant", "policy", "sumo_seed", "demand", "generalized_s"} <= rows[0].keys()
    held = [frame.column("headway", "mean_hold_s", name).mean() for name in frame.variants]
    assert held[1] < held[2] < held[0]
    change = frame.difference("headway", "zero", "waiting_s", "hold_at: terminals")
    columns = (frame.column(p, "waiting_s", "hold_at: terminals") for p in ("headway", "zero"))
    assert change == difference(frame.cells, *columns)
    assert "ignored_share: 0.5" in str(frame) and "<table>" in frame._repr_html_()
    labels = frame.plot().figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == frame.variants


def test_pandas_is_used_only_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = run(Experiment([Variant(TOWN)], ["zero"], DAYS))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pandas is not installed; install it with: pip install"):
        frame.to_pandas()


def test_what_is_not_in_a_frame_is_refused_by_name() -> None:
    frame = run(Experiment([Variant(TOWN)], ["zero"], DAYS))
    for asked, words in (
        (lambda: frame.column("headway", "waiting_s"), "no days of 'headway'; choose 'zero'"),
        (lambda: frame.column("zero", "speed"), "no measure 'speed'; choose"),
        (lambda: frame.difference("zero", variant="at night"), "no days of 'at night'"),
        (lambda: frame.plot(measures=["speed"]), "no measure to draw"),
        (lambda: el.variants("town", speed=[1]), "no operation 'speed'; choose"),
        (lambda: el.run(el.Experiment([Variant(TOWN)] * 2, ["zero"], DAYS)), "the same name"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            asked()


def test_a_variant_is_a_job_and_its_days_are_kept(tmp_path: Path) -> None:
    ran: list[Job] = []
    asked = Experiment([Variant(TOWN), at_terminals()], ["lookahead"], DAYS)
    first = run(asked, tmp_path, noting(ran))
    assert len(ran) == 4 and len({job.city for job in ran}) == 2
    again = run(asked, tmp_path, noting(ran))
    assert len(ran) == 4 and again.days == first.days
    here = at_terminals().opened
    world, policy = here.fast_world(), open_policy("lookahead", here.city, here.calibration)
    assert [world.run_day(cell, policy).generalized_s for cell in DAYS] == [
        day["generalized_s"] for day in first.of("lookahead", "held at: terminals only")
    ]


def test_a_function_runs_in_every_variant_beside_policies_with_a_name() -> None:
    def half_a_minute(bus: Bus) -> float:
        return 30.0

    frame = run(Experiment([Variant(TOWN), at_terminals()], ["zero", half_a_minute], DAYS))
    everywhere, terminals = (
        frame.column("half_a_minute", "mean_hold_s", name).mean() for name in frame.variants
    )
    assert everywhere == pytest.approx(30.0) and 0.0 < terminals < 3.0


def test_the_level_of_demand_is_a_variant() -> None:
    more = Variant(TOWN).changed("demand", "1.25", TOWN.city, 1.25)
    frame = run(Experiment([more], ["zero"], DAYS))
    assert {row["demand"] for row in frame.to_arrow().to_pylist()} == {1.25}
    cells = [replace(cell, demand=1.25) for cell in DAYS]
    same = run(Experiment([Variant(TOWN)], ["zero"], cells))
    assert frame.of("zero") == same.of("zero")


def test_a_policy_that_knows_the_day_is_made_for_each(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from evenline.policies.bundle import open_policy\n"
        "from evenline.policies.knowing import Knowing\n\n\n"
        "@Knowing\n"
        "def by_demand(opened, cell):\n"
        "    name = 'headway' if cell.demand > 1.0 else 'zero'\n"
        "    return open_policy(name, opened.city, opened.calibration)\n"
    )
    source = f"{path}:by_demand"
    frame = run(Experiment([Variant(TOWN)], ["zero", "headway", source], el.days(1)))
    zero, headway, made = (frame.column(policy, "generalized_s") for policy in frame.policies)
    assert [*made] == [zero[0], zero[1], headway[2]]
    for refused in (f"{source}:gain=1", f"{source}+candidate"):
        with pytest.raises(InputError, match="has no constants and no chain"):
            run(Experiment([Variant(TOWN)], [refused], DAYS))
    with pytest.raises(InputError, match="knows the day, so it can only be compared"):
        el.run_day("town", source)


def test_a_failure_names_the_variant() -> None:
    def broken(bus: Bus) -> float:
        return 1 / 0

    with pytest.raises(InputError, match="ZeroDivisionError"):
        run(Experiment([at_terminals()], [broken], DAYS))
    assert at_terminals().said == "town, held at: terminals only"


def test_a_stored_day_and_its_files_are_checked(tmp_path: Path) -> None:
    store, cell = Store(tmp_path / "days"), demo_cell(1)
    job = Job(city="town", policy="zero", cell=cell, world="fast", visits=tmp_path / "v.parquet")
    key = day_key(setting_of(job, "a" * 64, ""), cell)
    assert store.read(key, job) is None
    run_days([job], "one", TOWN.city.horizon_s, keep=lambda j, a: store.keep(key, j, a))
    assert store.read(key, job) is not None
    assert store.read(key, with_files(job, visits=tmp_path / "w.parquet")) is None
    (tmp_path / "v.parquet").write_bytes(b"other")
    with pytest.raises(InputError, match=re.escape("v.parquet is not of the day that")):
        store.read(key, job)
    (tmp_path / "v.parquet").unlink()
    assert store.read(key, job) is None, "its file is gone, so it runs again"


def test_equal_arms_run_once(tmp_path: Path) -> None:
    ran: list[Job] = []
    arms = [Arm(at_terminals(), "lookahead"), Arm(at_terminals(), "lookahead")]
    one, other = run_arms(arms, DAYS, tmp_path, noting(ran))
    assert one == other and len(ran) == len(DAYS)
