"""Reads a cell's statements in their order.

A name counts as read if it is read before every path to that point has bound it, and as stored
if every path through the cell binds it. chunked.dependence.Reader follows the paths."""

from __future__ import annotations

import ast
import re
import time
from typing import Any, Callable, Iterable

from ..chunked import dependence
from ..chunked.scope import Definitions
from .functions import Function
from .names import Origin, start_of
from .use import Effects, Use

# The results of earlier cells, as IPython names them.
EARLIER_RESULT = re.compile(r"(_{1,3}|_i{0,3}|_\d+|_oh|Out)$")


class OutOfTime(Exception):
    """The time for reading is over."""


class Names(Effects, dependence.Reader):
    """What happens to the names of one cell."""

    def __init__(self, transform: Callable[[str], str], deadline: float) -> None:
        dependence.Reader.__init__(self, Definitions(), transform)
        self.deadline = deadline
        self.use = Use()
        self.imports: set[str] = set()
        self.functions: dict[str, list[Function]] = {}
        self.origins: dict[str, Origin] = {}
        self.changed_own: set[str] = set()  # names that the cell had certainly bound
        self.called_names: set[str] = set()
        self.class_names: list[set[str]] = []  # of the classes whose bodies are being read

    def run(self, text: str) -> None:
        self.body(ast.parse(self.transform(text)))

    def body(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            start = start_of(node.func) if isinstance(node, ast.Call) else None
            if start is not None:
                self.called_names.add(start)
        self.statements(tree.body)

    def statements(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if time.monotonic() > self.deadline:
                raise OutOfTime
            self.visit(node)

    def stores(self) -> set[str]:
        """What the cell has certainly bound at its end."""
        return set() if self.flow.dead else self.flow.names & self.use.may_store

    def settle(self) -> None:
        """Names that the cell bound and then changed may be other names' values."""
        pending, seen = list(self.changed_own), set(self.changed_own)
        while pending:
            name = pending.pop()
            for other in self.origins[name].same if name in self.origins else ():
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
                    self.use.changes.add(other)

    def read(self, name: str) -> None:
        if self.is_hidden(name):
            return
        self.expose(name)
        pending, seen = list(self.functions.get(name, ())), set()
        while pending:
            function = pending.pop()
            if id(function) not in seen:
                seen.add(id(function))
                self.apply_function(function)
                for inner in function.use.reads:
                    pending.extend(self.functions.get(inner, ()))

    def expose(self, name: str) -> None:
        """Notes that the value which the name has before this point may be read."""
        if name in self.flow:
            return
        self.use.reads.add(name)
        self.use.opaque_read |= bool(EARLIER_RESULT.match(name))
        if name in self.called_names:
            call, bound = self.use.call(name), self.flow.names
            call.bound = set(bound) if call.bound is None else call.bound & bound

    def apply_function(self, function: Function) -> None:
        """A function that is named may be called here."""
        use = function.use
        for name in use.reads:
            self.expose(name)
        for name in use.changes:
            self.change_name(name)
        for name in use.methods:
            self.method_of(name)
        for name, call in use.calls.items():
            self.call_of(name, call.passed, call.bare)
        self.use.may_store |= use.may_store
        self.use.opaque_read |= use.opaque_read
        self.use.opaque_write |= use.opaque_write

    def store(self, name: str) -> None:
        if self.class_names and self.hidden and self.hidden[-1] is self.class_names[-1]:
            self.hidden[-1].add(name)
        elif not self.is_hidden(name):
            self.use.may_store.add(name)
            self.flow.add(name)

    def change(self, node: Any, own: str = "", part: str = "") -> None:
        """The value of a name, or of the name that an expression starts from, changes in place.
        own and part are the kinds of chunked; reading from an iterator counts as no change."""
        name = node if isinstance(node, str) else start_of(node)
        if name is not None and own != "iterate" and not self.is_hidden(name):
            self.change_name(name)

    def add_kind(self, name: str, kind: str) -> None:
        self.change(name)

    def change_name(self, name: str) -> None:
        if name in self.flow:
            self.changed_own.add(name)
        else:
            self.expose(name)
            self.use.changes.add(name)

    def method(self, name: str) -> None:
        if not self.is_hidden(name):
            self.method_of(name)

    def method_of(self, name: str) -> None:
        if name not in self.flow:
            self.use.methods.add(name)
        elif name not in self.imports:
            self.changed_own.add(name)

    def called(self, name: str, passed: set[str], bare: bool) -> None:
        if not self.is_hidden(name):
            self.call_of(name, {p for p in passed if not self.is_hidden(p)}, bare)

    def call_of(self, name: str, passed: set[str], bare: bool) -> None:
        own = self.functions.get(name, ())
        known = name in self.flow and (own or name in self.imports)
        if any(function.changes_arguments for function in own) or known and bare and not own:
            for argument in passed:
                self.change_name(argument)
        if known:
            return
        call = self.use.call(name)
        call.is_called = True
        call.passed |= passed
        call.bare |= bare

    def store_item(self, name: str) -> None:
        self.use.may_store.add(name)

    def alias(self, name: str, value: Any) -> None:
        if self.is_hidden(name):
            return
        origin = self.origins.setdefault(name, Origin())
        origin.add(value)
        for lazy in origin.lazy:
            self.functions.setdefault(name, []).append(Function(lazy))
        origin.lazy = []
