"""The user's frames, of any library, by one interface."""

from __future__ import annotations

import importlib
import re
from typing import Any, Callable, NamedTuple

from ..safe import class_title, is_any, known, module_dict, short
from ..variables.listing import everything
from .filters import Condition
from .problem import Problem, nearest
from .values import cell, is_scalar

MAX_LABEL = 200  # characters
KEPT = re.compile(r"_+|_\d+")  # names of results that IPython keeps


class Column(NamedTuple):
    """A column of a frame. of_objects says that it may hold objects of any class; their order and
    equality are code of the user's, and only all_scalars finds out."""

    label: str
    dtype: str
    of_objects: bool = False
    readable: bool = True  # False if even reading it would run code of the user's
    is_index: bool = False


class Frame:
    """A frame and which of its rows are chosen, in order."""

    engine = ""
    columns: list[Column]
    casts: dict[int, str] = {}  # of columns of a table: the type to which SQL has to cast them

    def narrow(self, column: int, condition: Condition) -> None:
        """Keeps the rows that meet a condition. A missing value meets none but is None."""
        raise NotImplementedError

    def sort(self, column: int, descending: bool) -> None:
        """Sorts the rows, missing values last."""
        raise NotImplementedError

    def count(self) -> int:
        """How many rows are chosen."""
        raise NotImplementedError

    def cells(self, column: int, start: int, stop: int) -> list[Any]:
        """The values of some of the chosen rows."""
        raise NotImplementedError

    def unfit(self, column: int) -> str:
        """Why SQL cannot have a column, in a few words: it cannot hold all values exactly, or
        reading them would run code of the user's. "" if it can."""
        raise NotImplementedError

    def table(self, columns: list[int]) -> Any:
        """Some columns, of those that are not unfit, for DuckDB."""
        raise NotImplementedError


def label(value: Any) -> str:
    return short(str(cell(value)), MAX_LABEL) if value is not None else ""


def module(name: str) -> Any:
    """A module of this package that imports a library, which must be there. In a kernel only the
    package's own loader finds it."""
    full = __name__.rpartition(".")[0] + "." + name
    loader = module_dict(__name__.partition(".")[0]).get("loader")
    return loader.load(full) if loader is not None else importlib.import_module(full)


def adapters() -> list[tuple[list[Any], Callable[[Any], Frame]]]:
    """The classes of frames in the libraries that are imported, with their Frame."""
    found: list[tuple[list[Any], Callable[[Any], Frame]]] = []
    if known("pandas", "DataFrame"):
        opened = module("pandasframe").open_frame
        found.append((known("pandas", "DataFrame", "Series"), opened))
    if known("polars", "DataFrame"):
        found.append((known("polars", "DataFrame", "Series"), module("polarsframe").PolarsFrame))
    if known("pyarrow", "Table"):
        found.append((known("pyarrow", "Table", "RecordBatch"), module("arrowframe").ArrowFrame))
    return found


def is_frame(value: Any) -> bool:
    return any(is_any(type(value), classes) for classes, _ in adapters())


def is_readable(name: str, value: Any) -> bool:
    try:
        return is_frame(value) and bool(adapt(name, value).columns)
    except Problem:
        return False


def names(shell: Any) -> list[str]:
    """The names of the frames, without the results that IPython keeps, such as _ and _20."""
    found = (name for name, value in everything(shell) if is_frame(value))
    return sorted(name for name in found if not KEPT.fullmatch(name))


def find(shell: Any, name: str) -> Frame:
    for n, value in everything(shell):
        if n == name:
            return adapt(name, value)
    raise missing(shell, name)


def missing(shell: Any, name: str) -> Problem:
    existing = nearest(name, names(shell))
    hint = "These frames exist: %s." % existing if existing else "No frame exists in the kernel."
    return Problem("not_found", "no variable %r" % short(name), hint)


def adapt(name: str, value: Any) -> Frame:
    for classes, opened in adapters():
        if is_any(type(value), classes):
            return opened(value)
    raise unknown(name, class_title(type(value)))


def unknown(name: str, what: str) -> Problem:
    return Problem(
        "not_supported",
        "%s has the type %s; it is not a frame or series of pandas or polars, or an Arrow table"
        % (short(name), short(what)),
        "inspect_variable shows it, or make such a frame of it with run_code_quick.",
    )


def mismatch(column: Column, why: str) -> Problem:
    return Problem(
        "bad_request",
        "column %s is %s and can't be used so: %s" % (column.label, column.dtype, short(why, 300)),
        "Compare it with a literal of its own type, or convert it with run_code_quick.",
    )


def of_other_objects(column: Column) -> Problem:
    return mismatch(column, "it holds objects whose own code would run")


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def meets(value: Any, condition: Condition) -> bool:
    """Whether a scalar meets a condition."""
    gone = value is None or not is_scalar(value) or value != value
    op = condition.op
    if op in ("is", "is not"):
        return gone == (op == "is")
    if gone:
        return False
    if op in ("in", "not in"):
        return (value in condition.literal) == (op == "in")
    try:
        return bool(OPERATIONS[op](value, condition.literal))
    except TypeError:
        return False


def check_type(column: Column, condition: Condition, is_number: bool, is_text: bool) -> None:
    """Refuses comparisons that would silently find nothing."""
    literals = condition.literal if type(condition.literal) is list else [condition.literal]
    for literal in literals:
        if is_number and type(literal) is str:
            raise mismatch(column, "the literal is a text")
        if is_text and type(literal) in (int, float, bool):
            raise mismatch(column, "the literal is not a text")
