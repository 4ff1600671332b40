"""Remembers from which content of its file each module was imported.

Nothing in a module tells that, and the time of a file does not: a file may change twice within the
clock's grain, and stay as long. So a finder that finds nothing stands first in sys.meta_path, and
notes a file's digest just before Python imports it.

Releases share a kernel. The finder that is there is used, whichever release it is of, so neither
the name of its class nor the form of its contents may change.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.machinery
import os
import sys
import sysconfig
import zipimport
from typing import Any, Iterable, Iterator, NamedTuple, Optional, Tuple

from .safe import base_of, class_name, module_dict

# A module's file, the digest of its content ("" if it was not read), and what identifies the
# file's state without reading it ("" if nothing is known: any content counts as another one).
Content = Tuple[str, str, str]

MAX_FILE = 16 << 20  # bytes of a file; of a larger one only the state is compared
INSTALLED = ("site-packages", "dist-packages")
# The packages that run the kernel are never imported anew, even if they lie in the working folder.
MACHINERY = frozenset(
    "IPython comm debugpy ipykernel jupyter_client jupyter_core tornado traitlets zmq".split()
)


class ColabRelayImports:
    """The finder. contents is what it noted, by the module's name; home is the folder that the
    kernel worked in when it was made."""

    def __init__(self) -> None:
        self.contents: dict[str, Content] = {}
        self.home = working_folder()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        with contextlib.suppress(Exception):
            self.note(fullname, sys.path if path is None else path)

    def note(self, name: str, path: Iterable[Any]) -> None:
        before = self.contents.pop(name, None)
        entries = [entry for entry in path if type(entry) is str and not is_installed(entry)]
        spec = importlib.machinery.PathFinder.find_spec(name, entries) if entries else None
        file = file_of(spec)
        if not file:
            return
        now = content(file)
        if name in sys.modules and not (before and same(before, now)):
            # After importlib.reload of a changed file a module has names of both versions, or only
            # some of the new one.
            now = unknown(file)
        self.contents[name] = now


def finder(fresh: bool = False) -> Any:
    """The kernel's finder; the kernel gets one if it has none. fresh says that the kernel has just
    started: what startup files have imported is as in its file."""
    for found in sys.meta_path:
        if class_name(type(found)) == ColabRelayImports.__name__:
            return found
    made: Any = ColabRelayImports()
    for name, module in own_modules():
        if module.file and module.importable:
            made.contents[name] = content(module.file) if fresh else unknown(module.file)
    sys.meta_path.insert(0, made)
    return made


def working_folder() -> str:
    """Empty if the folder has been deleted: Python runs programs there too."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def content(file: str, read: bool = True) -> Content:
    """The content of a file as it is now."""
    try:
        state = os.stat(file)
        digest = ""
        if read and state.st_size <= MAX_FILE:
            with open(file, "rb") as opened:
                digest = hashlib.sha256(opened.read(MAX_FILE + 1)).hexdigest()
    except OSError:
        return unknown(file)
    parts = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return file, digest, " ".join(map(str, parts))


def unknown(file: str) -> Content:
    return file, "", ""


def same(one: Content, other: Content) -> bool:
    if one[1] and other[1]:
        return one[:2] == other[:2]
    return bool(one[2]) and (one[0], one[2]) == (other[0], other[2])


class Own(NamedTuple):
    """A loaded module that is not an installed one."""

    module: Any
    names: dict[str, Any]  # its variables
    file: str  # empty for a package without an __init__
    folder: str  # where its file, or the package's folder, lies
    spec: Any  # what Python would import under its name from that folder now; None for nothing

    @property
    def importable(self) -> bool:
        """Whether its name leads to its file."""
        return self.spec is not None and file_of(self.spec) == self.file


def own_modules() -> Iterator[tuple[str, Own]]:
    for name in list(sys.modules):
        names = module_dict(name) if type(name) is str else {}
        if not names or name == "__main__" or name.partition(".")[0] in MACHINERY:
            continue
        spec = names.get("__spec__")
        if type(spec) is importlib.machinery.ModuleSpec and getattr(spec, "_initializing", False):
            continue  # another thread imports it now
        place = place_of(names)
        if place is None or is_installed(place[1]):
            continue
        found = None
        with contextlib.suppress(Exception):  # of hooks of the user's
            found = importlib.machinery.PathFinder.find_spec(name, [place[1]])
        yield name, Own(dict.get(sys.modules, name), names, *place, found)


def place_of(names: dict[str, Any]) -> Optional[tuple[str, str]]:
    """A module's file and the folder that Python found it in."""
    spec = names.get("__spec__")
    if type(spec) is not importlib.machinery.ModuleSpec:
        return None
    file, package = file_of(spec), spec.submodule_search_locations is not None
    if not file and package and spec.origin is None:
        portions = [part for part in spec.submodule_search_locations or () if type(part) is str]
        return ("", os.path.dirname(portions[0])) if portions else None
    if not os.path.isabs(file):
        return None
    loader: Any = spec.loader
    if type(loader) is zipimport.zipimporter:
        return file, os.path.join(file, loader.prefix).rstrip(os.sep)
    folder = os.path.dirname(file)
    return file, os.path.dirname(folder) if package else folder


def file_of(spec: Any) -> str:
    """The file whose content a module is: for one in an archive, the archive."""
    if spec is None or not spec.has_location or type(spec.origin) is not str:
        return ""
    if type(spec.loader) is zipimport.zipimporter:
        return str(spec.loader.archive)
    return spec.origin


def is_compiled(spec: Any) -> bool:
    loader = type(getattr(spec, "loader", None))
    return base_of(loader, (importlib.machinery.ExtensionFileLoader,)) is not None


def is_installed(folder: str) -> bool:
    """Whether a folder of sys.path or of a package belongs to Python or to installed packages."""
    return os.path.isabs(folder) and is_installed_absolute(folder)


@functools.lru_cache(maxsize=10_000)
def is_installed_absolute(folder: str) -> bool:
    real = os.path.realpath(folder)
    if any(part in INSTALLED for part in real.split(os.sep)):
        return True
    return any(is_below(real, library) for library in libraries())


@functools.lru_cache(maxsize=1)
def libraries() -> list[str]:
    """The folders of Python's own modules."""
    paths = sysconfig.get_paths()
    return [os.path.realpath(paths[key]) for key in ("stdlib", "platstdlib") if paths.get(key)]


def is_below(path: str, folder: str) -> bool:
    return (path + os.sep).startswith(folder.rstrip(os.sep) + os.sep)
