"""Columns of Python objects as SQL can hold them exactly. DuckDB by itself rounds some of them,
and fails at others."""

from __future__ import annotations

import decimal
from typing import Any

from ..safe import belongs_to, class_name, is_any, module_dict, text
from .values import all_scalars, one_of_each_class

MAX_DIGITS = 38  # of a DECIMAL
MAX_BIGINT = 2**63 - 1
MAX_EXACT = 2**53  # a DOUBLE holds all integers up to it
OF_PANDAS = {"Timestamp": "datetime", "Timedelta": "timedelta"}
KINDS = "bool int float str bytes Decimal date datetime time timedelta UUID".split()


class Unfit(Exception):
    """Why SQL cannot hold a column exactly, in a few words."""


def exact(values: list[Any]) -> tuple[list[Any], str]:
    """Equal values that DuckDB reads as one type without a loss, and the type if it has to be
    told: by itself it looks at a thousand values. Missing ones, and NaN, which pandas takes for
    missing, are None."""
    if not all_scalars(values):
        raise Unfit("objects of other classes")
    values = plain(values)
    names = {class_name(type(v)) for v in one_of_each_class(values) if v is not None}
    kinds = sorted({OF_PANDAS.get(name, name) for name in names})
    ints = [v for v in values if type(v) is int]
    if kinds == ["float", "int"] and all(abs(v) <= MAX_EXACT for v in ints):
        return [float(v) if type(v) is int else v for v in values], ""
    if kinds == ["int"] and all(abs(v) <= MAX_BIGINT for v in ints):
        return values, "BIGINT"
    if kinds in (["int"], ["Decimal"], ["Decimal", "int"]):
        return decimals(values)
    if len(kinds) > 1 or not set(kinds) <= set(KINDS):
        raise Unfit(" and ".join(kinds))
    if kinds == ["str"] and any(text(v) != v for v in values if v):
        raise Unfit("a text that is not Unicode")
    if kinds in (["datetime"], ["time"]) and len({v.tzinfo is None for v in values if v}) > 1:
        raise Unfit("some with a time zone")
    if names & set(OF_PANDAS) and any(
        getattr(v, "nanosecond", 0) or getattr(v, "nanoseconds", 0) for v in values
    ):
        raise Unfit("nanoseconds")
    return values, ""


def plain(values: list[Any]) -> list[Any]:
    """Scalars of numpy as Python's; None for what is missing."""
    classes = [type(v) for v in one_of_each_class(values)]
    if any(belongs_to(cls, "numpy") for cls in classes):
        values = [
            v.item() if belongs_to(type(v), "numpy") and v.dtype.kind in "biufUS" else v
            for v in values
        ]
    if is_any(decimal.Decimal, classes):  # some cannot be compared
        values = [None if type(v) is decimal.Decimal and v.is_nan() else v for v in values]
    na, nat = (module_dict("pandas").get(name) for name in ("NA", "NaT"))
    return [None if v is na or v is nat or v != v else v for v in values]


def decimals(values: list[Any]) -> tuple[list[Any], str]:
    """Their digits, because releases of DuckDB misread Decimals with an exponent, and the type."""
    found = [None if v is None else decimal.Decimal(v) for v in values]
    sized = [v for v in found if v is not None]
    if not all(v.is_finite() for v in sized):
        raise Unfit("an infinite Decimal")
    scale = max(0, max(-int(v.as_tuple().exponent) for v in sized))
    width = max([1, scale] + [v.adjusted() + 1 + scale for v in sized if v])
    if width > MAX_DIGITS:
        raise Unfit("over %d digits" % MAX_DIGITS)
    digits = [None if v is None else format(v, "f") for v in found]
    return digits, "DECIMAL(%d, %d)" % (width, scale)
