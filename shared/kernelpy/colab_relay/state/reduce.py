"""How to pickle objects that picklers refuse, or that different picklers save differently.

One table by type is used with dill, cloudpickle and pickle, so that the restored objects do not
depend on which of them the VM has.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import io
import marshal
import pickle
import socket
import subprocess
import sys
import threading
import types
import typing
import weakref
from typing import TYPE_CHECKING, Any

from ..safe import class_module, class_name, module_dict
from . import rebuild
from .arrays import reduce_array, reduce_storage, reduce_tensor, storage_classes
from .classes import reduce_class
from .libraries import importable
from .reasons import CannotSave

if TYPE_CHECKING:
    from .write import Saver

ATOMS = frozenset([int, float, complex, bool, str, bytes, type(None)])
LARGE = 2048  # from so many items on, a plain container is pickled as a whole


def reduce_function(saver: Saver, f: Any) -> Any:
    module, name = f.__module__, f.__qualname__
    if importable(f, module, name):
        saver.uses(module)
        return name
    if saver.plain:
        raise CannotSave(
            "it needs a function defined in the notebook, which plain pickle can't keep: "
            "install dill or cloudpickle on the VM and save again"
        )
    return (
        rebuild.make_function,
        (f.__code__, scope_of(f), f.__name__, f.__closure__),
        function_state(f),
        None,
        None,
        rebuild.fill_function,
    )


def scope_of(f: Any) -> Any:
    """The function's globals: the name of the module that they belong to, or the dict. The
    notebook's dict is in the memo from the start and is restored as the kernel's own."""
    scope = f.__globals__
    name = scope.get("__name__")
    if type(name) is str and name != "__main__" and module_dict(name) is scope:
        return name
    return scope


def function_state(f: Any) -> Any:
    attributes = {
        "__defaults__": f.__defaults__,
        "__kwdefaults__": f.__kwdefaults__,
        "__doc__": f.__doc__,
        "__module__": f.__module__,
        "__qualname__": f.__qualname__,
    }
    if getattr(f, "__type_params__", ()):
        attributes["__type_params__"] = f.__type_params__
    try:
        if f.__annotations__:
            attributes["__annotations__"] = f.__annotations__
    except Exception:  # lazily evaluated since Python 3.14, and a name may be missing
        pass
    return attributes, dict(f.__dict__), [content_of(cell) for cell in f.__closure__ or ()]


def content_of(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty
        return ()


def reduce_code(saver: Saver, code: types.CodeType) -> Any:
    python = "%d.%d" % sys.version_info[:2]
    saver.add_source(code.co_filename)
    return rebuild.make_code, (rebuild.MAGIC, python, marshal.dumps(code))


def reduce_cell(saver: Saver, cell: Any) -> Any:
    """An empty cell. The functions that share the cell fill it, because its content may refer to
    them."""
    return rebuild.make_cell, ()


def reduce_method(saver: Saver, method: Any) -> Any:
    return types.MethodType, (method.__func__, method.__self__)


def reduce_module(saver: Saver, module: Any) -> Any:
    name = module.__name__
    if sys.modules.get(name) is not module:
        raise CannotSave("it needs a module created by code, which can't be imported")
    saver.uses(name)
    return importlib.import_module, (name,)


def reduce_wrapped(saver: Saver, descriptor: Any) -> Any:
    return type(descriptor), (descriptor.__func__,)


def reduce_property(saver: Saver, p: Any) -> Any:
    return property, (p.fget, p.fset, p.fdel, p.__doc__)


def reduce_cached_property(saver: Saver, p: Any) -> Any:
    """Omits the lock that it has before Python 3.12."""
    state = {k: v for k, v in p.__dict__.items() if k not in ("func", "lock")}
    return type(p), (p.func,), state


def reduce_cached(saver: Saver, f: Any) -> Any:
    if importable(f, f.__module__, f.__qualname__):
        return f.__qualname__
    typed = getattr(f, "cache_parameters", lambda: {"typed": False})()["typed"]  # since Python 3.9
    return rebuild.make_cached, (f.__wrapped__, f.cache_info().maxsize, typed)


def reduce_lock(saver: Saver, lock: Any) -> Any:
    """A free lock, which is restored as a new one."""
    if not lock.acquire(False):
        raise CannotSave("it contains a lock that is in use")
    lock.release()
    return rebuild.make_lock, ("Lock" if type(lock) is type(threading.Lock()) else "RLock",)


def reduce_type_variable(saver: Saver, variable: Any) -> Any:
    if importable(variable, variable.__module__, variable.__name__):
        return variable.__name__
    options = {"bound": variable.__bound__} if variable.__bound__ is not None else {}
    options.update(covariant=variable.__covariant__, contravariant=variable.__contravariant__)
    make = functools.partial(typing.TypeVar, variable.__name__, **options)
    return make, tuple(variable.__constraints__)


def reduce_view_of_dict(saver: Saver, proxy: Any) -> Any:
    return types.MappingProxyType, (dict(proxy),)


def reduce_weak(saver: Saver, container: Any) -> Any:
    items = list(container) if type(container) is weakref.WeakSet else dict(container)
    return rebuild.make_weak, (class_name(type(container)), items)


def reduce_large(saver: Saver, container: Any) -> Any:
    """A container of numbers and strings only. Pickling it as a whole is far faster than one item
    after the other in a pickler written in Python."""
    if len(container) < LARGE or not is_plain(container):
        return NotImplemented
    return rebuild.make_plain, (pickle.PickleBuffer(pickle.dumps(container, 5)),)


def is_plain(container: Any) -> bool:
    if type(container) is dict:
        return ATOMS.issuperset(map(type, container.values())) and ATOMS.issuperset(
            map(type, container)
        )
    return ATOMS.issuperset(map(type, container))


def reduce_sentinel(saver: Saver, obj: Any) -> Any:
    """One of the objects that dataclasses compares by identity."""
    for name, value in vars(dataclasses).items():
        if value is obj:
            return getattr, (dataclasses, name)
    return NotImplemented


BY_TYPE = {
    types.FunctionType: reduce_function,
    types.CodeType: reduce_code,
    types.CellType: reduce_cell,
    types.MethodType: reduce_method,
    types.ModuleType: reduce_module,
    types.MappingProxyType: reduce_view_of_dict,
    staticmethod: reduce_wrapped,
    classmethod: reduce_wrapped,
    property: reduce_property,
    functools.cached_property: reduce_cached_property,
    type(functools.lru_cache(None)(abs)): reduce_cached,
    type(threading.Lock()): reduce_lock,
    type(threading.RLock()): reduce_lock,
    typing.TypeVar: reduce_type_variable,
    weakref.WeakKeyDictionary: reduce_weak,
    weakref.WeakValueDictionary: reduce_weak,
    weakref.WeakSet: reduce_weak,
    list: reduce_large,
    tuple: reduce_large,
    dict: reduce_large,
    set: reduce_large,
    frozenset: reduce_large,
}

# Objects whose state is outside Python. dill would save some of these, and they would fail or
# behave unexpectedly on another VM.
REFUSED = (
    (types.GeneratorType, "a generator, whose state Python can't save"),
    (types.CoroutineType, "a coroutine, whose state Python can't save"),
    (types.AsyncGeneratorType, "a generator, whose state Python can't save"),
    (types.FrameType, "a frame of running code"),
    (types.TracebackType, "a traceback, which holds frames of running code"),
    (threading.Thread, "a thread"),
    (socket.socket, "a socket"),
    (subprocess.Popen, "a process"),
    (asyncio.Future, "a task or future"),
    (asyncio.AbstractEventLoop, "an event loop"),
)
# Libraries whose objects always load if they could be saved.
SURE = {"builtins", "collections", "datetime", "decimal", "fractions", "pathlib", "uuid"}
SURE |= {"pandas", "torch"}
IN_MEMORY = (io.BytesIO, io.StringIO)


def refuse(obj: Any, cls: type) -> None:
    for refused, what in REFUSED:
        if issubclass(cls, refused):
            raise CannotSave("it contains " + what)
    if issubclass(cls, io.IOBase) and not issubclass(cls, IN_MEMORY):
        raise CannotSave("it contains an open file; the file stays on the VM")


def reduce(saver: Saver, obj: Any) -> Any:
    """The reducer_override of our picklers. NotImplemented means that the library saves the
    object in its own way."""
    cls = type(obj)
    if cls in ATOMS or cls is pickle.PickleBuffer:  # which an array's bytes are
        return NotImplemented
    saver.at = cls
    how = BY_TYPE.get(cls)
    if how is not None:
        return how(saver, obj)
    if issubclass(cls, type):
        return reduce_type(saver, obj)
    refuse(obj, cls)
    module = class_module(cls)
    saver.uses(module)
    if module == "numpy" and cls.__name__ == "ndarray":
        return reduce_array(saver, obj)
    if module == "dataclasses":
        return reduce_sentinel(saver, obj)
    if module.startswith("torch") and issubclass(cls, storage_classes()):
        return reduce_storage(saver, obj)
    saver.needs_trial = saver.needs_trial or not loads_surely(cls, module)
    if issubclass(cls, module_dict("torch").get("Tensor", ())):
        return reduce_tensor(saver, obj)
    return NotImplemented


def loads_surely(cls: type, module: str) -> bool:
    """Whether objects of the class always load if their library is installed. For others, above
    all those of the notebook's classes, only a trial shows it."""
    if module.partition(".")[0] in SURE or module in ("numpy.dtypes", "numpy.random"):
        return True
    return issubclass(cls, (module_dict("numpy").get("generic", bytes), bytes))


def reduce_type(saver: Saver, cls: Any) -> Any:
    module = class_module(cls)
    if importable(cls, module, cls.__qualname__):
        saver.uses(module)
        return cls.__qualname__  # dill would save some classes of libraries by value
    if module == "builtins":  # NoneType and others that have no name there
        return NotImplemented
    if saver.plain:
        raise CannotSave(
            "it needs the class %s defined in the notebook, which plain pickle can't keep: "
            "install dill or cloudpickle on the VM and save again" % class_name(cls)
        )
    saver.needs_trial = True
    return reduce_class(cls)
