"""The answer with rows of a frame, within bounds."""

from __future__ import annotations

import json
import warnings
from typing import Any, Callable

from ..safe import short
from .problem import Problem
from .values import cell

MAX_ROWS = 200
MAX_COLUMNS = 50
MAX_BYTES = 36_000  # of the rows as JSON
MAX_LIBRARY_ERROR = 1000  # characters


def rows_within(columns: list[list[Any]]) -> list[list[Any]]:
    """The first rows of columns as cells: as many as MAX_BYTES allows, at least one."""
    rows: list[list[Any]] = []
    used = 0
    for values in zip(*columns):
        row = [cell(value) for value in values]
        used += len(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()) + 1
        if rows and used > MAX_BYTES:
            break
        rows.append(row)
    return rows


def answered(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What work returns, or the report of its Problem. Errors of libraries are reported too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about these modules
            return work()
    except Problem as e:
        return e.report()
    except MemoryError:
        return Problem(
            "low_memory", "the VM has too little memory for this", "Call cleanup_colab."
        ).report()
    except Exception as e:
        what = "%s: %s" % (type(e).__name__, short(str(e), MAX_LIBRARY_ERROR))
        return Problem("failed", what, "Look at the frame with run_code_quick.").report()
