"""State as compiled code gets it: one pointer to a table of addresses and lengths, read as attributes.

Forty array arguments per call would cost most of the compilation time and some of every call.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr, register_model, typeof_impl, unbox
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from .state import ARRAYS


class State:
    """The arrays of `ARRAYS` as attributes. Compiled code gets the address of a table of their addresses
    and lengths.

    One pointer instead of forty array arguments keeps compilation and calls short.
    """

    __slots__ = ("__weakref__", "_table", *ARRAYS)

    def __init__(self, **arrays: np.ndarray) -> None:
        for name, (dtype, inner) in ARRAYS.items():
            array = arrays.pop(name)
            if array.dtype != dtype or array.shape[1:] != inner or not array.flags.c_contiguous:
                raise TypeError(f"{name}: {array.dtype} {array.shape} is not {dtype} (..., {inner})")
            setattr(self, name, array)
        if arrays:
            raise TypeError(f"no such state: {', '.join(arrays)}")
        self._table = np.array(
            [word for name in ARRAYS for word in (getattr(self, name).ctypes.data, len(getattr(self, name)))],
            np.int64,
        )

    @property
    def address(self) -> int:
        """Where the table stands."""
        return self._table.ctypes.data

    def replace(self, **arrays: np.ndarray) -> State:
        """The same state with some arrays exchanged."""
        return State(**{name: arrays.get(name, getattr(self, name)) for name in ARRAYS})


class StateType(types.Type):
    """State inside compiled code: the address of its table."""

    def __init__(self) -> None:
        super().__init__("waferloom.State")


STATE = StateType()


@typeof_impl.register(State)
def _type_of_state(value, context):
    return STATE


@register_model(StateType)
class _StateModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        super().__init__(manager, fe_type, ir.IntType(64))


@unbox(StateType)
def _unbox_state(typ, obj, c):
    address = c.pyapi.object_getattr_string(obj, "address")
    value = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(value, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


def _array_type(name: str) -> types.Array:
    dtype, inner = ARRAYS[name]
    return types.Array(from_dtype(dtype), 1 + len(inner), "C")


@infer_getattr
class _StateAttributes(AttributeTemplate):
    key = StateType

    def generic_resolve(self, typ, attr):
        return _array_type(attr) if attr in ARRAYS else None


def _lower_attribute(name: str, index: int) -> None:
    @lower_getattr(StateType, name)
    def lower(context, builder, typ, value):
        array_type = _array_type(name)
        word = ir.IntType(64)
        table = builder.inttoptr(value, word.as_pointer())

        def load(k):
            # The table never changes during a call, so LLVM may keep what it read.
            loaded = builder.load(builder.gep(table, [ir.Constant(word, k)]))
            loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            return loaded

        array = make_array(array_type)(context, builder)
        dtype, inner = ARRAYS[name]
        shape = (load(2 * index + 1), *(ir.Constant(word, n) for n in inner))
        strides = [ir.Constant(word, dtype.itemsize * math.prod(inner[k:])) for k in range(len(inner) + 1)]
        populate_array(
            array,
            data=builder.inttoptr(load(2 * index), array.data.type),
            shape=cgutils.pack_array(builder, shape),
            strides=cgutils.pack_array(builder, strides),
            itemsize=ir.Constant(word, dtype.itemsize),
            meminfo=None,
        )
        return array._getvalue()


for _index, _name in enumerate(ARRAYS):
    _lower_attribute(_name, _index)
