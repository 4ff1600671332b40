"""Turns setup_code and loop_code into what Python runs.

Everything that a notebook cell may contain is allowed, including magics and ! lines. In loop_code
`i` is an ordinary variable. Code written for an earlier tool, which replaced the text {i} by the
iteration's number, works too: a subscript [{i}] means [i], and a plain string that contains {i}
means an f-string. Both are found in the syntax tree.
"""

from __future__ import annotations

import ast
import copy
import linecache
import re
import types
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


class Setup:
    """setup_code, which runs once in each kernel."""

    def __init__(self, shell: Any, source: str) -> None:
        tree, label = parse(shell, "setup_code", source)
        self.code = compiled(tree, label)
        self.uses = Uses(shell, tree, self.code)


class Loop:
    """loop_code, the body of `for i in range(n)`."""

    def __init__(self, shell: Any, source: str) -> None:
        tree, label = parse(shell, "loop_code", source)
        self.flow = Flow(tree.body)
        for node in self.flow.breaks:
            raise refused(label, BREAK, node.lineno)
        # Inside a for statement, so that continue works.
        name, once = ast.Name("i", ast.Store()), ast.List([ast.Name("i", ast.Load())], ast.Load())
        wrapped = Braces().visit(copy.deepcopy(tree))
        wrapped.body = [ast.For(name, once, wrapped.body or [ast.Pass()], [])]
        self.code = compiled(ast.fix_missing_locations(wrapped), label)
        self.uses = Uses(shell, tree, self.code)


def parse(shell: Any, kind: str, source: str) -> tuple[ast.Module, str]:
    label = "<" + kind + ">"
    try:
        text = shell.transform_cell(source)
        label = remember(kind, text)
        return ast.parse(text, label), label
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL, before Python 3.12
        raise refused(label, message_of(error), getattr(error, "lineno", None)) from None


def compiled(tree: ast.Module, label: str) -> types.CodeType:
    try:
        return compile(tree, label, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        message = message_of(error)
        if "await" in message or "async" in message:
            message = AWAIT
        raise refused(label, message, getattr(error, "lineno", None)) from None


def message_of(error: Exception) -> str:
    return getattr(error, "msg", None) or str(error)


def refused(label: str, message: str, line: int | None) -> Refused:
    text = linecache.getline(label, line).strip() if line else ""
    linecache.cache.pop(label, None)  # no code of this text exists
    name = "<%s>" % label[1:-1].partition(" ")[0]
    lines = ["SyntaxError: " + message]
    if line:
        lines = ["  File %s, line %d\n    %s\n" % (name, line, text)] + lines
        message += " (%s, line %d)" % (name, line)
    return Refused(message, ["".join(lines)])


def remember(kind: str, text: str) -> str:
    """Gives the text a file name under which tracebacks and inspect find its lines. Names are never
    reused, because functions of an older text may still exist."""
    lines = text.splitlines(True)
    number, label = 1, "<" + kind + ">"
    while label in linecache.cache and remembered_lines(label) != lines:
        number += 1
        label = "<%s %d>" % (kind, number)
    linecache.cache[label] = (len(text), None, lines, label)
    return label


def remembered_lines(label: str) -> list[str]:
    entry: Any = linecache.cache[label]
    return entry[2]


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
