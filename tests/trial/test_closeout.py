"""A closed trial is bound as a whole, by means that others have tools for, and stays as it is."""

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenline.support.errors import InputError
from evenline.support.files import read_json, to_json, write_text
from evenline.trial.closeout import closeout, merkle_root
from evenline.trial.evidence import peek, write_analysis
from evenline.trial.records import Closeout
from evenline.trial.registration import Trial, deviate
from evenline.trial.verify import tree, verify
from made import finished_trial


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Closeout]:
    trial = finished_trial(tmp_path_factory.mktemp("closed"))
    with pytest.raises(InputError, match=r"no analysis.json yet; run: evenline trial analyse"):
        closeout(trial.folder)
    write_analysis(trial.folder)
    write_text(trial.folder / "verification.json", to_json(verify(trial.folder).report))
    return trial, closeout(trial.folder)


def test_the_tree_is_that_of_rfc_6962() -> None:
    """The test vectors of the certificate-transparency project."""
    leaves = [
        bytes.fromhex(text)
        for text in (
            *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
            "606162636465666768696a6b6c6d6e6f",
        )
    ]
    roots = {
        0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    }
    assert {count: merkle_root(leaves[:count]) for count in roots} == roots


@given(st.lists(st.binary(max_size=4), max_size=40))
def test_both_programs_grow_the_same_tree(leaves: list[bytes]) -> None:
    hashes = [hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves]
    assert tree(hashes).hex() == merkle_root(leaves)


def test_every_file_that_counts_is_bound(closed: tuple[Trial, Closeout]) -> None:
    trial, manifest = closed
    left_out = {"closeout.json", "provenance.intoto.json"}
    there = {
        path.relative_to(trial.folder).as_posix()
        for path in trial.folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    bound = {name for name in manifest.files if not name.startswith("source/")}
    assert bound == there - left_out
    assert "source/trial/verify.py" in manifest.files
    assert manifest.confirmed is True


def test_sha256sum_agrees(closed: tuple[Trial, Closeout], tmp_path: Path) -> None:
    trial, manifest = closed
    lines = [
        f"{digest}  {name}\n"
        for name, digest in manifest.files.items()
        if not name.startswith("source/")
    ]
    (tmp_path / "sums").write_text("".join(lines))
    ended = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", tmp_path / "sums"],
        cwd=trial.folder,
        check=False,
    )
    assert ended.returncode == 0


def test_the_provenance_is_an_in_toto_statement(closed: tuple[Trial, Closeout]) -> None:
    trial, manifest = closed
    statement = read_json(trial.folder / "provenance.intoto.json")
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {row["name"]: row["digest"]["sha256"] for row in statement["subject"]}
    assert subjects["merkle-root"] == manifest.merkle_root
    assert subjects["analysis.json"] == manifest.files["analysis.json"]
    build = statement["predicate"]["buildDefinition"]
    assert build["buildType"] and build["externalParameters"]["trial"] == trial.sha256
    assert all(row["digest"]["sha256"] for row in build["resolvedDependencies"])
    assert statement["predicate"]["runDetails"]["builder"]["id"]


def test_what_is_closed_stays_as_it_is(closed: tuple[Trial, Closeout]) -> None:
    trial, manifest = closed
    for change in (
        lambda: deviate(trial.folder, "an afterthought", "A. Person"),
        lambda: peek(trial.folder),
    ):
        with pytest.raises(InputError, match="the trial is closed"):
            change()
    assert closeout(trial.folder) == manifest
    assert write_analysis(trial.folder).confirmed
    files = [path for path in trial.folder.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o222 == 0 for path in files if path.name[0] != ".")
