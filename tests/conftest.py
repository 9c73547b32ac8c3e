"""How all tests run: properties are searched without a time limit for a single example."""

from hypothesis import settings

settings.register_profile("evenline", deadline=None)
settings.load_profile("evenline")
