"""What the enrollment's cells share: the folder in which they meet `executor enroll`, and
the line that they print for the relay."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import tempfile
import time

JOB = "@JOB@"
FOLDER = os.path.join(tempfile.gettempdir(), "colab-relay-enroll-" + JOB)
LOG = os.path.join(os.path.expanduser("~"), ".colab-relay-executor.log")


def report(**what):
    """Print the one line that the relay reads."""
    print("colab-relay-enrollment: " + json.dumps({"job": JOB, **what}), flush=True)


def path(name):
    """Return the path of one of the folder's files."""
    return os.path.join(FOLDER, name)


def read(name):
    """Return the content of one of the executor's files, or "". They appear whole."""
    try:
        with open(path(name), encoding="utf-8") as file:
            return json.loads(file.read(1 << 16))
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
    """Say whether this job's executor runs: it keeps a file locked."""
    if not ours():
        return False
    try:
        with open(path("lock")) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # no executor has begun, or one has just removed the folder
        pass
    return False


def stop():
    """Ask the executor to end, if it runs. It may just end and remove its files."""
    executor = read("pid")
    if executor and running():
        with contextlib.suppress(ProcessLookupError):
            os.kill(executor, signal.SIGINT)


def awaited(name, alive, seconds):
    """Wait until the executor has written a file, and return its content. Otherwise report
    why there is none, remove the folder and return ""."""
    end = time.monotonic() + seconds
    going, why = True, ""
    while going and not why:
        going = alive() and time.monotonic() < end  # asked before the files: it may just end
        found, why = read(name), read("error")  # once: the folder may go now
        if found:
            return found
        if not why:
            time.sleep(0.1)
    if not why:
        how = f"did not answer within {seconds} s" if alive() else "ended without a reason"
        why = f"the executor {how}; its log on the VM is {LOG}"
    report(error=why[:1000])
    stop()
    shutil.rmtree(FOLDER, ignore_errors=True)
    return ""


@contextlib.contextmanager
def one_stop():
    """Let only the first stop raise KeyboardInterrupt. Colab sends each stop twice, and the
    second one must not end what follows from the first."""
    stops = []

    def stopped(*_):
        stops.append(True)
        if len(stops) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def carried_out(work):
    """Do the cell's work. Return whether it was done; if not, report why."""
    with one_stop():
        try:
            trouble = work()
        except KeyboardInterrupt:
            trouble = "the cell was stopped"
            stop()
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        if trouble:
            report(error=trouble[:1000])
    return not trouble
