"""Finds the value that an iteration left in the user's variable `result`.

An iteration that did not set the variable gives no value, although the variable may still have
the value of an earlier one. Code that always sets it is recognised by its syntax. For other code
the old value is removed during the iteration. If the code may read the old value, it is not
removed, and only a different object counts as a new value.
"""

from __future__ import annotations

from typing import Any

from .body import Loop, Setup

NAME = "result"
NOTHING = object()


class Result:
    def __init__(self, shell: Any, setup: Setup, loop: Loop) -> None:
        self.names = shell.user_ns
        self.old = NOTHING
        self.set = NAME in loop.uses.stores
        # A string may be in globals()["result"].
        self.read = any(NAME in u.reads | u.strings for u in (setup.uses, loop.uses))
        sometimes = self.set and NAME not in loop.flow.certain
        self.compared = sometimes and self.read
        self.taken_out = sometimes and not self.read

    def before(self) -> None:
        if self.taken_out:
            self.old = self.names.pop(NAME, NOTHING)
        elif self.compared:
            self.old = self.names.get(NAME, NOTHING)

    def after(self) -> Any:
        """The value that the iteration gave, or NOTHING."""
        old, self.old = self.old, NOTHING
        now = self.names.get(NAME, NOTHING)
        if not self.set or (self.compared and now is old):
            return NOTHING
        if now is NOTHING and old is not NOTHING and self.taken_out:
            self.names[NAME] = old
        return now
