"""Runs for as long as the executor, and stops it when this cell is stopped."""

import os
import signal
import time

from enrollment import read, running


def stopped(*_):
    """Remember when the stop button was pressed; Colab sends its signal twice."""
    stops.append(time.monotonic())


stops, told = [], 0
executor = running() and read("pid")
before = signal.signal(signal.SIGINT, stopped)
try:
    if executor:
        print(f"The executor runs as process {executor}. Stop this cell to stop it.", flush=True)
    while running():
        if executor and stops and not told:
            os.kill(executor, signal.SIGINT)
            told = 1
        elif stops and told == 1 and time.monotonic() > stops[0] + 15:
            os.kill(executor, signal.SIGKILL)
            told = 2
        time.sleep(0.25)
finally:
    signal.signal(signal.SIGINT, before)
print("The executor has ended.", flush=True)
