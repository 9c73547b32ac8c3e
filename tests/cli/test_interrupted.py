"""Ctrl-C ends a command without a traceback, whenever it comes."""

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run behind a shell
MODULE = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
runpy.run_module("evenline", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("evenline.cli.main", -signal.SIGINT),
        ("evenline.cli.trial", -signal.SIGINT),
        ("evenline.city.overview", 130),  # imported by the command itself
    ],
)
def test_an_interrupt_while_modules_are_imported_is_no_traceback(module: str, code: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "city", "check", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (code, "", "")
