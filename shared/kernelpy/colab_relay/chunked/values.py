"""Writes the `result` of an iteration as JSON, within bounds."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_BYTES = 60 << 10  # of JSON text, so that its marker stays under 64 KiB
MAX_NODES = 50000  # items visited
MAX_DEPTH = 20
MAX_REPR = 2000  # characters of the repr of other objects
ARRAYS = ("numpy", "torch", "jax", "jaxlib")


class Large(Exception):
    """The value has more than MAX_NODES items."""


def encode(value: Any) -> dict[str, str]:
    """The fields of a marker: "result", JSON as text, or "omitted", why there is none."""
    try:
        text = json.dumps(to_plain(value, [MAX_NODES], 0), allow_nan=False)
    except Large:
        return {"omitted": "it has over %d items" % MAX_NODES}
    except Exception as error:  # from the user's __repr__, or an integer with too many digits
        return {"omitted": "it can't be written as JSON: %s" % type(error).__name__}
    # The text is a string in the marker's JSON: its quotes and backslashes count twice.
    if len(text) + text.count('"') + text.count("\\") > MAX_BYTES:
        return {"omitted": "it is %d bytes of JSON, over 60 KiB" % len(text)}
    return {"result": text}


def to_plain(value: Any, left: list[int], depth: int) -> Any:
    """A value that json can write. left has the number of items that may follow."""
    left[0] -= 1
    if left[0] < 0:
        raise Large
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, int):
        return int(value)
    if depth < MAX_DEPTH:
        if isinstance(value, dict):
            keys = [k if isinstance(k, str) else repr(k)[:MAX_REPR] for k in value]
            return dict(zip(keys, to_plain(list(value.values()), left, depth)))
        if isinstance(value, (list, tuple)):
            return [to_plain(v, left, depth + 1) for v in value]
        if type(value).__module__.partition(".")[0] in ARRAYS and hasattr(value, "tolist"):
            if (value.numel() if hasattr(value, "numel") else value.size) > left[0]:
                raise Large
            return to_plain(value.tolist(), left, depth + 1)
    return repr(value)[:MAX_REPR]
