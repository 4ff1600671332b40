"""Ways to inspect objects and classes without running their code.

A type is read by type(x) and compared with "is", never looked up in a dict, because a metaclass may
define __hash__ and __eq__. Attributes of classes are read through type's own descriptors, and
those of modules through their dict.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Iterable

MAX_SHORT = 200  # characters


def is_any(cls: type, classes: Iterable[type]) -> bool:
    return any(cls is c for c in classes)


def base_of(cls: type, classes: Iterable[Any]) -> Any:
    """The first of classes that cls is or derives from. Its unbound methods are safe to call."""
    for c in classes:
        if type.__subclasscheck__(c, cls):
            return c
    return None


def text(value: str) -> str:
    """A plain str that is valid UTF-8, made from a str or an instance of a subclass."""
    return str.__str__(value).encode("utf-8", "backslashreplace").decode("utf-8")


def short(value: str, most: int = MAX_SHORT) -> str:
    """The text of value, cut to at most that many characters."""
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
    """The dict of a module that is already imported, {} if it is not. Reading a missing attribute
    would run the module's __getattr__, which may import more."""
    module = dict.get(sys.modules, name)
    if type.__subclasscheck__(types.ModuleType, type(module)):
        return object.__getattribute__(module, "__dict__")
    return {}


def known(module: str, *names: str) -> list[Any]:
    """The classes of these names in a module, if the module is imported."""
    found = module_dict(module)
    return [found[name] for name in names if type.__subclasscheck__(type, type(found.get(name)))]


def belongs_to(cls: type, package: str) -> bool:
    """Whether cls is the class that the package itself has under the name of cls."""
    module = class_module(cls)
    return (module + ".").startswith(package + ".") and module_dict(module).get(
        class_name(cls)
    ) is cls


def is_library_array(array: Any) -> bool:
    """Whether an array is of numpy or pandas. For other arrays, even len may run user code."""
    return is_any(type(array), known("numpy", "ndarray")) or belongs_to(type(array), "pandas")


def is_library_index(index: Any) -> bool:
    cls = type(index)
    return belongs_to(cls, "pandas") and (
        not is_any(cls, known("pandas", "Index")) or is_library_array(index._data)
    )


def is_library_frame(frame: Any) -> bool:
    """Whether a DataFrame or Series, whose class is already checked, has library arrays only."""
    return all(is_library_index(axis) for axis in frame._mgr.axes) and all(
        is_library_array(array) for array in frame._mgr.arrays
    )
