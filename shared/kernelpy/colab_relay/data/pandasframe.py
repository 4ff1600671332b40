"""Frames and series of pandas. Columns are read from their arrays, because methods of frames copy
attrs, which may hold the user's objects."""

from __future__ import annotations

from typing import Any

import numpy
import pandas

from ..safe import belongs_to, is_any, is_library_array, is_library_frame, is_library_index, text
from .exact import Unfit, exact
from .filters import Condition
from .frames import (
    OPERATIONS,
    Column,
    Frame,
    check_type,
    label,
    meets,
    mismatch,
    module,
    of_other_objects,
)
from .problem import Problem
from .values import all_scalars, all_texts, is_library_zone

READABLE_KINDS = "biufmMO"  # of numpy, by DuckDB
READABLE_ARRAYS = (
    "StringArray ArrowStringArray ArrowStringArrayNumpySemantics StringArrayNumpySemantics "
    "ArrowExtensionArray IntegerArray FloatingArray BooleanArray DatetimeArray TimedeltaArray"
).split()


def open_frame(frame: Any) -> Frame:
    index = frame._mgr.axes[-1]
    levels = index.levels if is_any(type(index), [pandas.MultiIndex]) else []
    if not is_library_frame(frame) or not all(map(is_library_index, levels)):
        raise Problem(
            "not_supported",
            "the frame has columns or an index whose arrays are not of numpy or pandas",
            "inspect_variable shows it, or convert these columns with run_code_quick.",
        )
    return PandasFrame(frame)


class PandasFrame(Frame):
    engine = "pandas"

    def __init__(self, frame: Any) -> None:
        self.arrays: list[Any] = []
        self.columns = []
        self.exact: dict[int, Any] = {}  # arrays in place of those that DuckDB would misread
        self.casts = {}
        self.positions: Any = None  # all rows
        self.rows = len(frame._mgr.axes[-1])
        self.add_index(frame._mgr.axes[-1])
        if is_any(type(frame), [pandas.Series]):
            self.add(label(frame._name) or "value", frame._values)
            return
        labels = frame._mgr.axes[0]
        for n in range(len(labels)):
            self.add(label(labels[n]), frame._mgr.iget_values(n))

    def add_index(self, index: Any) -> None:
        """Adds the levels of an index that says more than the number of the row."""
        if is_any(type(index), [pandas.RangeIndex]) and (index.start, index.step) == (0, 1):
            return
        for n in range(index.nlevels):
            level = index._get_level_values(n) if index.nlevels > 1 else index
            self.add(
                label(level._name) or ("index" if n == 0 else "index_%d" % n), level._values, True
            )

    def add(self, name: str, array: Any, is_index: bool = False) -> None:
        dtype = array.dtype
        of_objects = may_hold_objects(array)
        zone = getattr(dtype, "tz", None) if belongs_to(type(dtype), "pandas") else None
        readable = is_library_array(array) and is_library_zone(zone) and knows(dtype)
        shown = (
            text(str(dtype))
            if readable and not is_any(type(array), [pandas.arrays.SparseArray])
            else "?"
        )
        self.arrays.append(array)
        self.columns.append(Column(name, shown[:200], of_objects, readable, is_index))

    def checked(self, column: int) -> Any:
        """A series of a column whose comparisons run no code of the user's."""
        if not self.columns[column].readable:
            raise of_other_objects(self.columns[column])
        array = self.arrays[column]
        if not all_scalars(objects_of(array)):
            raise of_other_objects(self.columns[column])
        return pandas.Series(array, copy=False)

    def narrow(self, column: int, condition: Condition) -> None:
        series, facts = self.checked(column), self.columns[column]
        is_number = pandas.api.types.is_numeric_dtype(series.dtype)
        check_type(facts, condition, is_number, holds_texts(self.arrays[column]))
        mask = (self.mask_of_objects if facts.of_objects else self.mask)(series, facts, condition)
        found = numpy.flatnonzero(mask)
        self.positions = found if self.positions is None else self.positions[mask[self.positions]]

    def mask_of_objects(self, series: Any, facts: Column, condition: Condition) -> Any:
        try:
            return self.mask(series, facts, condition)
        except Problem:  # of different types: compared one by one, which is slow
            values = (meets(value, condition) for value in series.tolist())
            return numpy.fromiter(values, bool, len(series))

    def mask(self, series: Any, facts: Column, condition: Condition) -> Any:
        op, literal = condition.op, condition.literal
        gone = series.isna().to_numpy(dtype=bool)
        if op in ("is", "is not"):
            return gone if op == "is" else ~gone
        try:
            if op in ("in", "not in"):
                found = series.isin(literal)
                found = found if op == "in" else ~found
            else:
                found = OPERATIONS[op](series, literal)
            return found.to_numpy(dtype=bool, na_value=False) & ~gone
        except (TypeError, ValueError, OverflowError) as e:
            raise mismatch(facts, str(e)) from None

    def sort(self, column: int, descending: bool) -> None:
        series = self.checked(column)
        if self.positions is not None:
            series = series.take(self.positions)
        try:
            ordered = series.sort_values(ascending=not descending, kind="stable")
        except TypeError as e:
            raise mismatch(self.columns[column], str(e)) from None
        self.positions = ordered.index.to_numpy()

    def count(self) -> int:
        return self.rows if self.positions is None else len(self.positions)

    def cells(self, column: int, start: int, stop: int) -> list[Any]:
        array = self.arrays[column]
        if not self.columns[column].readable:
            return ["<%s>" % self.columns[column].dtype] * max(0, min(stop, self.count()) - start)
        some = (
            array[start:stop] if self.positions is None else array.take(self.positions[start:stop])
        )
        is_plain = is_any(type(some), [numpy.ndarray]) and some.dtype.kind not in "mM"
        return [None if is_nan(v) else v for v in (some.tolist() if is_plain else some)]

    def unfit(self, column: int) -> str:
        facts, array = self.columns[column], self.arrays[column]
        if not facts.readable:
            return facts.dtype
        if type(array).__name__ == "ArrowExtensionArray":
            return str(module("arrowframe").unfit(array._pa_array))
        try:
            values, sql_type = exact(objects_of(array))
            if sql_type == "BIGINT" and facts.dtype == "object":
                self.exact[column] = pandas.array(values, dtype="Int64")
            elif facts.dtype == "object":  # a Series, because of an array pandas guesses the type
                self.exact[column] = pandas.Series(values, dtype=object)
                self.casts[column] = sql_type
            elif array.dtype.kind == "m":
                self.exact[column] = pandas.Series(whole_microseconds(array), dtype=object)
            elif getattr(array.dtype, "tz", None) is not None:
                whole_microseconds(array)
        except Unfit as e:
            return str(e)
        return "" if is_for_duckdb(array) else facts.dtype

    def table(self, columns: list[int]) -> Any:
        data = {n: self.exact.get(n, self.arrays[n]) for n in columns}
        frame = pandas.DataFrame(data, copy=False)
        frame.columns = pandas.Index([self.columns[n].label for n in columns], dtype=object)
        return frame


