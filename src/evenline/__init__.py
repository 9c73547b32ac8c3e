"""Evenline: learn, deploy and prove bus holding policies that keep buses evenly spaced."""

__version__ = "0.1.0"
