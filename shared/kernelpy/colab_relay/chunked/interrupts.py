"""Interrupts of a run's code, and what a traceback shows of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

from ..ending import show
from .body import Body

BETWEEN = "interrupted between two iterations"
# So long an interrupt waits for the end of an iteration, if iterations are at most half as long:
# the round then ends between two iterations, and nothing is left half done.
GRACE = 0.5


class Interrupts:
    """Raises KeyboardInterrupt for SIGINT only while the user's code runs. Otherwise it delays the
    interrupt: one between the end of an iteration and its count would make that iteration run
    again. After an interrupt the round ends, even if the code caught the exception."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
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
        """Raises KeyboardInterrupt if an interrupt arrived that ended no iteration."""
        if self.seen:
            error = KeyboardInterrupt(BETWEEN)
            show(self.shell, error, ["KeyboardInterrupt: " + BETWEEN])
            raise error


def hide_frames(shell: Any, error: BaseException) -> None:
    """Makes IPython show an error that is being handled without the frame that handles it, and
    those above it."""
    with contextlib.suppress(Exception):  # another IPython, or an error that takes no attribute
        make, tb = shell.InteractiveTB.structured_traceback, error.__traceback__
        lines = make(type(error), error, tb and tb.tb_next, tb_offset=0)
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
