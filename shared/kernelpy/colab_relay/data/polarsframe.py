"""Frames and series of polars."""

from __future__ import annotations

import re
from typing import Any

import polars

from ..safe import class_module, is_any, text
from .filters import Condition
from .frames import OPERATIONS, Column, Frame, check_type, label, mismatch, of_other_objects

# Types whose nanoseconds DuckDB, or an older release, drops.
NANOSECONDS = re.compile(r"Duration\(time_unit='ns'|Datetime\(time_unit='ns', time_zone='|\bTime\b")


class PolarsFrame(Frame):
    engine = "polars"

    def __init__(self, frame: Any) -> None:
        if is_any(type(frame), [polars.Series]):
            frame = polars.DataFrame([frame if frame.name else frame.alias("value")])
        self.frame = frame
        self.positions: Any = None  # all rows
        self.columns = [self.column(name, dtype) for name, dtype in frame.schema.items()]

    @staticmethod
    def column(name: str, dtype: Any) -> Column:
        mine = class_module(type(dtype)).startswith("polars.")
        shown = text(str(dtype)) if mine else "?"
        readable = mine and "Extension" not in shown
        return Column(label(name), shown[:200], "Object" in shown, readable)

    def series(self, column: int) -> Any:
        facts = self.columns[column]
        if facts.of_objects or not facts.readable:
            raise of_other_objects(facts)
        return self.frame.to_series(column)

    def narrow(self, column: int, condition: Condition) -> None:
        series, facts = self.series(column), self.columns[column]
        check_type(facts, condition, series.dtype.is_numeric(), facts.dtype == "String")
        try:
            mask = self.mask(series, condition)
        except (polars.exceptions.PolarsError, TypeError, ValueError, OverflowError) as e:
            raise mismatch(facts, str(e)) from None
        if self.positions is None:
            self.positions = mask.arg_true()
        else:
            self.positions = self.positions.filter(mask.gather(self.positions))

    @staticmethod
    def mask(series: Any, condition: Condition) -> Any:
        op, literal = condition.op, condition.literal
        if op == "is":
            return series.is_null()
        if op == "is not":
            return series.is_not_null()
        if series.dtype.is_temporal():  # from ISO texts
            literal = polars.Series([literal] if type(literal) is not list else literal)
            literal = (
                literal.str.strptime(series.dtype) if literal.dtype == polars.String else literal
            )
            literal = literal.to_list() if op in ("in", "not in") else literal[0]
        if op in ("in", "not in"):
            found = series.is_in(polars.Series(literal)) if literal else series.is_null() & False
            found = found if op == "in" else ~found
        else:
            found = OPERATIONS[op](series, literal)
        return found.fill_null(False) & series.is_not_null()

    def sort(self, column: int, descending: bool) -> None:
        series = self.series(column)
        if self.positions is not None:
            series = series.gather(self.positions)
        try:
            order = series.arg_sort(descending=descending, nulls_last=True)
        except polars.exceptions.PolarsError as e:
            raise mismatch(self.columns[column], str(e)) from None
        self.positions = order if self.positions is None else self.positions.gather(order)

    def count(self) -> int:
        return self.frame.height if self.positions is None else len(self.positions)

    def cells(self, column: int, start: int, stop: int) -> list[Any]:
        if not self.columns[column].readable:
            return ["<?>"] * max(0, min(stop, self.count()) - start)
        series = self.frame.to_series(column)
        if self.positions is None:
            some = series.slice(start, stop - start)
        else:
            some = series.gather(self.positions.slice(start, stop - start))
        if some.dtype.is_temporal() and getattr(some.dtype, "time_unit", "ns") == "ns":
            some = some.dt.to_string("iso")  # Python's objects have no nanoseconds
        return list(some.to_list())

    def unfit(self, column: int) -> str:
        facts = self.columns[column]
        if facts.of_objects or not facts.readable:
            return facts.dtype
        series = self.frame.to_series(column)
        if not NANOSECONDS.search(str(series.dtype)):
            return ""
        fits = not series.dtype.is_nested() and not (series.cast(polars.Int64) % 1000 != 0).any()
        return "" if fits else "nanoseconds"

    def table(self, columns: list[int]) -> Any:
        return self.frame[:, columns]
