"""Copies of a run's variables, as files on the VM's disk, and loading them in a new kernel.

A copy is a kernel state of these variables with the run's entry in the registry: variables,
random states and the number of completed iterations belong together. It has what is carried, and
what shares objects with that; and, if they are small, the values that the setup made, because it
need not make the same ones again."""

from __future__ import annotations

import glob
import hashlib
import math
import os
import shutil
from time import monotonic
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..registry import Entry
from ..safe import short
from ..state import rebuild
from ..state.progress import Ticker
from ..state.reasons import reason
from ..state.restore import load as load_file
from ..state.save import PREFIX, places, remove, remove_old_folders, write_file
from ..state.write import Bounds, OutOfTime
from .digest import Look

FIRST_SECONDS = 2.0  # for a copy, whatever the share
SETUP_BYTES = 8 << 20  # of a copy with the values of the setup
MAX_REASONS = 20

# A copy, and what can't be kept.
Kept = Tuple[Optional[Dict[str, Any]], List[Dict[str, str]]]


class Copies:
    def __init__(self, shell: Any, key: str) -> None:
        self.shell, self.key = shell, key
        self.newest = ""  # its path
        self.began = -math.inf  # the last copy
        self.spent = self.last = 0.0  # seconds on all copies, and on the last
        self.without_setup = False
        self.loaded: set[str] = set()  # variables that were loaded from a copy

    def keep(self, entry: Entry, look: Look, bounds: dict[str, Any], worked: float) -> Kept:
        """Writes a copy, if one is due."""
        now, left = monotonic(), bounds["share"] * worked - self.spent
        if not bounds["bytes"] or now - self.began < bounds["every"] or self.last > left:
            return None, []
        self.began = now
        remove_old_folders()
        try:
            with rebuild.importable():
                return self.write(entry, look, bounds["bytes"], max(FIRST_SECONDS, left))
        except OutOfTime:
            why = "writing a copy takes longer than its share of the time"
        except OSError as e:
            why = reason(e, "writing a copy")
        finally:
            self.last = monotonic() - now
            self.spent += self.last
        return None, [{"name": "", "reason": why}]

    def write(self, entry: Entry, look: Look, most: int, seconds: float) -> Kept:
        bounds = Bounds(min(most, SETUP_BYTES), seconds)
        needed = look.together(entry["carried"])
        if not self.without_setup and len(needed) < len(look.digests):
            found = self.attempt(entry, sorted(look.digests), needed, bounds)
            if found[0]:
                return found
            self.without_setup = True
        bounds.most = most
        return self.attempt(entry, needed, needed, bounds)

    def attempt(self, entry: Entry, names: list[str], needed: list[str], bounds: Bounds) -> Kept:
        """Writes a copy that has all that is needed, or none."""
        values = [(name, self.shell.user_ns[name]) for name in names]
        what = values, {self.key: entry}
        with Ticker(self.shell.display_pub.publish) as ticker:
            found = write_file(self.shell, what, ticker, bounds, label_of(self.key))
        path, manifest = found["path"], found["manifest"]
        missing = [{"name": "", "reason": why} for why in manifest["warnings"]]
        missing += [skipped for skipped in manifest["skipped"] if skipped["name"] in needed]
        if missing:
            remove(path)
            return None, missing[:MAX_REASONS]
        delete_copies(self.key, path, self.newest)  # the relay may be fetching the last one
        self.newest = path
        copy = {field: manifest[field] for field in ("bytes", "sha256")}
        return dict(copy, path=path, done=entry["done"]), []

    def adopt(self, copy: dict[str, Any] | None) -> None:
        """Keeps the copy that the relay names, if it names one, and no other."""
        self.loaded.clear()
        if copy:
            delete_copies(self.key, copy["path"])
            self.newest = copy["path"]

    def load(
        self, copy: dict[str, Any], changed: Iterable[str] = (), needed: Iterable[str] = ()
    ) -> tuple[Entry, set[str]]:
        """Loads the variables of a copy into the namespace, all or none, and returns the run's
        entry in it. Of the variables that were changed since, it deletes those that did not exist
        then, and returns those that are not in the copy. An error says why that failed, as it
        does if one of those is needed."""
        with rebuild.importable(), Ticker(self.shell.display_pub.publish) as ticker:
            work = load_file(self.shell, copy["path"], copy["bytes"], copy["sha256"], ticker)
        entry, loaded = work.runs.get(self.key), {v["name"] for v in work.restored}
        failed = ["%s: %s" % (f["name"], f["reason"]) for f in work.failed]
        if type(entry) is not dict or type(entry.get("done")) is not int:
            failed.append("the file is not a copy of this run")
            entry = {}
        then = set(entry.get("names") or ())
        absent, missing = set(entry.get("absent") or ()), set(changed) - loaded
        failed += ["%s: the copy lacks it" % n for n in sorted(then & missing & set(needed))]
        if failed:
            work.namespace.undo()
            raise ValueError(short("; ".join(failed)))
        for name in absent | (missing - then):
            self.shell.user_ns.pop(name, None)
        self.loaded = loaded
        return entry, missing & then - absent


def label_of(key: str) -> str:
    return "run%s-" % hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]


def delete_copies(key: str, *but: str) -> None:
    """Deletes all copies of a run, also those of an earlier kernel, but for some."""
    kept = [os.path.dirname(os.path.abspath(path)) for path in but]
    for place in places():
        pattern = os.path.join(glob.escape(place), PREFIX + "*" + label_of(key) + "*")
        for folder in set(glob.glob(pattern)).difference(kept):
            shutil.rmtree(folder, ignore_errors=True)
