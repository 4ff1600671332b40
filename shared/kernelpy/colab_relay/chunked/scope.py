"""What dependence.py needs to know about names: which are certainly stored at a point, which name
an expression starts from, and what a function does to names outside it."""

from __future__ import annotations

import ast
from typing import Any, Iterable, Iterator

MAX_DEPTH = 20  # of calls from function to function; deeper ones count as opaque
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = FUNCTIONS + (ast.ClassDef, ast.Lambda)


class Flow:
    """The names that every path to a point has stored. A dead point is never reached."""

    def __init__(self, names: Iterable[str] = (), dead: bool = False) -> None:
        self.names, self.dead = set(names), dead

    def __contains__(self, name: object) -> bool:
        return self.dead or name in self.names

    def add(self, name: str) -> None:
        self.names.add(name)

    def remove(self, name: str) -> None:
        self.names.discard(name)

    def fork(self) -> Flow:
        return Flow(self.names, self.dead)

    @staticmethod
    def join(flows: list[Flow]) -> Flow:
        alive = [flow for flow in flows if not flow.dead]
        if not alive:
            return Flow(dead=True)
        return Flow(set.intersection(*[flow.names for flow in alive]))


def root_of(node: Any) -> tuple[str | None, bool]:
    """The name that an expression starts from, and whether it is the name alone: (x, True) for x,
    (x, False) for x.y[1], and (None, False) for anything else."""
    whole = True
    while True:
        if isinstance(node, ast.Name):
            return node.id, whole
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            whole = False
        elif not isinstance(node, ast.Starred):
            return None, False
        node = node.value


def library_like(node: ast.AST, name: str) -> bool:
    """Whether an expression calls a function of this name: suppress(), contextlib.suppress()."""
    func = getattr(node, "func", None)
    return getattr(func, "attr", None) == name or getattr(func, "id", None) == name


def parameters(node: Any) -> list[str]:
    """A function's parameters, positional ones first."""
    args = node.args
    named = getattr(args, "posonlyargs", []) + args.args + args.kwonlyargs
    return [a.arg for a in named + [a for a in (args.vararg, args.kwarg) if a is not None]]


def bound_names(body: Iterable[ast.AST]) -> set[str]:
    """The names that the statements of one scope bind."""
    names: set[str] = set()
    outer: set[str] = set()
    stack: list[Any] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(a.asname or a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, FUNCTIONS + (ast.ClassDef,)):
            names.add(node.name)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        elif type(node).__name__ in ("MatchAs", "MatchStar") and node.name:
            names.add(node.name)
        if not isinstance(node, SCOPES):
            stack.extend(ast.iter_child_nodes(node))
    return names - outer


class Effects:
    """What a call of a function may do to the names around it and to its arguments."""

    def __init__(
        self,
        exposed: Iterable[str] = (),
        stored: Iterable[str] = (),
        changed: dict[str, set[str]] | None = None,
        opaque: Iterable[str] = (),
        parameters: Iterable[str] = (),
    ) -> None:
        self.exposed, self.stored = set(exposed), set(stored)
        self.changed, self.opaque = changed or {}, set(opaque)
        self.parameters = set(parameters)  # whose arguments may change


class Definitions:
    """The functions and classes that code defines, by name, and the names it imports."""

    def __init__(self) -> None:
        self.imported: set[str] = set()
        self.nodes: dict[str, list[Any]] = {}
        self.methods: dict[str, list[Any]] = {}
        self.found: dict[int, Effects] = {}  # by the id of a function's node
        # Effects of mutually recursive functions, which are incomplete until the outermost call of
        # effects_of returns.
        self.provisional: dict[int, Effects] = {}
        self.call_stack: list[Any] = []  # nodes of the functions being analysed
        self.truncated = False  # an effect was not followed: recursion, or MAX_DEPTH

    def define(self, name: str, node: Any) -> None:
        self.nodes.setdefault(name, []).append(node)
        if isinstance(node, ast.ClassDef):
            for method in methods_of(node):
                self.methods.setdefault(method.name, []).append(method)

    def effects(self, name: str, reader: Any) -> Iterator[Effects]:
        """The effects of the functions of that name; of a class, those of all its methods."""
        for node in self.nodes.get(name, ()):
            for function in methods_of(node) if isinstance(node, ast.ClassDef) else [node]:
                yield self.effects_of(function, reader)

    def effects_of_method(self, name: str, reader: Any) -> Iterator[Effects]:
        for method in self.methods.get(name, ()):
            yield self.effects_of(method, reader)

    def changes(self, name: str, call: ast.Call, reader: Any) -> list[ast.expr] | None:
        """The arguments of a call that may change, or None if the name is unknown."""
        if name not in self.nodes:
            return None
        found = []
        for node in self.nodes[name]:
            if isinstance(node, ast.ClassDef):
                continue
            changed = self.effects_of(node, reader).parameters
            given = arguments(node, call)
            found += [arg for arg, parameter in given if parameter is None or parameter in changed]
        return found

    def effects_of(self, node: Any, reader: Any) -> Effects:
        """The effects of one function, cached."""
        for found in (self.found, self.provisional):
            if id(node) in found:
                return found[id(node)]
        if node in self.call_stack or len(self.call_stack) >= MAX_DEPTH:
            # A recursive function's effects are added when its outer call returns.
            self.truncated = True
            deep = [] if node in self.call_stack else ["functions nested too deeply"]
            return Effects(opaque=deep, parameters=parameters(node))
        if not self.call_stack:
            self.truncated = False
        self.call_stack.append(node)
        effects = self.analyse(node, reader)
        self.call_stack.pop()
        (self.provisional if self.truncated and self.call_stack else self.found)[id(node)] = effects
        if not self.call_stack:
            self.provisional.clear()
        return effects

    def analyse(self, node: Any, reader: Any) -> Effects:
        inner, own = type(reader)(self, reader.transform, reader.depth), parameters(node)
        inner.flow = Flow(own)
        defined, imported = {name: list(n) for name, n in self.nodes.items()}, set(self.imported)
        body = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
        inner.statements(body)
        inner.spread()
        local = bound_names(body) | set(own)
        self.nodes, self.imported = defined, imported  # definitions inside it are local
        kinds = {name: kinds - {"iterate"} for name, kinds in inner.changed.items()}
        return Effects(
            inner.exposed - local,
            inner.stored - local,
            {name: kinds for name, kinds in inner.changed.items() if name not in local},
            inner.opaque,
            [name for name in own if kinds.get(name)],
        )


def methods_of(node: ast.ClassDef) -> list[Any]:
    return [child for child in node.body if isinstance(child, FUNCTIONS)]


def arguments(node: Any, call: ast.Call) -> list[tuple[ast.expr, str | None]]:
    """The arguments of a call, each with its parameter, which is None if it is unknown."""
    names = [a.arg for a in getattr(node.args, "posonlyargs", []) + node.args.args]
    pairs = []
    for number, arg in enumerate(call.args):
        fixed = number < len(names) and not any(isinstance(a, ast.Starred) for a in call.args)
        pairs.append((arg, names[number] if fixed else None))
    everything = set(names) | {a.arg for a in node.args.kwonlyargs}
    for keyword in call.keywords:
        pairs.append((keyword.value, keyword.arg if keyword.arg in everything else None))
    return pairs
