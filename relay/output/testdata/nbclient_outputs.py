"""Runs a notebook by nbclient and compares the outputs with those that a file has.

    nbclient_outputs.py SOURCE OURS FOLDER    FOLDER is where the kernel runs

KERNEL_PYTHON is the kernel's interpreter. OURS must also be valid for nbformat and written as
nbformat writes it. Texts are compared after what both sides may do in their own way: streams of
the same name are joined, carriage returns are worked off, and process ids are removed. The
differences are printed; the exit status is 1 if there are any.
"""

import itertools
import json
import os
import re
import sys
import tempfile
import warnings

import nbformat
from nbclient import NotebookClient


STATE = "application/vnd.jupyter.widget-state+json"


def install_kernel(folder):
    """Installs a kernelspec named "vm" for KERNEL_PYTHON."""
    spec = os.path.join(folder, "kernels", "vm")
    os.makedirs(spec)
    argv = [os.environ["KERNEL_PYTHON"], "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with open(os.path.join(spec, "kernel.json"), "w") as file:
        json.dump({"argv": argv, "display_name": "vm", "language": "python"}, file)
    os.environ["JUPYTER_PATH"] = folder


def run(path, folder):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.strip():  # blank cells do not run
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as specs:
        install_kernel(specs)
        NotebookClient(
            notebook,
            kernel_name="vm",
            timeout=60,
            allow_errors=True,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        ).execute()
    return notebook


def read(path):
    """Reads our file: valid, without a warning, and the bytes that nbformat would write."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    if nbformat.writes(notebook) + "\n" != text:
        raise SystemExit(path + " is not written as nbformat writes it")
    return notebook


def shown(line):
    """Returns what a terminal shows of a line with carriage returns."""
    before = ""
    for part in line.split("\r"):
        if "\x1b" in part or "\x1b" in before:
            before = part or before
        else:
            before = part + before[len(part) :]
    return before


def comparable(output):
    text = json.dumps(output, sort_keys=True)
    text = re.sub(r"ipykernel_\d+(/\d+\.py)?", "ipykernel_PID", text)
    text = re.sub(r"\"model_id\": \"[0-9a-f]{32}", '"model_id": "ID', text)
    return re.sub(r"0x[0-9a-f]{6,}", "0xADDRESS", text)


def outputs(cell):
    joined = []
    for name, group in itertools.groupby(cell.outputs, lambda o: o.get("name", "")):
        if not name:
            joined.extend(comparable(output) for output in group)
            continue
        lines = "".join(output.text for output in group).split("\n")
        text = "\n".join(shown(line) for line in lines)
        if text:
            joined.append(comparable({"name": name, "text": text}))
    return joined


def widgets(notebook):
    """The states of the widgets that outputs show, without their ids, which are random."""
    document = notebook.metadata.get("widgets", {}).get(STATE, {"state": {}})
    numbers = {}

    def known(found):
        return found[1] + str(numbers.setdefault(found[2], len(numbers)))

    def state(model):
        text = json.dumps(document["state"].get(model), sort_keys=True)
        return re.sub(r"(IPY_MODEL_|\"model_id\": \")([0-9a-f]{32})", known, text)

    shown = re.findall(r"\"model_id\": \"([0-9a-f]{32})", json.dumps([c.get("outputs") for c in notebook.cells]))
    states, done = [], 0
    for model in shown:
        numbers.setdefault(model, len(numbers))
    while done < len(numbers):
        states.append(state(list(numbers)[done]))
        done += 1
    return states


def main(source, ours, folder):
    theirs, ours = run(source, folder), read(ours)
    different = len(theirs.cells) != len(ours.cells)
    for a, b in zip(theirs.cells, ours.cells):
        if a.cell_type != "code":
            continue
        if outputs(a) != outputs(b) or a.execution_count != b.execution_count:
            different = True
            print("the cell\n%s\nhas, by nbclient, In[%s]" % (a.source, a.execution_count))
            print(*outputs(a), sep="\n")
            print("and in our file In[%s]" % b.execution_count)
            print(*outputs(b), sep="\n")
    for a, b in itertools.zip_longest(widgets(theirs), widgets(ours)):
        if a != b:
            different = True
            print("the state of a widget is, by nbclient\n%s\nand in our file\n%s" % (a, b))
    sys.exit(different)


if __name__ == "__main__":
    main(*sys.argv[1:])
