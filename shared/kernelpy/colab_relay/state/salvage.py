"""Finds the intact objects of a variable that can't be restored, because other variables may
share them: strings, classes, a data type of arrays, a list.

An unpickler written in Python reads the pickle again. Where an operation fails, it puts a
placeholder on the stack and continues. So the constructors of the intact objects run twice.
"""

from __future__ import annotations

import pickle
from typing import Any, Callable, Iterable

ATOMS = frozenset([int, float, complex, bool, str, bytes, type(None)])

# How many objects an operation takes from the stack; None means all down to the mark. An
# operation of CHANGES leaves the first of them there, instead of a new object.
MAKES = {
    pickle.REDUCE: 2,
    pickle.NEWOBJ: 2,
    pickle.NEWOBJ_EX: 3,
    pickle.STACK_GLOBAL: 2,
    pickle.TUPLE1: 1,
    pickle.TUPLE2: 2,
    pickle.TUPLE3: 3,
    pickle.TUPLE: None,
    pickle.FROZENSET: None,
}
CHANGES = {
    pickle.BUILD: 2,
    pickle.APPEND: 2,
    pickle.SETITEM: 3,
    pickle.APPENDS: None,
    pickle.SETITEMS: None,
    pickle.ADDITEMS: None,
}
CALLS = (pickle.REDUCE, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.BUILD)


class Broken(Exception):
    """The placeholder of an object that could not be constructed. target is the object that the
    failed operation should have filled."""

    target = None


class Findings:
    """Which objects contain a broken one, at any depth and also in cycles."""

    def __init__(self) -> None:
        self.broken: dict[int, Any] = {}
        self.users: dict[int, list[Any]] = {}
        self.alive: list[Any] = []

    def mark_broken(self, obj: Any) -> None:
        """Records that obj is broken, with all objects that were made of it."""
        stack = [obj]
        while stack:
            obj = stack.pop()
            if id(obj) not in self.broken and type(obj) not in ATOMS:
                self.broken[id(obj)] = obj
                stack.extend(self.users.get(id(obj), ()))

    def contains_broken(self, objects: Iterable[Any]) -> bool:
        return any(id(obj) in self.broken for obj in objects)

    def record(self, made: Any, used: list[Any]) -> None:
        self.alive.append((made, used))  # otherwise another object could get the id of one of these
        for obj in used:
            if type(obj) not in ATOMS:
                self.users.setdefault(id(obj), []).append(made)
        if self.contains_broken(used):
            self.mark_broken(made)


def with_placeholder(code: bytes, operation: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wraps an operation so that it pushes a placeholder on failure."""
    changes = code in CHANGES
    taken = CHANGES[code] if changes else MAKES[code]

    def load(self: Any) -> None:
        used, found = taken_by(self, taken, changes), self.found
        depth = len(self.stack)
        try:
            if code in CALLS and found.contains_broken(used):
                raise Broken
            operation(self)
            made = self.stack[-1]
        except KeyboardInterrupt:
            raise
        except BaseException:  # the user's code may raise anything
            made = self.put_placeholder(used, depth, taken, changes)
            found.mark_broken(made)
        if made is None and type(used[-1]) is tuple and used[-1]:
            made = used[-1][0]  # the call filled this object
        found.record(made, used)

    return load


def taken_by(unpickler: Any, taken: int | None, changes: bool) -> list[Any]:
    """The objects on the stack that an operation takes."""
    if taken is None:
        return unpickler.metastack[-1][-1:] * changes + unpickler.stack
    return unpickler.stack[-taken:]


def salvager(base: Any) -> Any:
    """A subclass of base that continues when an operation fails."""

    class Salvager(base):
        dispatch = dict(base.dispatch)

        def put_placeholder(
            self, used: list[Any], depth: int, taken: int | None, changes: bool
        ) -> Any:
            if changes:
                if taken is not None:
                    del self.stack[depth - taken + 1 :]
                return used[0]
            mark = Broken()
            if type(used[-1]) is tuple and used[-1]:
                mark.target = used[-1][0]
            if taken is not None:
                del self.stack[depth - taken :]
            self.append(mark)
            return mark

        def load_pop(self) -> None:
            if self.stack and type(self.stack[-1]) is Broken:
                self.found.mark_broken(self.stack[-1].target)
            base.load_pop(self)

    for code in list(MAKES) + list(CHANGES):
        Salvager.dispatch[code[0]] = with_placeholder(code, base.dispatch[code[0]])
    Salvager.dispatch[pickle.POP[0]] = Salvager.load_pop
    return Salvager


def salvage(
    unpickler: Any, memo: dict[int, Any], lost: Iterable[int]
) -> tuple[dict[int, Any], set[int]]:
    """Reads a pickle, given the memo of the pickles before and the numbers of its broken objects.
    Returns the memo after the pickle and the numbers of all broken objects."""
    unpickler.found = found = Findings()
    for number in lost:
        memo[number] = Broken()
        found.mark_broken(memo[number])
    unpickler.memo = memo
    unpickler.load()
    return memo, {number for number, obj in memo.items() if id(obj) in found.broken}
