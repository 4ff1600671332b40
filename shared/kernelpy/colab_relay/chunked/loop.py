"""Runs one batch of a chunked run: the setup code, unless it ran in this kernel before, and then
iterations. Markers among the outputs confirm them.

The kernel records what it has done in the registry, so an iteration that ended never runs again in
this kernel, even if its marker was lost. registry.entry_of says at which iteration a batch starts.
save_kernel_state saves the registry with the variables. cleanup_colab, which deletes the variables,
empties "setup".

If iterations ran in another kernel and this one does not have their variables, "on_new" of the
batch's order decides: "stop" only reports that. "prepare" runs the setup code, marks the run as
"hollow" (see registry.py) and waits until the kept variables are restored. "continue" runs
iterations without them.
"""

from __future__ import annotations

import json
import signal
import time
import types
from typing import Any

from IPython.core.getipython import get_ipython

from .. import registry
from ..live import narrow
from .body import Loop, Setup
from .dependence import carried
from .exits import Exits
from .markers import Markers
from .result import NOTHING, Result
from .values import encode

MAX_CARRIED = 40 << 10  # bytes of JSON, so that its marker stays under 64 KiB


def run(spec: dict[str, Any]) -> None:
    shell = get_ipython()
    setup, loop = Setup(shell, spec["setup"]), Loop(shell, spec["loop"])
    result = Result(shell, setup, loop)
    with Exits(shell), Interrupts() as interrupts:
        batch = Batch(shell, spec)
        batch.begin()
        if batch.lacks_variables() and spec["on_new"] == "stop":
            batch.report_carried({})
            batch.markers.report("lost")
        elif batch.lacks_variables() and spec["on_new"] == "prepare":
            batch.prepare(setup, interrupts)
        elif spec["on_new"] != "prepare":
            batch.entry.pop("hollow", None)
            if batch.is_fresh():
                batch.run_setup(setup, interrupts)
            batch.report_carried(shell.user_ns)
            batch.iterate(loop, result, interrupts)


class Batch:
    def __init__(self, shell: Any, spec: dict[str, Any]) -> None:
        self.shell, self.spec = shell, spec
        self.entry = registry.entry_of(spec["key"], spec["lo"])
        self.markers = Markers(shell, spec["key"], self.entry)

    def begin(self) -> None:
        self.markers.report("start", fresh=self.is_fresh())

    def is_fresh(self) -> bool:
        return self.entry["setup"] != self.spec["setup_sha256"]

    def lacks_variables(self) -> bool:
        """Whether iterations are done and this kernel does not have the variables they left."""
        return self.entry["done"] > 0 and not registry.has_variables(self.entry)

    def prepare(self, setup: Setup, interrupts: Interrupts) -> None:
        """Runs the setup code, whose variables the kept ones will replace."""
        self.entry["hollow"] = True
        if self.is_fresh():
            self.run_setup(setup, interrupts)
        self.markers.report("prepared")

    def report_carried(self, names: dict[str, Any]) -> None:
        """Reports which variables iterations carry, as far as the values in names can change."""
        if not self.spec["analyse"]:
            return
        found = carried(self.spec["setup"], self.spec["loop"], self.shell.transform_cell)
        if names:
            found["names"] = narrow(found["names"], names)
        if len(json.dumps(found)) > MAX_CARRIED:
            found = {"names": {}, "opaque": ["too many variables"]}
        self.markers.report("carries", **found)

    def run_setup(self, setup: Setup, interrupts: Interrupts) -> None:
        self.entry["setup"] = ""
        seconds = self.step(setup, interrupts, "setup_failed")
        self.entry["setup"] = self.spec["setup_sha256"]
        self.markers.report("setup", seconds=seconds)

    def iterate(self, loop: Loop, result: Result, interrupts: Interrupts) -> None:
        began = time.monotonic()
        first = self.entry["done"]
        try:
            for i in range(first, self.spec["hi"]):
                spent = time.monotonic() - began
                if i > first and spent + spent / (i - first) / 2 > self.spec["seconds"]:
                    return  # the next batch continues here
                interrupts.check()
                self.once(i, loop, result, interrupts)
        finally:
            self.markers.flush()

    def once(self, i: int, loop: Loop, result: Result, interrupts: Interrupts) -> None:
        loop.prepare(i)
        self.shell.user_ns["i"] = i
        result.before()
        try:
            seconds = self.step(loop, interrupts, "failed")
        finally:
            given = result.after()
        self.entry["done"] = i + 1
        self.markers.done(i, seconds, {} if given is NOTHING else encode(given))

    def step(self, body: Setup | Loop, interrupts: Interrupts, event: str) -> float:
        """Runs a body in the user's namespace and returns the seconds it took."""
        began = time.monotonic()
        try:
            interrupts.running = body
            exec(body.code, self.shell.user_ns)
        except BaseException as error:
            interrupts.seen = False  # the error is its result
            self.markers.report(event, seconds=time.monotonic() - began)
            hide_frames(self.shell, error, body.code)
            raise
        finally:
            interrupts.running = None
        return time.monotonic() - began


def hide_frames(shell: Any, error: BaseException, code: types.CodeType) -> None:
    """Makes IPython show the error from the user's first line on, without our frames above it."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code is not code:
        tb = tb.tb_next
    if tb is None:
        return
    try:
        lines = shell.InteractiveTB.structured_traceback(type(error), error, tb, tb_offset=0)
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    except Exception:  # another IPython, or an error that takes no attribute
        pass


class Interrupts:
    """Raises KeyboardInterrupt for SIGINT only while the user's code runs. Otherwise it delays the
    interrupt: one between the end of an iteration and its count would make that iteration run
    again. After an interrupt the batch ends, even if the body caught the exception."""

    def __init__(self) -> None:
        self.running: Setup | Loop | None = None
        self.seen = False

    def __enter__(self) -> Interrupts:
        try:
            self.previous = signal.signal(signal.SIGINT, self.handle)
        except ValueError:  # not in the main thread, so no interrupt arrives
            self.previous = None
        return self

    def __exit__(self, *_: Any) -> None:
        if self.previous is not None and signal.getsignal(signal.SIGINT) == self.handle:
            signal.signal(signal.SIGINT, self.previous)

    def handle(self, number: int, frame: Any) -> None:
        self.seen = True
        while frame is not None:
            if self.running is not None and frame.f_code is self.running.code:
                raise KeyboardInterrupt
            frame = frame.f_back

    def check(self) -> None:
        if self.seen:
            raise Stopped


class Stopped(KeyboardInterrupt):
    """An interrupt that arrived between two iterations, or that an iteration caught."""

    def _render_traceback_(self) -> list[str]:
        return ["KeyboardInterrupt: interrupted between two iterations"]


Stopped.__name__ = Stopped.__qualname__ = "KeyboardInterrupt"
