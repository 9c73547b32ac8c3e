"""`python -m evenline` is the `evenline` command, for machines where nothing is installed."""

from evenline.cli import main

main()
