"""Saves the user's variables, modules, functions and classes into one file.

Saving runs the methods that pickling runs, such as __reduce__ and __getstate__. It never runs
__repr__.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import sys
import tempfile
import time
import types
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Tuple

from .. import registry
from ..safe import class_name, module_dict, short
from .libraries import python_version, version_of
from .reasons import reason
from .trial import try_loading
from .write import Bounds, OutOfTime, Saver

if TYPE_CHECKING:
    from .progress import Ticker

PREFIX = "colab-relay-state-"
# The file's name while it is being written. An executor that starts deletes such files of a killed
# kernel, in folders that have the executor's name.
UNFINISHED = "data.unfinished"
# A folder in memory, where a state is written if the temp folder's disk is full.
MEMORY = "/dev/shm"
MIN_FREE = 64 << 20  # bytes that a disk must have free to be used
MAX_AGE = 24 * 3600  # seconds, after which a folder of an earlier save is deleted
MAX_WARNINGS = 50
MAX_LISTED = 5000  # variables in the manifest, and as many skipped ones
RECURSION = 5000
IPYTHON_NAMES = re.compile(r"_+|_i{1,3}|_i?[0-9]+|_[iod]h|_exit_code|__.*")
# Variables with their names, and the record of runs.
What = Tuple[List[Tuple[str, Any]], Dict[str, Any]]
FIRST = (types.FunctionType, type)  # other objects may need them while they are loaded


def user_names(shell: Any) -> list[tuple[str, Any]]:
    """The user's names with their values, without IPython's own names. Names with a leading
    underscore are included, because functions use them."""
    hidden, nothing = shell.user_ns_hidden, object()
    mine = [
        (name, value)
        for name, value in dict.copy(shell.user_ns).items()
        if type(name) is str
        and value is not hidden.get(name, nothing)
        and not IPYTHON_NAMES.fullmatch(name)
    ]
    return sorted(mine, key=lambda pair: pair[0])


def is_module(value: Any) -> bool:
    return type.__subclasscheck__(types.ModuleType, type(value))


def modules_of(names: list[tuple[str, Any]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The names of modules that can be imported again, and those of other modules."""
    found, unimportable = [], []
    for name, value in names:
        module = types.ModuleType.__getattribute__(value, "__dict__").get("__name__")
        if type(module) is str and sys.modules.get(module) is value:
            found.append({"name": name, "module": module})
        else:
            unimportable.append(
                {"name": name, "reason": "a module created by code can't be imported again"}
            )
    return found, unimportable


def kernel_objects(shell: Any) -> dict[str, Any]:
    """The objects that every kernel has, by their names in rebuild.kernel_object; None for that of
    a library that is not imported. The methods of the generators are what `from random import
    random` and `rand = np.random.rand` bind."""
    return {
        "random": module_dict("random").get("_inst"),
        "numpy.random": module_dict("numpy.random.mtrand").get("_rand"),
        "namespace": shell.user_ns,
        "module": sys.modules["__main__"],
        "shell": shell,
        "environ": os.environ,
        "stdout": sys.stdout,
        "stderr": sys.stderr,
        "stdin": sys.stdin,
    }


