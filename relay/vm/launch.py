"""Starts an executor on a Colab VM. The relay runs this in a Jupyter kernel of the VM, as
launch.go describes. Each function returns what its report contains, never a secret.

The folder of a VM is private. In it, the folder "settings" receives the file with the secrets,
which is removed before the executor starts.
"""

import contextlib
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional

Json = Dict[str, Any]

WAIT = 10.0  # seconds that an executor has to end, before it is killed
TAIL = 2000  # bytes of its log that a report contains


def folder_of(vm_id: str) -> str:
    return os.path.join(tempfile.gettempdir(), vm_id)


def make_private(path: str) -> None:
    """Make a folder that only this user may enter; another user's folder or a link is an error."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private folder of this user")


def digest(path: str) -> str:
    """Return the file's SHA-256 in hex, or "" if there is no file."""
    if not os.path.isfile(path):
        return ""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def read_json(path: str) -> Any:
    """Return the content of a JSON file, or None if there is none or it was cut off."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None


def write_json(path: str, content: Json) -> None:
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(path + ".new", path)


def start_time(pid: int) -> str:
    """Return when a process started, in ticks since the boot; "" if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    ended = fields[0] == "Z" and fields[17] == "1"  # else another thread lives on
    return "" if ended else fields[19]


def running(folder: str) -> int:
    """Return the pid of the executor that an earlier start made, or 0 if it has ended."""
    process = read_json(os.path.join(folder, "process.json"))
    if process and process["started"] and process["started"] == start_time(process["pid"]):
        return int(process["pid"])
    return 0


def end(folder: str) -> None:
    """End the executor of an earlier start."""
    pid = running(folder)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if not running(folder):
            return
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, sign)
        deadline = time.monotonic() + WAIT
        while running(folder) and time.monotonic() < deadline:
            reap(pid)
            time.sleep(0.05)


def reap(pid: int) -> None:
    """Collect an ended executor, which is a child if the same kernel started it."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def free_port() -> int:
    """Return a port for the executor, below those of outgoing connections."""
    for port in random.sample(range(8100, 9000), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port between 8100 and 8999 is free")


def empty(settings: str) -> None:
    """Remove what the folder contains, but leave a private file for the next settings."""
    shutil.rmtree(settings, ignore_errors=True)
    make_private(settings)
    os.close(os.open(os.path.join(settings, "start.json"), os.O_CREAT | os.O_WRONLY, 0o600))


def prepare(vm_id: str) -> Json:
    """Make the folders and say what the VM is and has."""
    folder = folder_of(vm_id)
    make_private(folder)
    settings = os.path.join(folder, "settings")
    empty(settings)
    return {
        "folder": folder,
        "machine": platform.machine(),
        "sha256": digest(os.path.join(folder, "executor")),
        "cloudflared": shutil.which("cloudflared") is not None,
    }


def place(folder: str, sha256: str) -> str:
    """Make the uploaded file the executor, if it is the expected one, by a rename."""
    uploaded, program = os.path.join(folder, "upload"), os.path.join(folder, "executor")
    if digest(uploaded) == sha256:
        os.chmod(uploaded, 0o700)
        os.replace(uploaded, program)
    if digest(program) != sha256:
        raise ValueError("the executor arrived changed on the VM (its SHA-256 differs)")
    return program


def start(vm_id: str, sha256: str, flags: List[str]) -> Json:
    """Start the executor with the variables in the file of settings, which is removed first."""
    folder = folder_of(vm_id)
    make_private(folder)
    settings = os.path.join(folder, "settings")
    try:
        environment = read_json(os.path.join(settings, "start.json"))
    finally:
        empty(settings)
    if not environment:
        raise ValueError("the executor's settings did not arrive on the VM")
    program = place(folder, sha256)
    end(folder)
    for old in ("ready.json", "public.json"):
        if os.path.exists(os.path.join(folder, old)):
            os.remove(os.path.join(folder, old))
    command = [program, "--listen", f"127.0.0.1:{free_port()}", "--python", sys.executable]
    command += ["--state-dir", os.path.join(folder, "state")]
    command += ["--ready-file", os.path.join(folder, "ready.json"), *flags]
    log = os.open(os.path.join(folder, "log"), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    finally:
        os.close(log)
    record = {"pid": process.pid, "started": start_time(process.pid)}
    write_json(os.path.join(folder, "process.json"), record)
    return {"pid": process.pid}


def look(folder: str) -> Optional[Json]:
    """Return what the executor says of itself when it is ready, or None.

    Its ready file contains the secret, so it is removed; the rest of it is kept.
    """
    ready, public = (os.path.join(folder, name) for name in ("ready.json", "public.json"))
    content = read_json(ready)
    if content:
        write_json(public, {key: content[key] for key in ("url", "local_url", "instance_id")})
        os.remove(ready)
    found: Optional[Json] = read_json(public)
    return found


def poll(vm_id: str, seconds: float) -> Json:
    """Wait until the executor is ready or has ended, and report that."""
    folder = folder_of(vm_id)
    deadline = time.monotonic() + seconds
    while True:
        pid, ready = running(folder), look(folder)
        if ready or not pid or time.monotonic() > deadline:
            break
        reap(pid)
        time.sleep(0.1)
    tail = ""
    if os.path.exists(os.path.join(folder, "log")):
        with open(os.path.join(folder, "log"), "rb") as file:
            file.seek(max(0, os.path.getsize(file.name) - TAIL))
            tail = file.read().decode(errors="replace")
    return {"running": pid != 0, "ready": ready, "log": tail}


def call(marker: str, function: str, arguments: str) -> None:
    """Print the report of one function on a line of its own, after the marker."""
    functions: Dict[str, Callable[..., Json]] = {"prepare": prepare, "start": start, "poll": poll}
    report = functions[function](*json.loads(arguments))
    print("\n" + marker + json.dumps(report))
