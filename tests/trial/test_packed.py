"""A packed trial: blocks are written once, a run continues from them, and every byte is bound."""

import hashlib
import lzma
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evenline.support.errors import InputError
from evenline.support.files import folder_files
from evenline.trial import verify as module
from evenline.trial.closeout import closeout
from evenline.trial.matrix import read_matrix, run, standing
from evenline.trial.packed import pack, unpack, unpacked
from evenline.trial.registration import Trial, deviate, open_trial, read_trial
from evenline.trial.verify import verify
from made import analysed_with_actor, finished_trial, made_up

TENSORS = "tensors.safetensors"


def forget_block(trial: Trial, block: tuple[int, int]) -> None:
    """Take a trial back to before a block was run."""
    for address, job in trial.jobs().items():
        if job.block == block:
            (trial.folder / "records" / f"{address}.json").unlink()
    (trial.folder / "matrix.json").unlink(missing_ok=True)


# -- while the trial runs -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A small trial whose matrix is complete. Not to be changed."""
    return finished_trial(
        tmp_path_factory.mktemp("complete"),
        blocks="{ sumo_seed = 9101, demand_seed = 9201, count = 2 }",
        claim='{ candidate = "better", parent = "worse", level = "0.25" }',
    )


@pytest.fixture
def trial(complete: Trial, tmp_path: Path) -> Trial:
    """A copy of it, for a test to change."""
    return read_trial(Path(shutil.copytree(complete.folder, tmp_path / "trial")))


def test_a_trial_continues_elsewhere_from_its_packed_blocks(trial: Trial, tmp_path: Path) -> None:
    out, every = tmp_path / "packed", read_matrix(trial).results_sha256
    forget_block(trial, (9102, 9202))
    (trial.folder / "records" / ".left-aside").write_text("")
    done = pack(trial.folder, out)
    assert (len(done.blocks), done.planned, done.detached) == (1, 2, ())
    before = folder_files(out)

    there, missing = unpack(out, tmp_path / "there")
    assert missing == [] and len(standing(there).missing) == 8
    assert run(there.folder, made_up(there)).complete
    assert read_matrix(open_trial(there.folder)).results_sha256 == every
    assert len(pack(there.folder, out).blocks) == 2
    assert before.items() <= folder_files(out).items()


def test_the_same_records_give_the_same_file(complete: Trial, tmp_path: Path) -> None:
    pack(complete.folder, tmp_path / "one")
    pack(complete.folder, tmp_path / "two")
    assert folder_files(tmp_path / "one") == folder_files(tmp_path / "two")


def test_no_packed_file_is_replaced(trial: Trial, tmp_path: Path) -> None:
    out = tmp_path / "packed"
    first, plan = pack(trial.folder, out).blocks[0], out / "plan.toml"
    for path, content, problem in (
        (first, lzma.compress(b"other\n"), "xz differs from the records; a packed block is never"),
        (plan, b"", r"plan.toml differs from .*; a packed file is never"),
        (out / "trial.json", b"{}", "packed has another trial; choose another --out"),
    ):
        before = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(content)
        with pytest.raises(InputError, match=problem):
            pack(trial.folder, out)
        path.write_bytes(before)
    copy = shutil.copytree(trial.folder, tmp_path / "copy")
    deviate(trial.folder, "one", "A. Person")
    pack(trial.folder, out)
    deviate(copy, "two", "A. Person")
    with pytest.raises(InputError, match=r"journal.jsonl is not the beginning of .*only grows"):
        pack(copy, out)


def test_a_changed_record_is_not_packed(trial: Trial, tmp_path: Path) -> None:
    path = next((trial.folder / "records").iterdir())
    path.write_text(path.read_text().replace("made-up", "made-in"))
    with pytest.raises(InputError, match="has changed since it was written"):
        pack(trial.folder, tmp_path / "packed")


def test_a_spoilt_block_is_not_unpacked(complete: Trial, tmp_path: Path) -> None:
    block = pack(complete.folder, tmp_path / "packed").blocks[0]
    flip(block, 100)
    with pytest.raises(InputError, match=r"block-9101-9201.*changed since it was packed"):
        unpack(tmp_path / "packed", tmp_path / "there")
    assert not (tmp_path / "there").exists()


# -- a closed trial -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed trial, not packed. Not to be changed."""
    folder = analysed_with_actor(tmp_path_factory.mktemp("whole"))
    closeout(folder)
    return folder


@pytest.fixture(scope="module")
def packed(whole: Path) -> Path:
    """The same, packed without tensors. A test that changes it puts it back."""
    out = whole.parent / "packed"
    done = pack(whole, out)
    assert len(done.detached) == 1 and done.bytes < 320_000
    return out


