"""Loads what may fail to load once, while the kernel still has it.

That runs __setstate__ and constructors of the user's, so it is done in a forked copy of the
kernel: nothing it does to objects reaches the user's own. What it does outside the process,
to files or over the network, does happen. The copy ends without a word to __del__ of what
was loaded.
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

SECONDS = 5  # for all of them
MOST_BYTES = 64 << 20  # of one variable, in the file
MOST_IN_ALL = 256 << 20


def chosen(doubtful: list[Segment]) -> list[Segment]:
    """The segments that are small enough to load them a second time."""
    found, total = [], 0
    for segment in doubtful:
        size = segment["stream"][1] + sum(length for _, length in segment["buffers"])
        if size <= MOST_BYTES and total + size <= MOST_IN_ALL:
            found.append(segment)
            total += size
    return found


def rehearse(
    path: str, doubtful: list[Segment], known: dict[int, Any]
) -> tuple[dict[str, str], int]:
    """What is wrong with segments that don't load, by the name of their variable, and how
    many were not tried. known is what stands for each number of the memo."""
    segments = chosen(doubtful)
    told = {}
    if segments and hasattr(os, "fork"):
        try:
            told = listen(segments, *start(path, segments, known))
        except OSError:  # no memory for a copy, or no more processes: it was an extra
            pass
    return (
        {name: why for name, why in told.items() if why},
        len(doubtful) - len(told),
    )


def start(path: str, segments: list[Segment], known: dict[int, Any]) -> tuple[int, int]:
    ours, theirs = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the copy does without
            child = os.fork()
    except BaseException:
        os.close(ours)
        os.close(theirs)
        raise
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.alarm(SECONDS + 5)  # should the kernel be gone by then
            perform(path, segments, known, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    return child, ours


def perform(path: str, segments: list[Segment], known: dict[int, Any], out: int) -> None:
    """In the copy: one line before each variable and one after it."""
    gc.disable()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdin = sys.stdout = sys.stderr = open(os.devnull, "r+")
    reader, kept = Reader(path, os.path.getsize(path), None), []
    for segment in segments:
        first, why = segment["first"], ""
        tell(out, [segment["name"], "loading it ended the process"])
        reader.adopt([known.get(i) for i in range(first)])
        try:
            kept.append(reader.read(segment))
        except BaseException as e:
            kept.append(e)
            why = reason(e, "loading it")
        kept.append(reader.unpickler)
        tell(out, [segment["name"], why])
    tell(out, None)


def tell(out: int, line: Any) -> None:
    data = json.dumps(line).encode("ascii") + b"\n"
    while data:
        data = data[os.write(out, data) :]


def listen(segments: list[Segment], child: int, pipe: int) -> dict[str, str]:
    told, data, end = {}, b"", time.monotonic() + SECONDS
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
            told[name] = why
            last = name
    if late and told and told[last]:
        told[last] = "loading it did not end within %d seconds" % SECONDS
    return told


def kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except OSError:  # someone else waits for all children
        pass
