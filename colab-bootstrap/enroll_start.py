"""Fetches the executor, starts it for an enrollment and shows its public key."""

import fcntl
import json
import os
import shutil
import subprocess
import sys

from enrollment import FOLDER, JOB, LOG, awaited, carried_out, ours, path, read, report, running
from fetch import ARCH, HOME, SHA256, digest, executor, install, unavailable

CLOUDFLARED = "@CLOUDFLARED@"
CLOUDFLARED_SHA256 = {"amd64": "@CLOUDFLARED_AMD64@", "arm64": "@CLOUDFLARED_ARM64@"}
TUNNEL = "@TUNNEL@"  # "secrets": ngrok with a token of this machine; without one, cloudflared
RELAY_KEY = "@RELAY_KEY@"
REMEDY = (
    "add NGROK_AUTHTOKEN to Colab's Secrets (the key on the left), or set it where the relay runs"
)


def token_of_machine():
    """Return an ngrok token from the page, which asks the person, or the environment, or ""."""
    try:
        from google.colab import userdata

        token = (userdata.get("NGROK_AUTHTOKEN") or "").strip()
    except Exception:  # not on Colab, refused, or no answer
        token = ""
    return token or os.environ.get("NGROK_AUTHTOKEN", "").strip()


def cached(wanted, name):
    """Return where a program with this SHA-256 is kept: not in the notebook's own folder,
    which may be on Drive, where nothing can be run."""
    folder = os.path.join(os.path.expanduser("~"), ".cache", "colab-relay", wanted[:16])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, name)


def cloudflared():
    """Get cloudflared if there is none. Return its folder, and why there is none or ""."""
    if shutil.which("cloudflared"):
        return "", ""
    wanted = CLOUDFLARED_SHA256[ARCH]
    program = cached(wanted, "cloudflared")
    problem = install(f"{CLOUDFLARED}/cloudflared-linux-{ARCH}", wanted, program, "it")
    return os.path.dirname(program), problem


def start(program, token, folder):
    """Start the executor in its own session, where neither a stop nor a restart of this
    notebook's session reaches it. The token goes through a pipe."""
    if os.path.lexists(LOG):
        os.remove(LOG)
    command = [program, "enroll", "--job", JOB, "--relay-key", RELAY_KEY, "--dir", FOLDER]
    command += ["--listen", "127.0.0.1:0", "--python", sys.executable, "--ngrok-token-stdin"]
    searched = os.environ.get("PATH", os.defpath) + (os.pathsep + folder if folder else "")
    out = os.open(LOG, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": searched},
            start_new_session=True,
        )
    finally:
        os.close(out)
    try:
        with process.stdin as pipe:
            pipe.write(token.encode())
    except BrokenPipeError:
        pass  # it has ended, and says why
    return process


def enroll():
    """Start the executor unless it runs, and report its key. Return why there is none, or ""."""
    if unavailable():
        return f"no executor: {unavailable()}"
    tunnel, token, folder, problem = TUNNEL, "", "", ""
    if tunnel == "secrets":
        token = token_of_machine()
        tunnel = "ngrok" if token else "cloudflared"
    if tunnel == "cloudflared":
        folder, problem = cloudflared()
    if problem:
        return f"no cloudflared: {problem}; {REMEDY}"
    program = os.path.join(HOME, "executor")  # of the release's notebook
    if digest(program) != SHA256[ARCH]:
        program = cached(SHA256[ARCH], "executor")
    problem = executor(program)
    if problem:
        return f"no executor: {problem}"
    process = start(program, token, folder)
    key = awaited("key", lambda: process.poll() is None, 30)
    if key:
        with open(path("tunnel"), "w") as file:
            json.dump(tunnel, file)
        report(key=key, tunnel=tunnel)
    elif process.poll() is None:
        process.kill()
    return ""


def once():
    """Enroll, unless this cell already did. A second run of it waits for the first."""
    try:
        os.mkdir(FOLDER, 0o700)
    except FileExistsError:
        if not ours():
            return f"another user has made {FOLDER}"
    with open(path("cell"), "w") as cell:
        fcntl.flock(cell, fcntl.LOCK_EX)
        if running():
            if awaited("key", running, 30):
                report(key=read("key"), tunnel=read("tunnel"))
            return ""
        for name in os.listdir(FOLDER):  # of an executor that was killed
            if name != "cell":
                os.remove(path(name))
        return enroll()


if not carried_out(once) and ours() and not running():
    shutil.rmtree(FOLDER)
