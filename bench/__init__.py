"""The meters of speed and memory, run from a checkout: `python -m bench.NAME`.

Nothing here is installed with Evenline. Benchmarks need an idle machine and are never tests.
"""
