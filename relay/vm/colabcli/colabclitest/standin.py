"""The Google of the stand-in colab.py: a folder with VMs, and with faults that tests ask for.

A VM is a process group with a kernel, and its file system is this computer's.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from typing import Any, Dict, List, NoReturn

Json = Dict[str, Any]

STANDIN = os.environ["STANDIN"]


def say(text: str) -> None:
    print(text, flush=True)


def complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def crash(error: str) -> NoReturn:
    """What an uncaught exception prints."""
    complain("Traceback (most recent call last):\n" + '  File "cli.py", line 1, in main\n' + error)
    sys.exit(1)


def read(path: str) -> Json:
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (FileNotFoundError, ValueError):
        return {}


def write(path: str, content: Json) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new%d" % os.getpid(), "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(file.name, path)


def fault(name: str) -> Any:
    """A fault that was asked for; it stays."""
    return read(os.path.join(STANDIN, "faults.json")).get(name)


def next_fault(name: str) -> Any:
    """A fault that was asked for once."""
    path = os.path.join(STANDIN, "faults.json")
    faults = read(path)
    found = faults.pop(name, None)
    if found is not None:
        write(path, faults)
    return found


class Google:
    """What only Google knows. Every call may fail as a request over the network does."""

    folder = os.path.join(STANDIN, "vms")

    def request(self, path: str) -> None:
        if fault("unreachable"):
            crash(
                "requests.exceptions.ConnectionError: HTTPSConnectionPool"
                "(host='colab.research.google.com', port=443): Max retries exceeded with url: "
                + path
                + "?authuser=0 (Caused by NameResolutionError(\"Failed to resolve 'colab'\"))"
            )

    def path(self, endpoint: str) -> str:
        return os.path.join(self.folder, endpoint + ".json")

    def vm(self, endpoint: str) -> Json:
        return read(self.path(endpoint))

    def vms(self) -> List[Json]:
        self.request("/tun/m/assignments")
        os.makedirs(self.folder, exist_ok=True)
        names = sorted(name for name in os.listdir(self.folder) if name.endswith(".json"))
        return [vm for vm in (read(os.path.join(self.folder, name)) for name in names) if vm]

    def assign(self, variant: str, accelerator: str, shape: str) -> str:
        self.request("/tun/m/assign")
        refused = next_fault("refuse")
        if refused:
            refuse(int(refused), accelerator)
        write(os.path.join(STANDIN, "asked.json"), {"variant": variant})
        deadline = time.monotonic() + 60
        while fault("hold_new") and time.monotonic() < deadline:
            time.sleep(0.01)
        endpoint = "%s-s-%s" % ("m" if accelerator == "NONE" else "gpu", uuid.uuid4().hex[:12])
        vm = {"endpoint": endpoint, "variant": variant, "accelerator": accelerator, "shape": shape}
        vm["root"] = tempfile.mkdtemp(prefix="cvm-")
        write(self.path(endpoint), vm)
        return endpoint

    def end(self, endpoint: str) -> None:
        """Ends a VM with all its processes; they inherit its name."""
        vm = self.vm(endpoint)
        mark = ("STANDIN_VM=" + self.path(endpoint)).encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as file:
                    ours = mark in file.read().split(b"\0")
                if ours:
                    os.kill(int(pid), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                pass
        if vm:
            os.unlink(self.path(endpoint))
            subprocess.run(["rm", "-rf", vm["root"]], check=False)


def refuse(status: int, accelerator: str) -> NoReturn:
    """What `colab new` says when Google refuses a VM."""
    if status == 412:
        complain(
            "[colab] Allocation refused (precondition failed). This can mean too many active "
            "sessions, or a temporary usage or capacity limit for the requested runtime. Run "
            "`colab stop` to free up a session, wait and retry, or try a different accelerator."
        )
        sys.exit(1)
    if status == 400 and accelerator != "NONE":
        complain(
            "[colab] Backend rejected accelerator '%s'. You may not have quota or entitlement "
            "for this accelerator on your account. Try a different one (e.g. --gpu T4) or omit "
            "--gpu/--tpu for a CPU runtime." % accelerator
        )
        sys.exit(1)
    phrase = {400: "Bad Request", 403: "Forbidden", 503: "Service Unavailable"}.get(status, "Error")
    crash(
        "colab_cli.client.ColabRequestError: Failed to issue request POST "
        "https://colab.research.google.com/tun/m/assign?nbh=x&accelerator=%s: %s"
        % (accelerator, phrase)
    )
