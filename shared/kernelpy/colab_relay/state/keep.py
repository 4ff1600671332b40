"""Copies the variables that the iterations of one chunked run pass on to a file, and restores them.

The variables and the number of completed iterations belong together. One operation, between two
batches, reads or sets both."""

from __future__ import annotations

import os
import shutil
from typing import Any

from .. import registry
from ..live import TooMany, TooSlow, sharers
from ..safe import short
from .progress import Ticker
from .read import Reader
from .reasons import reason
from .restore import Restore
from .save import (
    UNFINISHED,
    new_folder,
    remove,
    remove_old_folders,
    save_names,
    user_names,
    values_of,
)
from .write import Bounds, OutOfTime, Saver

MAX_LISTED = 20  # variables that can't be kept


def keep(
    shell: Any, run: str, names: list[str], known: str, most: int, seconds: float
) -> dict[str, Any]:
    """Writes the named variables, and all that share objects with them, to a file. known is the
    digest of the file that was kept last; if the data is the same, no file is left."""
    entry = registry.runs().get(run)
    if entry is None or not registry.has_variables(entry):
        return {"missing": True}
    mine = dict(user_names(shell))
    try:
        together = sharers([name for name in names if name in mine], mine, seconds)
    except TooSlow:
        return {"slow": True}
    except TooMany:
        why = "they have too many objects to find those that belong together"
        return {"unkept": [{"name": "", "reason": why}]}
    remove_old_folders()
    folder = new_folder()
    try:
        values = [(name, mine[name]) for name in together]
        report = write(folder, shell, values, Bounds(most, seconds))
    except OutOfTime:
        report = {"slow": True}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    report["unchanged"] = report.get("manifest", {}).get("sha256") == known
    if report["unchanged"] or "path" not in report:
        shutil.rmtree(folder, ignore_errors=True)
    absent = [name for name in names if name not in mine]
    return dict(report, done=entry["done"], absent=absent)


def write(folder: str, shell: Any, values: list[tuple[str, Any]], bounds: Bounds) -> dict[str, Any]:
    unfinished, path = (os.path.join(folder, name) for name in (UNFINISHED, "data.state"))
    saver = Saver(unfinished, values_of(values), bounds)
    with Ticker(shell.display_pub.publish) as ticker:
        manifest = save_names(saver, shell, values, ticker, {})
    unkept = manifest["skipped"] + [{"name": "", "reason": w} for w in manifest["warnings"]]
    if unkept:
        return {"unkept": unkept[:MAX_LISTED]}
    os.rename(unfinished, path)
    return {"path": path, "manifest": manifest}


def restore_kept(
    shell: Any, path: str, size: int, digest: str, run: str, done: int, absent: list[str]
) -> dict[str, Any]:
    """Loads the file of keep into a kernel in which the setup code has run. Either all variables
    are restored or none."""
    try:
        entry = registry.runs().get(run)
        if entry is None or not entry["setup"] or not entry.get("hollow"):  # see registry.py
            return {"missing": True}
        reader = Reader(path, size, digest)
        try:
            with Ticker(shell.display_pub.publish) as ticker:
                work = Restore(reader, shell, ticker)
                work.run()
        finally:
            reader.close()
        if work.failed:
            work.namespace.undo()
            return work.report()
        for name in absent:
            shell.user_ns.pop(name, None)
        entry["done"] = done
        del entry["hollow"]
        return work.report()
    except Exception as e:
        return {"damaged": short(reason(e, "it was read"))}
    finally:
        remove(path)
