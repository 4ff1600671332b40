"""The states of random numbers that a run has for itself, so that neither other code nor another
run disturbs its numbers, nor it theirs. They are plain values, for the registry."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import random
from typing import Any, Callable, Dict, Iterator

from ..safe import module_dict

States = Dict[str, Any]
LABEL = "the state of "  # and the module: how a state is named beside variables


def get() -> States:
    """The states of this moment, by the names of modules that are imported."""
    found: States = {"random": pickle.dumps(random.getstate(), 4)}
    numpy, torch = module_dict("numpy.random"), module_dict("torch.random")
    if "get_state" in numpy:
        found["numpy.random"] = pickle.dumps(numpy["get_state"](legacy=False), 4)
    if "get_rng_state" in torch:
        found["torch"] = torch["get_rng_state"]().numpy().tobytes()
        cuda = module_dict("torch.cuda")
        with contextlib.suppress(Exception):  # a GPU that has failed
            if "is_initialized" in cuda and cuda["is_initialized"]():
                states = cuda["get_rng_state_all"]()
                found["torch.cuda"] = [state.numpy().tobytes() for state in states]
    return found


def put(states: States) -> None:
    """Installs states. A library that has none among them keeps its own."""
    random.setstate(pickle.loads(states["random"]))
    numpy, torch = module_dict("numpy.random"), module_dict("torch.random")
    if "numpy.random" in states and "set_state" in numpy:
        with contextlib.suppress(Exception):  # of another bit generator
            numpy["set_state"](pickle.loads(states["numpy.random"]))
    if "torch" in states and "set_rng_state" in torch:
        torch["set_rng_state"](tensor(states["torch"]))
    if "torch.cuda" in states:
        with contextlib.suppress(Exception):  # a VM with fewer GPUs
            module_dict("torch.cuda")["set_rng_state_all"](
                [tensor(data) for data in states["torch.cuda"]]
            )


def tensor(data: bytes) -> Any:
    torch = module_dict("torch")
    return torch["frombuffer"](bytearray(data), dtype=torch["uint8"])


def seed(kinds: Any, salt: str) -> None:
    """Seeds generators of these kinds by their own states and salt, so that they give numbers of
    their own, and the same ones each time."""
    digest = hashlib.sha256(pickle.dumps((get(), salt), 4)).digest()
    number = int.from_bytes(digest[:4], "little")
    if "random" in kinds:
        random.seed(digest)
    if "numpy.random" in kinds:
        module_dict("numpy.random")["seed"](number)
    if "torch" in kinds:
        module_dict("torch")["manual_seed"](number)


@contextlib.contextmanager
def own(states: States | None, salt: str, store: Callable[[States], None]) -> Iterator[None]:
    """Installs the run's states while its code runs, and afterwards the others' again. The run's
    go to store. Without states, the run gets some that are drawn from the others'."""
    others = get()
    if states is None:
        seed(others, salt)
    else:
        put(states)
    try:
        yield
    finally:
        now = get()
        store(now)
        put(others)
        seed([kind for kind in now if kind not in others], "others")  # imported meanwhile


def changed(before: States, after: States) -> list[str]:
    """The labels of states that differ. A library that was imported meanwhile is not among them:
    in another kernel, the setup imports it."""
    return [LABEL + kind for kind in sorted(before) if before[kind] != after.get(kind)]
