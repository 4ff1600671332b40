"""Runs a chunked run in this kernel, as a job of the executor calls it: prepare once, then round
after round. Markers among the outputs report what happened; the registry has what must last.

A round looks at the run's variables at both of its ends (digest.py). What differs is carried: it
must be there in a new kernel, so copies of it are written. What differs between two rounds was
changed by other code, and the run stops and asks. So it does if an iteration did not end and had
changed something. What another kernel recorded, it goes on from: see Life.get_ready.
"""

from __future__ import annotations

import contextlib
import os
import types
from time import monotonic  # bound here: code may replace time.monotonic
from typing import Any

from IPython.core.getipython import get_ipython

from .. import registry
from ..safe import short
from ..state.reasons import reason
from . import randoms
from .body import Body
from .copies import MAX_REASONS, Copies, delete_copies
from .digest import Look, differs, replaced
from .interrupts import GRACE, Interrupts, hide_frames
from .markers import Markers, encode
from .names import NOTHING, Names

FIRST_SECONDS = 0.5  # for the first look at the variables, whatever the share
MIN_SECONDS = 0.1  # for any other
ITERATION_SHARE = 0.01  # of an iteration's time, for a look before each one
FEW = 20  # iterations whose time is not known well: a look before each costs at most MAX_FEW
MAX_FEW = 0.005


def prepare(order: dict[str, Any]) -> None:
    """Makes a run ready for its rounds, or reports why it can't go on."""
    shell, key = get_ipython(), order["key"]
    setup = Body(shell, "setup_code", order["setup"])
    loop = Body(shell, "loop_code", order["loop"])
    if order["replaces"]:
        registry.runs().pop(order["replaces"], None)
        delete_copies(order["replaces"])
    for old in registry.lives.keys() - registry.runs().keys():
        del registry.lives[old]
    life = registry.lives.setdefault(key, Life(shell, key))
    with Interrupts(shell) as life.interrupts:
        life.prepare(order, setup, loop)


def round(key: str) -> None:
    """Runs iterations for a while, unless none is left or may run."""
    if key not in registry.lives:
        raise RuntimeError("this kernel has lost what prepared the run: call again")
    life = registry.lives[key]
    with Interrupts(life.shell) as life.interrupts:
        life.round()


