"""The functions that saved states call to construct objects in the restoring kernel.

Saved files refer to these functions by name. The name and the parameters of a function must not
change while states of this schema can still be restored.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import functools
import importlib
import importlib.util
import marshal
import pickle
import sys
import types
from typing import Any, Iterator

# Saved files refer to the functions below by this module's name, so the name must not depend
# on the release. It becomes the functions' __module__.
__name__ = "colab_relay_state_rebuild"
MODULE = sys.modules[__spec__.name]

MAGIC = importlib.util.MAGIC_NUMBER.hex()  # changes with Python's bytecode

# What was found while one variable was loaded. The reader empties these lists.
lost: list[str] = []  # functions whose bytecode belongs to another Python
notes: list[str] = []  # other remarks


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Makes this module importable under the name that saved files refer to."""
    outer = __name__ in sys.modules
    sys.modules[__name__] = MODULE
    try:
        yield
    finally:
        if not outer:
            sys.modules.pop(__name__, None)


def kernel_object(name: str) -> Any:
    """An object that every kernel has and that is never saved: this kernel's own."""
    from IPython.core.getipython import get_ipython

    if name == "shell":
        return get_ipython()
    if name == "namespace":
        return get_ipython().user_ns
    if name == "module":
        return sys.modules["__main__"]
    if name == "environ":
        return importlib.import_module("os").environ
    if name == "random":
        return importlib.import_module("random")._inst
    if name == "numpy.random":
        try:
            return importlib.import_module("numpy.random.mtrand")._rand
        except ImportError:  # then nothing that needs it can be loaded, but everything else
            return None
    return getattr(sys, name)


class LostCode:
    """Code of a Python with other bytecode, which would crash this one."""

    def __init__(self, python: str) -> None:
        self.python = python


def make_code(magic: str, python: str, data: bytes) -> Any:
    if magic != MAGIC:
        return LostCode(python)
    return marshal.loads(data)


def make_cell() -> types.CellType:
    return types.CellType()


def make_lost(name: str, python: str) -> Any:
    ours = "%d.%d" % sys.version_info[:2]

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "%s was saved under Python %s; its code can't run under %s: define it again"
            % (name, python, ours)
        )

    missing.__name__ = name
    missing.__dict__["colab_relay_lost"] = python
    lost.append(name)
    return missing


def make_function(code: Any, scope: Any, name: str, cells: Any) -> Any:
    """scope is a dict, or the name of the module whose dict it is."""
    if type(code) is LostCode:
        return make_lost(name, code.python)
    if type(scope) is str:
        scope = importlib.import_module(scope).__dict__
    return types.FunctionType(code, scope, name, None, cells)


def fill_function(function: Any, state: Any) -> None:
    """Sets the attributes, which may refer to the function itself."""
    attributes, extra, contents = state
    extra = dict(extra)
    if "colab_relay_lost" in function.__dict__:
        function.__dict__.update(extra)
        return
    for cell, content in zip(function.__closure__ or (), contents):
        if content:
            cell.cell_contents = content[0]
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(extra)


def make_cached(function: Any, maxsize: Any, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def maker(meta: type) -> Any:
    """The __new__ of the metaclass, without those that the notebook defines: they have run."""
    for m in type.__dict__["__mro__"].__get__(meta):
        if "__new__" in m.__dict__ and m.__module__ != "__main__":
            return m.__new__
    return type.__new__


def make_class(meta: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
    """An empty class. An __init_subclass__ that the notebook defines ran when the class was
    created. Its effects are in the saved attributes, so it does not run again. One that a library
    defines runs, because its effects in the library are not in this kernel yet."""
    disabled = []
    for owner in {base for direct in bases for base in direct.__mro__}:
        if "__init_subclass__" in vars(owner) and owner.__module__ == "__main__":
            disabled.append((owner, vars(owner)["__init_subclass__"]))
            type.__delattr__(owner, "__init_subclass__")
    try:
        return maker(meta)(meta, name, bases, dict(namespace))
    finally:
        for owner, method in disabled:
            type.__setattr__(owner, "__init_subclass__", method)


def make_enum(
    meta: Any, name: str, bases: tuple[type, ...], namespace: dict[str, Any], members: Any
) -> Any:
    space = meta.__prepare__(name, bases)
    for key, value in namespace.items():
        space[key] = value
    for key, value, _ in members:
        space[key] = value
    cls = enum.EnumMeta.__new__(meta, name, bases, space)
    for key, _, extra in members:
        cls.__members__[key].__dict__.update(extra)
    return cls


def fill_class(cls: Any, state: Any) -> None:
    attributes, registered = state
    for name, value in attributes.items():
        type.__setattr__(cls, name, value)
    for other in registered:
        abc.ABCMeta.register(cls, other)


def make_plain(data: Any) -> Any:
    """A large container of numbers and strings, which was pickled as a whole."""
    return pickle.loads(data)


def make_weak(kind: str, items: Any) -> Any:
    return getattr(importlib.import_module("weakref"), kind)(items)


def make_view(
    owner: Any, offset: int, shape: Any, strides: Any, dtype: Any, writeable: bool
) -> Any:
    """An array that uses the memory of another."""
    import numpy

    memory = owner if owner.flags.c_contiguous else owner.T
    view = numpy.ndarray(shape, dtype, memory, offset, strides)
    view.flags.writeable = writeable
    return view


def make_view_of_tensor(storage: Any, *view: Any) -> Any:
    """An array that uses the memory of a tensor."""
    import torch

    return make_view(torch.empty(0, dtype=torch.uint8).set_(storage).numpy(), *view)


def set_gradient(tensor: Any, gradient: Any) -> None:
    tensor.grad = gradient


def make_storage(device: str, data: Any) -> Any:
    """The bytes of torch tensors, on a GPU if they were on one and this VM has one."""
    import torch

    if len(data) == 0:
        flat = torch.empty(0, dtype=torch.uint8)
    else:
        flat = torch.frombuffer(data, dtype=torch.uint8)
    if device != "cpu":
        flat = to_device(torch, flat, device)
    return flat.untyped_storage()


def to_device(torch: Any, flat: Any, device: str) -> Any:
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            notes.append("tensors that were on a GPU are on the CPU now: this VM has no GPU")
            return flat
        device = device if int(index or 0) < torch.cuda.device_count() else "cuda:0"
    try:
        return flat.to(device)
    except Exception as e:
        notes.append("tensors that were on %s are on the CPU now: %s" % (device, type(e).__name__))
        return flat


def make_typed_storage(storage: Any, dtype: Any) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def make_untyped(storage: Any) -> Any:
    return storage


def make_lock(kind: str) -> Any:
    return getattr(importlib.import_module("threading"), kind)()
