"""Deletes the user's variables and what IPython and libraries still refer to.

It runs no user code except what objects run when they are deleted, which cannot be avoided.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Callable, TypeVar

from IPython.core.getipython import get_ipython

from . import registry
from .safe import module_dict, text
from .variables.listing import MAX_VARIABLES, user_variables

Result = TypeVar("Result")


def close_figures() -> int:
    pyplot = module_dict("matplotlib.pyplot")
    if "close" not in pyplot:
        return 0
    count = len(pyplot["get_fignums"]())
    pyplot["close"]("all")
    return count


def empty_gpu_cache() -> bool:
    """Empties torch's GPU cache, unless torch has not initialised the GPU: emptying the cache would
    initialise it."""
    cuda = module_dict("torch.cuda")
    if "empty_cache" not in cuda or not cuda["is_initialized"]():
        return False
    cuda["empty_cache"]()
    return True


def forget_outputs(shell: Any) -> None:
    """Deletes Out, _, __ and ___. IPython's own flush does not delete names in user_ns_hidden."""
    if shell.displayhook.do_full_cache:
        shell.displayhook.flush()
    hidden = shell.user_ns_hidden
    for name in [n for n in hidden if n[:1] == "_" and n[1:].isdigit()]:
        del hidden[name]
    for name in ("_", "__", "___"):
        if name in hidden:
            hidden[name] = ""


def forget_tracebacks(shell: Any) -> None:
    """Deletes the last exception, whose traceback keeps frames and their variables alive."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    handler = shell.InteractiveTB
    for name in ("tb", "value", "etype"):
        if name in vars(handler):
            setattr(handler, name, None)


def attempt(step: Callable[[], Result], default: Result) -> Result:
    """Runs one step of the cleanup. If it fails, the other steps still run."""
    try:
        return step()
    except Exception:
        return default


def free_gpu() -> None:
    """Frees the GPU's memory as far as the last exception and torch's cache hold it."""
    shell = get_ipython()
    attempt(lambda: forget_tracebacks(shell), None)
    gc.collect()
    attempt(empty_gpu_cache, False)


def cleanup() -> dict[str, Any]:
    shell = get_ipython()
    names = [name for name, _ in user_variables(shell)]
    figures = attempt(close_figures, 0)
    for name in names:
        shell.user_ns.pop(name, None)
        if name in shell.user_ns_hidden:  # the user had shadowed one of IPython's names
            shell.user_ns[name] = shell.user_ns_hidden[name]
    attempt(lambda: forget_outputs(shell), None)
    attempt(lambda: forget_tracebacks(shell), None)
    attempt(registry.forget_setups, None)
    gc.collect()
    return {
        "variables_cleared": len(names),
        "cleared_variables": [text(name) for name in names[:MAX_VARIABLES]],
        "figures_closed": figures,
        "gpu_cache_cleared": attempt(empty_gpu_cache, False),
    }
