"""Keeps what one chunked run carries from iteration to iteration, and brings it back.

Variables and the number of iterations they hold belong together: both are taken, or set, in
one operation, between two batches."""

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
    remove_left_behind,
    save_names,
    user_names,
    values_of,
)
from .write import Bounds, Saver, TooLong

MOST_TOLD = 20  # variables that can't be kept


def keep(
    shell: Any, run: str, names: list[str], known: str, most: int, seconds: float
) -> dict[str, Any]:
    """Writes the names, and all that share objects with them, to a file. known is the digest
    of what was kept last; where nothing changed there is no file."""
    entry = registry.runs().get(run)
    if entry is None or not entry["setup"] or entry.get("hollow"):
        return {"missing": True}
    mine = dict(user_names(shell))
    try:
        together = sharers([name for name in names if name in mine], mine, seconds)
    except TooSlow:
        return {"slow": True}
    except TooMany:
        return {"unkept": [{"name": "", "reason": "too many objects to tell which belong to it"}]}
    remove_left_behind()
    folder = new_folder()
    try:
        values = [(name, mine[name]) for name in together]
        told = write(folder, shell, values, Bounds(most, seconds))
    except TooLong:
        told = {"slow": True}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    told["unchanged"] = told.get("manifest", {}).get("sha256") == known
    if told["unchanged"] or "path" not in told:
        shutil.rmtree(folder, ignore_errors=True)
    absent = [name for name in names if name not in mine]
    return dict(told, done=entry["done"], absent=absent)


def write(folder: str, shell: Any, values: list[tuple[str, Any]], bounds: Bounds) -> dict[str, Any]:
    unfinished, path = (os.path.join(folder, name) for name in (UNFINISHED, "data.state"))
    saver = Saver(unfinished, values_of(values), bounds)
    with Ticker(shell.display_pub.publish) as ticker:
        manifest = save_names(saver, shell, values, ticker, {})
    unkept = manifest["skipped"] + [{"name": "", "reason": w} for w in manifest["warnings"]]
    if unkept:
        return {"unkept": unkept[:MOST_TOLD]}
    os.rename(unfinished, path)
    return {"path": path, "manifest": manifest}


def bring_back(
    shell: Any, path: str, size: int, digest: str, run: str, done: int, absent: list[str]
) -> dict[str, Any]:
    """Loads what keep wrote into a kernel where the set-up has run, all of it or nothing."""
    try:
        entry = registry.runs().get(run)
        if entry is None or not entry["setup"] or not entry.get("hollow"):
            return {"missing": True}
        reader = Reader(path, size, digest)
        try:
            with Ticker(shell.display_pub.publish) as ticker:
                work = Restore(reader, shell, ticker)
                work.run()
        finally:
            reader.close()
        if work.failed:
            work.namespace.back()
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
