"""Looks after an executor on a machine that is reached by SSH. session.go sends this source and
launch.py through stdin, then one request a line; each is answered with one line after the marker.
"""

import errno
import importlib.util
import json
import os
import platform
import sys
import sysconfig
from typing import Any, Callable, Dict, List

import colab_relay_launch as launch

Json = Dict[str, Any]

MARKER = ""  # session.go sets it


def folder_of(ident: str) -> str:
    data = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        data = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(data, "colab-relay", ident)


launch.folder_of = folder_of


def look(ident: str) -> Json:
    """Say what this machine is and has, and whether the executor runs. Change nothing."""
    folder = folder_of(ident)
    managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return {
        "folder": folder,
        "machine": platform.machine(),
        "python": sys.executable,
        "version": platform.python_version(),
        "ipykernel": importlib.util.find_spec("ipykernel") is not None,
        "managed": sys.prefix == sys.base_prefix and os.path.exists(managed),
        "running": launch.running(folder) != 0,
        "ready": launch.look(folder),
    }


def prepare(ident: str) -> Json:
    os.makedirs(os.path.dirname(folder_of(ident)), mode=0o700, exist_ok=True)
    report: Json = launch.prepare(ident)
    return report


def upload(ident: str, size: int) -> Json:
    """Store the file that follows the request."""
    with open(os.path.join(folder_of(ident), "upload"), "wb") as file:
        while size > 0:
            piece = sys.stdin.buffer.read(min(size, 1 << 20))
            if not piece:
                raise EOFError("the connection ended during the upload")
            file.write(piece)
            size -= len(piece)
    return {}


def start(ident: str, sha256: str, workdir: str, secret: str) -> Json:
    """Start the executor. Its secret is in its environment only, which it keeps to itself."""
    workdir = os.path.join(os.path.expanduser("~"), os.path.expanduser(workdir))
    if not os.path.isdir(workdir):
        raise NotADirectoryError(errno.ENOTDIR, "no such folder", workdir)
    os.environ.pop("EXECUTOR_SECRET_FILE", None)
    settings = os.path.join(folder_of(ident), "settings")
    launch.empty(settings)
    launch.write_json(os.path.join(settings, "start.json"), {"EXECUTOR_SECRET": secret})
    flags: List[str] = ["--tunnel", "none", "--workdir", workdir]
    report: Json = launch.start(ident, sha256, flags)
    return report


def stop(ident: str) -> Json:
    """End the executor. Its folder stays."""
    folder = folder_of(ident)
    running = launch.running(folder) != 0
    launch.end(folder)
    return {"running": running, "folder": folder}


FUNCTIONS: Dict[str, Callable[..., Json]] = {
    "look": look,
    "prepare": prepare,
    "upload": upload,
    "start": start,
    "poll": launch.poll,
    "stop": stop,
}


def answer(request: bytes) -> Json:
    function, arguments = json.loads(request)
    try:
        return {"report": FUNCTIONS[function](*arguments)}
    except OSError as error:
        return {"error": str(error), "name": errno.errorcode.get(error.errno or 0, "")}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "name": ""}


def serve() -> None:
    """Answer requests until stdin ends. After an error the rest of an upload may follow, so end."""
    for request in iter(sys.stdin.buffer.readline, b""):
        given = answer(request)
        print("\n" + MARKER + json.dumps(given), flush=True)
        if "error" in given:
            return
