"""What code does to the names around it, collected, and as plain values for the relay."""

from __future__ import annotations

import ast
from typing import Any

from .names import (
    CHANGES_FIRST,
    HARMLESS,
    MUTATING,
    SETTINGS,
    Origin,
    arguments_of,
    callee,
    start_of,
)

MAX_NAMES = 5_000  # of one cell, over all its lists
MAX_LENGTH = 200  # of one name


class TooMuch(Exception):
    """The code names more than an answer may have."""


class CallOf:
    """How a name is called."""

    def __init__(self) -> None:
        self.is_called = False  # or else only read
        self.passed: set[str] = set()
        self.bare = False
        self.bound: set[str] | None = None  # None: not read from outside


class Use:
    """The names around some code that it reads, may bind and may change. See relay/dataflow."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.may_store: set[str] = set()
        self.changes: set[str] = set()
        self.methods: set[str] = set()
        self.calls: dict[str, CallOf] = {}
        self.opaque_read = self.opaque_write = False

    def opaque(self) -> None:
        self.opaque_read = self.opaque_write = True

    def call(self, name: str) -> CallOf:
        return self.calls.setdefault(name, CallOf())

    def merge(self, other: Use) -> None:
        self.reads |= other.reads
        self.may_store |= other.may_store
        self.changes |= other.changes
        self.methods |= other.methods
        self.opaque_read |= other.opaque_read
        self.opaque_write |= other.opaque_write
        for name, call in other.calls.items():
            self.call(name).is_called |= call.is_called
            self.call(name).passed |= call.passed
            self.call(name).bare |= call.bare

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "reads": names(self.reads),
            "may_store": names(self.may_store),
            "changes": names(self.changes),
            "methods": names(self.methods),
            "calls": {
                name: plain_call(self.calls[name])
                for name in names(self.calls)
                if self.calls[name].is_called
            },
            "opaque_read": self.opaque_read,
            "opaque_write": self.opaque_write,
        }
        return filled(found)


def plain_call(call: CallOf) -> dict[str, Any]:
    found = {"bound": names(call.bound or ()), "passed": names(call.passed), "bare": call.bare}
    return filled(found)


def plain_origin(origin: Origin) -> dict[str, Any]:
    found = {"same": origin.same, "passed": origin.passed, "called": origin.called}
    return filled({key: names(value) for key, value in found.items()})


def filled(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def names(found: Any) -> list[str]:
    if len(found) > MAX_NAMES or any(len(name) > MAX_LENGTH for name in found):
        raise TooMuch
    return sorted(found)


class Effects:
    """Tells from calls what they may do. Its subclasses say what a name stands for."""

    use: Use

    def read(self, name: str) -> None:
        raise NotImplementedError

    def change(self, name: str) -> None:
        """The value of the name changes in place."""
        raise NotImplementedError

    def method(self, name: str) -> None:
        """A method of the name's value is called for its effect."""
        raise NotImplementedError

    def called(self, name: str, passed: set[str], bare: bool) -> None:
        raise NotImplementedError

    def store_item(self, name: str) -> None:
        """An item of globals() is stored."""
        raise NotImplementedError

    def alias(self, name: str, value: Any) -> None:
        """The value of the name is, or holds, this one."""
        raise NotImplementedError

    def change_root(self, node: Any) -> None:
        start = start_of(node)
        if start is not None:
            self.change(start)

    def call_effects(self, node: ast.Call, used: bool) -> None:
        name = callee(node)
        if any(k.arg == "inplace" for k in node.keywords) and isinstance(node.func, ast.Attribute):
            self.change_root(node.func.value)
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.change_root(keyword.value)
        if node.args and (name in CHANGES_FIRST or name.endswith("_") and not name.endswith("__")):
            self.change_root(node.args[0])
        if isinstance(node.func, ast.Name):
            self.call_name(node, node.func.id, used)
        elif isinstance(node.func, ast.Attribute):
            self.call_method(node, node.func, used)

    def call_name(self, node: ast.Call, name: str, used: bool) -> None:
        if name not in HARMLESS:
            self.called(name, passed_by(node), not used)

    def call_method(self, node: ast.Call, func: ast.Attribute, used: bool) -> None:
        start = start_of(func.value)
        if start is None or start in HARMLESS:  # as in open(path, "w").write(text)
            return
        known = func.attr in MUTATING
        if func.attr in SETTINGS or known and not isinstance(func.value, ast.Name):
            self.change(start)
        elif known or not used or func.attr.endswith("_") and not func.attr.endswith("__"):
            self.method(start)
        if known:
            for argument in arguments_of(node):  # it may hold them from now on
                self.alias(start, argument)
        self.called(start, passed_by(node), False)


def passed_by(node: ast.Call) -> set[str]:
    """The names whose values, or parts of them, a call gets."""
    origin = Origin()
    for argument in arguments_of(node):
        origin.add(argument)
    return origin.same


def is_constant_item(node: Any) -> str | None:
    """The name in globals()["name"]."""
    index = getattr(node.slice, "value", node.slice)  # Python 3.8 has an ast.Index around it
    index = node.slice if isinstance(node.slice, ast.Constant) else index
    value = getattr(index, "value", None)
    return value if isinstance(value, str) and value.isidentifier() else None
