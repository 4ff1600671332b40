"""Which names of the notebook code uses, by its instructions, and by the texts that it runs."""

from __future__ import annotations

import ast
import re
import types
from typing import Any

from ..code.names import called, deferred, used_by, uses_of

SHELLS = ("system", "getoutput")
RUNNERS = ("exec", "eval", "run_cell", "run_cell_magic", "run_line_magic", *SHELLS)
# With one of these, code can use names that it does not mention.
OPAQUE = frozenset("exec eval compile globals locals vars __import__ importlib".split())
OPAQUE_ATTRIBUTES = frozenset("user_ns user_module modules f_globals f_locals __globals__".split())
WORD = re.compile(r"[^\W\d]\w*")
MAX_DEPTH = 4  # of magics within magics


class Uses:
    """The names that a body uses."""

    def __init__(self, shell: Any, tree: ast.Module, code: types.CodeType) -> None:
        self.shell = shell
        self.stores: set[str] = set()
        self.reads: set[str] = set()
        self.texts: set[str] = set()  # identifiers in texts that it runs
        self.strings: set[str] = set()  # its other texts
        self.opaque = False
        # Used by code that may run at another time than where it stands.
        self.later = {name for inner in deferred(code) for name in used_by(inner)}
        self.analyse(tree, code, 0)
        if self.opaque:
            self.texts.update(word for text in self.strings for word in WORD.findall(text))
        self.all = self.stores | self.reads | self.texts

    def analyse(self, tree: ast.AST, code: types.CodeType, depth: int) -> None:
        stores, reads = uses_of(code)
        self.stores |= stores
        self.reads |= reads
        run: list[ast.expr] = []
        for node in ast.walk(tree):  # a call before its arguments
            if isinstance(node, ast.Call) and runs_text(node):
                self.opaque = self.opaque or called(node) not in SHELLS
                run += node.args
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if any(node is arg for arg in run):
                    self.run_text(node.value, depth + 1)
                else:
                    self.strings.add(node.value)
            else:
                self.opaque = self.opaque or is_opaque(node)

    def run_text(self, text: str, depth: int) -> None:
        self.texts.update(WORD.findall(text))
        try:
            tree = ast.parse(self.shell.transform_cell(text))
            code = compile(tree, "<text>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            self.reads.update(WORD.findall(text))
            return
        if depth < MAX_DEPTH:
            self.analyse(tree, code, depth)


def runs_text(node: ast.Call) -> bool:
    """Whether a call runs its texts. model.eval() does not."""
    if called(node) not in RUNNERS:
        return False
    return isinstance(node.func, ast.Name) or called(node) not in ("exec", "eval")


def is_opaque(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(item.name == "*" for item in node.names)
    if isinstance(node, ast.Attribute):
        return node.attr in OPAQUE_ATTRIBUTES
    return isinstance(node, ast.Name) and node.id in OPAQUE
