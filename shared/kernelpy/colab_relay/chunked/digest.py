"""Digests of variables: whether two looks at a variable, in one kernel, saw the same contents.

A variable is pickled into a hash, with no file. Objects that one variable reaches twice, and those
that two variables reach, are part of it, because a copy behaves differently from an alias.
Functions count by their code, defaults and closures; arrays by their bytes. Pickling runs the
__reduce__ and __getstate__ of the user's classes.

A digest means nothing in another kernel.
"""

from __future__ import annotations

import builtins
import hashlib
import pickle
import sys
import threading
import types
import weakref
from time import thread_time  # bound here: code may replace time.thread_time
from typing import Any, Callable, Iterable

from ..safe import class_module, class_name, is_any, known, module_dict
from ..state import rebuild
from ..state.arrays import address, owner_of
from ..state.classes import attributes, is_generated
from ..state.libraries import importable
from ..state.reasons import reason
from ..state.reduce import BY_TYPE, content_of, refuse, scope_of
from ..state.save import deeply, kernel_objects

SLICE = 16 << 20  # bytes hashed before the time is checked again
MAX_SHARED = 400_000  # objects of one variable among which those of other variables are found
EACH_SECONDS = 0.02  # that a variable gets even if those before it took all the time
SLOW = "comparing it takes too long"
# Whether two variables have the same one of these does not matter.
FIXED = (str, bytes, int, float, complex, bool, type(None), tuple, frozenset, range, slice,
         types.CodeType, types.ModuleType, types.BuiltinFunctionType)  # fmt: skip
CACHES = frozenset(
    "__slotnames__ __annotations_cache__ __annotate_func__ __annotate__ __abstractmethods__".split()
)


class Slow(Exception):
    """There is no time left."""


