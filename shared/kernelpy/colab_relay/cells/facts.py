"""The names of a notebook's cells, so that those which need a failed one can be skipped.

The sources are compiled and never run. relay/nbrun/skip.go says what the fields mean."""

from __future__ import annotations

import ast
import base64
import builtins
import dis
import json
import re
import time
import types
import warnings
import zlib
from typing import Any, Iterable, Iterator

from IPython.core.inputtransformer2 import TransformerManager

MAX_CHARS = 8 << 20  # characters of all sources
MAX_SECONDS = 20.0  # for all cells; of those after that nothing is known
MAX_NAMES = 2000  # of one cell
MAX_LENGTH = 200  # of one name

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
READS = frozenset(
    ["LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"]
)
BINDS = frozenset(["STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"])
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Statements that bind their names whenever they succeed.
CERTAIN = DEFINITIONS + (ast.Assign, ast.AugAssign, ast.AnnAssign)
TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))
# The names in {name} and $name of a command or a magic.
EMBEDDED = re.compile(r"(?<![{\w])(?:\{|\$\{?)([A-Za-z_]\w*)")


def of_packed(packed: str) -> dict[str, dict[str, Any]]:
    """The names in sources, which are a JSON object as base64 of zlib, by their keys."""
    text = zlib.decompressobj().decompress(base64.b64decode(packed), 8 * MAX_CHARS)
    sources = json.loads(text.decode("utf-8", "surrogatepass"))
    return dict(zip(sources, facts(list(sources.values()))))


def facts(sources: list[str], seconds: float = MAX_SECONDS) -> list[dict[str, Any]]:
    """The names in each source. Nothing is known of one that is not Python."""
    deadline = time.monotonic() + seconds
    # Its own transformer, because the shell's may run functions of the user.
    transform = TransformerManager().transform_cell
    cells = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in sources:
            cell = Cell()
            try:
                if time.monotonic() < deadline:
                    cell.read(ast.parse(transform(source)))
            except UNREADABLE:
                cell = Cell()
            cells.append(cell)
    bound = set().union(*(cell.binds for cell in cells))
    common = (set(dir(builtins)) | {"get_ipython"}) - bound
    # Values that only imports, functions and classes make do not change when they are used.
    constant = set().union(*(cell.defined() for cell in cells))
    constant -= set().union(*(cell.binds - cell.defined() for cell in cells))
    return [cell.plain(common, constant) for cell in cells]


