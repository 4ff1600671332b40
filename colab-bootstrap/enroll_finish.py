"""Gives the sealed grant to the executor that waits for it, and shows its answer."""

import os

from enrollment import awaited, path, read, report, running, stop

GRANT = "@GRANT@"  # only the waiting process can open it
ENDED = "the executor that waited for this cell has ended: connect again"


def finish():
    """Hand over the grant unless that is done, and report the answer. Return why there is
    none, or ""."""
    if not running() and not read("error"):
        return ENDED
    if running() and not os.path.exists(path("grant")):
        with open(path("grant.new"), "w") as file:
            file.write(GRANT)
        os.rename(path("grant.new"), path("grant"))
    answer = awaited("answer", running, 400)
    if answer:
        report(answer=answer)
    return ""


try:
    trouble = finish()
except KeyboardInterrupt:
    trouble = "the cell was stopped"
    stop()
except Exception as error:
    trouble = f"{type(error).__name__}: {error}"
if trouble:
    report(error=trouble[:1000])