class Life:
    """A run in this kernel."""

    def __init__(self, shell: Any, key: str) -> None:
        self.shell, self.key, self.interrupts = shell, key, Interrupts(shell)
        self.entry: registry.Entry = {}
        self.copies = Copies(shell, key)
        # The newest Look; None if it says nothing about this moment.
        self.last: Any = None
        self.iterations = 0
        self.worked = 0.0  # seconds of iterations
        self.seconds = 0.0  # of the last body

    def prepare(self, order: dict[str, Any], setup: Body, loop: Body) -> None:
        self.order, self.setup, self.loop = order, setup, loop
        self.names = Names(self.shell, setup, loop)
        self.independent = bool(order["independent"])
        self.spent = 0.0  # seconds of looks
        self.stopped = False  # no iteration may run until the next job
        self.markers = Markers(self.shell, self.key, lambda: self.entry["done"])
        start = order["marked"] if self.independent else order["done"]
        self.take_entry(start)
        if not self.entry.get("ran"):
            self.entry.update(done=start, carried=order["carried"])
        elif self.independent:
            self.entry["done"] = max(self.entry["done"], start)
        self.copies.adopt(order["copy"])
        self.markers.report("start", fresh=self.entry["setup"] != order["setup_sha256"])
        self.get_ready()
        order["on_stop"] = ""  # it has answered

    def take_entry(self, start: int) -> None:
        """Goes on where the registry says: a restored state may have taken the run elsewhere, or
        other code may have deleted its entry."""
        carried, entry = self.entry.get("carried"), registry.entry_of(self.key, start)
        if entry is not self.entry:
            self.entry, self.last = entry, None
        lists: registry.Entry = {field: [] for field in ("names", "absent", "added")}
        lists.update(incomplete=[], lost=[], carried=carried, random=None)
        entry.update({**lists, **entry})

    # Preparation

    def get_ready(self) -> bool:
        """Whether iterations may run. Does what is needed for that and allowed, or reports why
        they may not."""
        here = bool(self.entry["setup"])
        if here and not self.answer():
            return False
        entry, copy = self.entry, self.order["copy"]
        passed, done = entry["carried"] or [], entry["done"]
        fresh = entry["setup"] != self.order["setup_sha256"]
        if fresh and here:
            self.run_setup(keeping=passed)
        elif fresh and passed and done and self.is_bound():
            whole = copy and copy["done"] == done
            if not self.go_back("variables_lost", passed, whole or not entry.get("ran")):
                return False
        elif fresh:
            self.run_setup()
            if copy and self.is_bound() and done:
                # Nothing is carried, but the setup need not make the same values again.
                with contextlib.suppress(Exception):  # as if there were no copy
                    entry["random"] = self.copies.load(copy)[0]["random"]
        if self.last is None:
            self.take_as_left()
        if fresh and not here and self.entry["done"] and self.is_bound():
            self.tell_anew()
        return True

    def is_bound(self) -> bool:
        """Whether the run may go on only with what its iterations passed on."""
        return not (self.independent or self.order["on_stop"] == "continue")

    def answer(self) -> bool:
        """Does what the order says about variables that are not as they should be. Returns whether
        the run can go on."""
        entry, answer = self.entry, self.order["on_stop"]
        if self.independent:
            entry["incomplete"] = entry["lost"] = []
            self.last = None
            return True
        if entry["incomplete"] and answer not in ("again", "skip"):
            return self.go_back("iteration_incomplete", entry["incomplete"])
        if entry["incomplete"] and answer == "skip":
            entry["done"] += 1
            self.markers.report("done", count=1, seconds=0.0, slowest=0.0)
        entry["incomplete"] = []
        changed = self.changed_by_others()
        if changed and answer not in ("accept", "continue"):
            return self.go_back("variables_changed", changed)
        if changed:
            self.last = None
        entry["lost"] = []
        return True

    def stop(self, why: str, names: list[str], **more: str) -> bool:
        self.stopped = True
        self.markers.report("stopped", reason=why, names=names, **more)
        return False

    def run_setup(self, keeping: list[str] | None = None) -> None:
        """Runs the setup code. What iterations pass on stays as it is, if it is here."""
        entry, names, self.last = self.entry, self.shell.user_ns, None
        kept = {name: names[name] for name in keeping or () if name in names}
        states = entry["random"] if keeping else None
        entry["setup"] = ""
        before = self.names.variables()
        try:
            with randoms.own(None, self.key, lambda now: entry.update(random=now)):
                self.step(self.setup)
        except BaseException:
            self.markers.report("setup_failed", seconds=self.seconds)
            raise
        names.update(kept)
        if states:
            entry["random"] = states
        entry["added"] = sorted(rebound(before, self.names.variables()))
        entry["setup"], entry["incomplete"], entry["lost"] = self.order["setup_sha256"], [], []
        self.markers.report("setup", seconds=self.seconds)

    def go_back(self, why: str, names: list[str], unasked: Any = False) -> bool:
        """Loads the copy, after the setup code in a new kernel, if that was the answer or goes
        unasked; or stops. Returns whether the run can go on."""
        copy, setup = self.order["copy"], self.order["setup_sha256"]
        wanted = unasked or self.order["on_stop"] == "restore"
        if not wanted or copy is None or not os.path.exists(copy["path"]):
            return self.stop(why, names)
        here, made = self.entry["setup"] == setup, self.setup.uses
        changed = {n for n in (*names, *(self.entry["carried"] or ())) if n.isidentifier()}
        needed = set() if made.opaque else changed - made.all
        try:
            if not here:
                self.run_setup()
            found, missing = self.copies.load(copy, changed, needed)
            if here and missing:
                self.run_setup()
                found, _ = self.copies.load(copy)
        except (KeyboardInterrupt, Exception) as e:  # damaged, or what the file's code raises
            self.entry["setup"] = setup if here else ""  # loading is undone if it fails
            if isinstance(e, KeyboardInterrupt):
                raise
            return self.stop(why, names, detail=short(reason(e, "loading the copy")))
        found.update(setup=setup, ran=True, lost=[])
        registry.update({self.key: found})
        self.take_entry(found["done"])
        self.names.refused.clear()
        self.markers.report("restored")
        return True

    def tell_anew(self) -> None:
        """Names what iterations use as this kernel's setup made it, because no copy had it. A
        function or class is the same wherever its code ran."""
        look, names = self.last, self.shell.user_ns
        mine = look.reached & look.digests.keys() - self.copies.loaded
        anew = [n for n in sorted(mine) if not isinstance(names[n], (types.FunctionType, type))]
        if anew:
            self.markers.report("anew", names=anew)

    # Looks at the variables

    def look(self, seconds: float = 0) -> Look:
        left = FIRST_SECONDS + self.order["keep"]["share"] * self.worked - self.spent
        seconds = seconds or (max(MIN_SECONDS, left) if self.last else FIRST_SECONDS)
        look = self.names.look(seconds, {*self.entry["added"], *(self.entry["carried"] or ())})
        self.spent += look.seconds
        return look

    def take_as_left(self) -> None:
        """Takes the variables as they are now for those that the run left."""
        self.note(self.look())
        if self.entry.get("ran"):
            self.entry["ran"] = True
        if self.last.reasons and not self.independent:
            unkept = [{"name": short(n), "reason": w} for n, w in sorted(self.last.reasons.items())]
            self.markers.report("variables", unkept=unkept[:MAX_REASONS])

    def note(self, look: Look) -> None:
        self.last, names = look, self.shell.user_ns
        carried = self.entry["carried"] or []
        self.entry["names"] = sorted(look.reached & look.digests.keys())
        self.entry["absent"] = [n for n in carried if n.isidentifier() and n not in names]

    def changed_by_others(self) -> list[str]:
        """The variables that are not as the last round left them, and, if a state was restored,
        those that did not come with it."""
        last, lost = self.last, self.entry["lost"]
        if last is None or lost:
            unknown = self.entry.get("ran") is True  # what ran the last round is not in memory
            return lost or (self.entry["names"] if unknown else [])
        now = self.look()
        changed = self.changes(last, now)
        if changed:  # some digests change by themselves
            first, now, refused = self.look(), self.look(), self.names.refused
            changed = self.changes(last, now)
            for name in changed:
                if differs(first, now, name) and now.digests.get(name):
                    refused[name] = "comparing it gives another result each time"
            changed = [n for n in changed if n not in refused or last.ids.get(n) != now.ids.get(n)]
        if not changed:
            self.last = now
        return changed

    def changes(self, last: Look, now: Look) -> list[str]:
        return [name for name in sorted(last.reached) if replaced(last, now, name)]

    def audit(self) -> list[str]:
        """What other code has changed up to now, for a state that is saved now."""
        if self.last is None or registry.runs().get(self.key) is not self.entry:
            return []
        return self.changes(self.last, self.look())

    # Rounds

    def round(self) -> None:
        self.take_entry(self.entry["done"])
        self.entry["again"] = False
        if self.stopped or not self.get_ready():
            return
        entry = self.entry
        if entry["done"] < self.order["n"]:
            self.iterate_and_compare()
        if entry["done"] < self.order["n"]:
            self.interrupts.check()
        else:  # also if an interrupt arrived in the last iteration
            delete_copies(self.key)
            self.markers.report("finished")
        entry["again"] = entry["done"] < self.order["n"]

    def iterate_and_compare(self) -> None:
        entry, start = self.entry, self.last
        self.last = None
        self.before = self.snapshot = (entry["done"], start, entry["random"])
        mentioned = start.candidates | self.names.temporary
        others = self.names.variables(mentioned)  # which iterations may bind all the same, by exec
        began, between = monotonic(), False
        try:
            with randoms.own(entry["random"], self.key, lambda now: entry.update(random=now)):
                self.iterate()
            between = True
        finally:
            entry["ran"] = True
            self.worked += monotonic() - began
            added = rebound(others, self.names.variables(mentioned))
            entry["added"] = sorted(added.union(entry["added"]))
            self.markers.flush()
            if between:
                self.end()
            else:
                self.fail()

    def fail(self) -> None:
        """Reports the iteration that did not end, and what it has changed, as far as that can be
        told apart from what the iterations before it did."""
        entry, (at, look, states) = self.entry, self.snapshot
        now = self.look()
        changed = [n for n in sorted(look.reached | now.reached) if differs(look, now, n)]
        if at != entry["done"]:
            changed += randoms.changed(states, entry["random"])
        if self.independent:
            changed = []
        if not changed:
            entry["random"] = states
        entry["incomplete"] = changed
        self.end(now, report=not changed)
        at = entry["done"]
        self.markers.report("failed", iteration=at, seconds=self.seconds, changed=changed)

    def end(self, now: Look | None = None, report: bool = True) -> None:
        """Records what the round left. Only now its iterations count in another kernel."""
        entry, (_, start, states) = self.entry, self.before
        now = now or self.look()
        found = {n for n in start.candidates | now.candidates if differs(start, now, n)}
        found.update(randoms.changed(states, entry["random"]))
        entry["carried"] = sorted(found.union(entry["carried"] or ()))
        self.note(now)
        if not report:
            return
        due = not self.independent and entry["done"] < self.order["n"]
        keep = self.order["keep"] if due else dict(self.order["keep"], bytes=0)
        kept, unkept = self.copies.keep(entry, now, keep, self.worked)
        self.order["copy"] = kept or self.order["copy"]
        self.markers.report("round", carried=entry["carried"], unkept=unkept, kept=kept)

    def iterate(self) -> None:
        began, first = monotonic(), self.entry["done"]
        end = min(self.order["n"], first + max(1, self.order["batch_size"]))
        for i in range(first, end):
            spent = monotonic() - began
            late = i > first and spent + spent / (i - first) / 2 > self.order["seconds"]
            if late or self.interrupts.seen:
                break
            mean = (self.worked + spent) / max(1, self.iterations)
            self.interrupts.short = self.iterations > 0 and mean < GRACE / 2
            cost, few = self.snapshot[1].seconds, self.iterations < FEW
            cheap = cost < ITERATION_SHARE * mean or few and cost < MAX_FEW
            if i > first and cheap and not self.independent:
                self.snapshot = (i, self.look(MIN_SECONDS), randoms.get())
            self.shell.user_ns["i"] = i
            self.names.result.before()
            try:
                self.step(self.loop)
            finally:
                given = self.names.result.after()
            self.entry["done"] = i + 1
            self.iterations += 1
            self.markers.done(i, self.seconds, {} if given is NOTHING else encode(given))

    def step(self, body: Body) -> None:
        """Runs a body in the user's namespace."""
        began = monotonic()
        try:
            self.interrupts.running = body
            exec(body.code, self.shell.user_ns)
        except BaseException as error:
            self.interrupts.seen = False  # the error is its result
            hide_frames(self.shell, error)
            raise
        finally:
            self.interrupts.running = None
            self.seconds = monotonic() - began


def rebound(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in after if after[name] is not before.get(name, before)}
