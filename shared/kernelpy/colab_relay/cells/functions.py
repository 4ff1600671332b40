"""What a function or class does to the names around it when it is called.

Here the order of statements does not count: a name is read if any statement of the function, or
of one inside it, reads it. Scopes are those of Python: names that a function binds are its own,
names of a class are not seen by its methods, and comprehensions have names of their own."""

from __future__ import annotations

import ast
from typing import Any

from ..chunked.scope import parameters
from . import magics
from .names import (
    COMPREHENSIONS,
    Origin,
    bound_in_scope,
    evaluated_outside,
    start_of,
    targets_of,
    walrus_of,
)
from .use import Effects, Use, is_constant_item

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LASTING: Any = FUNCTIONS + (
    ast.ClassDef,
    ast.Lambda,
    ast.GeneratorExp,
    ast.Yield,
    ast.YieldFrom,
)


class Scope:
    """The names of one scope: own ones, and those that it declares global."""

    def __init__(self, own: set[str], declared: set[str], is_class: bool = False) -> None:
        self.own, self.declared, self.is_class = own, declared, is_class


class Function(Effects, ast.NodeVisitor):
    """Reads the body of one function, class, lambda or generator."""

    def __init__(self, node: Any) -> None:
        self.use = Use()
        self.changes_arguments = self.changes_self = False
        self.lasting = is_lasting(node)
        self.scopes: list[Scope] = []
        self.parameters: set[str] = set()  # of all functions in it
        self.selves: set[str] = set()
        self.origins: dict[str, Origin] = {}  # of names that are not global
        self.changed: set[str] = set()
        self.inner(node)
        for decorator in getattr(node, "decorator_list", []):
            self.visit(decorator)
        if isinstance(node, ast.ClassDef):
            for child in node.bases + [k.value for k in node.keywords]:
                self.visit(child)
        self.settle()

    def plain(self) -> dict[str, Any]:
        found = self.use.plain()
        for key in ("changes_arguments", "changes_self", "lasting"):
            if getattr(self, key):
                found[key] = True
        return found

    def merge(self, other: Function) -> None:
        """Adds what another function of the same name may do."""
        self.use.merge(other.use)
        self.changes_arguments |= other.changes_arguments
        self.changes_self |= other.changes_self
        self.lasting |= other.lasting

    def settle(self) -> None:
        """Follows the local names that changed to what they are."""
        pending, seen = list(self.changed), set(self.changed)
        while pending:
            name = pending.pop()
            self.changes_arguments |= name in self.parameters
            self.changes_self |= name in self.selves
            for other in self.origins[name].same if name in self.origins else ():
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
                if other in self.use.reads:
                    self.use.changes.add(other)

    # Names.

    def is_global(self, name: str) -> bool:
        innermost = True
        for scope in reversed(self.scopes):
            if innermost or not scope.is_class:
                if name in scope.declared:
                    return True
                if name in scope.own:
                    return False
            innermost = False
        return True

    def read(self, name: str) -> None:
        # The body of a class finds the global name until it has bound its own.
        if self.is_global(name) or self.scopes[-1].is_class:
            self.use.reads.add(name)

    def store(self, name: str) -> None:
        if self.is_global(name):
            self.use.may_store.add(name)

    def change(self, name: str) -> None:
        if self.is_global(name):
            self.use.reads.add(name)
            self.use.changes.add(name)
        else:
            self.changed.add(name)

    def method(self, name: str) -> None:
        if self.is_global(name):
            self.use.methods.add(name)
        else:
            self.changed.add(name)

    def called(self, name: str, passed: set[str], bare: bool) -> None:
        outside = {p for p in passed if self.is_global(p)}
        if self.is_global(name):
            call = self.use.call(name)
            call.is_called = True
            call.passed |= outside
            call.bare |= bare
        elif bare:
            self.use.changes |= outside
        if bare:
            self.changed |= passed - outside

    def alias(self, name: str, value: Any) -> None:
        self.origins.setdefault(name, Origin()).add(value)

    def store_item(self, name: str) -> None:
        self.use.may_store.add(name)

    # Scopes.

    def inner(self, node: Any) -> None:
        """Reads a definition's body in a scope of its own."""
        if isinstance(node, COMPREHENSIONS):
            self.comprehension(node)
            return
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        own, declared = bound_in_scope(body)
        if not isinstance(node, ast.ClassDef):
            given = parameters(node)
            in_class = bool(self.scopes) and self.scopes[-1].is_class
            (self.selves if in_class else self.parameters).update(given[:1])
            self.parameters.update(given[1:])
            own |= set(given)
        self.scopes.append(Scope(own, declared, isinstance(node, ast.ClassDef)))
        for child in getattr(node, "type_params", []) + body:
            self.visit(child)
        self.scopes.pop()

    def definition(self, node: Any) -> None:
        for child in evaluated_outside(node):
            self.visit(child)
        self.inner(node)
        self.store(node.name)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = definition

    def visit_Lambda(self, node: Any) -> None:
        for child in node.args.defaults + [d for d in node.args.kw_defaults if d is not None]:
            self.visit(child)
        self.inner(node)

    def comprehension(self, node: Any) -> None:
        for target in walrus_of(node):
            self.visit(target)
        own = targets_of(node)
        self.visit(node.generators[0].iter)
        self.scopes.append(Scope(own, set()))
        for number, generator in enumerate(node.generators):
            self.bind(generator.target, generator.iter)
            for child in generator.ifs + [generator.iter] * (number > 0):
                self.visit(child)
        for field in ("elt", "key", "value"):
            if getattr(node, field, None) is not None:
                self.visit(getattr(node, field))
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    # Statements.

    def bind(self, target: Any, value: Any) -> None:
        """Binds a target to value or to a part of it."""
        if isinstance(target, ast.Name):
            self.store(target.id)
            self.alias(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            inner = [target.value] if isinstance(target, ast.Starred) else target.elts
            for item in inner:
                self.bind(item, value)
        else:
            self.visit(target)

    def visit_Assign(self, node: Any) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: Any) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.bind(node.target, node.value)
        if self.scopes and self.scopes[-1].is_class:
            self.visit(node.annotation)

    def visit_AugAssign(self, node: Any) -> None:
        self.visit(node.value)
        self.visit(node.target)
        start = start_of(node.target)
        if start is not None:
            self.read(start)
            self.change(start)

    def visit_NamedExpr(self, node: Any) -> None:
        self.visit(node.value)
        self.bind(node.target, node.value)

    def visit_For(self, node: Any) -> None:
        self.visit(node.iter)
        self.bind(node.target, node.iter)
        for child in node.body + node.orelse:
            self.visit(child)

    visit_AsyncFor = visit_For

    def visit_withitem(self, node: Any) -> None:
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self.bind(node.optional_vars, node.context_expr)

    def visit_Return(self, node: Any) -> None:
        """What is returned may be a function, or use one later."""
        if node.value is not None:
            origin = Origin()
            origin.add(node.value)
            self.lasting |= bool(origin.lazy) or any(self.is_global(n) for n in origin.same)
            self.visit(node.value)

    def visit_ImportFrom(self, node: Any) -> None:
        for alias in node.names:
            if alias.name == "__main__":
                self.use.opaque()
            self.store(alias.asname or alias.name.partition(".")[0])

    visit_Import = visit_ImportFrom

    def visit_ExceptHandler(self, node: Any) -> None:
        if node.name:
            self.store(node.name)
        self.generic_visit(node)

    def visit_pattern(self, node: Any) -> None:
        for name in (getattr(node, "name", None), getattr(node, "rest", None)):
            if isinstance(name, str):
                self.store(name)
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_MatchMapping = visit_pattern

    # Expressions.

    def visit_Name(self, node: Any) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read(node.id)
        else:
            self.store(node.id)

    def visit_Subscript(self, node: Any) -> None:
        if magics.is_namespace(node.value) and isinstance(node.value.func, ast.Name):
            name = is_constant_item(node)
            if name is not None and node.value.func.id == "globals":
                if isinstance(node.ctx, ast.Load):
                    self.use.reads.add(name)
                else:
                    self.store_item(name)
                self.visit(node.slice)
                return
        self.visit_Attribute(node)

    def visit_Attribute(self, node: Any) -> None:
        if magics.is_opaque_attribute(node):
            self.use.opaque()
        if not isinstance(node.ctx, ast.Load):
            self.change_root(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: Any, used: bool = True) -> None:
        if magics.is_shell(node.func) or magics.is_shell(node):
            self.use.opaque()
        elif isinstance(node.func, ast.Name) and self.is_global(node.func.id):
            name = node.func.id
            if name in magics.OPAQUE or name == "globals":
                self.use.opaque()
        self.generic_visit(node)
        self.call_effects(node, used)

    def visit_Expr(self, node: Any) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            self.visit_Call(value, used=False)
        else:
            self.visit(value)


def is_lasting(node: Any) -> bool:
    """Whether what a function returns may call it or a function in it."""
    if isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef, ast.GeneratorExp)):
        return True
    if getattr(node, "decorator_list", None):
        return True
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    return any(isinstance(inner, LASTING) for child in body for inner in ast.walk(child))
