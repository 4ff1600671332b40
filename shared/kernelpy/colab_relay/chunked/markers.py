"""Reports the progress of a batch to the relay, by markers among the outputs.

An iteration of MAX_SECONDS or more is reported as soon as it has ended. Shorter ones are collected
and reported together: a report takes a millisecond, and the kernel's socket drops messages when
thousands arrive in a second. If the kernel dies, the iterations not yet reported, of at most
MAX_SECONDS together, run again in another kernel.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable

from ..safe import short

MIME = "application/vnd.colab-relay.iteration+json"
MAX_SECONDS = 0.05  # of iterations that are not reported
MAX_ITERATIONS = 1000
MAX_NAMES = 100  # in one list
MAX_BYTES = 48 << 10  # of values as JSON; a larger value is sent alone
# Bounds of the value of an iteration.
MAX_JSON = 60 << 10  # bytes of JSON text, so that its marker stays under 64 KiB
MAX_NODES = 50000  # items visited
MAX_DEPTH = 20
MAX_REPR = 2000  # characters of the repr of other objects
ARRAYS = ("numpy", "torch", "jax", "jaxlib")


class Markers:
    def __init__(self, shell: Any, key: str, now: Callable[[], int]) -> None:
        # Read now, because code may capture outputs later, and markers must not be captured.
        self.publish = shell.display_pub.publish
        self.key, self.now = key, now  # completed iterations
        self.clear()

    def clear(self) -> None:
        self.batch: dict[str, Any] = {"count": 0, "seconds": 0.0, "slowest": 0.0, "values": []}
        self.bytes = 0

    def report(self, event: str, **fields: Any) -> None:
        """Reports what happened. Of a list of names, the first ones."""
        for key, value in fields.items():
            if type(value) is list:
                fields[key] = [short(v) if type(v) is str else v for v in value[:MAX_NAMES]]
        self.flush()
        self.send(event, dict(fields, done=self.now()))

    def done(self, i: int, seconds: float, value: dict[str, Any]) -> None:
        """Records the end of iteration i. value is what encode returned, or empty."""
        size = len(json.dumps(value))
        if self.bytes + size > MAX_BYTES:
            self.flush()
        batch = self.batch
        batch["done"] = i + 1
        batch["count"] += 1
        batch["seconds"] += seconds
        batch["slowest"] = max(batch["slowest"], seconds)
        if value:
            batch["values"].append(dict(value, i=i))
            self.bytes += size
        if batch["seconds"] >= MAX_SECONDS or batch["count"] >= MAX_ITERATIONS:
            self.flush()

    def flush(self) -> None:
        if self.batch["count"]:
            self.send("done", self.batch)
            self.clear()

    def send(self, event: str, fields: dict[str, Any]) -> None:
        """Publishes one marker. Publishing flushes stdout first, so it follows the output."""
        self.publish(data={MIME: dict(fields, run=self.key, event=event)}, metadata={})


class Large(Exception):
    """The value has more than MAX_NODES items."""


def encode(value: Any) -> dict[str, str]:
    """The fields of a marker: "result", JSON as text, or "omitted", why there is none."""
    try:
        plain = to_plain(value, [MAX_NODES], 0)
        text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
    except Large:
        return {"omitted": "it has over %d items" % MAX_NODES}
    except Exception as error:  # from the user's __repr__, or an integer with too many digits
        return {"omitted": "it can't be written as JSON: %s" % type(error).__name__}
    # The text is a string in the marker's JSON: its quotes and backslashes count twice.
    if len(text) + text.count('"') + text.count("\\") > MAX_JSON:
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
