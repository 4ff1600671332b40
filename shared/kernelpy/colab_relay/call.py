"""Calls a function of the package that an earlier call loaded into this kernel. If it is not
loaded, it is loaded from the sources. Without sources, the call only reports that."""

from __future__ import annotations

import json
import sys
import threading
import types
from typing import Any


def run(call: list[str], arguments: str, sources: dict[str, str]) -> Any:
    package, function, mime, delivery = call
    with import_lock():
        loader = find(package)
        if loader is None and sources:
            loader = install(package, sources)
        found = None if loader is None else loader.function(function)
    if found is None:
        mime, report = "application/vnd.colab-relay.missing+json", {"package": package}
    else:
        report = found(*json.loads(arguments))
    if delivery == "reply":
        return Answer({mime: report})
    if report is not None:
        publish({mime: report})


def import_lock() -> Any:
    """The lock of all calls in this process: the import system fails in a thread whose module
    another thread replaces."""
    return sys.__dict__.setdefault("_colab_relay_import_lock", threading.RLock())


def find(package: str) -> Any:
    found = sys.modules.get(package)
    loader = found.__dict__.get("loader") if type(found) is types.ModuleType else None
    return loader if loader is not None and loader.is_intact() else None


def install(package: str, sources: dict[str, str]) -> Any:
    module = types.ModuleType(package + ".package_loader")
    exec(
        compile(sources["package_loader.py"], "<colab_relay/package_loader.py>", "exec"),
        module.__dict__,
    )
    return module.install(package, sources)


def publish(bundle: dict[str, Any]) -> None:
    from IPython.core.getipython import get_ipython

    sys.stdout.flush()
    get_ipython().display_pub.publish(bundle)


class Answer:
    """What IPython turns into the reply to a user expression."""

    def __init__(self, bundle: dict[str, Any]) -> None:
        self.bundle = bundle

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self.bundle
