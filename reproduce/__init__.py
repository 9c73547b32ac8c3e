"""The paper's tables and ours beside them, made from a checkout: `python -m reproduce.NAME`.

Nothing here is installed with Evenline, and the package imports none of it. Each module makes one
page or table of the documents from results that the package's commands wrote.
"""
