"""Finds the value that an iteration left in the user's variable `result`.

An iteration that did not set the variable gives no value, although the variable may still have
the value of an earlier one. Code that always sets it is recognised by its syntax. For other code
the old value is removed during the iteration. If the code may read the old value, it is not
removed, and only a different object counts as a new value.
"""

from __future__ import annotations

from typing import Any

from .body import Body

NAME = "result"
NOTHING = object()


class Result:
    def __init__(self, shell: Any, setup: Body, loop: Body) -> None:
        self.names = shell.user_ns
        self.old = NOTHING
        self.always = NAME in loop.flow.certain
        self.sometimes = NAME in loop.uses.stores and not self.always
        # A string may be in globals()["result"].
        self.read = any(NAME in u.reads | u.strings for u in (setup.uses, loop.uses))

    def before(self) -> None:
        if self.sometimes:
            self.old = self.names.get(NAME, NOTHING)
            if not self.read:
                self.names.pop(NAME, None)

    def after(self) -> Any:
        """The value that the iteration gave, or NOTHING."""
        old, self.old = self.old, NOTHING
        now = self.names.get(NAME, NOTHING)
        if now is NOTHING and old is not NOTHING and not self.read:
            self.names[NAME] = old
        given = self.always or self.sometimes and not (self.read and now is old)
        return now if given else NOTHING
