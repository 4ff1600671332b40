"""The record of the chunked runs in this kernel: which setup code ran, how many iterations are
done, and what else must last. So an iteration that ended never runs again in this kernel unasked,
whatever the relay knows.

The record is a plain dict of plain values in a module of sys.modules, whose name must not change,
because every release reads it. A saved kernel state has a copy. By key, each entry has:

    setup       hash of the setup code that ran; "" if the variables that it made are gone
    done        completed iterations
    carried     names that differed at the end of a round from its start; None before the first
    names       variables of the run at that time, and "absent", those of them that do not exist
    added       names that the setup code or an iteration added, beside those that the code mentions
    random      the run's own states of random numbers
    ran         True if an iteration ran, RESTORED if the entry came with a state: its done is right
    incomplete  what an iteration that did not end has changed; [] if nothing stands in the way
    lost        variables that a restored state did not bring, or that had been changed before
    again       the answer of the last round, which the executor takes away

A restored state replaces the entry by another object. Digests belong to this kernel and are not
here.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any, Dict

from .safe import module_dict, short

Entry = Dict[str, Any]
MODULE = "colab_relay_runs"
RESTORED = "restored"
MAX_RUNS = 1000  # the oldest are dropped first

# By key: the runs that were prepared in this kernel, as chunked/run.py has them. Each tells which
# of its variables are not as its last round left them.
lives: dict[str, Any] = {}


def runs() -> dict[str, Entry]:
    """The record as it is, {} if this kernel has none."""
    found = module_dict(MODULE).get("runs")
    return found if type(found) is dict else {}


def entry_of(key: str, done: int) -> Entry:
    """The entry of one run, which becomes the newest. Its "done" is the iteration at which the run
    continues in this kernel: its own count if it has the variables, otherwise at least done."""
    update({})
    all_runs = runs()
    entry = all_runs[key] = all_runs.pop(key, {"setup": "", "done": done})
    if not entry.get("setup"):
        entry["done"] = max(entry["done"], done)
    while len(all_runs) > MAX_RUNS:
        del all_runs[next(iter(all_runs))]
    return entry


def update(found: dict[str, Entry]) -> None:
    """Adds entries to the record."""
    if type(module_dict(MODULE).get("runs")) is not dict:
        module = sys.modules[MODULE] = types.ModuleType(MODULE)
        module.__dict__["runs"] = {}
    runs().update(found)


def restore(found: dict[str, Entry], restored: set[str], names: dict[str, Any]) -> None:
    """Adds the record of a restored state. What a run made only after the state was saved goes. A
    run whose variables did not all come with it must not go on unasked."""
    for key, entry in found.items():
        if type(entry) is dict and "carried" in entry:
            for name in (runs().get(key) or {}).get("carried") or ():
                if name not in restored and name not in (entry.get("names") or ()):
                    names.pop(name, None)
            absent = set(entry.get("absent") or ())
            mine = set(entry.get("names") or ()) - absent
            lost = (mine - restored) | {name for name in absent if name in names}
            entry["ran"] = RESTORED
            if lost:
                entry["lost"] = sorted(lost.union(entry.get("lost") or ()))
    if found:
        update(found)


def audited() -> dict[str, Entry]:
    """The record as a saved state has it: with what was changed since each run's last round."""
    found = {}
    for key, entry in runs().items():
        entry = found[key] = dict(entry) if type(entry) is dict else entry
        if key in lives and type(entry) is dict:
            with contextlib.suppress(Exception):  # a state is saved whatever a look raises
                entry["lost"] = sorted(set(entry.get("lost") or ()).union(lives[key].audit()))
    return found


def forget_setups() -> None:
    """Records that the variables of all runs were deleted. The numbers of completed iterations
    do not change, so that no iteration runs twice in this kernel."""
    for run in runs().values():
        run["setup"] = ""


def complete_runs() -> list[dict[str, Any]]:
    """The keys of the runs whose variables are in this kernel, with their iterations."""
    return [
        {"key": short(key), "done": run["done"]}
        for key, run in runs().items()
        if type(key) is str
        and type(run) is dict
        and run.get("setup")
        and type(run.get("done")) is int
    ][:MAX_RUNS]
