"""Cells of frames as JSON: null for a missing value, true, false, a number or a text. No code of
the objects in cells runs."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from typing import Any

from ..safe import belongs_to, class_module, class_title, is_any, known, module_dict, text
from ..variables.preview import Preview

MAX_CELL = 200  # characters
MAX_EXACT = 2**53  # JSON readers may round larger integers
PRINTABLE = (decimal.Decimal, uuid.UUID, datetime.date, datetime.time, datetime.timedelta)
ZONES = ("datetime", "zoneinfo", "pytz", "dateutil", "pandas")
SCALARS = (bool, int, float, complex, str, bytes, type(None)) + PRINTABLE + (datetime.datetime,)


def is_library_zone(zone: Any) -> bool:
    """Whether a time zone is None or of a library. Other ones are code of the user's."""
    return zone is None or class_module(type(zone)).partition(".")[0] in ZONES


def is_scalar(value: Any) -> bool:
    """Whether a value is a scalar of Python, numpy or pandas, whose own code is known."""
    cls = type(value)
    if is_any(cls, (datetime.datetime, datetime.time)) or is_timestamp(cls):
        return is_library_zone(cls.tzinfo.__get__(value))
    if is_any(cls, SCALARS + tuple(known("pandas", "Timedelta"))) or is_missing(value):
        return True
    return belongs_to(cls, "numpy") and not cls.dtype.__get__(value).hasobject


def is_timestamp(cls: type) -> bool:
    return is_any(cls, known("pandas", "Timestamp"))


def all_scalars(values: list[Any]) -> bool:
    """Whether all of them are scalars. Only time zones are of each value, not of its class."""
    samples = one_of_each_class(values)
    if not all(map(is_scalar, samples)):
        return False
    zoned = any(is_any(type(v), (datetime.datetime, datetime.time)) for v in samples)
    zoned = zoned or any(is_timestamp(type(v)) for v in samples)
    return not zoned or all(map(is_scalar, values))


def one_of_each_class(values: list[Any]) -> list[Any]:
    """A value of each class in values, quickly. Their ids are the keys, because a class itself
    would run __hash__ of its metaclass."""
    return list(dict(zip(map(id, map(type, values)), values)).values())


def all_texts(values: list[Any]) -> bool:
    """Whether they are texts and missing values, and at least one a text."""
    samples = one_of_each_class(values)
    return any(type(v) is str for v in samples) and all(
        type(v) is str or is_missing(v) or type(v) is float and v != v for v in samples
    )


def is_missing(value: Any) -> bool:
    pandas = module_dict("pandas")
    return value is None or any(value is pandas.get(name, cell) for name in ("NA", "NaT"))


def clip(value: str) -> str:
    value = text(value[: MAX_CELL + 1])
    return value if len(value) <= MAX_CELL else value[: MAX_CELL - 1] + "…"


def cell(value: Any) -> Any:
    if is_missing(value) or value is True or value is False:
        return value if type(value) is bool else None
    cls = type(value)
    if cls is int:
        return value if abs(value) <= MAX_EXACT else clip(preview(value))
    if cls is float:
        return value if math.isfinite(value) else unusual(value)
    if cls is str:
        return clip(value)
    if is_timestamp(cls) or is_any(cls, known("pandas", "Timedelta")):
        return cls.isoformat(value) if is_scalar(value) else "<%s>" % class_title(cls)
    if is_any(cls, (datetime.datetime, datetime.time)) and is_scalar(value):
        return value.isoformat()
    if is_any(cls, PRINTABLE):
        return clip(str(value))
    return library_cell(cls, value)


def library_cell(cls: type, value: Any) -> Any:
    if is_any(cls, known("pandas", "Interval")):
        return clip("%s to %s" % (cell(value.left), cell(value.right)))
    if is_any(cls, known("pandas", "Period")):
        return clip(str(value))
    if belongs_to(cls, "numpy") and is_scalar(value):
        if value.dtype.kind in "mM":  # item would be a number of nanoseconds
            return clip(str(value))
        item = value.item()
        return cell(item) if type(item) is not cls else clip(str(item))
    return clip(preview(value))


def unusual(value: float) -> str:
    """What JSON has no number for."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def preview(value: Any) -> str:
    limited = Preview()
    limited.left = 4 * MAX_CELL
    shown = limited.of(value)
    return (
        "<%s>" % class_title(type(value))
        if shown == "<%s object>" % class_title(type(value))
        else shown
    )
