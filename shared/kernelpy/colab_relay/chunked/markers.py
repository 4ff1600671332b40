"""Tells the relay, by markers among the outputs, how far a batch is.

A slow iteration is told as soon as it ended. Fast ones are held back for a moment and told
together: thousands of messages a second are more than the kernel's socket takes, which
drops what is too much. A kernel that dies takes with it what is held back, iterations of
MOST_SECONDS at most, and another kernel runs those again.
"""

import collections
import json
import time

MIME = "application/vnd.colab-relay.iteration+json"
MOST_SECONDS = 0.05  # from the end of the first iteration held back
MOST_ITERATIONS = 1000
MOST_BYTES = 48 << 10  # of values, as they are written; a larger one goes alone
RECENT = 20  # iterations that must have been fast
FAST = 0.005  # seconds, their mean


class Markers:
    def __init__(self, shell, key, entry):
        # Taken now: code may capture outputs, and a marker must not end up there.
        self.publish = shell.display_pub.publish
        self.key, self.entry = key, entry
        self.recent = collections.deque(maxlen=RECENT)
        self.clear()

    def clear(self):
        self.count, self.seconds, self.slowest = 0, 0, 0
        self.values, self.bytes = [], 0

    def tell(self, event, **fields):
        self.flush()
        self.send(event, self.entry["done"], fields)

    def done(self, i, seconds, value):
        """Iteration i ended; value is what it gave as a dict of values.encode, or empty."""
        if value:
            value = dict(value, i=i)
        size = len(json.dumps(value))
        if self.bytes + size > MOST_BYTES:
            self.flush()
        if not self.count:
            self.first, self.since = i, time.monotonic()
        self.count += 1
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)
        if value:
            self.values.append(value)
            self.bytes += size
        self.recent.append(seconds)
        if self.due():
            self.flush()

    def due(self):
        fast = len(self.recent) == RECENT and sum(self.recent) <= FAST * RECENT
        return (
            not fast
            or self.count >= MOST_ITERATIONS
            or time.monotonic() - self.since >= MOST_SECONDS
        )

    def flush(self):
        if not self.count:
            return
        fields = {"count": self.count, "seconds": self.seconds, "slowest": self.slowest}
        done, values = self.first + self.count, self.values
        self.clear()
        self.send("done", done, dict(fields, values=values) if values else fields)

    def send(self, event, done, fields):
        """Publishing flushes stdout and stderr first, so markers and text keep their order."""
        marker = dict(fields, run=self.key, event=event, done=done)
        self.publish(data={MIME: marker}, metadata={})
