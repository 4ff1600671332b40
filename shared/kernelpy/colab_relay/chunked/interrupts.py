"""Interrupts of a run's code, and what a traceback shows of it."""

from __future__ import annotations

import signal
import threading
import types
from typing import Any

from .body import Body

# So long an interrupt waits for the end of an iteration, if iterations are at most half as long:
# the round then ends between two iterations, and nothing is left half done.
GRACE = 0.5


class Interrupts:
    """Raises KeyboardInterrupt for SIGINT only while the user's code runs. Otherwise it delays the
    interrupt: one between the end of an iteration and its count would make that iteration run
    again. After an interrupt the round ends, even if the code caught the exception."""

    def __init__(self) -> None:
        self.running: Body | None = None
        self.seen = False
        self.short = False  # iterations are
        self.timer: threading.Timer | None = None

    def __enter__(self) -> Interrupts:
        self.previous = signal.signal(signal.SIGINT, self.handle)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer.join()
        if self.previous is not None and signal.getsignal(signal.SIGINT) == self.handle:
            signal.signal(signal.SIGINT, self.previous)

    def handle(self, number: int, frame: Any) -> None:
        first, self.seen = not self.seen, True
        if first and self.short and self.running is not None:
            main = threading.main_thread().ident
            self.timer = threading.Timer(GRACE, signal.pthread_kill, (main, signal.SIGINT))
            self.timer.daemon = True
            self.timer.start()
            return
        while frame is not None:
            if self.running is not None and frame.f_code is self.running.code:
                raise KeyboardInterrupt
            frame = frame.f_back

    def check(self) -> None:
        if self.seen:
            raise Stopped


class Stopped(KeyboardInterrupt):
    """An interrupt that arrived between two iterations, or that an iteration caught."""

    def _render_traceback_(self) -> list[str]:
        return ["KeyboardInterrupt: interrupted between two iterations"]


Stopped.__name__ = Stopped.__qualname__ = "KeyboardInterrupt"


def hide_frames(shell: Any, error: BaseException, code: types.CodeType) -> None:
    """Makes IPython show the error from the user's first line on, without our frames above it."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code is not code:
        tb = tb.tb_next
    if tb is None:
        return
    try:
        lines = shell.InteractiveTB.structured_traceback(type(error), error, tb, tb_offset=0)
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    except Exception:  # another IPython, or an error that takes no attribute
        pass
