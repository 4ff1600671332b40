"""Runs the code on stdin, as a Jupyter kernel would. An exception's name and text are the last
line of stderr, as a JSON list, and the exit code is 97."""

import json
import sys

try:
    exec(compile(sys.stdin.read(), "<cell>", "exec"), {"__name__": "__main__"})
except BaseException as error:
    sys.stdout.flush()
    sys.stderr.write("\n" + json.dumps([type(error).__name__, str(error)]))
    sys.exit(97)
