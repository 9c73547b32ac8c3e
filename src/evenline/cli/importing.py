"""`evenline city import`: make a city from other data, one command for each kind."""

import typer

from evenline.cli.scenario import import_sumo

app = typer.Typer(no_args_is_help=True, help="Make a city from other data.")
app.command("sumo")(import_sumo)
