"""What an interrupt does to a command that a cell runs, such as !sleep 60."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any, Callable

AGAIN = 0.5  # seconds


def interruptible(shell: Any) -> None:
    """Has an interrupt end the code around a command too. IPython ends the command alone: a loop of
    a hundred would need a hundred interrupts."""
    for name in ("system", "getoutput"):
        setattr(shell, name, raising(getattr(shell, name)))


def raising(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises KeyboardInterrupt if it caught one.

    Python drops exceptions of handlers that run while it forks, so the function is interrupted
    again until it ends. A handler of others that only notes the first interrupt has its way."""

    @functools.wraps(run)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        signals, raised, over = 0, False, False
        main, ended = threading.get_ident(), threading.Event()
        before = signal.getsignal(signal.SIGINT)
        if not callable(before) or main != threading.main_thread().ident:
            return run(*args, **kwargs)  # it is not interrupted

        def handle(number: int, frame: Any) -> None:
            nonlocal signals, raised
            if over:
                return
            signals += 1
            caught, raised = raised, True
            before(number, frame)
            raised = caught or signals > 1
            if raised:
                raise KeyboardInterrupt

        def repeat() -> None:
            while not ended.wait(AGAIN):
                if signals:
                    signal.pthread_kill(main, signal.SIGINT)

        repeater = threading.Thread(target=repeat, daemon=True)
        try:
            repeater.start()
            signal.signal(signal.SIGINT, handle)
            result = run(*args, **kwargs)
        except Exception:
            if not raised:
                raise
        finally:
            over = True
            ended.set()
            if repeater.is_alive():
                repeater.join()
            if signal.getsignal(signal.SIGINT) is handle:
                signal.signal(signal.SIGINT, before)
        if raised:
            raise KeyboardInterrupt
        return result

    return wrapper
