"""Chromium without a window, driven through its DevTools pipe: open a page, click, type, look."""

import base64
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenline.cli.report import headless

LIMIT_S = 60.0


class Page:
    """One page of a browser."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, os.fdopen(read, "rb")
        self._number, self._buffer = 0, b""
        self._session = ""
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        attached = self.do("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> bytes:
        while b"\0" not in self._buffer:
            part = os.read(self._read.fileno(), 2**16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window, and light or dark."""
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.do("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        until = time.monotonic() + LIMIT_S
        while not (found := self.value(expression)):
            assert time.monotonic() < until, f"{expression} did not become true"
            time.sleep(0.05)
        return found

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        middle = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " if (!e) return null; e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        x, y = self.wait(middle)
        for kind in ("mousePressed", "mouseReleased"):
            self.do(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )  # fmt: skip

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self.do("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key of one letter, or Tab."""
        code = "Tab" if key == "Tab" else f"Key{key.upper()}"
        number = 9 if key == "Tab" else ord(key.upper())
        for kind in ("keyDown", "keyUp"):
            self.do(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code,
                windowsVirtualKeyCode=number,
            )  # fmt: skip

    def picture(self, path: Path) -> None:
        """Save what the window shows."""
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot")["data"]))


@contextmanager
def browsing(browser: str, profile: Path) -> Iterator[Page]:
    """A browser with a page of its own; it ends with the block."""
    theirs, write = os.pipe()
    read, other = os.pipe()
    # Chromium reads from 3 and writes to 4; our numbers must be out of the way.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (theirs, other)]

    def give() -> None:
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    command = [*headless(browser, profile), "--remote-debugging-pipe", "about:blank"]
    process = subprocess.Popen(
        command, preexec_fn=give, pass_fds=(3, 4),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for fd in (theirs, other, *high):
        os.close(fd)
    try:
        yield Page(write, read)
    finally:
        os.close(write)
        process.terminate()
        process.wait(timeout=30)
