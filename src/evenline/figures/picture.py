"""A figure that notebooks display and that scripts can show or save."""

import os
import sys
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from evenline.figures.plots import png, save, svg


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with a name."""

    figure: Figure
    name: str

    def svg(self) -> str:
        """The figure as SVG, for a page."""
        text = svg(self.figure).decode()
        return text[text.index("<svg") :]

    def save(self, path: str | Path) -> Path:
        """Write the figure in the format of the path's suffix: .png, .svg or .pdf."""
        save(self.figure, Path(path))
        return Path(path)

    def show(self) -> Path:
        """Open the figure on the screen; without a screen, save it and print the path."""
        with tempfile.NamedTemporaryFile(
            prefix=f"{self.name}-", suffix=".png", delete=False
        ) as file:
            path = self.save(file.name)
        if not (_screen() and webbrowser.open(path.resolve().as_uri())):
            print(path)
        return path

    def _repr_png_(self) -> bytes:
        return png(self.figure)


def _screen() -> bool:
    there = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(there)
