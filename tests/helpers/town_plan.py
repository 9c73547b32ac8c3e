"""Plans to run studies by: the paper's on `town`, as it is or with some lines replaced."""

from pathlib import Path

from evenline.study.plan import find_plan

TOWN = find_plan("town-paper").resolve()


def plan_with(tmp_path: Path, **changes: str) -> Path:
    """The town's plan with some lines replaced."""
    text = TOWN.read_text()
    for old, new in changes.items():
        key = old.replace("__", " ")
        lines = [line for line in text.splitlines() if line.startswith(f"{key} =")]
        assert lines, key
        text = text.replace(lines[0], f"{key} = {new}", 1)
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path
