"""Describes the user's variables in a live IPython.

It must not run the user's code: no __repr__, __len__, property, __getattr__, __class__, __hash__ or
__eq__ of an unknown type, not even of a metaclass. safe.py has functions that are safe.
"""

from __future__ import annotations

import types
from typing import Any

from IPython.core.getipython import get_ipython

from .facts import describe
from .preview import Preview

MAX_VARIABLES = 1000  # in one answer


def everything(shell: Any) -> list[tuple[str, Any]]:
    """A copy of the namespace. Names that are not plain strings are omitted."""
    return [(n, v) for n, v in dict.copy(shell.user_ns).items() if type(n) is str]


def user_variables(shell: Any) -> list[tuple[str, Any]]:
    """The variables that the user made: without IPython's names, modules, and names that begin
    with an underscore."""
    hidden, nothing = shell.user_ns_hidden, object()
    mine = [
        (name, value)
        for name, value in everything(shell)
        if not name.startswith("_")
        and value is not hidden.get(name, nothing)
        and not type.__subclasscheck__(types.ModuleType, type(value))
    ]
    return sorted(mine, key=lambda pair: pair[0])


def variables() -> dict[str, Any]:
    found = user_variables(get_ipython())
    return {
        "count": len(found),
        "variables": [describe(name, value) for name, value in found[:MAX_VARIABLES]],
    }


def inspect(name: str) -> dict[str, Any]:
    for n, value in everything(get_ipython()):
        if n == name:
            answer = describe(name, value)
            answer["preview"] = Preview().of(value)
            return answer
    return {"missing": True}
