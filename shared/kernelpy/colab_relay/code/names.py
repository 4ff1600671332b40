"""Which global names code reads and binds: all of them by its instructions, and those that it binds
before it reads them by its syntax. Where that is not sure, a name counts as read."""

from __future__ import annotations

import ast
import dis
import functools
import types
from typing import Any, Callable, Iterator

READS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL")
IMMEDIATE = ("<listcomp>", "<setcomp>", "<dictcomp>")
# Contexts that let every exception through; others may end their block early.
LASTING = frozenset("open no_grad inference_mode autocast GradientTape catch_warnings".split())


def uses_of(code: types.CodeType, top: bool = True) -> tuple[set[str], set[str]]:
    """The global names that code, and the code in it, stores and reads. At the top level and in
    the body of a class, every name that is read may be a global one."""
    stores, reads = set(), set()
    for step in dis.get_instructions(code):
        if step.opname in READS:
            reads.add(str(step.argval))
        elif step.opname == "STORE_GLOBAL" or top and step.opname == "STORE_NAME":
            stores.add(str(step.argval))
    for inner in inside(code):
        more = uses_of(inner, False)
        stores |= more[0]
        reads |= more[1]
    return stores, reads


@functools.lru_cache(1000)  # each look at a run's variables asks again
def used_by(code: types.CodeType) -> set[str]:
    """The global names that a function uses."""
    return set.union(*uses_of(code, False))


def inside(code: types.CodeType) -> Iterator[types.CodeType]:
    return (const for const in code.co_consts if isinstance(const, types.CodeType))


def deferred(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in inside(code):
        if inner.co_name in IMMEDIATE:
            yield from deferred(inner)
        else:
            yield inner


def called(call: ast.Call) -> str | None:
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


class Flow(ast.NodeVisitor):
    """Reads a body in the order of its evaluation. bound has the names that every path to this
    point has bound; None after a point that is never reached."""

    def __init__(self, statements: list[ast.stmt]) -> None:
        self.bound: set[str] | None = set()
        self.stored: set[str] = set()
        self.exposed: set[str] = set()  # read where they may not have been bound, or deleted
        self.assigned: set[str] = set()  # otherwise than as the target of a for statement
        self.loops = 0  # around this point
        self.breaks: list[ast.Break] = []  # out of the body itself
        self.ends: list[set[str] | None] = []
        self.parts(statements)
        ends = [bound for bound in [*self.ends, self.bound] if bound is not None]
        self.certain: set[str] = set.intersection(*ends) if ends else set()
        # Names that every iteration binds, or that only for statements do.
        self.temporary = (self.certain | self.stored - self.assigned) - self.exposed

    def parts(self, *parts: Any) -> None:
        """Visits nodes and lists of nodes in this order."""
        for part in parts:
            for node in part if isinstance(part, list) else [part]:
                if isinstance(node, ast.AST):
                    self.visit(node)

    def store(self, name: str) -> None:
        self.stored.add(name)
        self.assigned.add(name)
        if self.bound is not None:
            self.bound = self.bound | {name}

    def either(self, *paths: Callable[[], object]) -> None:
        start, ends = self.bound, []
        for path in paths:
            self.bound = start
            path()
            if self.bound is not None:
                ends.append(self.bound)
        self.bound = set.intersection(*ends) if ends else None

    def maybe(self, *paths: Callable[[], object]) -> None:
        """Paths that may be left at any point, or not be taken: what they bind is not certain."""
        self.either(lambda: None, *paths)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.store(node.id)
        elif isinstance(node.ctx, ast.Del) or self.bound is not None and node.id not in self.bound:
            self.exposed.add(node.id)  # a deleted name would be absent afterwards

    def visit_Assign(self, node: Any) -> None:
        targets = getattr(node, "targets", None) or node.target
        # An annotation alone binds nothing.
        self.parts(getattr(node, "annotation", None), node.value, node.value and targets)

    visit_NamedExpr = visit_AnnAssign = visit_Assign

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit(ast.Name(node.target.id, ast.Load()))
        self.parts(node.value, node.target)

    def visit_Import(self, node: Any) -> None:
        for item in node.names:
            self.store(item.asname or item.name.partition(".")[0])

    visit_ImportFrom = visit_Import

    def definition(self, node: Any) -> None:
        """Of a function or class, only what is evaluated here: Uses.later has the rest."""
        self.parts(*[value for field, value in ast.iter_fields(node) if field != "body"])
        if not isinstance(node, ast.Lambda):
            self.store(node.name)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = definition

    def comprehension(self, node: Any) -> None:
        """What it binds is its own, except by an assignment expression, which is not certain."""
        self.visit(node.generators[0].iter)
        targets = [n for g in node.generators for n in ast.walk(g.target)]
        start = self.bound
        if start is not None:
            self.bound = start | {n.id for n in targets if isinstance(n, ast.Name)}
        self.parts(*[part for g in node.generators for part in (g.iter, g.ifs)])
        self.parts(*[getattr(node, field, None) for field in ("key", "value", "elt")])
        self.bound = start

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def unsure(self, node: ast.AST) -> None:
        self.maybe(lambda: self.generic_visit(node))

    visit_BoolOp = visit_Compare = visit_IfExp = visit_match_case = unsure

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.either(lambda: self.parts(node.body), lambda: self.parts(node.orelse))

    def visit_For(self, node: Any) -> None:
        self.parts(getattr(node, "iter", None), getattr(node, "test", None))

        def body() -> None:
            before = set(self.assigned)
            self.parts(getattr(node, "target", None))
            self.assigned = before
            self.loops += 1
            self.parts(node.body)
            self.loops -= 1

        self.maybe(body, lambda: self.parts(node.orelse))

    visit_While = visit_AsyncFor = visit_For

    def visit_Try(self, node: Any) -> None:
        start = self.bound
        handlers = [lambda h=h: self.parts(h.type, h.body) for h in node.handlers]
        self.either(lambda: self.parts(node.body, node.orelse), *handlers)
        self.exposed.update(h.name for h in node.handlers if h.name)  # deleted at its end
        end, self.bound = self.bound, start
        self.parts(node.finalbody)
        self.bound = None if end is None or self.bound is None else end | self.bound

    visit_TryStar = visit_Try

    def visit_With(self, node: Any) -> None:
        for item in node.items:
            self.parts(item.context_expr, item.optional_vars)
        calls = [item.context_expr for item in node.items]
        if all(isinstance(call, ast.Call) and called(call) in LASTING for call in calls):
            self.parts(node.body)
        else:
            self.maybe(lambda: self.parts(node.body))

    def leave(self, node: ast.AST) -> None:
        self.generic_visit(node)
        self.bound = None

    visit_Return = visit_Raise = leave

    def visit_Break(self, node: ast.Break) -> None:
        self.bound = None
        if not self.loops:
            self.breaks.append(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        if not self.loops:
            self.ends.append(self.bound)
        self.bound = None
