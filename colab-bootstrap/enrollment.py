"""What the enrollment's cells share: the folder in which they meet `executor enroll`, and
the line that they print for the relay."""

import fcntl
import json
import os
import shutil
import stat
import tempfile
import time

JOB = "@JOB@"
FOLDER = os.path.join(tempfile.gettempdir(), "colab-relay-enroll-" + JOB)


def report(**what):
    """Print the one line that the relay reads."""
    print("colab-relay-enrollment: " + json.dumps({"job": JOB, **what}), flush=True)


def path(name):
    """Return the path of one of the folder's files."""
    return os.path.join(FOLDER, name)


def read(name):
    """Return the text of one of the folder's files, or ""."""
    try:
        with open(path(name), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).strip()
    except FileNotFoundError:
        return ""


def ours():
    """Say whether the folder exists and no other user made it."""
    try:
        found = os.lstat(FOLDER)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def running():
    """Return the process id of this job's executor, or 0. It keeps its pid file locked."""
    if not ours():
        return 0
    try:
        with open(path("pid")) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return 0
    except BlockingIOError:
        return int(read("pid") or 0)
    except FileNotFoundError:
        return 0


def awaited(name, alive, seconds):
    """Wait until the executor has written a file, and return its text. Otherwise report why
    there is none, remove the folder and return ""."""
    end = time.monotonic() + seconds
    going = True
    while going:
        going = alive() and time.monotonic() < end  # asked before the files: it may just end
        if read(name):
            return read(name)
        if read("error"):
            break
        time.sleep(0.1)
    report(
        error=read("error")[:1000]
        or "the executor ended without a reason; its log is ~/.colab-relay-executor.log on the VM"
    )
    shutil.rmtree(FOLDER, ignore_errors=True)
    return ""
