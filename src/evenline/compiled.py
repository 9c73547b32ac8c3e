"""How our hot functions are compiled: cached, without reference counts, helpers inlined.

Nothing compiled here allocates, so counting references only costs time (five times the work, in
the fast world's kernel). Helpers are inlined because a call passes every array header by value.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., Any])
_njit = cast(Any, numba.njit)


def compiled(function: F) -> F:
    """Compile a function that Python calls; other threads of Python go on meanwhile."""
    return cast(F, _njit(cache=True, _nrt=False, nogil=True)(function))


def inlined(function: F) -> F:
    """Compile a function that becomes part of whatever compiled function calls it."""
    return cast(F, _njit(cache=True, _nrt=False, forceinline=True)(function))


def shared(function: F) -> F:
    """Inlined in compiled code and plain Python elsewhere, where lists may stand for arrays."""
    return register_jitable(_nrt=False, forceinline=True)(function)
