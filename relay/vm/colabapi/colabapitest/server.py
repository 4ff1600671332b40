"""Runs Jupyter's server until stdin ends, which it does when the test that started it ends."""

import os
import signal
import sys
import threading

from jupyter_server.serverapp import main


def end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=end_with_stdin, daemon=True).start()
main()