class Look:
    """The digests of variables at one moment, by their names; "" for one that has none."""

    def __init__(
        self, shell: Any, seconds: float, refused: dict[str, str], costs: dict[str, float]
    ) -> None:
        self.names, self.refused, self.costs = shell.user_ns, refused, costs
        self.started = thread_time()
        self.end = self.started + seconds
        self.candidates: set[str] = set()  # names of the run, also of absent variables
        self.reached: set[str] = set()  # those that matter to iterations
        self.digests: dict[str, str] = {}
        self.values: dict[str, Any] = {}  # of those without a digest
        self.ids: dict[str, int] = {}
        self.large: set[str] = set()  # too large to tell what they share with others
        self.shared: dict[str, set[str]] = {}  # by variable: those that share objects with it
        self.reasons: dict[str, str] = {}
        self.functions: list[types.FunctionType] = []  # of the notebook
        machinery = [*kernel_objects(shell).values(), sys.modules, vars(builtins)]
        self.machinery = list({id(obj): obj for obj in machinery}.values())
        # By the memory of arrays: a list that stands for it in the digests of all that share it.
        self.memory: dict[Any, list[Any]] = {}
        self.named: set[int] = set()
        self.plain: set[type] = set()
        self.alive: list[Any] = []
        self.sharers: dict[int, dict[str, int]] = {}  # by object: its place in each variable

    def add(self, name: str, value: Any, optional: bool) -> None:
        """Looks at a variable, unless its digest is refused for a reason. An optional one without
        a digest counts as absent."""
        began, digest, why = thread_time(), "", self.refused.get(name, "")
        self.end = max(self.end, began + EACH_SECONDS)
        if not why:
            try:
                digest = Writer(self, name).digest(value)
            except Slow:
                why = SLOW
            except Exception as e:  # also of the user's __reduce__
                why = reason(e, "comparing it")
        self.costs[name] = thread_time() - began
        if digest or not optional:
            self.digests[name], self.ids[name] = digest, id(value)
        if not (digest or optional):
            self.reasons[name], self.values[name] = why, value

    def finish(self) -> None:
        """Adds to the digests what variables share, and lets go of everything else. Whether one
        that matters to iterations shares objects with one that does not is not part of it."""
        found: dict[str, list[tuple[int, list[str]]]] = {}
        for places in self.sharers.values():
            for name, place in places.items() if len(places) > 1 else ():
                others = places.keys() - {name}
                self.shared.setdefault(name, set()).update(others)
                if name in self.reached:
                    others &= self.reached
                if others:
                    found.setdefault(name, []).append((place, sorted(others)))
        for name, shared in found.items():
            if self.digests.get(name):
                text = repr(sorted(shared)).encode("utf-8", "backslashreplace")
                self.digests[name] += hashlib.blake2b(text, digest_size=8).hexdigest()
        self.seconds = thread_time() - self.started
        del self.sharers, self.alive, self.memory, self.machinery

    def together(self, names: Iterable[str]) -> list[str]:
        """The names and all that share objects with them, directly or not."""
        found, wanted = set(self.large), list(names)
        while wanted:
            name = wanted.pop()
            if name not in found:
                found.add(name)
                wanted += self.shared.get(name, ())
        return sorted(found & self.digests.keys())

    def check(self) -> None:
        if thread_time() > self.end:
            raise Slow

    def content_of(self, array: Any) -> Any:
        """The objects of an array, or the digest of its bytes, which are not copied as a whole."""
        if array.dtype.hasobject:
            return list(array.flat)
        digest, order = hashlib.blake2b(digest_size=16), "F" if array.flags.f_contiguous else "C"
        for piece in module_dict("numpy")["nditer"](
            array,
            ["buffered", "external_loop", "zerosize_ok"],
            [["readonly", "contig"]],
            order=order,
            buffersize=max(1, SLICE // (array.itemsize or 1)),
        ):
            self.check()
            digest.update(piece.view("u1") if piece.nbytes else b"")
        return digest.digest()

    def by_name(self, obj: Any, name: str) -> str:
        """An object that is pickled by its name. That two variables refer to it means nothing."""
        self.named.add(id(obj))
        return name


class Writer(pickle.Pickler):
    """Pickles one variable into a hash."""

    def __init__(self, look: Look, name: str) -> None:
        super().__init__(self, 5)
        self.look, self.name = look, name
        self.hash = hashlib.blake2b(digest_size=16)
        self.memo = {id(obj): (at, obj) for at, obj in enumerate(look.machinery)}
        self.own = len(look.machinery)
        self.written = 0

    def digest(self, value: Any) -> str:
        with rebuild.importable(), deeply():
            self.dump(value)
        self.look.check()
        if self.written < 8 * MAX_SHARED:
            self.find_shared()
        else:
            self.look.large.add(self.name)
        return self.hash.hexdigest()

    def find_shared(self) -> None:
        memo = self.memo.copy()
        self.look.alive.append(memo)  # so that no other object gets the id of one in it
        for key, (place, obj) in memo.items():
            if place >= self.own and type(obj) not in FIXED and key not in self.look.named:
                self.look.sharers.setdefault(key, {})[self.name] = place

    def write(self, data: Any) -> int:
        self.look.check()
        self.hash.update(data)
        self.written += len(data)
        return len(data)

    def reducer_override(self, obj: Any) -> Any:
        look, cls = self.look, type(obj)
        if cls in look.plain:
            return NotImplemented
        look.check()
        how = HOW.get(cls)
        if how is not None:
            return how(look, obj)
        if issubclass(cls, type):
            return reduce_class(look, obj)
        refuse(obj, cls)
        if cls.__module__ == "numpy" and cls.__name__ == "ndarray":
            return reduce_array(look, obj)
        if is_any(cls, known("pandas", "DataFrame", "Series")):
            return reduce_frame(look, obj)
        if "torch" in sys.modules and issubclass(cls, tuple(known("torch", "Tensor"))):
            return reduce_tensor(look, obj)
        look.plain.add(cls)
        return NotImplemented


# How to reduce objects: a tuple stands for the object, and its state may refer to the object.


def reduce_function(look: Look, f: types.FunctionType) -> Any:
    if importable(f, f.__module__, f.__qualname__):
        return look.by_name(f, f.__qualname__)
    if f.__globals__ is look.names:
        look.functions.append(f)
    state = (f.__defaults__, f.__kwdefaults__, f.__closure__, f.__dict__, scope_of(f))
    return tuple, (("function", f.__name__, f.__code__),), state


def reduce_code(look: Look, code: types.CodeType) -> Any:
    """Without its place in a file, so that the same function defined again has the same digest."""
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    table = getattr(code, "co_exceptiontable", b"")
    state = (code.co_name, counts, names, code.co_code, table, code.co_consts)
    return tuple, (("code",),), state


def reduce_class(look: Look, cls: Any) -> Any:
    module, name = class_module(cls), type.__dict__["__qualname__"].__get__(cls)
    if importable(cls, module, name):
        return look.by_name(cls, name)
    if module == "builtins":  # such as that of functions
        return tuple, (("builtin", name),)
    own = {
        k: v for k, v in attributes(cls).items() if k not in CACHES and not is_generated(cls, k, v)
    }
    return tuple, (("class", type(cls), name, module, cls.__bases__),), own


def reduce_array(look: Look, array: Any) -> Any:
    owner = owner_of(array)
    token = look.memory.setdefault(address(owner) if array.size else id(array), [])
    plain = array.dtype.names is None and not array.dtype.hasobject
    kind = array.dtype.str if plain else array.dtype
    place = address(array) - address(owner), array.strides
    shape = (kind, array.shape, place, array.flags.writeable)
    return tuple, (("array", shape, token),), look.content_of(array)


def reduce_frame(look: Look, frame: Any) -> Any:
    """By columns, because reading a frame may move its columns in memory."""
    cls, flags = class_name(type(frame)), frame.flags.allows_duplicate_labels
    series = cls == "Series"
    count = 1 if series else frame.shape[1]
    arrays = (frame.array if series else frame.iloc[:, k].array for k in range(count))
    names = frame.name if series else frame.columns
    state = ([column(look, array) for array in arrays], names, frame.index, frame.attrs)
    return tuple, (("frame", cls, flags),), state


def column(look: Look, array: Any) -> Any:
    look.check()
    inner: Any = getattr(array, "_ndarray", None)
    if type(inner) is not module_dict("numpy")["ndarray"]:
        return array
    kind = (class_name(type(array)), str(array.dtype), inner.dtype.str, inner.shape)
    return kind, look.content_of(inner)


def reduce_tensor(look: Look, tensor: Any) -> Any:
    torch, cls = module_dict("torch"), type(tensor)
    if tensor.layout is not torch["strided"] or tensor.is_quantized or tensor.device.type == "meta":
        return NotImplemented
    with torch["no_grad"]():
        flat = tensor.detach().contiguous().reshape(-1).view(torch["uint8"]).cpu().numpy()
    storage = tensor.untyped_storage()
    token = look.memory.setdefault((str(tensor.device), storage.data_ptr()), [])
    shape = (str(tensor.dtype), tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    where = (str(tensor.device), tensor.requires_grad, cls)
    state = (tensor.grad if tensor.is_leaf else None, dict(tensor.__dict__))
    return tuple, (("tensor", shape, where, token, look.content_of(flat)),), state


# Other objects have their reduction of saved states, which needs no saver.
HOW: dict[Any, Callable[[Any, Any], Any]] = {
    **BY_TYPE,
    types.FunctionType: reduce_function,
    types.CodeType: reduce_code,
    types.CellType: lambda look, cell: (tuple, (("cell",),), content_of(cell)),
    types.ModuleType: lambda look, module: (tuple, (("module", vars(module).get("__name__")),)),
    type(threading.Lock()): lambda look, lock: (tuple, (("lock",),)),
    type(threading.RLock()): lambda look, lock: (tuple, (("reentrant lock",),)),
    weakref.ref: lambda look, reference: (tuple, (("weak",),), (reference(),)),
}


def differs(a: Look, b: Look, name: str) -> bool:
    """Whether a variable differs between two looks. One without a digest counts as changed."""
    first, second = a.digests.get(name), b.digests.get(name)
    return first != second or first == ""


def replaced(a: Look, b: Look, name: str) -> bool:
    """The same for other code: it has changed one without a digest if that is another object."""
    unknown = "" in (a.digests.get(name), b.digests.get(name))
    return a.ids.get(name) != b.ids.get(name) if unknown else differs(a, b, name)
