"""Makes modules of the sources that came with a batch, and runs it.

The modules are importable by each other only while they load, so nothing of them stays
behind in sys.modules.
"""

import sys
import types


def own_name(name):
    return name if name.startswith("colab_relay") else "colab_relay_" + name


def run(sources, spec):
    names = [own_name(name) for name, _ in sources]
    try:
        for name, (_, source) in zip(names, sources):
            module = sys.modules[name] = types.ModuleType(name)
            exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    finally:
        for name in names:
            sys.modules.pop(name, None)
    module.run(spec)
