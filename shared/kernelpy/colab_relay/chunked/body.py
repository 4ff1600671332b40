"""Turns setup_code and loop_code into what Python runs.

Everything that a notebook cell may contain is allowed, including magics and ! lines. In loop_code
`i` is an ordinary variable. Code written for an earlier tool, which replaced the text {i} by the
iteration's number, works too: a subscript [{i}] means [i], and {i} in a plain string becomes the
number. Both are found in the syntax tree.
"""

from __future__ import annotations

import ast
import linecache
import re
import types
from typing import Any, Iterable, Iterator

NUMBER = re.compile(r"(?<!\{)\{i\}(?!\})")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
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
        self.tree, label = parse(shell, "setup_code", source)
        self.code = compiled(self.tree, label)


class Loop:
    """loop_code, the body of `for i in range(n)`."""

    def __init__(self, shell: Any, source: str) -> None:
        tree, self.label = parse(shell, "loop_code", source)
        refuse(self.label, own_jumps(tree.body, ast.Break), BREAK)
        braces = Braces()
        tree = braces.visit(tree)
        self.texts = [(node, node.value) for node in braces.texts]
        # Inside a for statement, so that continue works.
        name, once = ast.Name("i", ast.Store()), ast.List([ast.Name("i", ast.Load())], ast.Load())
        self.statements = tree.body
        tree.body = [ast.For(name, once, tree.body or [ast.Pass()], [])]
        ast.fix_missing_locations(tree)
        self.tree = tree
        self.code = compiled(tree, self.label)

    def prepare(self, number: int) -> None:
        """Prepares one iteration: compiles the body again if strings contain the number."""
        if self.texts:
            for node, text in self.texts:
                node.value = NUMBER.sub(str(number), text)
            self.code = compiled(self.tree, self.label)


def parse(shell: Any, kind: str, source: str) -> tuple[ast.Module, str]:
    label = "<" + kind + ">"
    try:
        text = shell.transform_cell(source)
        label = remember(kind, text)
        tree = ast.parse(text, label)
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL, before Python 3.12
        raise refused(label, error) from None
    refuse(label, own_awaits(tree.body), AWAIT)
    return tree, label


def refuse(label: str, nodes: Iterable[Any], message: str) -> None:
    """Raises Refused for the first of the nodes, if there is one."""
    for node in nodes:
        error = SyntaxError(message)
        error.filename, error.lineno = label, node.lineno
        raise refused(label, error)


def compiled(tree: ast.Module, label: str) -> types.CodeType:
    try:
        return compile(tree, label, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise refused(label, error) from None


def refused(label: str, error: Exception) -> Refused:
    line = getattr(error, "lineno", None)
    text = linecache.getline(label, line).strip() if line else ""
    linecache.cache.pop(label, None)  # no code of this text exists
    name = "<%s>" % label[1:-1].partition(" ")[0]
    message = getattr(error, "msg", None) or str(error)
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

    def __init__(self) -> None:
        self.texts: list[Any] = []  # constants that contain the number

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        inner: Any = node.slice
        if type(inner).__name__ == "Index":  # Python 3.8
            inner = inner.value
        if is_i_in_braces(inner):
            node.slice = rewrapped(node.slice, inner.elts[0])
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is str and NUMBER.search(node.value):
            self.texts.append(node)
        return node

    def visit_JoinedStr(self, node: Any) -> ast.AST:
        node.values = [v if isinstance(v, ast.Constant) else self.visit(v) for v in node.values]
        return node

    visit_TemplateStr = visit_JoinedStr


def is_i_in_braces(node: Any) -> bool:
    if not isinstance(node, ast.Set) or len(node.elts) != 1:
        return False
    return isinstance(node.elts[0], ast.Name) and node.elts[0].id == "i"


def rewrapped(old: Any, inner: ast.expr) -> Any:
    if type(old).__name__ == "Index":
        old.value = inner
        return old
    return inner


def own_jumps(nodes: Iterable[ast.AST], kind: type) -> Iterator[ast.AST]:
    """The breaks or continues that belong to the body itself, not to a loop inside it."""
    for node in nodes:
        if isinstance(node, kind):
            yield node
        elif isinstance(node, LOOPS):
            yield from own_jumps(node.orelse, kind)
        elif not isinstance(node, SCOPES):
            yield from own_jumps(ast.iter_child_nodes(node), kind)


def own_awaits(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes that await outside functions."""
    for node in nodes:
        if isinstance(node, AWAITS) or isinstance(node, ast.comprehension) and node.is_async:
            yield node if hasattr(node, "lineno") else node.target
        elif not isinstance(node, SCOPES + (ast.GeneratorExp,)):
            yield from own_awaits(ast.iter_child_nodes(node))
