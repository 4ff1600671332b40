"""The variables of the notebook that a run's code uses, by name binding alone.

Names that the loop binds or reads at its top level count, and those that functions in it read or
bind as globals; so do identifiers in the text of magics, exec and the like. Functions of
the notebook that the values reach count the same way. A temporary does not count: a name that every
iteration binds, or that is the target of a for statement, and that nothing reads before that.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any, Container, Iterable

from ..code.names import used_by
from ..safe import class_module
from ..state.save import is_module, user_names
from .body import Body
from .digest import SLOW, Look

RESULT = "result"
NOTHING = object()


class Names:
    """The names of a run."""

    def __init__(self, shell: Any, setup: Body, loop: Body) -> None:
        self.shell, self.result = shell, Result(shell, setup, loop)
        uses, flow = loop.uses, loop.flow
        self.of_loop, self.of_setup, self.opaque = uses.all, setup.uses.all, uses.opaque
        read = self.of_loop if self.opaque else flow.exposed | uses.later | uses.texts
        self.temporary = flow.temporary - read
        # Only what they are in the end may matter.
        self.unread = flow.stored - read - self.temporary
        if not self.result.read:
            self.temporary.add(RESULT)
        self.refused: dict[str, str] = {}  # variables without a digest from now on, and why
        self.costs: dict[str, float] = {}  # seconds of the last look at each

    def look(self, seconds: float, added: Iterable[str]) -> Look:
        """Looks at the run's variables: first at those that an iteration can reach. What only the
        setup uses may still change, under another name, but does not matter to iterations."""
        look, values = Look(self.shell, seconds, self.refused, self.costs), self.variables()
        others = self.of_setup.union(added)
        self.follow(look, values, self.of_loop, aside=False)
        if self.opaque or not all(look.digests.values()):  # unsure what it reaches
            self.follow(look, values, others, aside=False)
        look.reached = set(look.candidates)
        self.follow(look, values, others, aside=True)
        look.finish()
        self.refused.update({name: why for name, why in look.reasons.items() if why == SLOW})
        return look

    def follow(self, look: Look, values: dict[str, Any], wanted: set[str], aside: bool) -> None:
        """Looks at variables, the cheap ones first, and at those that their functions use."""
        wanted, found = wanted - self.temporary - look.candidates, len(look.functions)
        while wanted:
            look.candidates |= wanted
            costs = {n: self.costs.get(n) or guess(values[n]) for n in wanted if n in values}
            for name in sorted(costs, key=lambda name: (costs[name], name)):
                look.add(name, values[name], optional=aside or name in self.unread)
            wanted = {n for f in look.functions[found:] for n in used_by(f.__code__)}
            wanted -= look.candidates
            found = len(look.functions)

    def variables(self, but: Container[str] = ()) -> dict[str, Any]:
        """The variables of the notebook but for some, and for what has nothing left to give."""
        mine = [(name, value) for name, value in user_names(self.shell) if name not in but]
        return {n: v for n, v in mine if n != "i" and not is_module(v) and not is_spent(v)}


def guess(value: Any) -> float:
    """About how many seconds a first look at a value takes, to look at small ones first."""
    cls = type(value)
    if class_module(cls).partition(".")[0] in ("numpy", "pandas", "torch"):
        size = getattr(value, "nbytes", None)
        return size * 1e-9 if type(size) is int else 0.01
    return len(value) * 1e-7 if cls in (list, dict, tuple, set, str, bytes) else 1e-3


def is_spent(value: Any) -> bool:
    """Whether an object that can't be compared has nothing left to give."""
    if type(value) is types.GeneratorType:
        return value.gi_frame is None
    with contextlib.suppress(Exception):  # a detached stream has none
        return class_module(type(value)) == "_io" and getattr(value, "closed", False)
    return False


class Result:
    """Finds the value that an iteration left in the user's variable `result`.

    An iteration that did not set the variable gives no value, although the variable may still have
    the value of an earlier one. Code that always sets it is recognised by its syntax. For other
    code the old value is removed during the iteration. If the code may read the old value, it is
    not removed, and only a different object counts as a new value."""

    def __init__(self, shell: Any, setup: Body, loop: Body) -> None:
        self.names = shell.user_ns
        self.always = RESULT in loop.flow.certain
        self.sometimes = RESULT in loop.uses.stores and not self.always
        # A string may be in globals()["result"].
        self.read = any(RESULT in u.reads | u.strings for u in (setup.uses, loop.uses))

    def before(self) -> None:
        self.old = self.names.get(RESULT, NOTHING) if self.sometimes else NOTHING
        if self.sometimes and not self.read:
            self.names.pop(RESULT, None)

    def after(self) -> Any:
        """The value that the iteration gave, or NOTHING."""
        old, self.old = self.old, NOTHING
        now = self.names.get(RESULT, NOTHING)
        if now is NOTHING and old is not NOTHING and not self.read:
            self.names[RESULT] = old
        given = self.always or self.sometimes and not (self.read and now is old)
        return now if given else NOTHING
