"""The record of the chunked runs in this kernel: which setup code ran, and how many iterations.

entry_of decides at which iteration a run continues, in this kernel as in a new one.

The record is a plain dict of plain values in a module of sys.modules, whose name must not change,
because every release reads it:

    {key: {"setup": hash of the setup code that ran, "done": completed iterations}}

"setup" is empty if the variables that the setup code made are gone. "hollow" is True if the run is
prepared but still empty: its setup code ran, but the variables that iterations pass on have not
been restored yet, so no iteration may run.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Dict

from .safe import module_dict, short

Entry = Dict[str, Any]
MODULE = "colab_relay_runs"
MAX_RUNS = 1000  # the oldest are dropped first


def runs() -> dict[str, Entry]:
    """The record as it is, {} if this kernel has none."""
    found = module_dict(MODULE).get("runs")
    return found if type(found) is dict else {}


def entry_of(key: str, confirmed: int) -> Entry:
    """The entry of one run, which becomes the newest. Its "done" is the iteration at which the run
    continues in this kernel. confirmed is how many iterations the relay's record has confirmed.

    If the setup code ran in this kernel, the kernel's own count wins, even if it is smaller,
    because a state that was saved earlier may have been restored. In a new kernel the run continues
    after the confirmed iterations. If the relay then restores kept variables (recovery.go of
    relay/chunked), keep.restore_kept sets "done" to the iteration that those belong to."""
    update({})
    all_runs = runs()
    entry = all_runs[key] = all_runs.pop(key, {"setup": "", "done": confirmed})
    if not entry["setup"]:
        entry["done"] = max(entry["done"], confirmed)
    while len(all_runs) > MAX_RUNS:
        del all_runs[next(iter(all_runs))]
    return entry


def update(restored: dict[str, Entry]) -> None:
    """Adds the record of a restored state."""
    if type(module_dict(MODULE).get("runs")) is not dict:
        module = sys.modules[MODULE] = types.ModuleType(MODULE)
        module.__dict__["runs"] = {}
    runs().update(restored)


def forget_setups() -> None:
    """Records that the variables of all runs were deleted. The numbers of completed iterations
    do not change, so that no iteration runs twice in this kernel."""
    for run in runs().values():
        run["setup"] = ""


def has_variables(entry: Entry) -> bool:
    """Whether this kernel has the variables of the run's setup code and iterations."""
    return bool(entry.get("setup")) and not entry.get("hollow")


def complete_runs() -> list[dict[str, Any]]:
    """The keys of the runs whose variables are in this kernel, with their iterations."""
    return [
        {"key": short(key), "done": run["done"]}
        for key, run in runs().items()
        if type(key) is str
        and type(run) is dict
        and has_variables(run)
        and type(run.get("done")) is int
    ][:MAX_RUNS]
