"""Which global names compiled code reads and binds, by its instructions."""

from __future__ import annotations

import ast
import dis
import functools
import types
from typing import Iterator

READS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL")
IMMEDIATE = ("<listcomp>", "<setcomp>", "<dictcomp>")


def uses_of(code: types.CodeType, top: bool = True) -> tuple[set[str], set[str]]:
    """The global names that code, and the code in it, stores and reads. At the top level and in
    the body of a class, every name that is read may be a global one."""
    stores, reads = set(), set()
    for step in dis.get_instructions(code):
        if step.opname in READS:
            reads.add(str(step.argval))
        elif step.opname == "STORE_GLOBAL" or top and step.opname == "STORE_NAME":
            stores.add(str(step.argval))
    for inner in inside(code):
        more = uses_of(inner, False)
        stores |= more[0]
        reads |= more[1]
    return stores, reads


@functools.lru_cache(1000)  # each look at a run's variables asks again
def used_by(code: types.CodeType) -> set[str]:
    """The global names that a function uses."""
    return set.union(*uses_of(code, False))


def inside(code: types.CodeType) -> Iterator[types.CodeType]:
    return (const for const in code.co_consts if isinstance(const, types.CodeType))


def deferred(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in inside(code):
        if inner.co_name in IMMEDIATE:
            yield from deferred(inner)
        else:
            yield inner


def called(call: ast.Call) -> str | None:
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)
