"""Tells of the user's variables in a live IPython, and clears them.

It must run no code of the user's: no __repr__, __len__, property, __getattr__, __class__,
__hash__ or __eq__ of a type it does not know, not even a metaclass's; safe.py has the ways.
Deleting is the exception: what an object does when it goes can't be avoided.
"""

import gc
import sys
import types

from colab_relay_facts import describe
from colab_relay_preview import Preview
from colab_relay_safe import module_dict, text
from IPython.core.getipython import get_ipython

MIME = "application/vnd.colab-relay.namespace+json"
MAX_VARIABLES = 1000  # in one answer


class Answer:
    """What IPython turns into the reply: a bundle of one MIME type of ours."""

    def __init__(self, content):
        self.content = content

    def __repr__(self):
        return "namespace answer"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {MIME: self.content}


def everything(shell):
    """A copy of the names in the namespace, only those that are plain strings."""
    return [(n, v) for n, v in dict.copy(shell.user_ns).items() if type(n) is str]


def user_variables(shell):
    """What the user made: not IPython's own names, no modules, nothing with an underscore."""
    hidden, nothing = shell.user_ns_hidden, object()
    mine = [
        (name, value)
        for name, value in everything(shell)
        if not name.startswith("_")
        and value is not hidden.get(name, nothing)
        and not type.__subclasscheck__(types.ModuleType, type(value))
    ]
    return sorted(mine, key=lambda pair: pair[0])


def variables(shell):
    found = user_variables(shell)
    return {
        "count": len(found),
        "variables": [describe(name, value) for name, value in found[:MAX_VARIABLES]],
    }


def inspect(shell, name):
    for n, value in everything(shell):
        if n == name:
            answer = describe(name, value)
            answer["preview"] = Preview().of(value)
            return answer
    return {"missing": True}


def close_figures():
    pyplot = module_dict("matplotlib.pyplot")
    if "close" not in pyplot:
        return 0
    count = len(pyplot["get_fignums"]())
    pyplot["close"]("all")
    return count


def empty_gpu_cache():
    """Only where torch has the GPU in use: asking would set it up."""
    cuda = module_dict("torch.cuda")
    if "empty_cache" not in cuda or not cuda["is_initialized"]():
        return False
    cuda["empty_cache"]()
    return True


def forget_outputs(shell):
    """IPython's own flush leaves what it also noted as hidden: _ and _1, _2, ..."""
    if shell.displayhook.do_full_cache:
        shell.displayhook.flush()
    hidden = shell.user_ns_hidden
    for name in [n for n in hidden if n[:1] == "_" and n[1:].isdigit()]:
        del hidden[name]
    for name in ("_", "__", "___"):
        if name in hidden:
            hidden[name] = ""


def forget_tracebacks(shell):
    """A traceback keeps the frames it passed through, and all they hold."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    handler = shell.InteractiveTB
    for name in ("tb", "value", "etype"):
        if name in vars(handler):
            setattr(handler, name, None)


def forget_setup():
    """Chunked runs note there which set-up code has run: what it made is gone now. How many
    iterations this kernel has done stays, so that none runs twice in it."""
    for run in module_dict("colab_relay_runs").get("runs", {}).values():
        run["setup"] = ""


def attempt(step, default=None):
    """Whatever one step runs into, the others follow."""
    try:
        return step()
    except Exception:
        return default


def cleanup(shell):
    names = [name for name, _ in user_variables(shell)]
    figures = attempt(close_figures, 0)
    for name in names:
        shell.user_ns.pop(name, None)
        if name in shell.user_ns_hidden:  # the user had shadowed one of IPython's own
            shell.user_ns[name] = shell.user_ns_hidden[name]
    attempt(lambda: forget_outputs(shell))
    attempt(lambda: forget_tracebacks(shell))
    attempt(forget_setup)
    gc.collect()
    return {
        "variables_cleared": len(names),
        "cleared_variables": [text(name) for name in names[:MAX_VARIABLES]],
        "figures_closed": figures,
        "gpu_cache_cleared": attempt(empty_gpu_cache, False),
    }


def answer(arguments):
    question, *rest = arguments
    ask = {"variables": variables, "inspect": inspect, "cleanup": cleanup}[question]
    return Answer(ask(get_ipython(), *rest))
