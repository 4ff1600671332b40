"""Which objects other kernels can import, and the versions of Python and of libraries."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

from ..safe import module_dict, short


def importable(obj: Any, module: Any, qualname: Any) -> bool:
    """Whether another kernel gets the same object by importing the name."""
    if type(module) is not str or type(qualname) is not str or module == "__main__":
        return False
    found = sys.modules.get(module)
    try:
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:
        return False
    return found is obj


def version_of(package: str) -> str:
    """The version of a library, "" if the library is missing or reports none."""
    version = module_dict(package).get("__version__")
    if type(version) is str:
        return short(version, 60)
    try:
        return short(importlib.metadata.version(package), 60)
    except Exception:
        return ""


def python_version() -> str:
    """The version of this Python, such as "3.11.7"."""
    return "%d.%d.%d" % sys.version_info[:3]
