"""Test-loads, once, the variables whose restore may fail, while the kernel still has them.

A trial runs the user's __setstate__ methods and constructors. It runs in a forked copy of the
kernel, so that it can't change the user's objects. Its effects outside of the process, on files
or over the network, are real. The copy ends without calling __del__ of the loaded objects.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from .read import Reader
from .reasons import reason

if TYPE_CHECKING:
    from .read import Segment

SECONDS = 5  # for all variables together
MAX_BYTES = 64 << 20  # of one variable, in the file
MAX_TOTAL_BYTES = 256 << 20


def select_small(doubtful: list[Segment]) -> list[Segment]:
    """The segments that are small enough to be loaded a second time."""
    found, total = [], 0
    for segment in doubtful:
        size = segment["stream"][1] + sum(length for _, length in segment["buffers"])
        if size <= MAX_BYTES and total + size <= MAX_TOTAL_BYTES:
            found.append(segment)
            total += size
    return found


def try_loading(
    path: str, doubtful: list[Segment], memo: dict[int, Any]
) -> tuple[dict[str, str], int]:
    """Why variables did not load, by their names, and how many were not tried. memo has the
    object of each number."""
    segments = select_small(doubtful)
    results = {}
    if segments and hasattr(os, "fork"):
        try:
            results = collect(segments, *start(path, segments, memo))
        except OSError:  # there is not enough memory for a copy, or no more processes are allowed
            pass
    return (
        {name: why for name, why in results.items() if why},
        len(doubtful) - len(results),
    )


def start(path: str, segments: list[Segment], memo: dict[int, Any]) -> tuple[int, int]:
    ours, theirs = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about threads, which the copy does not need
            child = os.fork()
    except BaseException:
        os.close(ours)
        os.close(theirs)
        raise
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.alarm(SECONDS + 5)  # in case the kernel has ended by then
            run_trial(path, segments, memo, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    return child, ours


def run_trial(path: str, segments: list[Segment], memo: dict[int, Any], out: int) -> None:
    """Runs in the copy. It writes one line before each variable and one after it."""
    gc.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.stdin = sys.stdout = sys.stderr = open(os.devnull, "r+")
    reader, alive = Reader(path, os.path.getsize(path), None), []
    for segment in segments:
        first, why = segment["first"], ""
        send(out, [segment["name"], "loading it ended the process"])
        reader.preload([memo.get(i) for i in range(first)])
        try:
            alive.append(reader.read(segment))
        except BaseException as e:
            alive.append(e)
            why = reason(e, "loading it")
        alive.append(reader.unpickler)
        send(out, [segment["name"], why])
    send(out, None)
    os._exit(0)  # before this function returns, which would delete the loaded objects


def send(out: int, line: Any) -> None:
    data = json.dumps(line).encode("ascii") + b"\n"
    while data:
        data = data[os.write(out, data) :]


def collect(segments: list[Segment], child: int, pipe: int) -> dict[str, str]:
    """Reads the results of the copy, at most SECONDS long, and then kills it."""
    results, data, end = {}, b"", time.monotonic() + SECONDS
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    late = False
    try:
        while not data.endswith(b"null\n") and not late:
            left = end - time.monotonic()
            late = left <= 0 or not poll.poll(left * 1000)
            piece = b"" if late else os.read(pipe, 1 << 16)
            if not piece:
                break
            data += piece
    finally:
        os.close(pipe)
        kill(child)
    for line in data.splitlines(True):
        if line.endswith(b"\n") and line != b"null\n":
            name, why = json.loads(line.decode("ascii"))
            results[name] = why
            last = name
    if late and results and results[last]:
        results[last] = "loading it did not end within %d seconds" % SECONDS
    return results


def kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except OSError:  # other code has waited for all children
        pass
