"""The command `evenline sumo`: the versions of SUMO that days can run under."""

from typing import Annotated

import typer

from evenline.support.terminal import stderr


def sumo(
    install: Annotated[
        str | None, typer.Argument(metavar="VERSION", help="A version to install, such as 1.25.0.")
    ] = None,
) -> None:
    """List the versions of SUMO that --sumo accepts, or install another one."""
    from evenline.worlds.sumo.runtime import install_runtime, installed_version, runtimes_folder

    if install is not None:
        with stderr.status(f"installing SUMO {install}"):
            folder = install_runtime(install)
        print(folder)
        return
    if version := installed_version():
        print(f"{version} (installed with evenline)")
    for libsumo in sorted(runtimes_folder().glob("*/libsumo")):
        print(f"{libsumo.parent.name} {libsumo.parent}")
