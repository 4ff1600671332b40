#!/usr/bin/env bash
# To which cell belongs what a thread or an asyncio task prints while a later cell runs?
#
# Packages: ipykernel 6.17.1 and 6.29.5 with jupyter_client 8.6.3, ipykernel 7.4.0 with 8.10.0
# Expected: The same in all versions, and what was mended in one stays so in later ones: the output's
#           parent is the cell that started the thread or task, or else always the later cell.
# Seen:     print in a thread: 6.29.5 names the cell that started it, 6.17.1 and 7.4.0 the later one.
#           print in a task: 6.17.1 names the later cell, 6.29.5 and 7.4.0 the one that started it.
#           display in a thread names the later cell in all three.
#
# Exits with 0 while that is so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for expected in "6.17.1 8.6.3 later later later" "6.29.5 8.6.3 own own later" "7.4.0 8.10.0 later own later"; do
	read -r version client thread task shown <<<"$expected"
	python3 -m venv "$folder/$version"
	"$folder/$version/bin/pip" install --quiet --disable-pip-version-check "ipykernel==$version" "jupyter_client==$client"
	"$folder/$version/bin/python" -Xfrozen_modules=off - "$thread" "$task" "$shown" <<'PYTHON'
import sys

import ipykernel
from jupyter_client.manager import start_new_kernel

# Each waits until the later cell runs, and prints or displays then.
STARTS = {
    "print in a thread": """
import threading
go = threading.Event()
def late(): go.wait(); print("LATE", flush=True)
worker = threading.Thread(target=late); worker.start()""",
    "print in a task": """
import asyncio
go = asyncio.Event()
async def late(): await go.wait(); print("LATE", flush=True)
worker = asyncio.ensure_future(late())""",
    "display in a thread": """
import threading
go = threading.Event()
def late(): go.wait(); display("LATE")
worker = threading.Thread(target=late); worker.start()""",
}
LATER = {"print in a task": "go.set(); await worker"}


def run(code):
    """Runs a cell, and returns its id and the ids to which the late output belongs."""
    request, parents = client.execute(code), []
    while True:
        message = client.get_iopub_msg(timeout=60)
        parent = message["parent_header"].get("msg_id")
        if "LATE" in str(message["content"].get("text", "")) + str(message["content"].get("data", "")):
            parents.append(parent)
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle" and parent == request:
            return request, parents


manager, client = start_new_kernel(kernel_name="python3")
seen = []
try:
    for what, code in STARTS.items():
        first, _ = run(code)
        later, parents = run(LATER.get(what, "go.set(); worker.join()"))
        seen.append({first: "own", later: "later"}.get(parents[0]))
        print(f"ipykernel {ipykernel.__version__}: {what}: {seen[-1]}")
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
if seen != sys.argv[1:]:
    sys.exit("this has changed")
PYTHON
done
