"""The statements and expressions of a cell, as far as chunked.dependence.Reader reads them in
another way."""

from __future__ import annotations

import ast
from typing import Any

from ..chunked import dependence
from . import magics
from .functions import Function
from .names import annotations_of, evaluated_outside, start_of
from .reader import Names
from .use import is_constant_item

MAX_DEPTH = 20  # of magics within magics


class Reader(Names):
    """Reads one cell."""

    lazy_annotations = False

    def bind(self, target: Any, value: Any, part: bool = False) -> None:
        if isinstance(target, ast.Name) and value is not None:
            self.alias(target.id, value)
            value = None
        elif isinstance(target, ast.Subscript) and magics.is_namespace(target.value):
            name = is_constant_item(target)
            if name is not None:
                self.use.may_store.add(name)
                return
        elif isinstance(target, (ast.Subscript, ast.Attribute)) and value is not None:
            self.alias(start_of(target) or "", value)
        dependence.Reader.bind(self, target, value, part)

    def visit_Assign(self, node: Any) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: Any) -> None:
        dependence.Reader.visit_AnnAssign(self, node)
        if not self.lazy_annotations:
            self.visit(node.annotation)

    def visit_AugAssign(self, node: Any) -> None:
        if isinstance(node.target, ast.Name):
            name = node.target.id
            self.read(name)
            self.visit(node.value)
            self.change(name)
            self.alias(name, ast.Name(name, ast.Load()))  # a list is still the same list
            self.store(name)
        else:
            dependence.Reader.visit_AugAssign(self, node)

    def visit_NamedExpr(self, node: Any) -> None:
        self.visit(node.value)
        hidden, self.hidden = self.hidden, self.class_names[-1:]
        self.bind(node.target, node.value)
        self.hidden = hidden

    def visit_Import(self, node: Any) -> None:
        for item in node.names:
            if item.name == "*":
                self.use.opaque_write = True
                continue
            if item.name == "__main__":
                self.use.opaque()
            name = item.asname or item.name.partition(".")[0]
            self.imports.add(name)
            self.store(name)

    def visit_ImportFrom(self, node: Any) -> None:
        future = {item.name for item in node.names} if node.module == "__future__" else set()
        self.lazy_annotations |= "annotations" in future
        self.visit_Import(node)

    def visit_FunctionDef(self, node: Any) -> None:
        for child in evaluated_outside(node):
            if not (self.lazy_annotations and child in annotations_of(node)):
                self.visit(child)
        if isinstance(node, ast.ClassDef):
            self.class_body(node)
        if not self.hidden:
            self.functions.setdefault(node.name, []).append(Function(node))
        self.store(node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def class_body(self, node: ast.ClassDef) -> None:
        names: set[str] = set()
        self.hidden.append(names)
        self.class_names.append(names)
        self.statements(node.body)
        self.class_names.pop()
        self.hidden.pop()

    def visit_TypeAlias(self, node: Any) -> None:
        """type X = ... reads nothing before X is used; here it counts as read at once."""
        own = {getattr(parameter, "name", "") for parameter in node.type_params}
        self.within(own, lambda: self.visit(node.value))
        self.store(node.name.id)

    def visit_Compare(self, node: Any) -> None:
        """After the first comparison, the others may not be reached."""
        self.visit(node.left)
        self.visit(node.comparators[0])
        self.branch(lambda: [self.visit(other) for other in node.comparators[1:]])

    def visit_Assert(self, node: Any) -> None:
        self.branch(lambda: self.visit(node.test))  # python -O leaves it out
        if node.msg is not None:
            self.branch(lambda: self.visit(node.msg))

    def visit_Match(self, node: Any) -> None:
        self.visit(node.subject)
        last = node.cases[-1]
        total = last.guard is None and getattr(last.pattern, "pattern", last) is None
        self.branch(
            *[lambda case=case: self.case(case, node.subject) for case in node.cases], always=total
        )

    def case(self, case: Any, subject: Any) -> None:
        for inner in ast.walk(case.pattern):
            name = getattr(inner, "name", None) or getattr(inner, "rest", None)
            if name:
                self.bind(ast.Name(name, ast.Store()), subject)
            elif isinstance(inner, ast.Name):
                self.read(inner.id)
        if case.guard is not None:
            self.visit(case.guard)
        self.statements(case.body)

    def visit_With(self, node: Any) -> None:
        """Contexts of these names may swallow the exception that ends their body early."""
        text = " ".join(ast.dump(item.context_expr) for item in node.items)
        if any(word in text for word in ("suppress", "raises", "assertRaises", "ExitStack")):
            self.branch(lambda: dependence.Reader.visit_With(self, node))
        else:
            dependence.Reader.visit_With(self, node)

    visit_AsyncWith = visit_With

    # Expressions.

    def visit_Attribute(self, node: Any) -> None:
        if magics.is_opaque_attribute(node):
            self.use.opaque()
        self.visit(node.value)

    def visit_Name(self, node: Any) -> None:
        if node.id == "__builtins__":
            self.use.opaque()
        self.read(node.id)

    def visit_Subscript(self, node: Any) -> None:
        if magics.is_namespace(node.value) and self.namespace_item(node):
            return
        self.visit_children(node)

    def namespace_item(self, node: Any) -> bool:
        name = is_constant_item(node)
        if name is None:
            return False
        self.read(name)
        return True

    def visit_Call(self, node: Any, used: bool = True) -> None:
        if magics.is_shell(node.func) or magics.is_shell(node):
            self.shell(node)
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in magics.OPAQUE or magics.is_namespace(node):
            self.use.opaque()
        self.visit(node.func)
        self.visit_inputs(node)
        self.call_effects(node, used)

    def visit_Expr(self, node: Any) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            self.visit_Call(value, used=False)
        else:
            self.visit(value)

    # Magics.

    def shell(self, node: ast.Call) -> None:
        magic = magics.Magic(node)
        for text in magics.embedded(magic.line) if not magic.body else ():
            self.read(text)
        if magic.name in magics.HARMLESS:
            if magic.inspected():
                self.read(magic.inspected())
        elif magic.name in magics.RUNS_HERE | magics.RUNS_APART and self.depth < MAX_DEPTH:
            self.run_inner(magic)
        else:
            self.use.opaque()

    def run_inner(self, magic: magics.Magic) -> None:
        self.depth += 1
        apart = magic.name in magics.RUNS_APART
        try:
            tree = ast.parse(self.transform(magic.code()))
            if apart:
                self.apart(tree)
            else:
                self.body(tree)
        except (SyntaxError, ValueError):
            self.use.opaque()
        finally:
            self.depth -= 1
        for name in magic.captured():
            self.store(name)

    def apart(self, tree: ast.Module) -> None:
        """The code runs in a function of its own."""
        function = ast.parse("def timed(): pass")
        function.body[0].body = tree.body or function.body[0].body  # type: ignore[attr-defined]
        self.apply_function(Function(function.body[0]))
