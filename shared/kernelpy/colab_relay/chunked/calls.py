"""What calls do to names: the part of dependence.Reader for functions, methods and magics."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .scope import Definitions, Effects, root_of

HARMLESS = frozenset(
    "abs ascii bin bool bytes callable chr complex dict dir display divmod enumerate filter float "
    "format frozenset getattr hasattr hash help hex id input int isinstance issubclass iter len "
    "list map max memoryview min object oct open ord pow print property range repr reversed round "
    "set slice sorted str sum super tuple type zip".split()
)
BUILTINS_CHANGING_FIRST = frozenset(["next", "anext", "setattr", "delattr"])
FUNCTIONS_CHANGING_FIRST = frozenset(["heappop", "heappushpop", "heapreplace"])
CONSUMES = frozenset(
    "all any dict enumerate filter frozenset iter list map max min set sorted sum tuple zip".split()
)
OPAQUE = frozenset(["exec", "eval", "globals", "locals", "vars", "__import__"])
READ_THROUGH = frozenset(["time", "capture"])  # magics whose text is ordinary code
MAX_DEPTH = 20  # of magics within magics


class Calls(ast.NodeVisitor):
    """The methods of dependence.Reader that handle calls."""

    if TYPE_CHECKING:  # what the Reader adds
        definitions: Definitions
        depth: int
        opaque: set[str]

        def read(self, name: str) -> None: ...
        def store(self, name: str) -> None: ...
        def change(self, node: ast.expr, own: str, part: str) -> None: ...
        def add_kind(self, name: str, kind: str) -> None: ...
        def apply(self, effects: Effects) -> None: ...
        def run(self, text: str) -> None: ...

    def visit_Call(self, node: ast.Call, used: bool = True) -> None:
        if self.is_magic(node):
            return
        self.visit(node.func)
        self.visit_inputs(node)
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.change(keyword.value, "change", "change")
        if isinstance(node.func, ast.Name):
            self.call_name(node, node.func.id, used)
        elif isinstance(node.func, ast.Attribute):
            self.call_method(node, node.func, used)
        elif not used:
            self.change_arguments(node)

    def visit_inputs(self, node: ast.Call) -> None:
        for arg in node.args:
            self.visit(arg)
        for keyword in node.keywords:
            self.visit(keyword.value)

    def call_name(self, node: ast.Call, name: str, used: bool) -> None:
        if name in OPAQUE:
            self.opaque.add(name + "()")
        changes = self.definitions.changes(name, node, self)
        if changes is not None:
            for arg in changes:
                self.change(arg, "pass", "pass-part")
        elif name in self.definitions.imported:
            self.call_library(node, name, used)
        elif name in BUILTINS_CHANGING_FIRST and node.args:
            self.change(node.args[0], "change", "change")
        elif name not in HARMLESS and name not in CONSUMES and name not in OPAQUE:
            self.change_arguments(node)
            self.add_kind(name, "call")
        elif name in CONSUMES:
            for arg in node.args:
                self.change(arg, "iterate", "iterate")

    def call_library(self, node: ast.Call, name: str, used: bool) -> None:
        """A function of an imported module changes its arguments only if its value is not used, or
        if it is one of FUNCTIONS_CHANGING_FIRST."""
        if name in FUNCTIONS_CHANGING_FIRST and node.args:
            self.change(node.args[0], "change", "change")
        elif not used:
            self.change_arguments(node)

    def call_method(self, node: ast.Call, func: ast.Attribute, used: bool) -> None:
        for effects in self.definitions.effects_of_method(func.attr, self):
            self.apply(effects)
        root, whole = root_of(func.value)
        if root in self.definitions.imported:
            self.call_library(node, func.attr, used)
            return
        if root is not None:
            inplace = any(k.arg == "inplace" for k in node.keywords)
            kind = "change" if inplace else "." + func.attr if whole else "[]." + func.attr
            self.add_kind(root, kind)
        if not used and not isinstance(func.value, (ast.Constant, ast.JoinedStr)):
            self.change_arguments(node)

    def change_arguments(self, node: ast.Call) -> None:
        """The function that is called may change each of its arguments."""
        for arg in node.args + [keyword.value for keyword in node.keywords]:
            self.change(arg, "pass", "pass-part")

    # Magics, as transform_cell writes them.

    def is_magic(self, node: ast.Call) -> bool:
        func = node.func
        if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call)):
            return False
        shell = func.value.func
        if not (isinstance(shell, ast.Name) and shell.id == "get_ipython"):
            return False
        constants = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        texts = [text for text in constants if isinstance(text, str)]
        if func.attr in ("run_line_magic", "run_cell_magic") and texts[:1]:
            self.magic(func.attr == "run_cell_magic", texts)
        elif func.attr in ("system", "getoutput", "system_raw"):
            self.shell_command(texts)
        else:
            self.opaque.add("get_ipython()." + func.attr)
        return True

    def magic(self, cell: bool, texts: list[str]) -> None:
        name, line, body = (texts + ["", ""])[:3]
        if name not in READ_THROUGH:
            self.opaque.add("%%" + name if cell else "%" + name)
            return
        if name == "capture":
            for word in line.split():
                if word.isidentifier():
                    self.store(word)
        try:
            if self.depth >= MAX_DEPTH:
                raise SyntaxError
            self.depth += 1
            self.run(body if cell else line)
            self.depth -= 1
        except SyntaxError:
            self.opaque.add("%" + name)

    def shell_command(self, texts: list[str]) -> None:
        """A command changes no variable. It reads the names that its text refers to."""
        for text in texts:
            for name in re.findall(r"(?<![{\w])(?:\{|\$\{?)([A-Za-z_]\w*)", text):
                self.read(name)
