"""Inspects live values: which names found by dependence.py can have changed, and which other
variables share objects with them. No code of the user's runs."""

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
    Names = dict[str, list[str]]  # names to the ways they may change, see dependence.py

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
CHANGING = {cls: frozenset(names.split()) for cls, names in METHODS.items()}
# The same for types of libraries, by package and name.
CHANGING_OF = {
    ("numpy", "ndarray"): frozenset("byteswap fill itemset partition put resize setfield "
                                    "setflags sort".split()),
    ("pandas", "DataFrame"): frozenset(["insert", "pop", "update"]),
    ("pandas", "Series"): frozenset(["pop", "update"]),
}  # fmt: skip
MOST_ITEMS = 100_000  # of a container that are checked
FEW = 64  # objects whose referrers are searched, each compared with each
MOST_OBJECTS = 1_000_000  # visited in a search for shared ones: about half a second


class TooMany(Exception):
    """More than MOST_OBJECTS objects."""


class TooSlow(Exception):
    """The time for the search is over."""


def settle(names: Names, namespace: dict[str, Any]) -> Names:
    """The names whose values in the namespace can change in one of their ways."""
    settled = {}
    for name, ways in names.items():
        if "store" in ways:
            settled[name] = ways
        elif name in namespace and any(can_change(namespace[name], way) for way in ways):
            settled[name] = ways
    return settled


def can_change(value: Any, way: str) -> bool:
    if is_fixed(value):
        return False
    if isinstance(value, types.ModuleType):
        return False  # the state of a module cannot be kept anyway
    if way == "call":
        return type(value) is types.FunctionType and keeps_state(value)
    if isinstance(value, type):
        return way not in ("pass", "iterate") and title(value)[0] == "__main__"
    if type(value) in FUNCTIONS:
        return way == "change"
    if way == "iterate":
        return hasattr(type(value), "__next__")
    if way in ("part", "pass-part"):
        return not has_fixed_items(value)
    if way.startswith("[]."):
        return not has_fixed_items(value) and method_changes(value, way[3:])
    if way.startswith("."):
        return method_changes(value, way[1:])
    return True


def is_fixed(value: Any, depth: int = 0) -> bool:
    """Whether neither a value nor anything in it can change."""
    cls = type(value)
    if cls in ATOMS or is_of(cls, ("numpy", "generic")):
        return True
    if cls in (tuple, frozenset) and depth < 5 and len(value) <= MOST_ITEMS:
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
    return len(value) <= MOST_ITEMS and all(is_fixed(item) for item in value)


def method_changes(value: Any, method: str) -> bool:
    cls = type(value)
    if cls in CHANGING:
        return method in CHANGING[cls] or not_its_own(cls, method)
    return method in CHANGING_OF[title(cls)] if title(cls) in CHANGING_OF else True


def not_its_own(cls: type, method: str) -> bool:
    """Whether a method in x[i].m() belongs to the items of x, not to x."""
    return not hasattr(cls, method)


def keeps_state(function: types.FunctionType) -> bool:
    """Whether a function has variables that outlive a call, such as a closure's."""
    defaults = (function.__defaults__ or ()) + tuple((function.__kwdefaults__ or {}).values())
    cells = [cell for cell in function.__closure__ or () if not is_empty(cell)]
    kept = list(defaults) + [cell.cell_contents for cell in cells]
    changeable = [value for value in kept if type(value) not in FUNCTIONS and not is_fixed(value)]
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
        search.take_in(namespace[name])
    others = [name for name in namespace if name not in names and may_share(name, namespace[name])]
    if not search.is_referred_to():  # gc does not know what arrays refer to
        others = [name for name in others if search.may_meet(namespace[name])]
    while True:
        joined = [name for name in others if search.meets(namespace[name])]
        if not joined:
            return sorted(together)
        for name in joined:
            search.take_in(namespace[name])
        together += joined
        others = [name for name in others if name not in joined]


def may_share(name: str, value: Any) -> bool:
    cls = type(value)
    return not (name.startswith("_") or is_fixed(value) or issubclass(cls, types.ModuleType))


def is_array(value: Any) -> bool:
    return is_of(type(value), ("numpy", "ndarray"))


class Search:
    """Follows references from value to value, but not into modules, classes and the machinery of
    the kernel, which lead everywhere."""

    MACHINERY = frozenset(
        "IPython ipykernel traitlets zmq tornado logging threading asyncio weakref".split()
    )

    def __init__(self, namespace: dict[str, Any], seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.passed = {id(namespace), id(sys.modules)}
        self.passed.update(id(vars(module)) for module in modules())
        self.known: dict[int, Any] = {}
        self.looked_at = 0

    def take_in(self, value: Any) -> None:
        self.follow(value, self.known)

    def meets(self, value: Any) -> bool:
        return self.follow(value, {}, self.known)

    def follow(self, value: Any, seen: dict[int, Any], wanted: Collection[int] = ()) -> bool:
        """Adds the objects that value leads to, to seen. Stops, with True, at a wanted object."""
        stack = [value]
        while stack:
            value = stack.pop()
            if id(value) in seen or id(value) in self.passed or self.leads_astray(value):
                continue
            seen[id(value)] = value
            if id(value) in wanted and can_be_shared(value):
                return True
            self.looked_at += 1
            if self.looked_at > MOST_OBJECTS:
                raise TooMany
            if self.looked_at % 1000 == 0 and time.monotonic() > self.end:
                raise TooSlow
            stack.extend(referents(value))
        return False

    def is_referred_to(self) -> bool:
        """Whether anything else refers to the objects that take_in found. For few objects the
        collector answers quickly; a search of all other variables may take very long."""
        shared = [value for value in self.known.values() if can_be_shared(value)]
        if len(shared) > FEW:
            return True
        if not self.refer_to(shared):
            return False
        gc.collect()  # a referrer may be garbage of an earlier search
        return self.refer_to(shared)

    def refer_to(self, shared: list[Any]) -> bool:
        ours = {id(shared), id(self.known)} | self.passed
        return any(
            id(referrer) not in ours
            and id(referrer) not in self.known
            and type(referrer) is not types.FrameType
            for referrer in gc.get_referrers(*shared)
        )

    def may_meet(self, value: Any) -> bool:
        return id(value) in self.known or is_array(value)

    def leads_astray(self, value: Any) -> bool:
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
