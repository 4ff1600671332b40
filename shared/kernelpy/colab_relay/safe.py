"""Ways to look at objects and classes that run none of their code.

Types are taken by type(x) and compared with "is", never looked up in a dict, since a
metaclass may define __hash__ and __eq__; attributes of classes are read through type's own
descriptors; modules are asked through their dict.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Iterable

MAX_SHORT = 200  # characters


def is_any(cls: type, classes: Iterable[type]) -> bool:
    return any(cls is c for c in classes)


def base_of(cls: type, classes: Iterable[Any]) -> Any:
    """The first of classes that cls is or derives from; its unbound methods are safe."""
    for c in classes:
        if type.__subclasscheck__(c, cls):
            return c
    return None


def text(value: str) -> str:
    """An exact str that is valid UTF-8, of a str or of anything derived from it."""
    return str.__str__(value).encode("utf-8", "backslashreplace").decode("utf-8")


def short(value: str, most: int = MAX_SHORT) -> str:
    """The same, cut to at most that many characters."""
    value = text(value)
    return value if len(value) <= most else value[: most - 1] + "…"


def class_name(cls: type) -> str:
    return short(type.__dict__["__name__"].__get__(cls))


def class_module(cls: type) -> str:
    """The name of the module that defines cls, "" if it has none."""
    module = type.__dict__["__module__"].__get__(cls)
    return module if type(module) is str else ""


def class_title(cls: type) -> str:
    module = text(class_module(cls)) or "?"
    name = text(type.__dict__["__qualname__"].__get__(cls))
    return name if module == "builtins" else module + "." + name


def module_dict(name: str) -> dict[str, Any]:
    """The names in a module that is imported already, or none. Reading a missing
    attribute instead would run the module's __getattr__, which may import."""
    module = dict.get(sys.modules, name)
    if type.__subclasscheck__(types.ModuleType, type(module)):
        return object.__getattribute__(module, "__dict__")
    return {}


def known(module: str, *names: str) -> list[Any]:
    """Those of a module's classes, where it is imported."""
    found = module_dict(module)
    return [found[name] for name in names if type.__subclasscheck__(type, type(found.get(name)))]


def belongs_to(cls: type, package: str) -> bool:
    """Whether cls is what the package itself has under that name."""
    module = class_module(cls)
    return (module + ".").startswith(package + ".") and module_dict(module).get(
        class_name(cls)
    ) is cls


def is_library_array(array: Any) -> bool:
    """An array of numpy's or pandas' own. Even the length of another is its author's code."""
    return is_any(type(array), known("numpy", "ndarray")) or belongs_to(type(array), "pandas")


def is_library_index(index: Any) -> bool:
    cls = type(index)
    return belongs_to(cls, "pandas") and (
        not is_any(cls, known("pandas", "Index")) or is_library_array(index._data)
    )


def is_library_frame(frame: Any) -> bool:
    """A DataFrame or Series, its class taken for granted, made of library arrays only."""
    return all(is_library_index(axis) for axis in frame._mgr.axes) and all(
        is_library_array(array) for array in frame._mgr.arrays
    )
