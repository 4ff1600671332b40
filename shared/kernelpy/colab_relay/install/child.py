"""Runs an installer and shows what it prints."""

from __future__ import annotations

import codecs
import os
import re
import signal
import subprocess
import sys
from collections import deque
from typing import Iterator

MAX_LAST_LINES = 15
MAX_LINE = 1000  # characters
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE = 3  # seconds until an installer that ignores the interrupt is killed


def run(argv: list[str]) -> tuple[int, list[str]]:
    """Runs a program to its end. Returns its exit code and its last lines."""
    last: deque[str] = deque(maxlen=MAX_LAST_LINES)
    shown = Shown()
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONUNBUFFERED="1", NO_COLOR="1"),
    )
    try:
        for line in lines(child):
            line = ANSI.sub("", line).rstrip()
            if shown.show(line) and line:
                last.append(line[:MAX_LINE])
        return child.wait(), list(last)
    finally:
        end(child)


def lines(child: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines as they come, the bytes of each bounded."""
    assert child.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while True:
        chunk = os.read(child.stdout.fileno(), 1 << 16)
        rest += decoder.decode(chunk, not chunk)
        *whole, rest = rest.split("\n")
        yield from whole
        if not chunk or len(rest) > 1 << 16:
            yield rest
            rest = ""
        if not chunk:
            return


class Shown:
    """Prints lines, and pip's lines of progress as one that is written over."""

    def __init__(self) -> None:
        self.over = False

    def show(self, line: str) -> bool:
        """Whether the line was not one of progress."""
        progress = PROGRESS.fullmatch(line)
        if progress:
            done, total = (int(n) / 1e6 for n in progress.groups())
            print("\r%.1f of %.1f MB" % (done, total), end="", flush=True)
            self.over = True
            return False
        if self.over:
            print()
            self.over = False
        print(line, flush=True)
        return True


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends the installer after an interrupt, which it may have got as well."""
    if child.stdout is not None:
        child.stdout.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        child.send_signal(number)
        try:
            child.wait(PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # interrupted again: no patience
            print("The installer ignores the interrupt; ending it.", file=sys.stderr)
