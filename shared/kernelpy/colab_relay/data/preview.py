"""Some rows of one of the user's frames."""

from __future__ import annotations

import csv
from typing import Any

from IPython.core.getipython import get_ipython

from ..safe import short
from . import answer, filters, frames
from .frames import Frame
from .problem import Problem, nearest


def preview(
    name: str, rows: int, offset: int, columns: str, filter: str, sort_by: str
) -> dict[str, Any]:
    """The rows from offset on of the frame in the user's variable, as answer.py bounds them."""
    return answer.answered(
        lambda: shown(frames.find(get_ipython(), name), rows, offset, columns, filter, sort_by)
    )


def shown(
    frame: Frame, rows: int, offset: int, columns: str, filter: str, sort_by: str
) -> dict[str, Any]:
    for condition in filters.parse(filter):
        frame.narrow(position(frame, condition.column), condition)
    column, descending = sorting(frame, sort_by)
    if column:
        frame.sort(position(frame, column), descending)
    count, wanted = frame.count(), chosen(frame, columns)
    kept = wanted[: answer.MAX_COLUMNS]
    stop = offset + max(0, min(rows, answer.MAX_ROWS))
    got = answer.rows_within([frame.cells(n, offset, stop) for n in kept])
    return {
        "columns": [
            {"name": frame.columns[n].label, "dtype": frame.columns[n].dtype} for n in kept
        ],
        "column_count": len(wanted),
        "rows": got,
        "row_count": count,
        "truncated": offset + len(got) < count or len(kept) < len(wanted),
        "engine": frame.engine,
    }


def sorting(frame: Frame, sort_by: str) -> tuple[str, bool]:
    """A column may itself end with the word desc."""
    if any(c.label == sort_by for c in frame.columns):
        return sort_by, False
    return filters.parse_sort(sort_by)


def position(frame: Frame, name: str) -> int:
    for n, column in enumerate(frame.columns):
        if column.label == name:
            return n
    raise Problem(
        "not_found",
        "the frame has no column %r" % short(name),
        "Its columns: %s." % nearest(name, [c.label for c in frame.columns]),
    )


def chosen(frame: Frame, columns: str) -> list[int]:
    if not columns.strip():
        return list(range(len(frame.columns)))
    if any(c.label == columns for c in frame.columns):
        return [position(frame, columns)]
    names = next(csv.reader([columns.replace("\n", " ")], skipinitialspace=True))
    return [position(frame, name.strip()) for name in names if name.strip()]
