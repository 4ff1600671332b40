"""Turns setup_code and loop_code into what Python runs.

What a notebook's cell may hold is allowed, magics and ! lines too. In loop_code `i` is an
ordinary variable; besides, what the bridge before this one documented works, told by the
syntax tree alone: a subscript [{i}] means [i], and {i} in a plain string becomes the number.
"""

import ast
import linecache
import re

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
    """Code that can't be a body. It is told as the SyntaxError it is: IPython would show a
    SyntaxError proper with our own frames around."""

    def __init__(self, message, lines):
        super().__init__(message)
        self.lines = lines

    def _render_traceback_(self):
        return self.lines


Refused.__name__ = Refused.__qualname__ = "SyntaxError"


class Setup:
    """setup_code: run once in a kernel's life."""

    def __init__(self, shell, source):
        self.tree = parse(shell, "setup_code", source)
        self.code = compiled(self.tree)


class Loop:
    """loop_code: the body of `for i in range(n)`."""

    def __init__(self, shell, source):
        tree = parse(shell, "loop_code", source)
        refuse(tree, own_jumps(tree.body, ast.Break), BREAK)
        braces = Braces()
        tree = braces.visit(tree)
        self.texts = [(node, node.value) for node in braces.texts]
        # In a for, so that continue means what it says in the body of a loop.
        name, once = ast.Name("i", ast.Store()), ast.List([ast.Name("i", ast.Load())], ast.Load())
        self.statements = tree.body
        tree.body = [ast.For(name, once, tree.body or [ast.Pass()], [])]
        ast.fix_missing_locations(tree)
        self.tree = tree
        self.code = compiled(tree)

    def prepare(self, number):
        """Compiles anew where a string holds the number."""
        if self.texts:
            for node, text in self.texts:
                node.value = NUMBER.sub(str(number), text)
            self.code = compiled(self.tree)


def parse(shell, kind, source):
    label = "<" + kind + ">"
    try:
        text = shell.transform_cell(source)
        label = remember(kind, text)
        tree = ast.parse(text, label)
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL, before Python 3.12
        raise refused(label, error) from None
    tree.label = label
    refuse(tree, own_awaits(tree.body), AWAIT)
    return tree


def refuse(tree, nodes, message):
    """Refuses the first of the nodes, if there is one."""
    for node in nodes:
        error = SyntaxError(message)
        error.filename, error.lineno = tree.label, node.lineno
        raise refused(tree.label, error)


def compiled(tree):
    try:
        return compile(tree, tree.label, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise refused(tree.label, error) from None


def refused(label, error):
    line = getattr(error, "lineno", None)
    text = linecache.getline(label, line).strip() if line else ""
    linecache.cache.pop(label, None)  # no code of this text is about
    name = "<%s>" % label[1:-1].partition(" ")[0]
    message = getattr(error, "msg", None) or str(error)
    lines = ["SyntaxError: " + message]
    if line:
        lines = ["  File %s, line %d\n    %s\n" % (name, line, text)] + lines
        message += " (%s, line %d)" % (name, line)
    return Refused(message, ["".join(lines)])


def remember(kind, text):
    """Gives the text a file name under which tracebacks and inspect find its lines, for as
    long as the kernel lives: functions made by an older text may still be about."""
    lines = text.splitlines(True)
    number, label = 1, "<" + kind + ">"
    while label in linecache.cache and linecache.cache[label][2] != lines:
        number += 1
        label = "<%s %d>" % (kind, number)
    linecache.cache[label] = (len(text), None, lines, label)
    return label


class Braces(ast.NodeTransformer):
    """Finds what the bridge's notation stands for; sets, f-strings and {{i}} are left alone."""

    def __init__(self):
        self.texts = []  # constants that hold the number

    def visit_Subscript(self, node):
        self.generic_visit(node)
        inner = node.slice
        if type(inner).__name__ == "Index":  # Python 3.8
            inner = inner.value
        if is_i_in_braces(inner):
            node.slice = rewrapped(node.slice, inner.elts[0])
        return node

    def visit_Constant(self, node):
        if type(node.value) is str and NUMBER.search(node.value):
            self.texts.append(node)
        return node

    def visit_JoinedStr(self, node):
        node.values = [v if isinstance(v, ast.Constant) else self.visit(v) for v in node.values]
        return node

    visit_TemplateStr = visit_JoinedStr


def is_i_in_braces(node):
    if not isinstance(node, ast.Set) or len(node.elts) != 1:
        return False
    return isinstance(node.elts[0], ast.Name) and node.elts[0].id == "i"


def rewrapped(old, inner):
    if type(old).__name__ == "Index":
        old.value = inner
        return old
    return inner


def own_jumps(nodes, kind):
    """The breaks or continues that are the body's own, not of a loop within it."""
    for node in nodes:
        if isinstance(node, kind):
            yield node
        elif isinstance(node, LOOPS):
            yield from own_jumps(node.orelse, kind)
        elif not isinstance(node, SCOPES):
            yield from own_jumps(ast.iter_child_nodes(node), kind)


def own_awaits(nodes):
    """What awaits outside functions."""
    for node in nodes:
        if isinstance(node, AWAITS) or isinstance(node, ast.comprehension) and node.is_async:
            yield node if hasattr(node, "lineno") else node.target
        elif not isinstance(node, SCOPES + (ast.GeneratorExp,)):
            yield from own_awaits(ast.iter_child_nodes(node))