@contextlib.contextmanager
def deeply() -> Iterator[None]:
    """Lets pickling go deep into nested objects."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def remove_old_folders() -> None:
    for place in places():
        for folder in glob.glob(os.path.join(glob.escape(place), PREFIX + "*")):
            try:
                if time.time() - os.lstat(folder).st_mtime > MAX_AGE:
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                pass


def write_all(
    saver: Saver, shell: Any, values: list[tuple[str, Any]], ticker: Ticker, runs: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    saved, skipped = [], []
    saver.alias({name: obj for name, obj in kernel_objects(shell).items() if obj is not None})
    values = sorted(values, key=lambda pair: not issubclass(type(pair[1]), FIRST))
    for number, (name, value) in enumerate(values, 1):
        ticker.at(name, number, len(values))
        if value is shell.user_ns:
            skipped.append({"name": short(name), "reason": "it is the namespace itself"})
            continue
        try:
            size = saver.add({"name": name}, value)
        except (KeyboardInterrupt, OutOfTime):
            raise
        except BaseException as e:  # the user's __reduce__ may raise anything
            skipped.append({"name": short(name), "reason": reason(e, saver.doing())})
            continue
        saved.append({"name": short(name), "type": class_name(type(value)), "bytes": size})
    if runs:
        saver.add({"what": "runs"}, runs)
    lines = sources_of(saver.sources)
    if lines:
        saver.add({"what": "sources"}, lines)
    return saved, skipped


def sources_of(filenames: Iterable[str]) -> dict[str, Any]:
    """The lines of the cells that define functions, for tracebacks and inspect."""
    cache = module_dict("linecache").get("cache", {})
    entries = {name: cache.get(name) for name in filenames}
    return {
        name: (entry[0], None, list(entry[2]), entry[3])  # None: there is no file to check
        for name, entry in entries.items()
        if type(entry) is tuple and len(entry) == 4 and not os.path.exists(name)
    }


def save_names(
    path: str, shell: Any, what: What, ticker: Ticker, bounds: Bounds | None
) -> dict[str, Any]:
    """Writes variables and what belongs to them. Returns the contents for the manifest."""
    names, runs = what
    modules, unimportable = modules_of([pair for pair in names if is_module(pair[1])])
    values = [pair for pair in names if not is_module(pair[1])]
    saver = Saver(path, [value for _, value in values], bounds)
    with deeply():
        saved, skipped = write_all(saver, shell, values, ticker, runs)
    for module in modules:
        saver.uses(module["module"])
    libraries = {p: version_of(p) for p in sorted(saver.packages | {saver.kind})}
    libraries = {p: v for p, v in libraries.items() if v}
    index: dict[str, Any] = {"python": python_version(), "pickler": saver.kind, "modules": modules}
    index["libraries"] = libraries
    size, digest = saver.finish(index)
    wrong, untried = try_loading(saver.out.path, saver.for_trial, saver.known)
    saved.sort(key=lambda variable: variable["name"])
    return {
        "python": python_version(),
        "pickler": saver.kind,
        "libraries": libraries,
        "variable_count": len(saved),
        "variables": saved[:MAX_LISTED],
        "modules": [{k: short(v) for k, v in m.items()} for m in modules][:MAX_LISTED],
        "skipped": (skipped + unimportable)[:MAX_LISTED],
        "skipped_count": len(skipped + unimportable),
        "warnings": trial_warnings(wrong, untried, saver.without_graph),
        "bytes": size,
        "sha256": digest,
    }


def trial_warnings(wrong: dict[str, str], untried: int, without_graph: list[str]) -> list[str]:
    """The warnings about variables that were saved and may not load, or not with all they had."""
    message = '"%s" was saved, but loading it was tried and failed: %s'
    lines = [message % (short(name), why) for name, why in sorted(wrong.items())]
    if len(lines) > MAX_WARNINGS:
        lines[MAX_WARNINGS:] = ["loading failed for %d more" % (len(lines) - MAX_WARNINGS)]
    if without_graph:
        message = 'saved without the computation that made them, so backward() stops there: "%s"'
        lines.append(message % short('", "'.join(without_graph)))
    if untried:
        lines.append(
            "loading was not tried for %d of the variables whose classes may fail to load: "
            "they are large, or there was not enough time or memory" % untried
        )
    return lines


def places() -> list[str]:
    """The folders in which a state may be written, the usual one first.

    They are those from which the executor serves files. tempfile.gettempdir() and TMPDIR may be
    others: Python chooses another folder if the disk is full, and code may have set TMPDIR.
    """
    temp = os.environ.get("COLAB_RELAY_TEMP") or os.environ.get("TMPDIR") or "/tmp"
    candidates = [os.path.abspath(temp), MEMORY]
    return [place for place in candidates if os.path.isdir(place) and os.access(place, os.W_OK)]


def free_bytes(place: str) -> int:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return 0


def best_place() -> str | None:
    """The temp folder or, if its disk is full, the folder with the most space."""
    found = places()
    if not found:
        return None
    return found[0] if free_bytes(found[0]) >= MIN_FREE else max(found, key=free_bytes)


def new_folder(label: str = "") -> str:
    """A new folder for a state. Its name includes the executor's, so that the executor finds it."""
    owner = os.environ.get("COLAB_RELAY_OWNER", "")
    owner = owner + "-" if re.fullmatch("[0-9a-f]+", owner) else ""
    return tempfile.mkdtemp(prefix=PREFIX + owner + label, dir=best_place())


def save(shell: Any, ticker: Ticker) -> dict[str, Any]:
    """Saves the variables. Returns the path of the file and its contents for the manifest."""
    remove_old_folders()
    what = user_names(shell), registry.audited()
    found = write_file(shell, what, ticker)
    found["manifest"]["runs"] = registry.complete_runs()
    return found


def write_file(
    shell: Any, what: What, ticker: Ticker, bounds: Bounds | None = None, label: str = ""
) -> dict[str, Any]:
    """Writes variables, and the record of runs that belongs to them, into a new folder."""
    folder = new_folder(label)
    unfinished, path = (os.path.join(folder, name) for name in (UNFINISHED, "data.state"))
    try:
        manifest = save_names(unfinished, shell, what, ticker, bounds)
        os.rename(unfinished, path)
        return {"path": path, "manifest": manifest}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def remove(path: str) -> None:
    """Deletes the folder of a state's file, and no other folder."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(folder).startswith(PREFIX) and os.path.dirname(folder) in places():
        shutil.rmtree(folder, ignore_errors=True)
