"""Turns setup_code and loop_code into what Python runs.

Everything that a notebook cell may contain is allowed, including magics and ! lines. In loop_code
`i` is an ordinary variable. A subscript [{i}] means [i], for code that was written for an earlier
tool, which replaced the text {i} by the iteration's number.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
from typing import Any

from ..code.names import Flow
from ..ending import show
from ..script import shown
from .uses import Uses

BREAK = "'break' can't end a chunked run: use continue, or raise an error"
# The kernel's own event loop runs in the main thread, where asyncio.run refuses to.
AWAIT = (
    "a chunked run can't await outside a function: put it into an async def main() and run that "
    "by concurrent.futures.ThreadPoolExecutor().submit(asyncio.run, main()).result()"
)


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
