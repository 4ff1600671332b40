"""The names of a notebook's cells, so that those which need a failed one can be skipped.

The sources are compiled and never run. relay/nbrun/skip.go says what the fields mean."""

from __future__ import annotations

import ast
import base64
import builtins
import json
import re
import time
import warnings
import zlib
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from ..code.names import Flow, deferred, used_by, uses_of

MAX_SECONDS = 20.0  # for all cells; of those after that nothing is known
MAX_NAMES = 2000  # of one cell

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
# The names in {name} and $name of a command or a magic.
EMBEDDED = re.compile(r"(?<![{\w])(?:\{|\$\{?)([A-Za-z_]\w*)")


def of_packed(packed: str) -> dict[str, dict[str, Any]]:
    """The names in sources, which are a JSON object as base64 of zlib, by their keys."""
    text = zlib.decompress(base64.b64decode(packed)).decode("utf-8", "surrogatepass")
    sources = json.loads(text)
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
            try:
                cells.append(Cell(transform(source) if time.monotonic() < deadline else ""))
            except UNREADABLE:
                cells.append(Cell(""))
    common = {*dir(builtins), "get_ipython", "__name__"}.difference(*(c.binds for c in cells))
    # Values that only imports, functions and classes make do not change when they are used.
    constant = set().union(*(cell.binds for cell in cells))
    constant.difference_update(*(cell.assigned for cell in cells))
    return [cell.plain(common, constant) for cell in cells]


class Cell:
    """The names of one cell. What a function does counts as done after the cell's own code."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        code = compile(tree, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        flow = Flow(tree.body)
        inner = list(deferred(code))
        later = {name for c in inner for name in used_by(c)}
        declared = {name for c in inner for name in uses_of(c, False)[0]}
        nodes = list(ast.walk(tree))
        caught = {n.name for n in nodes if isinstance(n, ast.ExceptHandler)} - flow.stored
        self.binds = (flow.stored | declared) - {"*"}
        self.sure = flow.certain & self.binds
        self.reads = (flow.exposed | (later | embedded(tree)) - flow.certain) - caught
        self.uses = used(tree)
        stores = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self.assigned = {n.id for n in stores}

    def plain(self, common: set[str], constant: set[str]) -> dict[str, list[str]]:
        known = self.reads | self.binds
        if len(known) > MAX_NAMES:
            return {}
        makes = self.binds | (self.uses & known - common - constant)
        found = {"reads": self.reads - common, "makes": makes, "sure": self.sure}
        return {key: sorted(value) for key, value in found.items() if value}


def used(tree: ast.AST) -> set[str]:
    """The names that are mentioned in calls and in assignments to attributes and items."""
    parts: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not is_magic(node):
            parts.append(node)
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            parts += [] if isinstance(node.ctx, ast.Load) else [node.value]
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def is_magic(node: ast.Call) -> bool:
    """Whether this is a command or a magic, as in get_ipython().system("ls")."""
    shell = getattr(node.func, "value", None)
    return isinstance(shell, ast.Call) and getattr(shell.func, "id", "") == "get_ipython"


def embedded(tree: ast.AST) -> set[str]:
    """The names in the texts of commands and magics."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and is_magic(n)]
    texts = [a.value for n in calls for a in n.args if isinstance(a, ast.Constant)]
    return {name for t in texts if isinstance(t, str) for name in EMBEDDED.findall(t)}
