"""Makes modules of the sources that came with a batch, and runs it.

The modules are importable by each other only while they load, so nothing of them stays
behind in sys.modules.
"""

import sys
import types


def run(sources, spec):
    names = ["colab_relay_" + name for name, _ in sources]
    try:
        for name, (_, source) in zip(names, sources):
            module = sys.modules[name] = types.ModuleType(name)
            exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    finally:
        for name in names:
            sys.modules.pop(name, None)
    module.run(spec)
