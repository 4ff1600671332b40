"""Saves the user's variables, modules, functions and classes of a live kernel into one file.

Saving runs what pickling runs: __reduce__, __getstate__ and their like. No __repr__.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
import tempfile
import time
import types
from typing import TYPE_CHECKING, Any, Iterable

from .. import registry
from ..safe import class_name, module_dict, short
from .libraries import python_version, version_of
from .reasons import reason
from .rehearse import rehearse
from .write import Saver, TooLong

if TYPE_CHECKING:
    from .progress import Ticker

PREFIX = "colab-relay-state-"
# The file while it is being written: an executor that starts removes what a killed kernel
# left under this name, in folders that are named after it.
UNFINISHED = "data.unfinished"
# Where a state is written when the temp folder's disk is full: in memory.
MEMORY = "/dev/shm"
LEAST_ROOM = 64 << 20  # bytes that a disk must have free to be used
LEFT_BEHIND = 24 * 3600  # seconds, after which a folder of an earlier save is removed
MOST_DOUBTS = 50
MOST_TOLD = 5000  # variables, and as many skipped ones, that the manifest lists
RECURSION = 5000
IPYTHONS_OWN = re.compile(r"_+|_i{1,3}|_i?[0-9]+|_[iod]h|_exit_code|__.*")
FIRST = (types.FunctionType, type)  # others may need them while they are put together


def user_names(shell: Any) -> list[tuple[str, Any]]:
    """What the user made and may need again: not IPython's own names. Those that begin with
    an underscore are in, functions use them."""
    hidden, nothing = shell.user_ns_hidden, object()
    mine = [
        (name, value)
        for name, value in dict.copy(shell.user_ns).items()
        if type(name) is str
        and value is not hidden.get(name, nothing)
        and not IPYTHONS_OWN.fullmatch(name)
    ]
    return sorted(mine, key=lambda pair: pair[0])


def is_module(value: Any) -> bool:
    return type.__subclasscheck__(types.ModuleType, type(value))


def modules_of(names: list[tuple[str, Any]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The names bound to modules: those that can be imported again, and the others."""
    found, odd = [], []
    for name, value in names:
        module = types.ModuleType.__getattribute__(value, "__dict__").get("__name__")
        if type(module) is str and sys.modules.get(module) is value:
            found.append({"name": name, "module": module})
        else:
            odd.append({"name": name, "reason": "a module made by hand can't be imported again"})
    return found, odd


def kernel_objects(shell: Any) -> dict[str, Any]:
    """What the restoring kernel has its own of, by the names of rebuild.kernel_object."""
    return {
        "namespace": shell.user_ns,
        "module": sys.modules["__main__"],
        "shell": shell,
        "environ": os.environ,
        "stdout": sys.stdout,
        "stderr": sys.stderr,
        "stdin": sys.stdin,
    }


def remove_left_behind() -> None:
    for place in places():
        for folder in glob.glob(os.path.join(glob.escape(place), PREFIX + "*")):
            try:
                if time.time() - os.lstat(folder).st_mtime > LEFT_BEHIND:
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                pass


