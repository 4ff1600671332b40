"""Calls a function of the package that an earlier call left in this kernel. If the package is
missing and its sources are not included, it only reports that."""

from __future__ import annotations

import json
import sys
import types
from typing import Any


def run(call: list[str], arguments: str, sources: dict[str, str]) -> Any:
    package, function, mime, way = call
    keeper = find(package)
    if keeper is None and sources:
        keeper = install(package, sources)
    if keeper is None:
        mime, report = "application/vnd.colab-relay.missing+json", {"package": package}
    else:
        report = keeper.call(function, json.loads(arguments))
    if way == "reply":
        return Answer({mime: report})
    if report is not None:
        publish({mime: report})


def find(package: str) -> Any:
    found = sys.modules.get(package)
    keeper = found.__dict__.get("keeper") if type(found) is types.ModuleType else None
    return keeper if keeper is not None and keeper.is_whole() else None


def install(package: str, sources: dict[str, str]) -> Any:
    module = types.ModuleType(package + ".kept")
    exec(compile(sources["kept.py"], "<colab_relay/kept.py>", "exec"), module.__dict__)
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
