"""A real browser for tests: opens a page, sees it, clicks where a person would, and downloads.

Speaks the DevTools protocol over two pipes, so that no library and no port is needed.
"""

import base64
import fcntl
import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenline.cli.report import headless

PATIENCE_S = 60
FIRST = 20  # number of a pipe in this process, clear of 3 and 4, which Chromium reads and writes


class Chromium:
    """One page of a running browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._session: str | None = None
        self._number, self._rest, self._events = 0, b"", list[dict[str, Any]]()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        self.ask("Page.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._events.append(answer)

    def wait(self, event: str) -> dict[str, Any]:
        """Wait for an event, also one that came before; what it says."""
        while True:
            seen = self._events.pop(0) if self._events else self._next()
            if seen.get("method") == event:
                return dict(seen["params"])

    def saved(self) -> None:
        """Wait until a download has ended, and well."""
        while (state := self.wait("Browser.downloadProgress")["state"]) == "inProgress":
            pass
        assert state == "completed", state

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], PATIENCE_S)
            assert ready, "the browser says nothing"
            part = os.read(self._answers, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path, width: int = 1200, height: int = 900) -> None:
        """Open a page in a window of this size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        self.ask("Page.navigate", url=page.resolve().as_uri())
        self.wait("Page.loadEventFired")

    def value(self, script: str) -> Any:
        """What an expression, or the promise that it gives, is on the page."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press and release the mouse on the middle of an element."""
        x, y = self.value(
            f"(async () => {{ const it = document.querySelector({json.dumps(selector)});"
            " it.scrollIntoView({block: 'center', behavior: 'instant'});"
            " for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"  # it is shown
            " const r = it.getBoundingClientRect();"
            " return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def downloads(self, folder: Path) -> None:
        """Keep what is downloaded from now on in a folder."""
        self.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder),
                 eventsEnabled=True)  # fmt: skip

    def picture(self, to: Path) -> None:
        """Take a picture of the whole page."""
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def chromium(browser: str, profile: Path) -> Iterator[Chromium]:
    """Run a browser, and end it."""
    theirs, commands = os.pipe()
    answers, back = os.pipe()
    theirs, back = (fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, FIRST) for pipe in (theirs, back))

    def connect() -> None:
        os.dup2(theirs, 3)
        os.dup2(back, 4)

    process = subprocess.Popen(
        [*headless(browser, profile), "--remote-debugging-pipe", "--hide-scrollbars"],
        preexec_fn=connect,
        close_fds=False,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Chromium(commands, answers)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