class Cell:
    """The names of one cell."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.sure: set[str] = set()
        self.uses: set[str] = set()
        self.defines: set[str] = set()
        self.assigned: set[str] = set()

    @property
    def binds(self) -> set[str]:
        return self.defines | self.assigned

    def read(self, tree: ast.Module) -> None:
        self.sure = self.block(tree.body, set())
        self.uses = set(used(tree))

    def block(self, body: list[ast.stmt], sure: set[str]) -> set[str]:
        """Reads statements, and returns the names that are certainly bound after them."""
        for node in body:
            sure = self.statement(node, sure)
        return sure

    def statement(self, node: ast.stmt, sure: set[str]) -> set[str]:
        if isinstance(node, (ast.For, ast.AsyncFor)):
            self.part(node.iter, sure)
            self.block(node.body, sure | self.target(node.target, sure))
            self.block(node.orelse, sure)
        elif isinstance(node, ast.While):
            self.part(node.test, sure)
            self.block(node.body, sure)
            self.block(node.orelse, sure)
        elif isinstance(node, ast.If):
            self.part(node.test, sure)
            return self.block(node.body, sure) & self.block(node.orelse, sure)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self.part(item.context_expr, sure)
                if item.optional_vars is not None:
                    sure = sure | self.target(item.optional_vars, sure)
            return self.block(node.body, sure)
        elif isinstance(node, TRIES):
            return self.attempt(node, sure)
        else:
            return self.simple(node, sure)
        return sure

    def attempt(self, node: Any, sure: set[str]) -> set[str]:
        self.block(node.body + node.orelse, sure)
        for handler in node.handlers:
            if handler.type is not None:
                self.part(handler.type, sure)
            self.block(handler.body, sure | {handler.name or ""})
        return self.block(node.finalbody, sure)

    def simple(self, node: ast.stmt, sure: set[str]) -> set[str]:
        binds = self.code(ast.Module([node], []), "exec", sure)
        (self.defines if isinstance(node, DEFINITIONS) else self.assigned).update(binds)
        if isinstance(node, CERTAIN):
            return sure | {name for name in binds if name in own_names(node)}
        return sure

    def part(self, node: ast.expr, sure: set[str]) -> None:
        self.assigned |= self.code(ast.Expression(node), "eval", sure)

    def target(self, node: ast.expr, sure: set[str]) -> set[str]:
        """What a for or with statement binds."""
        names = stored(node)
        self.reads |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - names - sure
        self.assigned |= names
        return names

    def code(
        self, tree: ast.Module | ast.Expression | ast.Interactive, mode: str, sure: set[str]
    ) -> set[str]:
        """Notes the names of compiled code, and returns those that it binds."""
        compiled = compile(tree, "<cell>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        reads, binds = names_of(compiled)
        self.reads |= (reads | set(embedded(tree))) - sure
        return binds

    def defined(self) -> set[str]:
        """The names that import, def or class alone bind."""
        return self.defines - self.assigned

    def plain(self, common: set[str], constant: set[str]) -> dict[str, list[str]]:
        known = self.reads | self.binds
        if len(known) > MAX_NAMES or any(len(name) > MAX_LENGTH for name in known):
            return {}
        found = {
            "reads": self.reads - common,
            "makes": self.binds | (self.uses & known - common - constant),
            "sure": self.sure & self.binds,
        }
        return {key: sorted(value) for key, value in found.items() if value}


def names_of(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names around compiled code that it reads and binds. What a function does counts as
    done where it is defined; what the body of a class binds are its attributes."""
    reads, binds, pending = set(), set(), [(code, True)]
    while pending:
        now, outermost = pending.pop()
        own = (
            set()
            if outermost
            else {i.argval for i in dis.get_instructions(now) if i.opname == "STORE_NAME"}
        )
        for i in dis.get_instructions(now):
            if i.opname in READS and i.argval not in own:
                reads.add(i.argval)
            if i.opname in BINDS and (outermost or i.opname.endswith("GLOBAL")):
                binds.add(i.argval)
        pending += [(c, False) for c in now.co_consts if isinstance(c, types.CodeType)]
    return reads - {"__name__"}, binds - {"__annotations__"}


def own_names(node: ast.stmt) -> set[str]:
    """The names that a statement binds itself, and not by a global declaration in a function."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    return stored(*targets)


def stored(*targets: ast.AST) -> set[str]:
    """The names to which targets assign."""
    nodes = (n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
    return {n.id for n in nodes if isinstance(n.ctx, ast.Store)}


def used(tree: ast.AST) -> Iterator[str]:
    """The names that are mentioned in calls and in assignments to attributes and items."""
    for node in ast.walk(tree):
        parts: Iterable[Any] = ()
        if isinstance(node, ast.Call) and not is_magic(node):
            parts = [node.func, *node.args, *(k.value for k in node.keywords)]
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(
            node.ctx, ast.Load
        ):
            parts = [node.value]
        for part in parts:
            yield from (n.id for n in ast.walk(part) if isinstance(n, ast.Name))


def is_magic(node: ast.Call) -> bool:
    """Whether this is a command or a magic, as in get_ipython().system("ls")."""
    shell = getattr(node.func, "value", None)
    return isinstance(shell, ast.Call) and getattr(shell.func, "id", "") == "get_ipython"


def embedded(tree: ast.AST) -> Iterator[str]:
    """The names in the texts of commands and magics."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_magic(node):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from EMBEDDED.findall(argument.value)
