# Evaluated in a kernel at its start; Go fills in LIMIT. ipykernel's iopub socket holds a
# thousand messages (ZMQ_SNDHWM) and then drops what comes, unseen: twenty thousand small
# displays in a row lost hundreds. libzmq takes a new limit for connections there are already.
# The socket belongs to ipykernel's own thread, so it is set there.
(
    lambda thread: thread.schedule(lambda: thread.socket.setsockopt(23, LIMIT))  # noqa: F821
)(__import__("IPython").get_ipython().kernel.iopub_thread)
