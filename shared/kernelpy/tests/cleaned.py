"""What a cleanup meets: objects that fail as they go, libraries in use, memory held twice."""

import sys
import types
import weakref

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402

_calls = []


class Big:
    pass


class Stubborn:
    def __del__(self):
        _calls.append("del")
        raise RuntimeError("will not go")


class Returning:
    def __del__(self):
        globals()["_returned"] = self


def _torch():
    """As much of torch as a cleanup touches: it has no GPU here to empty."""
    torch = types.ModuleType("torch")
    cuda = types.ModuleType("torch.cuda")
    cuda.is_initialized = lambda: True
    cuda.empty_cache = lambda: _calls.append("empty_cache")
    torch.cuda = cuda
    sys.modules["torch"], sys.modules["torch.cuda"] = torch, cuda


_torch()
stubborn = Stubborn()
returning = Returning()
kept = Big()
cycle = Big()
cycle.me = cycle
_alive = [weakref.ref(kept), weakref.ref(cycle)]
exit = "shadowed"
plt.figure()
plt.figure()
