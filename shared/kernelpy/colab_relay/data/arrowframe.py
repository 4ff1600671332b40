"""Tables and record batches of pyarrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow
from pyarrow import compute

from ..safe import class_module, is_any, text
from .filters import Condition
from .frames import Column, Frame, check_type, label, mismatch, of_other_objects

FUNCTIONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}

# Types whose nanoseconds DuckDB, or an older release, drops.
NANOSECONDS = re.compile(r"duration\[ns\]|time64\[ns\]|timestamp\[ns, tz=|month_day_nano")


class ArrowFrame(Frame):
    engine = "pyarrow"

    def __init__(self, table: Any) -> None:
        if is_any(type(table), [pyarrow.RecordBatch]):
            table = pyarrow.Table.from_batches([table])
        self.data = table
        self.positions: Any = None  # all rows
        self.columns = [self.column(field) for field in table.schema]

    @staticmethod
    def column(field: Any) -> Column:
        plain = is_plain(field.type)
        return Column(
            label(field.name), text(str(field.type))[:200] if plain else "?", not plain, plain
        )

    def array(self, column: int) -> Any:
        if not self.columns[column].readable:
            raise of_other_objects(self.columns[column])
        return self.data.column(column)

    def narrow(self, column: int, condition: Condition) -> None:
        array, facts = self.array(column), self.columns[column]
        types = pyarrow.types
        is_number = types.is_integer(array.type) or types.is_floating(array.type)
        check_type(facts, condition, is_number, types.is_string(array.type))
        try:
            mask = self.mask(array, condition)
        except (pyarrow.ArrowException, TypeError, OverflowError) as e:
            raise mismatch(facts, str(e)) from None
        if self.positions is None:
            self.positions = compute.indices_nonzero(mask)
        else:
            self.positions = self.positions.filter(mask.take(self.positions).combine_chunks())

    @staticmethod
    def mask(array: Any, condition: Condition) -> Any:
        op, literal = condition.op, condition.literal
        if op in ("is", "is not"):
            found = compute.is_null(array, nan_is_null=True)
            return found if op == "is" else compute.invert(found)
        if op in ("in", "not in"):
            values = pyarrow.array(literal)
            if not pyarrow.types.is_dictionary(array.type):
                values = values.cast(array.type)
            found = compute.is_in(array, value_set=values)
            found = found if op == "in" else compute.invert(found)
            return compute.and_(found, compute.is_valid(array))
        return compute.fill_null(compute.call_function(FUNCTIONS[op], [array, literal]), False)

    def sort(self, column: int, descending: bool) -> None:
        array = self.array(column)
        if self.positions is not None:
            array = array.take(self.positions)
        keys = [("", "descending" if descending else "ascending")]
        try:
            order = compute.sort_indices(array, sort_keys=keys, null_placement="at_end")
        except pyarrow.ArrowException as e:
            raise mismatch(self.columns[column], str(e)) from None
        self.positions = order if self.positions is None else self.positions.take(order)

    def count(self) -> int:
        return self.data.num_rows if self.positions is None else len(self.positions)

    def cells(self, column: int, start: int, stop: int) -> list[Any]:
        if not self.columns[column].readable:
            return ["<?>"] * max(0, min(stop, self.count()) - start)
        array = self.data.column(column)
        if self.positions is None:
            return array.slice(start, stop - start).to_pylist()
        return array.take(self.positions.slice(start, stop - start)).to_pylist()

    def unfit(self, column: int) -> str:
        facts = self.columns[column]
        return unfit(self.data.column(column)) if facts.readable else facts.dtype

    def table(self, columns: list[int]) -> Any:
        return self.data.select(columns)


def unfit(array: Any) -> str:
    """As Frame.unfit, of an array whose type is_plain."""
    if not NANOSECONDS.search(str(array.type)):
        return ""
    try:
        counts = array.cast(pyarrow.int64())
    except pyarrow.ArrowException:  # nested
        return "nanoseconds"
    whole = compute.multiply(compute.divide(counts, 1000), 1000)
    return "nanoseconds" if compute.any(compute.not_equal(counts, whole)).as_py() else ""


def is_plain(kind: Any) -> bool:
    """Whether a type is Arrow's own through and through: extension types may be the user's."""
    if isinstance(kind, pyarrow.BaseExtensionType) or class_module(type(kind)) != "pyarrow.lib":
        return False
    if pyarrow.types.is_dictionary(kind):
        return is_plain(kind.index_type) and is_plain(kind.value_type)
    if pyarrow.types.is_map(kind):
        return is_plain(kind.key_type) and is_plain(kind.item_type)
    return all(is_plain(kind.field(n).type) for n in range(kind.num_fields))
