"""Loads the package into a kernel, under a name with the hash of its sources.

Packages of different releases, and a package of the user that is also called colab_relay, do not
conflict: modules of the package import each other by relative imports only.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Callable


class PackageLoader(importlib.abc.InspectLoader, importlib.abc.MetaPathFinder):
    """Imports the modules of the package from their sources. It is on sys.meta_path only while
    it imports, so that user code does not see it."""

    def __init__(self, name: str, sources: dict[str, str]) -> None:
        self.name = name
        self.sources: dict[str, tuple[str, str]] = {}
        for path, text in sources.items():
            parts = [name] + path[: -len(".py")].split("/")
            self.sources[".".join(parts).replace(".__init__", "")] = (path, text)
        self.loaded: dict[str, types.ModuleType] = {}

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.sources:
            return importlib.util.spec_from_loader(fullname, self)
        return None

    def is_package(self, fullname: str) -> bool:
        return self.sources[fullname][0].endswith("__init__.py")

    def get_source(self, fullname: str) -> str:
        return self.sources[fullname][1]

    def get_code(self, fullname: str) -> types.CodeType:
        path, text = self.sources[fullname]
        return compile(text, "<colab_relay/" + path + ">", "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        super().exec_module(module)
        if spec is not None:
            self.loaded[spec.name] = module

    def load(self, name: str) -> types.ModuleType:
        """The module of that name within the package."""
        sys.meta_path.insert(0, self)
        try:
            return importlib.import_module(name)
        finally:
            sys.meta_path.remove(self)

    def is_intact(self) -> bool:
        """Whether all modules are still the ones that were imported. Otherwise two copies of one
        module might be in use."""
        return all(sys.modules.get(name) is module for name, module in self.loaded.items())

    def function(self, path: str) -> Callable[..., Any]:
        """The function of that name, given with its module within the package."""
        module, _, name = path.rpartition(".")
        function: Callable[..., Any] = getattr(self.load(self.name + "." + module), name)
        return function


def install(name: str, sources: dict[str, str]) -> PackageLoader:
    """Imports the package again. Its PackageLoader becomes its attribute loader and is returned."""
    for loaded in [m for m in list(sys.modules) if m == name or m.startswith(name + ".")]:
        sys.modules.pop(loaded, None)
    loader = PackageLoader(name, sources)
    loader.load(name).__dict__["loader"] = loader
    return loader
