"""Inspects live values: which names found by dependence.py can have changed, and which other
variables share objects with them. It runs no user code."""

from __future__ import annotations

import datetime
import decimal
import fractions
import gc
import math
import pathlib
import re
import sys
import time
import types
import uuid
from typing import TYPE_CHECKING, Any, Collection, Iterable

if TYPE_CHECKING:
    Names = dict[str, list[str]]  # names to the kinds of change, see dependence.py

ATOMS = (
    int, float, complex, bool, str, bytes, type(None), type(...), range, slice, re.Pattern,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    decimal.Decimal, fractions.Fraction, uuid.UUID,
    type(pathlib.PurePath()), type(pathlib.Path()),
)  # fmt: skip
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.BuiltinMethodType)
# The methods that change an object of exactly this type.
METHODS: dict[Any, str] = {
    list: "append clear extend insert pop remove reverse sort",
    dict: "clear pop popitem setdefault update",
    set: "add clear difference_update discard intersection_update pop remove "
    "symmetric_difference_update update",
    tuple: "",
    frozenset: "",
    bytearray: "append clear extend insert pop remove reverse",
}
CHANGING_METHODS = {cls: frozenset(names.split()) for cls, names in METHODS.items()}
# The methods that change an object of a library's type, by package and name.
CHANGING_METHODS_OF_LIBRARIES = {
    ("numpy", "ndarray"): frozenset("byteswap fill itemset partition put resize setfield "
                                    "setflags sort".split()),
    ("pandas", "DataFrame"): frozenset(["insert", "pop", "update"]),
    ("pandas", "Series"): frozenset(["pop", "update"]),
}  # fmt: skip
MAX_ITEMS = 100_000  # of one container that are checked
MAX_REFERRER_SEARCHES = 64  # objects whose referrers are searched
MAX_OBJECTS = 1_000_000  # visited in a search for shared ones: about half a second


class TooMany(Exception):
    """More than MAX_OBJECTS objects."""


class TooSlow(Exception):
    """The search took longer than allowed."""


def narrow(names: Names, namespace: dict[str, Any]) -> Names:
    """The names whose values in the namespace can change in at least one of these ways."""
    narrowed = {}
    for name, kinds in names.items():
        if "store" in kinds:
            narrowed[name] = kinds
        elif name in namespace and any(can_change(namespace[name], kind) for kind in kinds):
            narrowed[name] = kinds
    return narrowed


def can_change(value: Any, kind: str) -> bool:
    if is_fixed(value):
        return False
    if isinstance(value, types.ModuleType):
        return False  # the state of a module cannot be saved anyway
    if kind == "call":
        return type(value) is types.FunctionType and keeps_state(value)
    if isinstance(value, type):
        return kind not in ("pass", "iterate") and title(value)[0] == "__main__"
    if type(value) in FUNCTIONS:
        return kind == "change"
    if kind == "iterate":
        return hasattr(type(value), "__next__")
    if kind in ("part", "pass-part"):
        return not has_fixed_items(value)
    if kind.startswith("[]."):
        return not has_fixed_items(value) and method_changes(value, kind[3:])
    if kind.startswith("."):
        return method_changes(value, kind[1:])
    return True


def is_fixed(value: Any, depth: int = 0) -> bool:
    """Whether neither a value nor anything in it can change."""
    cls = type(value)
    if cls in ATOMS or is_of(cls, ("numpy", "generic")):
        return True
    if cls in (tuple, frozenset) and depth < 5 and len(value) <= MAX_ITEMS:
        return all(is_fixed(item, depth + 1) for item in value)
    return False


def is_of(cls: type, *names: tuple[str, str]) -> bool:
    """Whether a class is, or derives from, a library's class with one of these titles."""
    roots = {title(base) for base in type.__dict__["__mro__"].__get__(cls)}
    return any(name in roots for name in names)


def title(cls: type) -> tuple[str, str]:
    """The package and the name of a class, without running code of its metaclass."""
    module, name = [type.__dict__[key].__get__(cls) for key in ("__module__", "__name__")]
    return str(module).partition(".")[0], name


def has_fixed_items(value: Any) -> bool:
    """Whether all items of a container are fixed, so that only the container can change."""
    cls = type(value)
    if cls is dict:
        value = value.values()
    elif is_array(value):
        return value.ndim < 2 and not value.dtype.hasobject
    elif cls not in (list, set, tuple, frozenset, bytearray):
        return False
    return len(value) <= MAX_ITEMS and all(is_fixed(item) for item in value)


def method_changes(value: Any, method: str) -> bool:
    cls = type(value)
    if cls in CHANGING_METHODS:
        return method in CHANGING_METHODS[cls] or belongs_to_items(cls, method)
    changing = CHANGING_METHODS_OF_LIBRARIES.get(title(cls))
    return changing is None or method in changing


def belongs_to_items(cls: type, method: str) -> bool:
    """Whether a method in x[i].m() belongs to the items of x, not to x."""
    return not hasattr(cls, method)


