"""Requests to the notebook's page: a colab_request on iopub, answered on stdin."""

import time
import uuid

from google.colab import errors
from ipykernel.kernelapp import IPKernelApp


class MessageError(errors.Error):
    """The page answered with an error."""


def blocking_request(kind, request="", timeout_sec=5, parent=None):
    """Returns the page's response, or None after timeout_sec."""
    app = IPKernelApp.instance()
    asked = str(uuid.uuid4())
    if parent is None:
        parent = {"header": {"session": app.kernel.shell.parent_header["header"]["session"]}}
    message = app.session.msg(
        "colab_request",
        content={"request": request},
        metadata={"colab_msg_id": asked, "colab_request_type": kind},
        parent=parent,
    )
    app.session.send(app.iopub_socket, message)
    end = None if timeout_sec is None else time.time() + timeout_sec
    while end is None or time.time() < end:
        if not app.kernel.stdin_socket.poll(25):
            continue
        _, reply = app.session.recv(app.kernel.stdin_socket)
        value = reply["content"].get("value")
        if isinstance(value, dict) and value.get("colab_msg_id") == asked:
            if "error" in value:
                raise MessageError(value["error"])
            return value.get("data")
    return None