def is_for_duckdb(array: Any) -> bool:
    if is_any(type(array), [pandas.Categorical]):
        return text_only(array.categories._values)
    if is_any(type(array), [numpy.ndarray]):
        return array.dtype.kind in READABLE_KINDS
    return type(array).__name__ in READABLE_ARRAYS


def whole_microseconds(array: Any) -> list[Any]:
    """Times or durations as objects of Python: DuckDB makes months of numpy's durations."""
    stamps = getattr(array, "_ndarray", array)
    kept = stamps.astype(stamps.dtype.kind + "8[us]")
    if not ((kept == stamps) | numpy.isnat(stamps)).all():
        raise Unfit("nanoseconds")
    return list(kept.tolist())


def may_hold_objects(array: Any) -> bool:
    """Whether the items may be of any class: also the categories of a categorical."""
    if is_any(type(array), [pandas.Categorical]):
        return may_hold_objects(array.categories._values)
    if is_any(type(array), [pandas.arrays.SparseArray]):
        return may_hold_objects(array.sp_values)
    dtype = getattr(array.dtype, "numpy_dtype", array.dtype)
    return isinstance(dtype, numpy.dtype) and bool(dtype.hasobject)


def objects_of(array: Any) -> list[Any]:
    """The Python objects in an array or its categories, all of which are in memory anyway."""
    if is_any(type(array), [pandas.Categorical]):
        return objects_of(array.categories._values)
    if is_any(type(array), [pandas.arrays.SparseArray]):
        return objects_of(array.sp_values)
    inner = getattr(array, "_ndarray", array)  # of texts, for one
    if is_any(type(inner), [numpy.ndarray]) and inner.dtype == object:
        return inner.tolist()
    return []


def holds_texts(array: Any) -> bool:
    if is_any(type(array), [pandas.Categorical]):
        return holds_texts(array.categories._values)
    return isinstance(array.dtype, pandas.StringDtype) or all_texts(objects_of(array))


def is_nan(value: Any) -> bool:
    return type(value) is float and value != value


def text_only(values: Any) -> bool:
    items = values.tolist()
    return all(type(item) is str for item in items)


def knows(dtype: Any) -> bool:
    """Whether a dtype is of numpy or pandas, with parts of theirs."""
    if isinstance(dtype, numpy.dtype):
        return True
    if not belongs_to(type(dtype), "pandas"):
        return False
    arrow = getattr(dtype, "pyarrow_dtype", None)
    if arrow is None:
        return True
    return bool(module("arrowframe").is_plain(arrow))
