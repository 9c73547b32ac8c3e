"""Compilation of our hot functions: cached, without reference counts, with helpers inlined.

Nothing compiled here allocates, so counting references only costs time (five times the work, in the
fast world's kernel). Helpers are inlined because a call passes every array header by value. A
cached function is compiled again when its file, or a file that it imports, changes.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic, register_jitable

from evenline.support.sources import closure

F = TypeVar("F", bound=Callable[..., Any])
_njit = cast(Any, numba.njit)
_intrinsic = cast(Any, intrinsic)
_cgutils = cast(Any, cgutils)
# A division by zero gives inf or nan, which is refused as a hold, instead of an exception that is
# lost.
_FORMULA_OPTIONS = {"_nrt": False, "error_model": "numpy"}


@cache
def _sources(file: str) -> str:
    """Identify what the compiled code of a file depends on: the file and our files that it imports.

    Numba checks only the function's own file, and would keep using code made from old helpers.
    """
    return " ".join(f"{path} {path.stat().st_mtime_ns}" for path in closure(Path(file)))


def _kept(function: Any) -> Any:
    if hasattr(function, "_cache"):  # absent when compilation is disabled
        file = function._cache._cache_file
        stamp = _sources(function.py_func.__code__.co_filename)
        file._source_stamp = (file._source_stamp, stamp)
    return function


def compiled(function: F) -> F:
    """Compile a function that Python calls; other Python threads can run meanwhile."""
    return cast(F, _kept(_njit(cache=True, _nrt=False, nogil=True)(function)))


def inlined(function: F) -> F:
    """Compile a function that is inlined into the compiled functions that call it."""
    return cast(F, _kept(_njit(cache=True, _nrt=False, forceinline=True)(function)))


def shared(function: F) -> F:
    """Inline a function in compiled code; elsewhere it is plain Python and also accepts lists."""
    return register_jitable(_nrt=False, forceinline=True)(function)


# A formula of an event: raw features, constants and lateness in, seconds of hold out.
_numbers = cast(Any, types.CPointer)(types.float64)
_FORMULA = types.float64(_numbers, _numbers, types.float64)


@cache
def formula_entry(function: Callable[..., float], keep: bool) -> Any:
    """Compile a formula for calls through its address; `keep` caches it next to its file."""
    compiling: Any = CFunc(function, (_FORMULA.args, _FORMULA.return_type), {}, _FORMULA_OPTIONS)
    if keep:
        compiling.enable_caching()
        file = compiling._cache._cache_file
        file._source_stamp = (file._source_stamp, _sources(function.__code__.co_filename))
    compiling.compile()
    return compiling


@_intrinsic
def call_formula(_context: Any, address: Any, raw: Any, constants: Any, late_s: Any) -> Any:
    """Call a compiled formula by its address, for one event."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.DoubleType()
        kind = ir.FunctionType(number, [number.as_pointer(), number.as_pointer(), number])
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (1, 2)]
        entry = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(entry, [*(array.data for array in arrays), args[3]])

    return types.float64(types.intp, raw, constants, types.float64), code


@_intrinsic
def lowest_bit(_context: Any, bits: Any) -> Any:
    """The index of the lowest set bit of 64 bits; at least one must be set."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


def _row(context: Any, builder: Any, kind: Any, table: Any, row: Any) -> tuple[Any, Any]:
    """The address of a row of a table, and the number of bytes per row."""
    array = context.make_array(kind)(context, builder, table)
    stride = builder.extract_value(array.strides, 0)
    start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    return builder.gep(start, [builder.mul(row, stride)]), stride


@_intrinsic
def copy_rows(_context: Any, to: Any, source: Any, low: Any, high: Any) -> Any:
    """Copy the rows `low` to `high - 1` of a table to another table of the same shape."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        here, _ = _row(context, builder, signature.args[0], args[0], args[2])
        there, stride = _row(context, builder, signature.args[1], args[1], args[2])
        _cgutils.raw_memcpy(builder, here, there, builder.sub(args[3], args[2]), stride)
        return context.get_dummy_value()

    return types.void(to, source, types.intp, types.intp), code


@_intrinsic
def clear_rows(_context: Any, table: Any) -> Any:
    """Fill a table with zeros."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        size = builder.mul(array.nitems, array.itemsize)
        _cgutils.memset(builder, array.data, size, 0)
        return context.get_dummy_value()

    return types.void(table), code


@_intrinsic
def fetch_row(_context: Any, table: Any, row: Any) -> Any:
    """Prefetch the memory line at the start of a row of a table."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        at, _ = _row(context, builder, signature.args[0], *args)
        builder.call(prefetch, [at, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(table, types.intp), code
