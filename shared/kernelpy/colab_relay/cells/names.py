"""Which names the scopes of Python code bind, and where an expression's value comes from."""

from __future__ import annotations

import ast
from typing import Any, Iterable, Iterator

from ..chunked.scope import FUNCTIONS, root_of

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Functions that keep what they are given for later.
LAZY = frozenset(
    "accumulate cache chain cycle defaultdict dropwhile enumerate filter groupby islice iter "
    "lru_cache map partial partialmethod reversed starmap takewhile vectorize wraps zip".split()
)
# Methods that change their object although their value is used.
MUTATING = frozenset(
    "add append appendleft backward clear compile discard extend fit fit_transform insert "
    "load_state_dict manual_seed move_to_end partial_fit pop popitem popleft push read readline "
    "readlines remove reverse seed send set_option set_seed setdefault sort step train update use "
    "write zero_grad".split()
)
# Functions of modules that change what the module does later.
SETTINGS = frozenset(["manual_seed", "seed", "set_option", "set_seed", "use"])
# Functions that change their first argument.
CHANGES_FIRST = frozenset(
    "anext copyto delattr fill_diagonal heapify heappop heappush heappushpop heapreplace insort "
    "insort_left insort_right next place put putmask setattr shuffle".split()
)
# Builtins and IPython's functions that change none of their arguments.
HARMLESS = frozenset(
    "abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict dir display "
    "divmod enumerate filter float format frozenset getattr hasattr hash help hex id input int "
    "isinstance issubclass iter len list map max memoryview min object oct open ord pow print "
    "property range repr reversed round set slice sorted staticmethod str sum super tuple type "
    "vars zip".split()
)


def bound_in_scope(body: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that the statements of one scope bind, and those that they declare global. A name
    that is declared nonlocal is neither."""
    names: set[str] = set()
    declared: set[str] = set()
    outer: set[str] = set()
    stack: list[Any] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global):
            declared.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            outer.update(node.names)
        names.update(bound_by(node))
        if isinstance(node, COMPREHENSIONS):
            stack.extend(walrus_of(node))
        elif isinstance(node, FUNCTIONS + (ast.ClassDef,)):
            stack.extend(evaluated_outside(node))
        elif isinstance(node, ast.Lambda):
            stack.extend(defaults_of(node))
        else:
            stack.extend(ast.iter_child_nodes(node))
    return names - declared - outer, declared


def bound_by(node: Any) -> Iterator[str]:
    """The names that this node alone binds in its scope."""
    kind = type(node).__name__
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name.partition(".")[0]
    elif kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
        yield node.name
    elif kind in ("ExceptHandler", "MatchAs", "MatchStar") and node.name:
        yield node.name
    elif kind == "MatchMapping" and node.rest:
        yield node.rest


def walrus_of(node: ast.AST) -> Iterator[ast.AST]:
    """The names that a comprehension binds outside of itself."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.NamedExpr):
            yield inner.target


def defaults_of(node: Any) -> list[Any]:
    return node.args.defaults + [d for d in node.args.kw_defaults if d is not None]


def annotations_of(node: Any) -> list[Any]:
    """What the annotations of a function's parameters and result say."""
    if isinstance(node, ast.ClassDef):
        return []
    args = node.args
    every = getattr(args, "posonlyargs", []) + args.args + args.kwonlyargs
    every += [a for a in (args.vararg, args.kwarg) if a is not None]
    found = [a.annotation for a in every] + [node.returns]
    return [annotation for annotation in found if annotation is not None]


def evaluated_outside(node: Any) -> list[Any]:
    """The parts of a definition that are evaluated where it stands."""
    if isinstance(node, ast.ClassDef):
        return node.decorator_list + node.bases + [k.value for k in node.keywords]
    return node.decorator_list + defaults_of(node) + annotations_of(node)


def targets_of(node: Any) -> set[str]:
    """The names that a comprehension binds within itself."""
    return {
        inner.id
        for generator in node.generators
        for inner in ast.walk(generator.target)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def read_names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def callee(node: Any) -> str:
    """The last word of what is called: f for m.f()."""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None) or ""


def start_of(node: Any) -> str | None:
    """The name that a chain of attributes, subscripts and calls starts from."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.Call, ast.Await)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def keeps_arguments(node: Any) -> bool:
    """Whether a call's result holds what it is given: of classes, by their names' form."""
    return callee(node)[:1].isupper() or callee(node) in LAZY


def arguments_of(node: ast.Call) -> list[ast.expr]:
    return node.args + [keyword.value for keyword in node.keywords]


class Origin:
    """What values were made from, as names."""

    def __init__(self) -> None:
        self.same: set[str] = set()
        self.passed: set[str] = set()
        self.called: set[str] = set()
        self.lazy: list[Any] = []  # lambdas and generators that the value contains

    def add(self, value: Any) -> None:
        root, _ = root_of(value)
        if root is not None:
            self.same.add(root)
        elif isinstance(value, ast.Call):
            self.add_call(value)
        elif isinstance(value, ast.Lambda):
            self.lazy.append(value)
        elif isinstance(value, (ast.Attribute, ast.Subscript)):
            self.add(value.value)
        elif isinstance(value, COMPREHENSIONS):
            self.add_comprehension(value)
        elif isinstance(value, HOLDERS):
            for inner in ast.iter_child_nodes(value):
                self.add(inner)

    def add_call(self, node: ast.Call) -> None:
        start = start_of(node.func)
        if start is not None:
            self.called.add(start)
        if isinstance(node.func, ast.Call):
            self.add(node.func)
        for argument in arguments_of(node):
            self.passed |= read_names(argument)
            if keeps_arguments(node):
                self.add(argument)
                inner = start_of(argument)
                if inner is not None:
                    self.same.add(inner)

    def add_comprehension(self, node: Any) -> None:
        """Items that are taken as they are still belong to what they come from."""
        item = node.value if isinstance(node, ast.DictComp) else node.elt
        if isinstance(node, ast.GeneratorExp):
            self.lazy.append(node)
        if not isinstance(item, (ast.Constant, ast.BinOp, ast.Compare, ast.JoinedStr)):
            self.add(item)
            for generator in node.generators:
                self.add(generator.iter)


HOLDERS: Any = (
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.IfExp,
    ast.BoolOp,
    ast.NamedExpr,
    ast.Starred,
    ast.Await,
    ast.Yield,
)
