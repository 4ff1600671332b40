"""Settings of a new kernel."""

from __future__ import annotations

from IPython.core.getipython import get_ipython

SNDHWM = 23  # ZMQ_SNDHWM


def set_iopub_limit(limit: int) -> None:
    """Sets how many iopub messages the kernel buffers for a slow reader.

    By default ipykernel's socket buffers a thousand and then silently drops messages: hundreds of
    twenty thousand small displays in a row were lost. libzmq applies a new limit to existing
    connections too. The socket belongs to ipykernel's own thread, so that thread sets the limit."""
    thread = get_ipython().kernel.iopub_thread
    thread.schedule(lambda: thread.socket.setsockopt(SNDHWM, limit))
