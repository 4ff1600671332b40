"""Has a program import those modules anew whose files have changed, as a new Python would.

Nothing is imported here: what changed only leaves sys.modules, so that the program's own import
statements, if it has them, run the new code. So do the modules that use a changed one, because
they hold its old functions. Every other module keeps its state. importlib.reload would run code
that the program may not want, and leave the names that the new version no longer has.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import itertools
import os
import sys
import types
from typing import Any, Iterable

from . import imported
from .imported import Own
from .safe import class_module, class_name, module_dict, short

# What one search reads. The files of further modules are compared by size, time and inode alone:
# that misses a change in place within the clock's grain. Of further sources it is assumed that
# they use the changed modules.
MAX_BYTES = 64 << 20  # of files
MAX_PARSED = 4 << 20  # of sources that name a changed module
MAX_NAMED = 10  # modules that notes name
MAX_ITEMS = 1000  # of a container in a module that are looked at
ANEW = "imported anew because its file changed: "
GONE = "no longer loaded because its file is gone: "
DYNAMIC = ("import_module", "__import__")  # imports that no statement shows


class Search:
    """Finds the loaded modules of the working folder that are not those of their files."""

    def __init__(self) -> None:
        found = imported.finder()
        self.contents: dict[str, imported.Content] = found.contents
        self.roots = {imported.working_folder(), found.home} - {""}
        self.own: dict[str, Own] = {}
        self.changed: list[str] = []  # in files
        self.gone: list[str] = []  # their files
        self.compiled: list[str] = []  # changed, but cannot be imported anew
        self.read = self.parsed = 0  # bytes
        self.sources: dict[str, str] = {}

    def run(self) -> None:
        for name, module in imported.own_modules():
            place = os.path.realpath(module.file or module.folder)
            if any(imported.is_below(place, root) for root in self.roots):
                self.own[name] = module
                self.judge(name, module)

    def judge(self, name: str, module: Own) -> None:
        if not module.file:
            if module.spec is not None and imported.file_of(module.spec):
                self.changed.append(name)  # the package has got an __init__
            return
        before = self.contents.get(name)
        if before is not None and before[0] != module.file:
            before = None  # it was loaded by its path, from elsewhere
        if not os.path.lexists(module.file):
            if before is not None:
                self.gone.append(name)
            return
        if module.spec is not None and not module.importable:
            self.changed.append(name)  # such as helpers/__init__.py, which comes before helpers.py
            return
        now = self.content(module.file)
        if before is None and not is_newer_than_its_cache(module):
            self.contents[name] = now
        elif before is None or not imported.same(before, now):
            compiled = imported.is_compiled(module.names["__spec__"])
            (self.compiled if compiled else self.changed).append(name)

    def content(self, file: str) -> imported.Content:
        with contextlib.suppress(OSError):
            self.read += os.path.getsize(file)
        return imported.content(file, read=self.read <= MAX_BYTES)

    def with_users(self) -> set[str]:
        """The changed modules and all those that may hold something of them: what imports them,
        and the rest of a package whose __init__ is imported anew, because `import package.module`
        sets no name in a package that is newer than the module."""
        out = {*self.changed, *self.gone}
        while True:
            held = {id(self.own[name].module) for name in out}
            more = {
                name
                for name, module in self.own.items()
                if name not in out
                and name not in self.compiled
                and (name.rpartition(".")[0] in out or self.uses(name, module, out, held))
            }
            if not more:
                return out
            out |= more

    def uses(self, name: str, module: Own, out: set[str], held: set[int]) -> bool:
        source = self.source(name, module)
        dynamic = any(word in source for word in DYNAMIC)
        for key, value in list(module.names.items()):
            if home_of(value) in out or any(home_of(item) in out for item in items(value)):
                return True
            # Python sets a package's modules as its attributes, whether or not it uses them.
            if id(value) in held and (dynamic or f"{name}.{key}" not in out):
                return True
        if dynamic:  # a loader of plugins names none of them
            return True
        if not any(other.rpartition(".")[2] in source for other in out):
            return False
        self.parsed += len(source)
        if self.parsed > MAX_PARSED:
            return True
        try:
            return not out.isdisjoint(imports(source, str(module.names.get("__package__") or "")))
        except Exception:  # it was imported from other bytes than these
            return True

    def source(self, name: str, module: Own) -> str:
        if name not in self.sources:
            text = b""
            if module.file.endswith(".py"):
                with contextlib.suppress(OSError), open(module.file, "rb") as file:
                    text = file.read(imported.MAX_FILE)
            try:
                self.sources[name] = importlib.util.decode_source(text)
            except Exception:
                self.sources[name] = text.decode("utf-8", "replace")
        return self.sources[name]


def items(value: Any) -> list[Any]:
    """What a container holds, as a table of functions does. Of a large one, the first ones."""
    if type(value) is dict:
        value = dict.values(value)
    elif type(value) not in (list, tuple, set):
        return []
    with contextlib.suppress(RuntimeError):  # another thread changes it
        return list(itertools.islice(value, MAX_ITEMS))
    return []


def home_of(value: Any) -> str:
    """The module that defines a class or function."""
    if type(value) is types.FunctionType:
        return value.__module__ if type(value.__module__) is str else ""
    return class_module(value) if type.__subclasscheck__(type, type(value)) else ""


def imports(source: str, package: str) -> set[str]:
    """The modules that a source may import, wherever its statements stand."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(*(prefixes(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            found.update(prefixes(base), (base + "." + alias.name for alias in node.names))
    return found


