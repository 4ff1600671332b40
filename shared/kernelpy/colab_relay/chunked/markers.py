"""Reports the progress of a batch to the relay, by markers among the outputs.

An iteration of MAX_SECONDS or more is reported as soon as it has ended. Shorter ones are collected
and reported together: a report takes a millisecond, and the kernel's socket drops messages when
thousands arrive in a second. If the kernel dies, the iterations not yet reported, of at most
MAX_SECONDS together, run again in another kernel.
"""

from __future__ import annotations

import json
from typing import Any, Callable

MIME = "application/vnd.colab-relay.iteration+json"
MAX_SECONDS = 0.05  # of iterations that are not reported
MAX_ITERATIONS = 1000
MAX_BYTES = 48 << 10  # of values as JSON; a larger value is sent alone


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
        self.flush()
        self.send(event, dict(fields, done=self.now()))

    def done(self, i: int, seconds: float, value: dict[str, Any]) -> None:
        """Records the end of iteration i. value is what values.encode returned, or empty."""
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
