"""A notebook's page: runs the notebook's cells by nbclient, in the kernel of another Python,
and answers what Colab's package asks the page.

    page.py NOTEBOOK FOLDER    FOLDER is where the kernel runs

KERNEL_PYTHON is the kernel's interpreter. PAGE_SECRETS is a JSON object of the answers to
GetSecret by name; without it the page never answers. With PAGE_DENIES the page says no to
Drive. On stdout one JSON object a line: {"kernel": pid} once it runs, {"asked": what} for
each question, {"text": piece} for each piece of output, {"ended": error or ""}.
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


def tell(**what):
    print(json.dumps(what), flush=True)


class Page(NotebookClient):
    """Shows output as it comes."""

    def output(self, outs, msg, display_id, cell_index):
        if msg["msg_type"] == "stream":
            tell(text=msg["content"]["text"])
        return super().output(outs, msg, display_id, cell_index)

    def begin(self, cell, cell_index):
        """Listens, with a connection of its own, before the cell can ask."""
        self.line = BlockingKernelClient(connection_file=self.km.connection_file)
        self.line.load_connection_file()
        self.line.start_channels()
        self.line.wait_for_ready(timeout=60)
        threading.Thread(target=self.listen, daemon=True).start()
        tell(kernel=self.km.provisioner.pid)

    def listen(self):
        while True:
            msg = self.line.iopub_channel.get_msg()
            if msg["msg_type"] == "colab_request":
                self.answer(msg["metadata"], msg["content"]["request"])

    def answer(self, metadata, request):
        reply = {"type": "colab_reply", "colab_msg_id": metadata["colab_msg_id"]}
        if metadata["colab_request_type"] == "GetSecret":
            tell(asked=request["key"])
            if "PAGE_SECRETS" not in os.environ:
                return
            reply["data"] = json.loads(os.environ["PAGE_SECRETS"]).get(
                request["key"], {"exists": False}
            )
        elif "PAGE_DENIES" in os.environ:
            reply["error"] = "Error: credential propagation was unsuccessful"
        self.line.input(reply)


def install_kernel(folder):
    """Makes KERNEL_PYTHON's kernel known as "vm"."""
    spec = os.path.join(folder, "kernels", "vm")
    os.makedirs(spec)
    argv = [os.environ["KERNEL_PYTHON"], "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with open(os.path.join(spec, "kernel.json"), "w") as file:
        json.dump({"argv": argv, "display_name": "vm", "language": "python"}, file)
    os.environ["JUPYTER_PATH"] = folder


def main(path, folder):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    with tempfile.TemporaryDirectory() as known:
        install_kernel(known)
        page = Page(
            notebook, kernel_name="vm", timeout=None, resources={"metadata": {"path": folder}}
        )
        page.on_cell_execute = page.begin
        try:
            page.execute()
            tell(ended="")
        except (CellExecutionError, DeadKernelError) as error:
            tell(ended=str(error))


main(*sys.argv[1:])
