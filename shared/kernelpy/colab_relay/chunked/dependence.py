"""Finds, from the syntax of code, the names that it carries from one iteration to the next.

Nothing is run. Statements are read in order. A name counts as certainly stored once every path to
a point has stored it. Code carries a name if it reads the name before it has certainly stored it,
and also stores it or changes its value in place. Start reading at carried.

The kinds of change of a name:
    store     it is bound again
    change    a subscript or attribute of it is stored or deleted, or next() takes from it
    augment   x += … may change a list in place
    .m        its method m is called;  [].m: the method m of a part of it (x[i].m(), x.y.m())
    pass      it is passed to a function that may change it;  pass-part: a part of it is passed
    part      a part of it changes under another name (row = rows[i]; row.append(1))
    iterate   a loop reads from it: that changes an iterator, and nothing else
    call      it is called: that changes a function that keeps state
live.py drops the names whose values cannot change in any of these ways.

Not found: state of modules and libraries (random's generator), files and other things outside
the kernel, arguments of a method or library function whose value is used, functions that are
defined neither in the setup code nor in the loop, and names that are only stored.
"""

from __future__ import annotations

import ast
from typing import Any, Callable, Iterable

from .calls import Calls
from .scope import Definitions, Effects, Flow, bound_names, library_like, parameters, root_of

OPAQUE_ATTRIBUTES = frozenset(["chdir", "environ", "user_ns", "__dict__", "run_cell"])
MAX_NAMES = 1000
MAX_OPAQUE = 10
Transform = Callable[[str], str]


def carried(setup: str, loop: str, transform: Transform = lambda text: text) -> dict[str, Any]:
    """What iterations carry, as plain values: "names" with their kinds of change, and "opaque", the
    reasons why there may be more. transform is the shell's transform_cell."""
    definitions = Definitions()
    after = Reader(definitions, transform)
    try:
        Reader(definitions, transform).run(setup)
        after.run(loop)
    except RecursionError:
        return {"names": {}, "opaque": ["code nested too deeply"]}
    after.spread()
    names = {}
    for name in after.exposed:
        kinds = set(after.changed.get(name, ()))
        if name in after.stored:
            kinds.add("store")
        elif name in definitions.imported:
            continue
        if kinds and name != "i":
            names[name] = sorted(kinds)
    opaque = sorted(after.opaque)[:MAX_OPAQUE]
    if len(names) > MAX_NAMES:
        names, opaque = {}, opaque + ["more than %d variables" % MAX_NAMES]
    return {"names": {name: names[name] for name in sorted(names)}, "opaque": opaque}


