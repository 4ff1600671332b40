"""Turns setup_code and loop_code into what Python runs.

Everything that a notebook cell may contain is allowed, including magics and ! lines. In loop_code
`i` is an ordinary variable. Code written for an earlier tool, which replaced the text {i} by the
iteration's number, works too: a subscript [{i}] means [i], and a plain string that contains {i}
means an f-string. Both are found in the syntax tree.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import linecache
import re
from typing import Any

from ..code.flow import Flow
from .uses import Uses

NUMBER = re.compile(r"(?<!\{)\{i\}(?!\})")
BREAK = "'break' can't end a chunked run: use continue, or raise an error"
# The kernel's own event loop runs in the main thread, where asyncio.run refuses to.
AWAIT = (
    "a chunked run can't await outside a function: put it into an async def main() and run that "
    "by concurrent.futures.ThreadPoolExecutor().submit(asyncio.run, main()).result()"
)


class Refused(Exception):
    """Code that cannot be a body. It is displayed as a SyntaxError but is not one, because IPython
    would display a real one with our own frames around it."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__(message)
        self.lines = lines

    def _render_traceback_(self) -> list[str]:
        return self.lines


Refused.__name__ = Refused.__qualname__ = "SyntaxError"


class Body:
    """setup_code, which runs once in each kernel, or loop_code, the body of `for i in range(n)`."""

    def __init__(self, shell: Any, kind: str, source: str) -> None:
        label = "<%s>" % kind
        try:
            text = shell.transform_cell(source)
            # Tracebacks and inspect find its lines under this file name, also those of functions
            # of an older text.
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
            label = "<%s %s>" % (kind, digest[:8])
            linecache.cache[label] = (len(text), None, text.splitlines(True), label)
            tree = ast.parse(text, label)
            self.flow = Flow(tree.body)
            runs = tree if kind == "setup_code" else self.repeated(tree, label)
            self.code = compile(runs, label, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:  # ValueError: a NUL, before Python 3.12
            raise refused(label, error) from None
        self.uses = Uses(shell, tree, self.code)

    def repeated(self, tree: ast.Module, label: str) -> ast.Module:
        """The tree of one iteration, inside a for statement, so that continue works."""
        for node in self.flow.breaks:
            raise SyntaxError(BREAK, (label, node.lineno, 0, ""))
        name, once = ast.Name("i", ast.Store()), ast.List([ast.Name("i", ast.Load())], ast.Load())
        wrapped = Braces().visit(copy.deepcopy(tree))
        wrapped.body = [ast.For(name, once, wrapped.body or [ast.Pass()], [])]
        return ast.fix_missing_locations(wrapped)


def refused(label: str, error: Exception) -> Refused:
    message: str = getattr(error, "msg", None) or str(error)
    if "await" in message or "async" in message:
        message = AWAIT
    line: int | None = getattr(error, "lineno", None)
    if not line:
        return Refused(message, ["SyntaxError: " + message])
    where = "<%s>, line %d" % (label[1:-1].partition(" ")[0], line)
    lines = "  File %s\n    %s\n" % (where, linecache.getline(label, line).strip())
    return Refused("%s (%s)" % (message, where), [lines + "SyntaxError: " + message])


class Braces(ast.NodeTransformer):
    """Finds {i} in subscripts and plain strings. Sets, f-strings and {{i}} are not changed."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        holder: Any = node
        field = "slice"
        if type(node.slice).__name__ == "Index":  # Python 3.8
            holder, field = node.slice, "value"
        inner = getattr(holder, field)
        if isinstance(inner, ast.Set) and [getattr(e, "id", "") for e in inner.elts] == ["i"]:
            setattr(holder, field, inner.elts[0])
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        texts = NUMBER.split(node.value) if type(node.value) is str else []
        if len(texts) < 2:
            return node
        values: list[ast.expr] = [ast.Constant(texts[0])]
        for text in texts[1:]:
            number = ast.FormattedValue(ast.Name("i", ast.Load()), -1, None)
            values += [number, ast.Constant(text)]
        return ast.copy_location(ast.JoinedStr(values), node)

    def visit_JoinedStr(self, node: Any) -> ast.AST:
        node.values = [v if isinstance(v, ast.Constant) else self.visit(v) for v in node.values]
        return node

    def keep(self, node: ast.AST) -> ast.AST:  # a pattern can't be computed
        return node

    visit_TemplateStr = visit_JoinedStr
    visit_MatchValue = visit_MatchMapping = keep
