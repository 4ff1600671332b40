"""Turns setup_code and loop_code into what Python runs, and finds the names that they use, by their
instructions and by the texts that they run.

Everything that a notebook cell may contain is allowed, including magics and ! lines. In loop_code
`i` is an ordinary variable. A subscript [{i}] means [i], for code that was written for an earlier
tool, which replaced the text {i} by the iteration's number.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
import types
from typing import Any

from ..code.names import Flow, called, deferred, used_by, uses_of
from ..ending import show
from ..script import shown

BREAK = "'break' can't end a chunked run: use continue, or raise an error"
# The kernel's own event loop runs in the main thread, where asyncio.run refuses to.
AWAIT = (
    "a chunked run can't await outside a function: put it into an async def main() and run that "
    "by concurrent.futures.ThreadPoolExecutor().submit(asyncio.run, main()).result()"
)
SHELLS = ("system", "getoutput")
RUNNERS = ("exec", "eval", "run_cell", "run_cell_magic", "run_line_magic", *SHELLS)
# With one of these, code can use names that it does not mention.
OPAQUE = frozenset("exec eval compile globals locals vars __import__ importlib".split())
OPAQUE_ATTRIBUTES = frozenset("user_ns user_module modules f_globals f_locals __globals__".split())
WORD = re.compile(r"[^\W\d]\w*")
MAX_DEPTH = 4  # of magics within magics
SUBSCRIPTS = {"Subscript": "slice", "Index": "value"}  # Index: Python 3.8


class Body:
    """setup_code, which runs once in each kernel, or loop_code, the body of `for i in range(n)`."""

    def __init__(self, shell: Any, kind: str, source: str) -> None:
        try:
            text = shell.transform_cell(source)
            # Tracebacks and inspect find its lines under this file name, also those of functions
            # of an older text.
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
            label = "<%s %s>" % (kind, digest[:8])
            linecache.cache[label] = (len(text), None, text.splitlines(True), label)
            tree = ast.parse(text, label)
            self.flow = Flow(tree.body)
            if kind == "loop_code":
                self.wrap(tree, label)
            self.code = compile(tree, label, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:  # ValueError: a NUL, before Python 3.12
            raise refused(shell, error) from None
        self.uses = Uses(shell, tree, self.code)

    def wrap(self, tree: ast.Module, label: str) -> None:
        """Puts the body of one iteration into a for statement, so that continue works."""
        for ends in self.flow.breaks:
            raise SyntaxError(BREAK, (label, ends.lineno, 0, None))
        for node in ast.walk(tree):
            field = SUBSCRIPTS.get(type(node).__name__, "")
            inner = getattr(node, field, None)
            if isinstance(inner, ast.Set) and [getattr(e, "id", "") for e in inner.elts] == ["i"]:
                setattr(node, field, inner.elts[0])
        name, once = ast.Name("i", ast.Store()), ast.List([ast.Name("i", ast.Load())], ast.Load())
        tree.body = [ast.For(name, once, tree.body or [ast.Pass()], [])]
        ast.fix_missing_locations(tree)


def refused(shell: Any, error: Exception) -> SyntaxError:
    """The error of code that can't be a body. IPython would show our own frames above it."""
    problem = error if isinstance(error, SyntaxError) else SyntaxError(str(error))
    if "await" in problem.msg or "async" in problem.msg:
        problem.msg = AWAIT
    show(shell, problem, shown(problem.with_traceback(None)))
    return problem


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
