"""The checks of a change begin as a newcomer does; `make` is a stand-in that notes what it sees."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CACHES = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TMPDIR")
MAKE = """#!/bin/sh
{ echo "$1"; pwd; ls; git rev-parse HEAD; } >>"$NOTES"
for cache in %s; do eval "echo \\$$cache; ls -A \\$$cache" >>"$NOTES"; done
if [ "$1" = run ]; then mkdir results; echo "study town"; echo page >results/%s; echo %s; fi
"""


def ci(where: Path, made: str, printed: str) -> subprocess.CompletedProcess[str]:
    """Run the checks of a small repository, in which a file is not committed."""
    checkout, programs = where / "checkout", where / "bin"
    (checkout / ".ci").mkdir(parents=True)
    (checkout / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (checkout / "committed").touch()
    git = ("git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "All")):
        subprocess.run([*git, *command], check=True)
    (checkout / "forgotten").touch()
    programs.mkdir()
    (programs / "make").write_text(MAKE % (" ".join(CACHES), made, printed))
    (programs / "chromium").touch()
    for path in programs.iterdir():
        path.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "NOTES": str(where / "notes"),
        "TMPDIR": str(where),
        "EVENLINE_CACHE": "old",
    }
    command = ["bash", str(checkout / ".ci" / "run")]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_it_begins_with_the_main_command_in_a_fresh_clone_with_empty_caches(tmp_path: Path) -> None:
    done = ci(tmp_path, "page.html", "results/page.html")
    assert done.returncode == 0, done.stderr
    notes = (tmp_path / "notes").read_text().splitlines()
    (first, clone, *rest), second = notes[: notes.index("test")], notes[notes.index("test") :]
    assert first == "run" and Path(clone).name == "evenline" and rest[0] == "committed"
    places = rest[2:]
    assert len(set(places)) == len(CACHES) and all(str(tmp_path) in place for place in places)
    assert not any(Path(place).exists() for place in places), "it removes what it made"
    assert second[1] == clone and second[2:4] == ["committed", "results"]
    assert "\nmake run " in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("printed", ["results/other.html", ""])
def test_a_main_command_without_a_page_fails(tmp_path: Path, printed: str) -> None:
    done = ci(tmp_path, "page.html", printed)
    assert done.returncode == 1 and "names no page" in done.stderr
    assert "test" not in (tmp_path / "notes").read_text().splitlines()
