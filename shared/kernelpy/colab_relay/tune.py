"""Settings of a new kernel."""

from __future__ import annotations

from IPython.core.getipython import get_ipython

SNDHWM = 23  # ZMQ_SNDHWM


def hold_outputs(limit: int) -> None:
    """Lets the kernel hold that many iopub messages for a slow reader.

    ipykernel's socket holds a thousand and then silently drops messages: twenty thousand small
    displays in a row lost hundreds. libzmq applies a new limit to existing connections too. The
    socket belongs to ipykernel's own thread, so that thread sets the limit."""
    thread = get_ipython().kernel.iopub_thread
    thread.schedule(lambda: thread.socket.setsockopt(SNDHWM, limit))
