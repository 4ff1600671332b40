"""A notebook's page: it runs the notebook's cells with nbclient, in the kernel of another
Python, and answers the requests of Colab's package to the page.

    page.py NOTEBOOK FOLDER    FOLDER is where the kernel runs

KERNEL_PYTHON is the kernel's interpreter. PAGE_SECRETS is a JSON object with the responses to
GetSecret by name; without it the page never responds. With PAGE_DENIES the page refuses
Drive. Stdout gets one JSON object per line: {"kernel": pid} once the kernel runs,
{"asked": name} for each request, {"text": piece} for each piece of output, and
{"ended": error or ""}.
"""

import json
import os
import sys
import tempfile
import threading

import nbformat
from jupyter_client import BlockingKernelClient
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError


# Colab's page keeps its Secrets out of the kernel's environment. Kaggle's client runs there.
SECRETS = os.environ.get("PAGE_SECRETS")
if SECRETS is not None and "KAGGLE_KERNEL_RUN_TYPE" not in os.environ:
    del os.environ["PAGE_SECRETS"]


LINES = threading.Lock()


def report(**what):
    """Writes one line. Two threads do so, and print writes a line's end by itself."""
    with LINES:
        print(json.dumps(what), flush=True)


class Page(NotebookClient):
    """Reports output immediately."""

    def output(self, outs, msg, display_id, cell_index):
        if msg["msg_type"] == "stream":
            report(text=msg["content"]["text"])
        return super().output(outs, msg, display_id, cell_index)

    def begin(self, cell, cell_index):
        """Listens on its own connection before the cell can send a request."""
        self.channel = BlockingKernelClient(connection_file=self.km.connection_file)
        self.channel.load_connection_file()
        self.channel.start_channels()
        self.channel.wait_for_ready(timeout=60)
        threading.Thread(target=self.listen, daemon=True).start()
        report(kernel=self.km.provisioner.pid)

    def listen(self):
        while True:
            msg = self.channel.iopub_channel.get_msg()
            if msg["msg_type"] == "colab_request":
                self.answer(msg["metadata"], msg["content"]["request"])

    def answer(self, metadata, request):
        reply = {"type": "colab_reply", "colab_msg_id": metadata["colab_msg_id"]}
        if metadata["colab_request_type"] == "GetSecret":
            report(asked=request["key"])
            if SECRETS is None:
                return
            reply["data"] = json.loads(SECRETS).get(request["key"], {"exists": False})
        elif "PAGE_DENIES" in os.environ:
            reply["error"] = "Error: credential propagation was unsuccessful"
        self.channel.input(reply)


def install_kernel(folder):
    """Installs a kernelspec named "vm" for KERNEL_PYTHON."""
    spec = os.path.join(folder, "kernels", "vm")
    os.makedirs(spec)
    argv = [os.environ["KERNEL_PYTHON"], "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with open(os.path.join(spec, "kernel.json"), "w") as file:
        json.dump({"argv": argv, "display_name": "vm", "language": "python"}, file)
    os.environ["JUPYTER_PATH"] = folder


def main(path, folder):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    with tempfile.TemporaryDirectory() as specs:
        install_kernel(specs)
        page = Page(
            notebook, kernel_name="vm", timeout=None, resources={"metadata": {"path": folder}}
        )
        page.on_cell_execute = page.begin
        try:
            page.execute()
            report(ended="")
        except (CellExecutionError, DeadKernelError) as error:
            report(ended=str(error))


main(*sys.argv[1:])
