#!/usr/bin/env bash
# An interrupted cell that awaits goes on sleeping until the kernel gets another message.
#
# Packages: ipykernel 6.17.1 with jupyter_client 8.6.3, ipykernel 7.4.0 with jupyter_client 8.10.0
# Expected: An interrupt (SIGINT, as jupyter_client and Jupyter's stop button send it) ends
#           `await asyncio.sleep(6)` at once, as it ends `time.sleep(6)`.
# Seen:     The handler schedules the end of the cell in the event loop, but does not wake it: the
#           cell ends when the sleep would have ended. A kernel_info_request, which is only read
#           after the cell, wakes the loop and ends the cell within a moment.
#
# Exits with 0 while that is so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for versions in "6.17.1 8.6.3" "7.4.0 8.10.0"; do
	read -r version client <<<"$versions"
	python3 -m venv "$folder/$version"
	"$folder/$version/bin/pip" install --quiet --disable-pip-version-check "ipykernel==$version" "jupyter_client==$client"
	"$folder/$version/bin/python" -Xfrozen_modules=off - <<'PYTHON'
import sys
import time

import ipykernel
import jupyter_client
from jupyter_client.manager import start_new_kernel

SLEEP = 6
print("ipykernel", ipykernel.__version__, "jupyter_client", jupyter_client.__version__)


def interrupted(code, wake):
    """The seconds that a cell takes after its interrupt."""
    request = client.execute(code)
    while True:  # until the cell runs
        message = client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "stream":
            break
    manager.interrupt_kernel()
    began = time.monotonic()
    if wake:
        time.sleep(0.5)
        client.kernel_info()
    while True:
        reply = client.get_shell_msg(timeout=60)
        if reply["parent_header"]["msg_id"] == request:
            break
    took = time.monotonic() - began
    print(f"{reply['content']['status']} after {took:.1f} s:", code.splitlines()[-1], "woken" if wake else "")
    return took


manager, client = start_new_kernel(kernel_name="python3")
try:
    sync = interrupted(f"import time\nprint(1, flush=True)\ntime.sleep({SLEEP})", False)
    alone = interrupted(f"import asyncio\nprint(1, flush=True)\nawait asyncio.sleep({SLEEP})", False)
    woken = interrupted(f"import asyncio\nprint(1, flush=True)\nawait asyncio.sleep({SLEEP})", True)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
if sync > SLEEP / 2 or alone < SLEEP / 2 or woken > SLEEP / 2:
    sys.exit("this has changed")
PYTHON
done
