"""The language of filter and sort_by. Python's parser reads them and nothing runs them:
DataFrame.query would run calls."""

from __future__ import annotations

import ast
import warnings
from typing import Any, NamedTuple

from ..safe import short
from .problem import Problem

MAX_FILTER = 10_000  # characters
MAX_CONDITIONS = 100
EXAMPLE = (
    'A filter is column op literal, joined by and, such as: price >= 9.5 and "unit cost" < 3 '
    "and city in ['Bonn', 'Ulm'] and note is not None. For anything else, compute a frame with "
    "run_code_quick."
)
OPERATORS: dict[Any, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}


class Condition(NamedTuple):
    column: str
    op: str  # a value of OPERATORS
    literal: Any  # a scalar; for in and not in a list of scalars; for is and is not None


def parse(source: str) -> list[Condition]:
    if not source.strip():
        return []
    if len(source) > MAX_FILTER:
        raise bad("filter is over %d characters" % MAX_FILTER)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise bad("filter is not valid: %s" % short(source)) from None
    parts = conjuncts(body)
    if len(parts) > MAX_CONDITIONS:
        raise bad("filter has over %d conditions" % MAX_CONDITIONS)
    return [condition(part, source) for part in parts]


def conjuncts(body: ast.expr) -> list[ast.expr]:
    if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And):
        return body.values
    return [body]


def condition(part: ast.expr, source: str) -> Condition:
    if isinstance(part, ast.Compare) and len(part.ops) == 1:
        column, op = column_of(part.left), OPERATORS[type(part.ops[0])]
        literal, fine = literal_of(part.comparators[0], op)
        if column and fine:
            return Condition(column, op, literal)
    raise bad("filter has a part that is not column op literal: %s" % short(source))


def column_of(left: ast.expr) -> str:
    if isinstance(left, ast.Name):
        return left.id
    if isinstance(left, ast.Constant) and type(left.value) is str:
        return left.value
    return ""


def literal_of(node: ast.expr, op: str) -> tuple[Any, bool]:
    """The value of a literal, and whether it is one that op takes."""
    if op in ("in", "not in"):
        if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return None, False
        items = [scalar(item) for item in node.elts]
        return [value for value, _ in items], all(f and v is not None for v, f in items)
    value, fine = scalar(node)
    return value, fine and (value is None) == (op in ("is", "is not"))


def scalar(node: ast.expr) -> tuple[Any, bool]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value, fine = scalar(node.operand)
        if not fine or type(value) not in (int, float):
            return None, False
        return (-value if isinstance(node.op, ast.USub) else value), True
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, str, bool, type(None)):
        return node.value, True
    return None, False


def bad(message: str) -> Problem:
    return Problem("bad_request", message, EXAMPLE)


def parse_sort(source: str) -> tuple[str, bool]:
    """The column of sort_by, "" for none, and whether it is descending."""
    source = source.strip()
    for word, descending in (("desc", True), ("asc", False)):
        head, _, last = source.rpartition(" ")
        if head and last.lower() == word:
            return head.strip(), descending
    return source, False