class Reader(Calls):
    """Reads code in the order of its statements. Definitions.effects reads the bodies of
    functions."""

    def __init__(self, definitions: Definitions, transform: Transform, depth: int = 0) -> None:
        self.definitions, self.transform, self.depth = definitions, transform, depth
        self.flow = Flow()
        self.exposed: set[str] = set()
        self.stored: set[str] = set()
        self.changed: dict[str, set[str]] = {}
        # By name: the other names whose values it shares, and how.
        self.aliases: dict[str, set[tuple[str, str]]] = {}
        self.opaque: set[str] = set()
        self.hidden: list[set[str]] = []  # names of comprehensions, lambdas and classes around

    def run(self, text: str) -> None:
        self.statements(ast.parse(self.transform(text)).body)

    def statements(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    # What happens to names.

    def is_hidden(self, name: str) -> bool:
        return any(name in names for names in self.hidden)

    def read(self, name: str) -> None:
        if self.is_hidden(name):
            return
        if name not in self.flow:
            self.exposed.add(name)
        for effects in self.definitions.effects(name, self):
            self.apply(effects)

    def apply(self, effects: Effects) -> None:
        """A function that is named may be called, so its effects may happen here."""
        for name in effects.exposed:
            if name not in self.flow:
                self.exposed.add(name)
        self.stored |= effects.stored
        self.opaque |= effects.opaque
        for name, kinds in effects.changed.items():
            self.changed.setdefault(name, set()).update(kinds)

    def store(self, name: str) -> None:
        if not self.is_hidden(name):
            self.stored.add(name)
            self.flow.add(name)

    def change(self, node: Any, own: str, part: str) -> None:
        """The value of node changes: own is the kind of change if node is a name, and
        part if node is reached through a name."""
        name, whole = root_of(node)
        if name is not None:
            self.add_kind(name, own if whole else part)

    def add_kind(self, name: str, kind: str) -> None:
        self.changed.setdefault(name, set()).add(kind)

    def spread(self) -> None:
        """Applies the changes of each name to the names that share its value."""
        pending = list(self.changed)
        while pending:
            name = pending.pop()
            for other, how in self.aliases.get(name, ()):
                kinds = self.changed.get(name, set()) if how == "same" else {how}
                if not kinds <= self.changed.get(other, set()):
                    self.changed.setdefault(other, set()).update(kinds)
                    pending.append(other)

    def alias(self, name: str, value: Any) -> None:
        """The name is bound to value, which may be or contain the values of other names."""
        root, whole = root_of(value)
        if root is not None:
            self.aliases.setdefault(name, set()).add((root, "same" if whole else "part"))
        elif isinstance(value, ast.Call):
            for arg in value.args + [keyword.value for keyword in value.keywords]:
                root, _ = root_of(arg)
                if root is not None:
                    self.aliases.setdefault(name, set()).add((root, "pass"))
        elif isinstance(value, (ast.List, ast.Tuple, ast.Dict, ast.IfExp, ast.BoolOp)):
            for inner in ast.iter_child_nodes(value):
                self.alias(name, inner)

    # Statements that bind names.

    def bind(self, target: Any, value: Any, part: bool = False) -> None:
        """Binds a target to value, or to an item of it if part is true."""
        if isinstance(target, ast.Name):
            if value is not None and part:
                root, _ = root_of(value)
                if root is not None:
                    self.aliases.setdefault(target.id, set()).add((root, "part"))
            elif value is not None:
                self.alias(target.id, value)
            self.store(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self.bind(item, value, part=True)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value, part=True)
        else:
            self.visit_children(target)
            self.change(target.value, "change", "change")

    def visit_children(self, node: Any) -> None:
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def visit_Assign(self, node: Any) -> None:
        self.visit(node.value)
        for target in node.targets:
            if isinstance(node.value, ast.Lambda) and isinstance(target, ast.Name):
                self.definitions.define(target.id, node.value)
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: Any) -> None:
        if node.value is not None:  # a bare x: int binds nothing
            self.visit(node.value)
            self.bind(node.target, node.value)

    def visit_AugAssign(self, node: Any) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            self.read(target.id)
            self.visit(node.value)
            self.add_kind(target.id, "augment")
            self.store(target.id)
        else:
            self.visit_children(target)
            self.visit(node.value)
            self.change(target.value, "change", "change")

    def visit_NamedExpr(self, node: Any) -> None:
        self.visit(node.value)
        name = node.target.id
        hidden, self.hidden = self.hidden, []  # it binds outside of comprehensions
        self.alias(name, node.value)
        self.store(name)
        self.hidden = hidden

    def visit_Delete(self, node: Any) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.read(target.id)
                self.store(target.id)
                self.flow.remove(target.id)
            elif isinstance(target, (ast.Tuple, ast.List)):
                self.visit_Delete(ast.Delete(target.elts))
            else:
                self.visit_children(target)
                self.change(target.value, "change", "change")

    def visit_Import(self, node: Any) -> None:
        for item in node.names:
            if item.name == "*":
                self.opaque.add("from %s import *" % node.module)
                continue
            name = item.asname or item.name.partition(".")[0]
            self.definitions.imported.add(name)
            self.store(name)

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: Any) -> None:
        outside = node.decorator_list + node.args.defaults
        for child in outside + [d for d in node.args.kw_defaults if d is not None]:
            self.visit(child)
        self.definitions.define(node.name, node)
        self.store(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: Any) -> None:
        for child in node.decorator_list + node.bases + [k.value for k in node.keywords]:
            self.visit(child)
        self.hidden.append(bound_names(node.body))
        for child in node.body:
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.visit(child)
        self.hidden.pop()
        self.definitions.define(node.name, node)
        self.store(node.name)

    def visit_Lambda(self, node: Any) -> None:
        for child in node.args.defaults + [d for d in node.args.kw_defaults if d is not None]:
            self.visit(child)
        self.branch(lambda: self.within(set(parameters(node)), lambda: self.visit(node.body)))

    def within(self, names: set[str], read: Callable[[], object]) -> None:
        self.hidden.append(names)
        read()
        self.hidden.pop()

    # Paths that execution may or may not take.

    def branch(self, *paths: Callable[[], object], always: bool = False) -> None:
        """Reads each of the paths that start here. Names that all of them store count as stored.
        Unless always is true, execution may take none of them."""
        start, ends = self.flow, []
        for path in paths:
            self.flow = start.fork()
            path()
            ends.append(self.flow)
        self.flow = Flow.join(ends if always else ends + [start])

    def visit_If(self, node: Any) -> None:
        self.visit(node.test)
        self.branch(
            lambda: self.statements(node.body), lambda: self.statements(node.orelse), always=True
        )

    def visit_IfExp(self, node: Any) -> None:
        self.visit(node.test)
        self.branch(lambda: self.visit(node.body), lambda: self.visit(node.orelse), always=True)

    def visit_BoolOp(self, node: Any) -> None:
        self.visit(node.values[0])
        self.branch(lambda: [self.visit(value) for value in node.values[1:]])

    def visit_For(self, node: Any) -> None:
        self.visit(node.iter)
        self.change(node.iter, "iterate", "iterate")

        def body() -> None:
            self.bind(node.target, node.iter, part=True)
            self.statements(node.body)

        self.branch(body)
        self.branch(lambda: self.statements(node.orelse))

    visit_AsyncFor = visit_For

    def visit_While(self, node: Any) -> None:
        self.visit(node.test)
        self.branch(lambda: self.statements(node.body))
        self.branch(lambda: self.statements(node.orelse))

    def visit_Try(self, node: Any) -> None:
        start = self.flow.fork()
        self.statements(node.body + node.orelse)
        ends = [self.flow]
        for handler in node.handlers:  # the body may have failed at its start
            self.flow = start.fork()
            self.visit(handler)
            ends.append(self.flow)
        self.flow = Flow.join(ends)
        self.statements(node.finalbody)

    visit_TryStar = visit_Try

    def visit_ExceptHandler(self, node: Any) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name:
            self.store(node.name)
        self.statements(node.body)
        if node.name:
            self.flow.remove(node.name)

    def visit_With(self, node: Any) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, item.context_expr)
        if any(library_like(item.context_expr, "suppress") for item in node.items):
            self.branch(lambda: self.statements(node.body))
        else:
            self.statements(node.body)

    visit_AsyncWith = visit_With

    def visit_Match(self, node: Any) -> None:
        self.visit(node.subject)

        def read(case: Any) -> None:
            for inner in ast.walk(case.pattern):
                name = getattr(inner, "name", None) or getattr(inner, "rest", None)
                if name:
                    self.bind(ast.Name(name, ast.Store()), node.subject, part=True)
                if type(inner).__name__ == "MatchValue":
                    self.visit_children(inner)
            if case.guard is not None:
                self.visit(case.guard)
            self.statements(case.body)

        self.branch(*[lambda case=case: read(case) for case in node.cases])

    def leave(self, node: Any) -> None:
        self.generic_visit(node)
        self.flow.dead = True

    visit_Return = visit_Raise = visit_Continue = visit_Break = leave

    def comprehension(self, node: Any) -> None:
        generators = node.generators
        self.visit(generators[0].iter)
        names = {n.id for g in generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        for generator in generators:
            self.change(generator.iter, "iterate", "iterate")
            for target in ast.walk(generator.target):
                root, _ = root_of(generator.iter)
                if isinstance(target, ast.Name) and root is not None:
                    self.aliases.setdefault(target.id, set()).add((root, "part"))

        def rest() -> None:
            for number, generator in enumerate(generators):
                if number:
                    self.visit(generator.iter)
                for test in generator.ifs:
                    self.visit(test)
            for field in ("elt", "key", "value"):
                if getattr(node, field, None) is not None:
                    self.visit(getattr(node, field))

        self.branch(lambda: self.within(names, rest))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    # Expressions.

    def visit_Name(self, node: Any) -> None:
        self.read(node.id)

    def visit_Attribute(self, node: Any) -> None:
        if node.attr in OPAQUE_ATTRIBUTES:
            self.opaque.add(node.attr)
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            self.visit_Call(value, used=False)
        else:
            self.visit(value)
