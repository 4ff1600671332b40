"""Settings of a new kernel."""

from __future__ import annotations

import sys

from IPython.core.getipython import get_ipython

from .commands import interruptible
from .ending import own_exits, quiet_exits
from .imported import finder

SNDHWM = 23  # ZMQ_SNDHWM


def start(iopub_limit: int, flush_seconds: float) -> None:
    """Changes a new kernel's settings."""
    set_output(iopub_limit, flush_seconds)
    interruptible(get_ipython())
    own_exits(get_ipython())
    quiet_exits(get_ipython())
    finder(fresh=True)


def set_output(iopub_limit: int, flush_seconds: float) -> None:
    """Has the kernel lose no output to a slow reader, and send prints soon.

    By default ipykernel's socket buffers a thousand messages and then silently drops more:
    hundreds of twenty thousand small displays in a row were lost. libzmq applies a new limit to
    existing connections too. The socket belongs to ipykernel's own thread, so that thread sets the
    limit. By default ipykernel also sends what is printed without flush only every 0.2 s."""
    thread = get_ipython().kernel.iopub_thread
    thread.schedule(lambda: thread.socket.setsockopt(SNDHWM, iopub_limit))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "flush_interval"):
            stream.flush_interval = flush_seconds
