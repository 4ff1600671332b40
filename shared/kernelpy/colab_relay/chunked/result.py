"""Finds the value that an iteration left in the user's variable `result`.

An iteration that did not set the variable gives no value, although the variable may still have
the value of an earlier one. Code that always sets it is recognised by its syntax. For other code
the old value is removed during the iteration. If the code may read the old value, it is not
removed, and only a different object counts as a new value.
"""

from __future__ import annotations

import ast
import dis
import re
import types
from typing import Any, Iterator

from .body import Loop, Setup, own_jumps

NAME = "result"
NOTHING = object()
WORD = re.compile(r"\b%s\b" % NAME)
STORES = ("STORE_NAME", "STORE_GLOBAL")
READS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL")
RUNNERS = ("exec", "eval", "run_cell", "run_cell_magic", "run_line_magic", "system", "getoutput")
MAX_DEPTH = 4  # of magics within magics


class Result:
    def __init__(self, shell: Any, setup: Setup, loop: Loop) -> None:
        self.names = shell.user_ns
        self.old = NOTHING
        own, others = NameUses(shell, loop), NameUses(shell, setup)
        self.set = own.stores
        always = always_set(loop.statements)
        self.compared = self.set and not always and (own.reads or others.reads)
        self.taken_out = self.set and not always and not self.compared

    def before(self) -> None:
        if self.taken_out:
            self.old = self.names.pop(NAME, NOTHING)
        elif self.compared:
            self.old = self.names.get(NAME, NOTHING)

    def after(self) -> Any:
        """The value that the iteration gave, or NOTHING."""
        old, self.old = self.old, NOTHING
        now = self.names.get(NAME, NOTHING)
        if not self.set or (self.compared and now is old):
            return NOTHING
        if now is NOTHING and old is not NOTHING and self.taken_out:
            self.names[NAME] = old
        return now


class NameUses:
    """Whether a body's code sets or reads the user's variable, including code in the texts of
    magics, exec and eval."""

    def __init__(self, shell: Any, body: Setup | Loop) -> None:
        self.shell = shell
        self.stores = self.reads = False
        self.analyse(body.tree, body.code, 0)

    def analyse(self, tree: ast.AST, code: types.CodeType, depth: int) -> None:
        self.stores = self.stores or uses(code, STORES, ("STORE_GLOBAL",))
        self.reads = self.reads or uses(code, READS, READS)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value == NAME:
                self.reads = True  # globals()["result"]
            elif isinstance(node, ast.Call) and called(node) in RUNNERS:
                for text in texts_of(node):
                    self.analyse_text(text, depth + 1)

    def analyse_text(self, text: str, depth: int) -> None:
        if not WORD.search(text):
            return
        try:
            tree = ast.parse(self.shell.transform_cell(text))
            code = compile(tree, "<text>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            self.reads = True
            return
        if depth < MAX_DEPTH:
            self.analyse(tree, code, depth)


def called(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


def texts_of(call: ast.Call) -> Iterator[str]:
    for arg in call.args:
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            yield arg.value


def uses(code: types.CodeType, opcodes: tuple[str, ...], inner_opcodes: tuple[str, ...]) -> bool:
    """Whether code has one of these instructions for the name. inner_opcodes are the instructions
    that reach the user's variable from inside a function or class."""
    if any(step.opname in opcodes and step.argval == NAME for step in dis.get_instructions(code)):
        return True
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return any(uses(code, inner_opcodes, inner_opcodes) for code in inner)


def always_set(statements: list[ast.stmt]) -> bool:
    """Whether a statement that cannot be skipped sets the name."""
    for node in statements:
        if isinstance(node, ast.Assign) and any(map(binds, node.targets)):
            return True
        if isinstance(node, ast.AugAssign) and binds(node.target):
            return True
        if isinstance(node, ast.AnnAssign) and node.value is not None and binds(node.target):
            return True
        if any(own_jumps([node], ast.Continue)):
            return False
    return False


def binds(target: ast.AST) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(map(binds, target.elts))
    if isinstance(target, ast.Starred):
        return binds(target.value)
    return isinstance(target, ast.Name) and target.id == NAME
