"""Compilation of our hot functions: cached, without reference counts, with helpers inlined.

Nothing compiled here allocates, so counting references only costs time (five times the work, in the
fast world's kernel). Helpers are inlined because a call passes every array header by value; only
the functions that inline them are optimised and become machine code. A cached function is compiled
again when its file, or a file that it imports, changes.
"""

import gc
import hashlib
import pickle
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba._dynfunc
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.datamodel import models
from numba.extending import intrinsic, register_jitable, register_model

from evenline.support.notice import note, note_once
from evenline.support.sources import closure

PATIENCE_S = 5.0
COMPILING = "compiling for this machine, which takes up to a minute and happens only once"
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


class _Compiling:
    """Says once why nothing seems to happen, if compiling takes long."""

    def __init__(self) -> None:
        self._begun = 0  # a function compiles the helpers that it calls
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        self._begun += 1
        if self._timer is None:
            self._timer = threading.Timer(PATIENCE_S, note_once, (COMPILING,))
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        self._begun -= 1
        if self._begun == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None


_compiling = _Compiling()


class _CacheFile:
    """The compiled forms of a function, one file each, in place of Numba's files.

    Numba loads whatever its files hold, also half of one or another function's. Here each file
    begins with hashes: of the rest, of what it is, and of what it was made from. They tell damage;
    whoever may write into the cache can also write programs.
    """

    def __init__(self, numbas: Any, sources: str) -> None:
        self._numbas = numbas
        self._name = numbas._index_name.removesuffix(".nbi")
        self._made_from = _hash(repr((numbas._version, numbas._source_stamp, sources)).encode())

    def load(self, key: object) -> Any:
        """The compiled form of a key, or None if it must be compiled."""
        path, what = self._place(key)
        if not path.is_file():
            _compiling.begin()
            return None
        content = path.read_bytes()
        rest = content[len(what) :]
        if content[: len(what)] != _hash(rest) or rest[: len(what)] != what:
            note(f"{path} is not what was put there; it is compiled again")
            _compiling.begin()
            return None
        made_from, data = rest[len(what) : 2 * len(what)], rest[2 * len(what) :]
        if made_from != self._made_from:
            _compiling.begin()
            return None
        return pickle.loads(data)

    def save(self, key: object, data: object) -> None:
        """Keep a compiled form, if possible."""
        _compiling.end()
        path, what = self._place(key)
        rest = what + self._made_from + self._numbas._dump(data)
        try:
            with self._numbas._open_for_write(str(path)) as file:
                file.write(_hash(rest) + rest)
        except OSError as error:
            note(f"{path} cannot be written ({error.strerror}); it will be compiled each time")

    def _place(self, key: object) -> tuple[Path, bytes]:
        what = _hash(f"{self._name} {key!r}".encode())
        name = f"{self._name}.{what[:8].hex()}.nbc"
        return Path(self._numbas._cache_path, name), what


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _keep(cache: Any, file: str) -> None:
    cache._cache_file = _CacheFile(cache._cache_file, _sources(file))


def _kept(function: Any) -> Any:
    if hasattr(function, "_cache"):  # absent when compilation is disabled
        _keep(function._cache, function.py_func.__code__.co_filename)
    return function


def _without_collector(compile_it: Callable[..., Any]) -> Callable[..., Any]:
    """Pause Python's garbage collector while Numba compiles.

    Numba makes millions of objects that stay until it is done; looking through them again and again
    took an eighth of the time.
    """

    def paused(*args: Any, **keywords: Any) -> Any:
        if not gc.isenabled():
            return compile_it(*args, **keywords)
        gc.disable()
        try:
            return compile_it(*args, **keywords)
        finally:
            gc.enable()

    return paused


def compiled(function: F) -> F:
    """Compile a function that Python calls; other Python threads can run meanwhile."""
    options = {"_nrt": False, "nogil": True, "no_cfunc_wrapper": True}
    made = _kept(_njit(cache=True, **options)(function))
    if made is not function:  # compilation is not disabled
        made._compile_for_args = _without_collector(made._compile_for_args)
    return cast(F, made)


class _Uncompiled(cast(Any, JITCodeLibrary)):  # type: ignore[misc]
    """The code of a helper as it was lowered: it is optimised where it is inlined, not here too."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


def _no_machine_code(library: Any, described: Any, environment: Any) -> Any:
    """What Numba knows a helper by, in place of its entry point."""
    module, name = described.lookup_module(), described.qualname
    return cast(Any, numba)._dynfunc.make_function(module, name, name, 0, environment, (library,))


class _ToInline(cast(Any, Compiler)):  # type: ignore[misc]
    """Numba's compiler for helpers, which goes only as far as inlining needs."""

    def __init__(self, typing: Any, target: Any, _library: Any, *rest: Any) -> None:
        super().__init__(typing, target, _Uncompiled(target.codegen(), "inlined"), *rest)
        self.state.targetctx.get_executable = _no_machine_code  # this context is a copy of `target`


_INLINED = {
    "_nrt": False,
    "forceinline": True,
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "pipeline_class": _ToInline,
}


def inlined(function: F) -> F:
    """Compile a function that is inlined into the compiled functions that call it.

    Python cannot call it.
    """
    made = _njit(**_INLINED)(function)
    if made is not function:  # compilation is not disabled
        made._insert = lambda *_: None  # Python must not find what it would jump to: nothing
        made._compile_for_args = _refuse_call
    return cast(F, made)


def _refuse_call(*_: object, **__: object) -> None:
    raise TypeError("this function is inlined; call a compiled function that uses it")


def inlined_or_called(function: F) -> F:
    """Compile a function of an event that is inlined, and that Python calls, too."""
    options = {"_nrt": False, "forceinline": True, "no_cfunc_wrapper": True}
    return cast(F, _kept(_njit(cache=True, **options)(function)))


def shared(function: F) -> F:
    """Inline a function in compiled code; elsewhere it is plain Python and also accepts lists."""
    return register_jitable(**_INLINED)(function)


class _Whole(cast(Any, models.TupleModel)):  # type: ignore[misc]
    """A tuple of tables that is one argument. Numba makes one of each of its hundreds of numbers,
    and half of the time that our functions took to compile went into them.
    """

    def get_argument_type(self) -> Any:
        return self.get_value_type()

    def as_argument(self, _builder: Any, value: Any) -> Any:
        return value

    def from_argument(self, _builder: Any, value: Any) -> Any:
        return value


def _tuple_model(manager: Any, kind: Any) -> Any:
    ours = kind.instance_class.__module__.partition(".")[0] == "evenline"
    return (_Whole if ours else models.TupleModel)(manager, kind)


register_model(types.NamedTuple)(_tuple_model)


# A formula of an event: raw features, constants and lateness in, seconds of hold out.
_numbers = cast(Any, types.CPointer)(types.float64)
_FORMULA = types.float64(_numbers, _numbers, types.float64)


@cache
def formula_entry(function: Callable[..., float], keep: bool) -> Any:
    """Compile a formula for calls through its address; `keep` caches it next to its file."""
    compiling: Any = CFunc(function, (_FORMULA.args, _FORMULA.return_type), {}, _FORMULA_OPTIONS)
    if keep:
        compiling.enable_caching()
        _keep(compiling._cache, function.__code__.co_filename)
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