def flip(path: Path, place: int, bit: int = 3) -> None:
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_packed_trial_verifies_and_names_what_is_detached(whole: Path, packed: Path) -> None:
    opinion = verify(packed)
    assert opinion.problems == [] and opinion.report == verify(whole).report
    ((name, digest),) = opinion.detached.items()
    assert name.startswith("inputs/policies/") and name.endswith(TENSORS)
    assert digest == folder_files(whole)[name]
    assert verify(whole).detached == {}


def test_every_flipped_byte_is_found(packed: Path) -> None:
    for path in files_of(packed):
        size, name = path.stat().st_size, path.relative_to(packed).as_posix()
        for place in (size // 3, size - 1):
            flip(path, place)
            assert any(name in problem for problem in verify(packed).problems), (name, place)
            flip(path, place)
    assert verify(packed).problems == []


def test_only_tensors_may_be_absent(packed: Path, tmp_path: Path) -> None:
    for path in files_of(packed):
        shutil.move(path, tmp_path / "away")
        assert verify(packed).problems, path
        shutil.move(tmp_path / "away", path)


def test_what_does_not_belong_is_found(packed: Path, tmp_path: Path) -> None:
    first, second = sorted(packed.glob("block-*"))
    stranger = packed / first.name.replace("9101", "9109")
    for make in (
        lambda: shutil.copyfile(first, stranger),
        lambda: shutil.copyfile(first, packed / "block-9101-9201.jsonl.xz"),
        lambda: (packed / "records").mkdir(),
        lambda: (packed / "notes.txt").write_text(""),
        lambda: (packed / "inputs" / "policies" / "more.safetensors").write_text(""),
        lambda: (packed / "link").symlink_to(first),
        lambda: write_block(packed, second.read_bytes()[:-4]),
        lambda: write_block(packed, second.read_bytes() + b"\0\0\0\0"),
        lambda: write_block(packed, lzma.compress(b'{"job": "../x", "cell": {}}\n')),
    ):
        made = added(packed, make)
        assert verify(packed).problems, made
        for path in made:
            path.rmdir() if path.is_dir() else path.unlink()
    assert verify(packed).problems == []


def added(folder: Path, make: Callable[[], object]) -> list[Path]:
    before = set(folder.rglob("*"))
    make()
    return sorted(set(folder.rglob("*")) - before)


def write_block(packed: Path, content: bytes) -> None:
    """A file of a block whose name has its own hash."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    (packed / f"block-9102-9202.{digest}.jsonl.xz").write_bytes(content)


def test_tensors_can_be_packed_and_found_again(whole: Path, packed: Path, tmp_path: Path) -> None:
    out = tmp_path / "with-tensors"
    assert pack(whole, out, tensors=True).detached == ()
    assert verify(out).problems == [] and verify(out).detached == {}
    (tensors,) = out.rglob(TENSORS)
    flip(tensors, 1_000)
    assert any(TENSORS in problem for problem in verify(out).problems)
    _, missing = unpack(packed, tmp_path / "bare")
    assert len(missing) == 1 and missing[0].endswith(TENSORS)
    _, missing = unpack(packed, tmp_path / "full", [whole.parent / "actor"])
    assert missing == [] and verify(tmp_path / "full").problems == []


def test_a_packed_trial_is_read_like_any_other(whole: Path, packed: Path) -> None:
    for folder in (whole, packed):
        with unpacked(folder) as full:
            assert folder_files(full / "records") == folder_files(whole / "records")


def test_a_fresh_clone_verifies_with_nothing_but_python(packed: Path, tmp_path: Path) -> None:
    def run_all() -> tuple[int, str]:
        command = [sys.executable, "-I", "-S", str(module.__file__), "--all", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    code, output = run_all()
    assert code == 0 and output.startswith(
        f"{tmp_path} has no closed trial to verify; docs/trial.md"
    )
    shutil.copytree(packed, tmp_path / "trial-a")
    code, output = run_all()
    assert code == 0 and "4 records checked, no problems" in output
    assert "detached, bound by SHA-256" in output and "small: confirmed, root" in output
    flip(tmp_path / "trial-a" / "analysis.json", 30)
    assert run_all()[0] == 1
    (tmp_path / "trial-a" / "closeout.json").unlink()
    code, output = run_all()
    assert code == 0 and "trial-a: not closed, 2 blocks so far; docs/trial.md says how" in output


def test_the_closed_trials_of_the_repository_verify() -> None:
    for folder in (Path(__file__).parents[2] / "data").glob("*"):
        if (folder / "closeout.json").is_file():
            assert verify(folder).problems == [], folder
