"""The first day on a machine: only what it needs is compiled, each part of the day once."""

import json
import os
import subprocess
import sys
from pathlib import Path

FIRST = """
import gc, json, sys
import evenline as el

town = el.open_city("town")
day = el.run_day(town, policy="zero", seed=1)
held = el.run_day(town, policy="headway", seed=1)
str(el.compare_policies(town, "zero", "headway"))
from evenline.worlds.fast import kernel
made = {
    name: [(cr.library.get_function(cr.fndesc.llvm_func_name), cr.library.codegen._engine,
            cr.fndesc.llvm_func_name) for cr in function.overloads.values()]
    for name, function in vars(kernel).items() if hasattr(function, "overloads")
}
print(json.dumps({
    "times": {name: len(found) for name, found in made.items()},
    "machine code": [
        name for name, found in made.items()
        if any(engine.is_symbol_defined(symbol) for _, engine, symbol in found)
    ],
    "arguments": max(len(list(code.arguments)) for found in made.values() for code, _, _ in found),
    "statistics": "scipy.stats" in sys.modules,
    "collects": gc.isenabled(),
}))
"""


def test_the_first_days_and_comparison_compile_the_day_once(tmp_path: Path) -> None:
    caches = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", FIRST],
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["machine code"] == ["begin_day", "run"], "helpers are only inlined"
    kept = {path.name.partition(".py")[0] for path in tmp_path.rglob("*.nbc")}
    assert {name.partition("-")[0] for name in kept if "kernel" in name} == {
        "kernel.begin_day",
        "kernel.run",
    }
    assert not any("chained_holds" in name for name in kept), "a policy without a chain needs none"
    for name in ("run", "advance", "serve", "_exchange", "_run_s"):
        assert found["times"][name] == 1, name
    assert found["arguments"] <= 60, "a tuple of tables is one argument"
    assert not found["statistics"] and found["collects"]
