"""Reports which variable is being saved or loaded, if that takes long."""

from __future__ import annotations

import contextvars
import threading
from typing import Any, Callable

from ..safe import short

MIME = "application/vnd.colab-relay.state-progress+json"
EVERY = 1.0  # seconds between two displays, and before the first


class Ticker:
    """Reports the current variable every second, from a thread, because the work itself may be in
    user code that never ends."""

    def __init__(self, publish: Callable[[dict[str, Any]], None]) -> None:
        self.publish, self.ended = publish, threading.Event()
        self.now: dict[str, Any] | None = None
        # Newer kernels find the cell of a display by the context.
        run = contextvars.copy_context().run
        self.thread = threading.Thread(target=run, args=(self.run,), daemon=True)

    def __enter__(self) -> Ticker:
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.ended.set()
        self.thread.join()

    def at(self, name: str, number: int, of: int) -> None:
        self.now = {"variable": short(name), "number": number, "of": of}

    def run(self) -> None:
        reported = None
        while not self.ended.wait(EVERY):
            now = self.now
            if now is not None and now is not reported:
                reported = now
                self.publish({MIME: now})
