"""What an interrupt does to a command that a cell runs, such as !sleep 60."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any, Callable

AGAIN = 0.2  # seconds


def interruptible(shell: Any) -> None:
    """Has an interrupt end the code around a command too. IPython ends the command alone: a loop of
    a hundred would need a hundred interrupts."""
    for name in ("system", "getoutput"):
        setattr(shell, name, raising(getattr(shell, name)))


def raising(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises KeyboardInterrupt if it was interrupted and caught that.

    Python drops exceptions of handlers that run while it forks, so the function is interrupted
    again until it ends."""

    @functools.wraps(run)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        interrupted = over = False
        before, main, ended = (
            signal.getsignal(signal.SIGINT),
            threading.get_ident(),
            threading.Event(),
        )

        def handle(number: int, frame: Any) -> None:
            nonlocal interrupted
            if over:
                return
            first, interrupted = not interrupted, True
            if first and callable(before):
                before(number, frame)  # which may only note the interrupt
            raise KeyboardInterrupt

        def repeat() -> None:
            while not ended.wait(AGAIN):
                if interrupted:
                    signal.pthread_kill(main, signal.SIGINT)

        try:
            signal.signal(signal.SIGINT, handle)
        except ValueError:  # in another thread, which gets no interrupts
            return run(*args, **kwargs)
        repeater = threading.Thread(target=repeat, daemon=True)
        try:
            repeater.start()
            result = run(*args, **kwargs)
        except Exception:
            if not interrupted:
                raise
        finally:
            over = True
            ended.set()
            if repeater.is_alive():
                repeater.join()
            if signal.getsignal(signal.SIGINT) is handle:
                signal.signal(signal.SIGINT, before)
        if interrupted:
            raise KeyboardInterrupt
        return result

    return wrapper
