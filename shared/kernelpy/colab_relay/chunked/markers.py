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
        self.count, self.bytes = 0, 0
        self.seconds, self.slowest = 0.0, 0.0
        self.values: list[dict[str, Any]] = []

    def report(self, event: str, **fields: Any) -> None:
        self.flush()
        self.send(event, self.now(), fields)

    def done(self, i: int, seconds: float, value: dict[str, Any]) -> None:
        """Records the end of iteration i. value is what values.encode returned, or empty."""
        if value:
            value = dict(value, i=i)
        size = len(json.dumps(value))
        if self.bytes + size > MAX_BYTES:
            self.flush()
        if not self.count:
            self.first = i
        self.count += 1
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)
        if value:
            self.values.append(value)
            self.bytes += size
        if self.seconds >= MAX_SECONDS or self.count >= MAX_ITERATIONS:
            self.flush()

    def flush(self) -> None:
        if not self.count:
            return
        fields = {"count": self.count, "seconds": self.seconds, "slowest": self.slowest}
        done, values = self.first + self.count, self.values
        self.clear()
        self.send("done", done, dict(fields, values=values) if values else fields)

    def send(self, event: str, done: int, fields: dict[str, Any]) -> None:
        """Publishes one marker. Publishing flushes stdout first, so it follows the output."""
        marker = dict(fields, run=self.key, event=event, done=done)
        self.publish(data={MIME: marker}, metadata={})