def write_all(
    saver: Saver, shell: Any, values: list[tuple[str, Any]], ticker: Ticker, runs: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    kept, skipped = [], []
    saver.alias(kernel_objects(shell))
    values = sorted(values, key=lambda pair: not issubclass(type(pair[1]), FIRST))
    for number, (name, value) in enumerate(values, 1):
        ticker.at(name, number, len(values))
        if value is shell.user_ns:
            skipped.append({"name": short(name), "reason": "it is the namespace itself"})
            continue
        try:
            size = saver.add({"name": name}, value)
        except (KeyboardInterrupt, TooLong):
            raise
        except BaseException as e:  # the user's __reduce__ may raise anything
            skipped.append({"name": short(name), "reason": reason(e, saver.doing())})
            continue
        kept.append({"name": short(name), "type": class_name(type(value)), "bytes": size})
    if runs:
        saver.add({"what": "runs"}, runs)
    lines = sources_of(saver.sources)
    if lines:
        saver.add({"what": "sources"}, lines)
    return kept, skipped


def sources_of(filenames: Iterable[str]) -> dict[str, Any]:
    """The lines of the cells that functions came from, for tracebacks and inspect."""
    cache = module_dict("linecache").get("cache", {})
    entries = {name: cache.get(name) for name in filenames}
    return {
        name: (entry[0], None, list(entry[2]), entry[3])  # None: there is no file to look at
        for name, entry in entries.items()
        if type(entry) is tuple and len(entry) == 4 and not os.path.exists(name)
    }


def save_to(path: str, shell: Any, ticker: Ticker) -> dict[str, Any]:
    names, runs = user_names(shell), registry.runs()
    saver = Saver(path, values_of(names))
    return dict(save_names(saver, shell, names, ticker, runs), runs=registry.complete_runs())


def values_of(names: list[tuple[str, Any]]) -> list[Any]:
    return [value for _, value in names if not is_module(value)]


def save_names(
    saver: Saver, shell: Any, names: list[tuple[str, Any]], ticker: Ticker, runs: dict[str, Any]
) -> dict[str, Any]:
    """Writes variables and what belongs to them, and gives the manifest's part of it."""
    modules, odd = modules_of([pair for pair in names if is_module(pair[1])])
    values = [pair for pair in names if not is_module(pair[1])]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    try:
        kept, skipped = write_all(saver, shell, values, ticker, runs)
    finally:
        sys.setrecursionlimit(limit)
    for module in modules:
        saver.uses(module["module"])
    libraries = {p: version_of(p) for p in sorted(saver.packages | {saver.kind})}
    libraries = {p: v for p, v in libraries.items() if v}
    index: dict[str, Any] = {"python": python_version(), "pickler": saver.kind, "modules": modules}
    index["libraries"] = libraries
    size, digest = saver.finish(index)
    wrong, untried = rehearse(saver.out.path, saver.doubtful, saver.known)
    kept.sort(key=lambda variable: variable["name"])
    return {
        "python": python_version(),
        "pickler": saver.kind,
        "libraries": libraries,
        "variable_count": len(kept),
        "variables": kept[:MOST_TOLD],
        "modules": [{k: short(v) for k, v in m.items()} for m in modules][:MOST_TOLD],
        "skipped": (skipped + odd)[:MOST_TOLD],
        "skipped_count": len(skipped + odd),
        "warnings": doubts(wrong, untried),
        "bytes": size,
        "sha256": digest,
    }


def doubts(wrong: dict[str, str], untried: int) -> list[str]:
    """What is told of variables that are in the file and may not come out of it again."""
    told = '"%s" was saved, but loading it was tried and failed: %s'
    lines = [told % (short(name), why) for name, why in sorted(wrong.items())]
    if len(lines) > MOST_DOUBTS:
        lines[MOST_DOUBTS:] = ["so did %d more" % (len(lines) - MOST_DOUBTS)]
    if untried:
        lines.append(
            "%d variables with objects of classes of their own were not tried: "
            "they are large, or there was no time or memory" % untried
        )
    return lines


def places() -> list[str]:
    """The folders that a state may be in, the usual one first."""
    found = []
    try:
        found.append(os.path.abspath(tempfile.gettempdir()))
    except OSError:
        pass  # it is looked for by writing to it, which a full disk refuses
    if os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK):
        found.append(MEMORY)
    return found


def room(place: str) -> int:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return 0


def best_place() -> str | None:
    """The temp folder, or another one with more room where its disk is full."""
    found = places()
    if not found:
        return None
    return found[0] if room(found[0]) >= LEAST_ROOM else max(found, key=room)


def new_folder() -> str:
    """An empty folder for a state, whose name tells which executor's kernel made it."""
    owner = os.environ.get("COLAB_RELAY_OWNER", "")
    owner = owner + "-" if re.fullmatch("[0-9a-f]+", owner) else ""
    return tempfile.mkdtemp(prefix=PREFIX + owner, dir=best_place())


def save(shell: Any, ticker: Ticker) -> dict[str, Any]:
    """The manifest, as far as the kernel knows it, and where the file is."""
    remove_left_behind()
    folder = new_folder()
    unfinished, path = (os.path.join(folder, name) for name in (UNFINISHED, "data.state"))
    try:
        manifest = save_to(unfinished, shell, ticker)
        os.rename(unfinished, path)
        return {"path": path, "manifest": manifest}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def remove(path: str) -> None:
    """Removes what save, or an upload for restore, left; nothing else."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(folder).startswith(PREFIX) and os.path.dirname(folder) in places():
        shutil.rmtree(folder, ignore_errors=True)
