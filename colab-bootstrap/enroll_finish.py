"""Gives the sealed grant to the executor that waits for it, and shows its answer."""

import contextlib
import os

from enrollment import awaited, carried_out, path, read, report, running

GRANT = "@GRANT@"  # only the waiting process can open it
ENDED = "the executor that waited for this cell has ended: connect again"


def finish():
    """Hand over the grant unless that is done, and report the answer. Return why there is
    none, or ""."""
    if not running() and not read("error"):
        return ENDED
    if running() and not os.path.exists(path("grant")):
        with contextlib.suppress(FileNotFoundError):  # it just ends, and has removed the folder
            with open(path("grant.new"), "w") as file:
                file.write(GRANT)
            os.rename(path("grant.new"), path("grant"))
    answer = awaited("answer", running, 400)
    if answer:
        report(answer=answer)
    return ""


carried_out(finish)