def keeps_state(function: types.FunctionType) -> bool:
    """Whether a function has variables that outlive a call, such as a closure's."""
    defaults = (function.__defaults__ or ()) + tuple((function.__kwdefaults__ or {}).values())
    cells = [cell for cell in function.__closure__ or () if not is_empty(cell)]
    state = list(defaults) + [cell.cell_contents for cell in cells]
    changeable = [value for value in state if type(value) not in FUNCTIONS and not is_fixed(value)]
    return bool(changeable) or bool(function.__closure__) and rebinds(function.__code__)


def is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return True
    return False


def rebinds(code: types.CodeType) -> bool:
    """Whether a function stores into a variable of the function around it."""
    import dis

    return any(
        step.opname == "STORE_DEREF" and step.argval in code.co_freevars
        for step in dis.get_instructions(code)
    )


def sharers(
    names: Iterable[str], namespace: dict[str, Any], seconds: float = math.inf
) -> list[str]:
    """The names and all other variables that share a changeable object with one of them. If only
    one of the two were restored, the other would no longer follow its changes."""
    search = Search(namespace, seconds)
    together = [name for name in names if name in namespace]
    for name in together:
        search.add(namespace[name])
    others = [name for name in namespace if name not in names and may_share(name, namespace[name])]
    if not search.may_be_shared():  # gc does not know what arrays refer to
        others = [name for name in others if search.may_reach(namespace[name])]
    while True:
        joined = [name for name in others if search.reaches(namespace[name])]
        if not joined:
            return sorted(together)
        for name in joined:
            search.add(namespace[name])
        together += joined
        others = [name for name in others if name not in joined]


def may_share(name: str, value: Any) -> bool:
    cls = type(value)
    return not (name.startswith("_") or is_fixed(value) or issubclass(cls, types.ModuleType))


def is_array(value: Any) -> bool:
    return is_of(type(value), ("numpy", "ndarray"))


class Search:
    """Follows references from value to value, but not into modules, classes and the machinery of
    the kernel, which refer to almost everything."""

    MACHINERY = frozenset(
        "IPython ipykernel traitlets zmq tornado logging threading asyncio weakref".split()
    )

    def __init__(self, namespace: dict[str, Any], seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.excluded = {id(namespace), id(sys.modules)}
        self.excluded.update(id(vars(module)) for module in modules())
        self.found: dict[int, Any] = {}
        self.visited = 0

    def add(self, value: Any) -> None:
        self.follow(value, self.found)

    def reaches(self, value: Any) -> bool:
        return self.follow(value, {}, self.found)

    def follow(self, value: Any, seen: dict[int, Any], targets: Collection[int] = ()) -> bool:
        """Adds value and every object that it refers to, directly or not, to seen. Returns True at
        the first target."""
        stack = [value]
        while stack:
            value = stack.pop()
            if id(value) in seen or id(value) in self.excluded or self.is_out_of_scope(value):
                continue
            seen[id(value)] = value
            if id(value) in targets and can_be_shared(value):
                return True
            self.visited += 1
            if self.visited > MAX_OBJECTS:
                raise TooMany
            if self.visited % 1000 == 0 and time.monotonic() > self.end:
                raise TooSlow
            stack.extend(referents(value))
        return False

    def may_be_shared(self) -> bool:
        """Whether other objects may refer to those that add found. The garbage collector answers
        that quickly for a few objects. For more, the answer is True without a search."""
        shared = [value for value in self.found.values() if can_be_shared(value)]
        if len(shared) > MAX_REFERRER_SEARCHES:
            return True
        if not self.has_outside_referrer(shared):
            return False
        gc.collect()  # a referrer may be garbage of an earlier search
        return self.has_outside_referrer(shared)

    def has_outside_referrer(self, shared: list[Any]) -> bool:
        ours = {id(shared), id(self.found)} | self.excluded
        return any(
            id(referrer) not in ours
            and id(referrer) not in self.found
            and type(referrer) is not types.FrameType
            for referrer in gc.get_referrers(*shared)
        )

    def may_reach(self, value: Any) -> bool:
        return id(value) in self.found or is_array(value)

    def is_out_of_scope(self, value: Any) -> bool:
        cls = type(value)
        if cls in ATOMS or issubclass(cls, (type, types.ModuleType, types.CodeType)):
            return True
        return title(cls)[0] in self.MACHINERY


def modules() -> list[types.ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]


def referents(value: Any) -> list[Any]:
    if is_array(value):
        # Two arrays share memory if they lead to the same owner.
        items = list(value.flat) if value.dtype.hasobject else []
        return items + ([value.base] if value.base is not None else [])
    return gc.get_referents(value)


def can_be_shared(value: Any) -> bool:
    """Whether it matters that two variables lead to the same object."""
    return (
        type(value) not in (tuple, frozenset) + FUNCTIONS
        and gc.is_tracked(value)
        or (type(value) in (bytearray, dict, list) or is_of(type(value), ("numpy", "ndarray")))
    )
