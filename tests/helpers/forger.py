"""A careful forger: changes a closed trial anywhere and computes every hash and seal in it again.

What is left of a forgery is what its files say: only what contradicts itself can be found, unless
somebody has kept the hash of the registration or the root.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from evenline.support.files import folder_files, read_json, sha256, to_json
from evenline.support.records import plain
from evenline.trial import analyse
from evenline.trial import verify as module
from evenline.trial.closeout import root_of
from evenline.trial.matrix import seal_of

Change = Callable[[Any], object]
LATE = ("matrix.json", "analysis.json", "verification.json", "closeout.json")


class Forger:
    """The parts of a trial to change; `seal` writes them with all hashes made right."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.plan = (folder / "plan.toml").read_text()
        self.trial = read_json(folder / "trial.json")
        lines = (folder / "journal.jsonl").read_text().splitlines()
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.records = [read_json(path) for path in sorted((folder / "records").iterdir())]
        self.late: dict[str, Change] = {}  # changes of files that follow from the others

    def planned(self, old: str, new: str) -> None:
        """Change the text of the plan."""
        assert old in self.plan, (old, self.plan)
        self.plan = self.plan.replace(old, new)

    def of(self, method: str) -> list[dict[str, Any]]:
        """The records of a method, in the order of its blocks."""
        rows = [record for record in self.records if record["method"] == method]
        return sorted(rows, key=lambda record: record["cell"]["sumo_seed"])

    def seal(self) -> None:
        """Write everything, from the plan to the root."""
        self._write("plan.toml", self.plan)
        self.trial["inputs"] = folder_files(self.folder / "inputs")
        self.trial["plan_sha256"] = sha256(self.folder / "plan.toml")
        self._write("trial.json", to_json(self.trial))
        self.events[0]["trial"] = self.own = sha256(self.folder / "trial.json")
        text, before = "", ""
        for event in self.events:
            line = json.dumps(event | {"previous": before}, sort_keys=True) + "\n"
            before = hashlib.sha256(line.encode()).hexdigest()
            text += line
        self._write("journal.jsonl", text)
        self._seal_records()
        self._seal_figures()
        self._seal_closeout()

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _late(self, name: str, value: Any) -> Any:
        self.late.get(name, lambda _: None)(value)
        self._write(name, to_json(value))
        return value

    def _seal_records(self) -> None:
        """Give each record its job's name, the registration's hashes, and its two seals."""
        jobs = module.expected_jobs(self.trial)
        names = {self._key(job): address for address, job in jobs.items()}
        for path in (self.folder / "records").iterdir():
            path.unlink()
        blocks: dict[str, dict[str, str]] = {}
        self.results = {}
        for record in self.records:
            record["trial"], record["job"] = self.own, names.get(self._key(record), record["job"])
            left = ("trial", "run", "result_sha256", "record_sha256")
            record["result_sha256"] = seal_of({k: v for k, v in record.items() if k not in left})
            record["record_sha256"] = seal_of(
                {k: v for k, v in record.items() if k != "record_sha256"}
            )
            path, cell = self.folder / "records" / f"{record['job']}.json", record["cell"]
            path.write_text(to_json(record))
            block = blocks.setdefault(f"{cell['sumo_seed']}-{cell['demand_seed']}", {})
            block[record["job"]] = sha256(path)
            self.results[record["job"]] = record["result_sha256"]
        matrix = read_json(self.folder / "matrix.json") | {
            "blocks": blocks, "trial": self.own, "jobs": len(self.results),
            "results_sha256": seal_of(self.results),
        }  # fmt: skip
        self._late("matrix.json", matrix)

    @staticmethod
    def _key(job: dict[str, Any]) -> str:
        return json.dumps([job["method"], job["seed"], job["cell"]], sort_keys=True)

    def _seal_figures(self) -> None:
        """Write the analysis that the forged records give, and the second opinion of it."""
        analysis = read_json(self.folder / "analysis.json")
        bound = {"trial": self.own}
        notes = module.Opinion()
        with suppress(*module.MALFORMED):
            bound["notices"] = module.notices(self.folder, self.trial, self.events, notes)
        figures = {name: analysis[name] for name in analysis if name != "beyond_the_claim"}
        with suppress(*module.MALFORMED):
            figures |= module.recompute(self.trial, self.records)
            for name, key in (("generalized_s", "primary"), ("completion", "completion")):
                blocks = figures["claim"][key]["block_differences"]
                analysis["beyond_the_claim"][name] = plain(analyse._effect(blocks))
        for row in figures["controls"].values():
            row["note"] = analyse.DESCRIPTIVE
        analysis |= figures | bound | {"results_sha256": seal_of(self.results)}
        self.analysis = self._late("analysis.json", analysis)
        controls = {
            label: {name: row[name] for name in ("difference", "favourable_blocks")}
            for label, row in figures["controls"].items()
        }
        told = read_json(self.folder / "verification.json")
        same = told.keys() & self.analysis.keys() - {"format"}
        told |= {name: self.analysis[name] for name in same}
        self._late("verification.json", told | {"controls": controls, "records": len(self.results)})

    def _seal_closeout(self) -> None:
        manifest = read_json(self.folder / "closeout.json")
        files = {n: h for n, h in manifest["files"].items() if n.startswith("source/")}
        files |= {name: sha256(self.folder / name) for name in module.BOUND}
        for part in ("inputs", "records"):
            hashes = folder_files(self.folder / part)
            files |= {f"{part}/{name}": own for name, own in hashes.items()}
        manifest |= {
            "files": files, "merkle_root": root_of(files), "trial": self.own,
            "name": self.trial["name"], "results_sha256": seal_of(self.results),
        }  # fmt: skip
        manifest |= {name: self.analysis[name] for name in ("confirmed", "notices")}
        self._late("closeout.json", manifest)
        self._seal_statement(manifest)

    def _seal_statement(self, manifest: dict[str, Any]) -> None:
        path, files = self.folder / module.STATEMENT, manifest["files"]
        statement = read_json(path)
        root = {"name": "merkle-root", "digest": {"sha256": manifest["merkle_root"]}}
        names = module.BOUND[3:]
        statement["subject"] = [*({"name": n, "digest": {"sha256": files[n]}} for n in names), root]
        definition = statement["predicate"]["buildDefinition"]
        definition["externalParameters"] = {"plan": self.trial["plan"], "trial": self.own}
        definition["internalParameters"] = {key: self.trial[key] for key in ("sumo", "jobs")}
        inputs = [name for name in files if name.startswith(("inputs/", "source/"))]
        definition["resolvedDependencies"] = [
            {"name": name, "digest": {"sha256": files[name]}}
            for name in sorted(inputs, key=lambda name: name.split("/"))
        ]
        statement["predicate"]["runDetails"]["metadata"] = {
            "invocationId": self.own,
            "startedOn": self.events[0]["at"],
            "finishedOn": manifest["closed_at"],
        }
        self._write(path.name, to_json(statement))
