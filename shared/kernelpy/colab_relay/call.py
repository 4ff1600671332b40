"""Calls a function of the package that an earlier call left in this kernel. If the package is
missing and its sources are not included, it only reports that."""

import json
import sys
import types


def run(call, arguments, sources):
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


def find(package):
    found = sys.modules.get(package)
    keeper = found.__dict__.get("keeper") if type(found) is types.ModuleType else None
    return keeper if keeper is not None and keeper.is_whole() else None


def install(package, sources):
    module = types.ModuleType(package + ".kept")
    exec(compile(sources["kept.py"], "<colab_relay/kept.py>", "exec"), module.__dict__)
    return module.install(package, sources)


def publish(bundle):
    from IPython.core.getipython import get_ipython

    sys.stdout.flush()
    get_ipython().display_pub.publish(bundle)


class Answer:
    """What IPython turns into the reply to a user expression."""

    def __init__(self, bundle):
        self.bundle = bundle

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.bundle
