#!/usr/bin/env bash
# How does a client of jupyter_client learn that a kernel's process has replaced itself by exec?
#
# Packages: ipykernel 6.29.5 with jupyter_client 8.6.3, ipykernel 7.4.0 with 8.10.0
# Expected: As after a crash: is_alive() turns False, or requests fail until the client reconnects.
# Seen:     is_alive() stays True, the process id stays, and the same client's next cell runs and
#           replies "ok", in a kernel without the variables. Nothing but the session in the headers
#           of the kernel's messages differs from before.
#
# Exits with 0 while that is so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for versions in "6.29.5 8.6.3" "7.4.0 8.10.0"; do
	read -r version client <<<"$versions"
	python3 -m venv "$folder/$version"
	"$folder/$version/bin/pip" install --quiet --disable-pip-version-check "ipykernel==$version" "jupyter_client==$client"
	"$folder/$version/bin/python" -Xfrozen_modules=off - <<'PYTHON'
import sys
import time

import ipykernel
from jupyter_client.manager import start_new_kernel

# The program restarts itself with its own arguments, once the cell has ended.
RESTART = """
import os, threading
argv = open("/proc/self/cmdline").read().split("\\0")[:-1]
threading.Timer(0.5, os.execv, (argv[0], argv)).start()"""


def run(code):
    """Runs a cell. Returns its status, the value of pid and known, and the kernel's session."""
    ask = {"pid": "__import__('os').getpid()", "known": "'v' in globals()"}
    reply = client.execute_interactive(code, user_expressions=ask, timeout=60, output_hook=lambda message: None)
    pid, known = (reply["content"]["user_expressions"][name]["data"]["text/plain"] for name in ask)
    return reply["content"]["status"], pid, known, reply["header"]["session"]


manager, client = start_new_kernel(kernel_name="python3")
try:
    before = run("v = 1" + RESTART)
    time.sleep(10)
    alive = manager.is_alive()
    after = run("pass")
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
print(f"ipykernel {ipykernel.__version__}: before {before}, alive {alive}, after {after}")
same = alive and before[:2] == after[:2] and before[0] == "ok"
if not same or (before[2], after[2]) != ("True", "False") or before[3] == after[3]:
    sys.exit("this has changed")
PYTHON
done
