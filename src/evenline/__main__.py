"""`python -m evenline` is the `evenline` command, for machines where nothing is installed."""

from evenline.cli.main import main

main()
