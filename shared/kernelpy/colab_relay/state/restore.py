"""Loads a data file into the kernel, after its digest was checked."""

from __future__ import annotations

import importlib
import linecache
import types
from typing import TYPE_CHECKING, Any

from .. import registry
from ..safe import class_name, short
from . import rebuild
from .libraries import python_version, version_of
from .read import Reader
from .reasons import reason

if TYPE_CHECKING:
    from .progress import Ticker
    from .read import Segment

MAX_LISTED = 5000
MISSING = object()


class Namespace:
    """The user's names, whose changes can be undone: an interrupted restore changes nothing.

    Each value is set as soon as it is loaded, because loading the next one may run code that needs
    it."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.before: dict[str, Any] = {}

    def set(self, name: str, value: Any) -> None:
        self.before.setdefault(name, self.names.get(name, MISSING))
        self.names[name] = value

    def undo(self) -> None:
        for name, value in self.before.items():
            if value is MISSING:
                self.names.pop(name, None)
            else:
                self.names[name] = value

    def overwritten(self) -> list[str]:
        """Names that existed before."""
        return sorted(name for name, value in self.before.items() if value is not MISSING)


class Restore:
    def __init__(self, reader: Reader, shell: Any, ticker: Ticker) -> None:
        self.ticker = ticker
        self.reader, self.namespace = reader, Namespace(shell.user_ns)
        self.restored: list[dict[str, str]] = []
        self.failed: list[dict[str, str]] = []
        self.modules: list[dict[str, str]] = []
        self.warnings: list[str] = []
        self.runs: dict[str, Any] = {}  # the record of chunked runs, see registry.py

    def run(self) -> None:
        index = self.reader.index
        try:
            for module in index["modules"]:
                self.import_module(module)
            segments = index["segments"]
            for number, segment in enumerate(segments, 1):
                if "name" in segment:
                    self.ticker.at(segment["name"], number, len(segments))
                self.load(segment)
        except BaseException:
            self.namespace.undo()
            raise
        self.compare(index)

    def restore_runs(self) -> None:
        restored = {variable["name"] for variable in self.restored}
        registry.restore(self.runs, restored, self.namespace.names)

    def import_module(self, module: dict[str, str]) -> None:
        try:
            found = importlib.import_module(module["module"])
        except Exception as e:
            self.fail(module["name"], e)
            return
        self.namespace.set(module["name"], found)
        self.modules.append({k: short(v) for k, v in module.items()})

    def fail(self, name: str, error: BaseException) -> None:
        self.failed.append({"name": short(name), "reason": reason(error, "loading it")})

    def load(self, segment: Segment) -> None:
        del rebuild.lost[:], rebuild.notes[:]
        name = segment.get("name")
        try:
            value = self.reader.load(segment)
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            if name is not None:
                self.fail(name, e)
            return
        for note in rebuild.notes:
            if note not in self.warnings:
                self.warnings.append(note)
        if name is not None:
            self.set_variable(name, value)
        elif segment.get("what") == "runs":
            self.runs = value
        elif segment.get("what") == "sources":
            restore_sources(value)

    def set_variable(self, name: str, value: Any) -> None:
        if type(value) is types.FunctionType and "colab_relay_lost" in vars(value):
            message = "its code was compiled by Python %s and can't run under %s: define it again"
            python = vars(value)["colab_relay_lost"]
            self.failed.append(
                {"name": short(name), "reason": message % (python, python_version())}
            )
            return
        self.namespace.set(name, value)
        self.restored.append({"name": short(name), "type": class_name(type(value))})
        if rebuild.lost:
            message = "%s was restored without the code of: %s"
            functions = ", ".join(short(f, 60) for f in sorted(set(rebuild.lost))[:20])
            self.warnings.append(message % (short(name), functions))

    def compare(self, index: dict[str, Any]) -> None:
        theirs, ours = index["python"], python_version()
        if theirs.split(".")[:2] != ours.split(".")[:2]:
            self.warnings.append("saved under Python %s, restored under %s" % (theirs, ours))
        for package, version in sorted(index["libraries"].items()):
            here = version_of(package)
            if here != version:
                here = "that has " + here if here else "that does not have it"
                self.warnings.append(
                    "saved with %s %s, restored into a kernel %s" % (package, version, here)
                )

    def report(self) -> dict[str, Any]:
        self.restored.sort(key=lambda variable: variable["name"])
        return {
            "variable_count": len(self.restored),
            "variables": self.restored[:MAX_LISTED],
            "modules": self.modules[:MAX_LISTED],
            "failed_count": len(self.failed),
            "failed": self.failed[:MAX_LISTED],
            "overwritten": [short(n) for n in self.namespace.overwritten()][:MAX_LISTED],
            "warnings": self.warnings[:200],
        }


def restore_sources(lines: dict[str, Any]) -> None:
    for name, entry in lines.items():
        linecache.cache.setdefault(name, entry)


def load(shell: Any, path: str, size: int, digest: str, ticker: Ticker) -> Restore:
    """Loads the variables of a file. Returns what came out, with the record of runs."""
    reader = Reader(path, size, digest)
    try:
        work = Restore(reader, shell, ticker)
        work.run()
        return work
    finally:
        reader.close()


def restore(shell: Any, path: str, size: int, digest: str, ticker: Ticker) -> dict[str, Any]:
    work = load(shell, path, size, digest, ticker)
    work.restore_runs()
    return work.report()