def prefixes(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def is_newer_than_its_cache(module: Own) -> bool:
    """Whether a module's file changed after Python compiled it. For modules that were imported
    past the finder, such as by their paths, nothing else is known."""
    cached = module.names["__spec__"].cached
    try:
        return os.stat(module.file).st_ctime_ns > os.stat(cached).st_mtime_ns
    except (OSError, TypeError):
        return module.importable  # what is loaded by its path is loaded so again


def forget_changed() -> None:
    """Removes changed modules. A note tells of each when it is imported again."""
    with contextlib.suppress(Exception):  # of finders of the user's
        importlib.invalidate_caches()
    search = Search()
    search.run()
    out = search.with_users() if search.changed or search.gone else set()
    for name in out:
        remove(name, search.own[name])
    for name in search.changed:
        drop_cache(search.own[name])
    told = notes_finder()
    told.left = MAX_NAMED
    told.texts = {name: text for name, text in told.texts.items() if text == ANEW}
    told.texts.update(dict.fromkeys(search.changed, ANEW))
    told.texts.update(dict.fromkeys(search.gone, GONE))
    if search.compiled:  # they stay loaded, so nothing tells whether they are imported
        say(
            f"still the old version, because the kernel cannot load compiled modules anew: "
            f"{listed(search.compiled)}; to get the new one: colab-relay restart"
        )


class ColabRelayNotes:
    """A finder that finds nothing, but says of a changed module that it is imported.

    Releases share a kernel. The one that is there is used, whichever release it is of, so neither
    the name of its class nor the form of its texts may change."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # what is said, by the module's name
        self.left = MAX_NAMED

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        with contextlib.suppress(Exception):
            text = self.texts.pop(fullname, "")
            if text and self.left > 0:
                self.left -= 1
                more = "" if self.left else "; further ones are not named"
                say(text + short(fullname, 80) + more)


def notes_finder() -> Any:
    for found in sys.meta_path:
        if class_name(type(found)) == ColabRelayNotes.__name__:
            return found
    made = ColabRelayNotes()
    sys.meta_path.insert(0, made)
    return made


def say(note: str) -> None:
    print("colab-relay: " + note, file=sys.stderr, flush=True)


def remove(name: str, module: Own) -> None:
    if dict.get(sys.modules, name) is module.module:
        sys.modules.pop(name, None)
    parent, _, last = name.rpartition(".")
    holder = module_dict(parent)
    if holder.get(last) is module.module:  # `from package import module` would take it from there
        holder.pop(last, None)


def drop_cache(module: Own) -> None:
    """Python trusts a compiled file whose source has the same size and second of change."""
    with contextlib.suppress(Exception):
        os.remove(importlib.util.cache_from_source(module.file))


def listed(names: list[str]) -> str:
    shown = ", ".join(short(name, 80) for name in sorted(names)[:MAX_NAMED])
    rest = len(names) - MAX_NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown
