"""Random chunked runs under random events, compared with the same loop run alone.

    python oracle.py SEED NUMBER [MINUTES]

tries NUMBER programs from SEED on, for at most so long, and prints what came out.

A program is a setup and a loop made of FEATURES. It runs in rounds, as a job of the executor runs
them, while events happen between rounds and in the middle of iterations. What it reports as
finished must be what the loop alone gives: each iteration's result, and the variables at the end.
It may stop and ask instead where something that it passes on was changed or lost.
"""

import atexit
import builtins
import collections
import contextlib
import io
import json
import linecache
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy.random  # noqa: E402
import pandas  # noqa: E402, F401
from colab_relay import cleanup, registry  # noqa: E402
from colab_relay.chunked import interrupts, markers, run  # noqa: E402
from colab_relay.state import operate  # noqa: E402
from features import FEATURES, IMPORTS  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from traitlets.config import Config  # noqa: E402

NUMBER = re.compile("K")


class Died(BaseException):
    """The end of a kernel."""


def show(*values):
    return repr([plain(value) for value in values])


def plain(value, depth=0):
    if depth > 8:
        return "deep"
    if hasattr(value, "to_dict") and hasattr(value, "iloc"):
        return ("frame", json.dumps(value.to_dict(), default=str, sort_keys=True))
    if hasattr(value, "tolist"):
        return ("array", plain(value.tolist(), depth + 1))
    if isinstance(value, dict):
        return (type(value).__name__, [(plain(k), plain(v, depth + 1)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (list, tuple, collections.deque)):
        return [plain(v, depth + 1) for v in value]
    return value if type(value) in (int, float, str, bool) else repr(value)


builtins.show = show


class Program:
    def __init__(self, rng, number):
        names = [name for name in FEATURES if number % 4 or not name.startswith("unkept")]
        chosen = [rng.choice(names) for _ in range(rng.randint(1, 5))]
        self.kinds = set(chosen)
        setup, loop, shown = [IMPORTS], [], []
        seed = str(rng.randrange(1000))
        for place, name in enumerate(chosen):
            texts = FEATURES[name]
            label = "%d" % place
            one, two, three = [NUMBER.sub(label, text).replace("SEED", seed) for text in texts]
            setup.append(one)
            loop.append("\n".join(["hook(%d)" % place, two]))
            shown.append(three)
        self.setup = "\n".join(setup)
        rng.shuffle(loop)
        self.shown = "(%s,)" % ", ".join(shown)
        self.loop = "\n".join(loop + ["hook(99)"])
        self.with_result = rng.random() < 0.7
        if self.with_result:
            self.loop += "\nresult = show(*%s)" % self.shown
        self.n = rng.randint(3, 14)
        self.batch = rng.choice([1, 2, 3, 5, 100])

    def alone(self):
        """What the loop gives without us: the results, and the values at the end."""
        shell = new_shell([])
        builtins.hook, builtins.outside = lambda place: None, lambda: 1
        names, results = shell.user_ns, []
        exec(shell.transform_cell(self.setup), names)
        code = compile(shell.transform_cell(self.loop), "<alone>", "exec")
        for i in range(self.n):
            names["i"] = i
            exec(code, names)
            results.append(names.get("result"))
        return results, self.end(names)

    def end(self, names):
        names["i"] = self.n - 1
        return eval("show(*%s)" % self.shown, names)

    def rename(self):
        """Gives variables other names."""
        for field in ("setup", "loop", "shown"):
            text = re.sub(r"(?<=[a-zA-Z])([0-5])\b", r"9\1", getattr(self, field))
            setattr(self, field, text)


def new_shell(displays):
    """A new kernel: nothing of an earlier one is left."""
    InteractiveShell.clear_instance()
    sys.modules.pop("colab_relay_runs", None)
    registry.lives.clear()
    config = Config({"HistoryManager": {"enabled": False}})
    main = types.ModuleType("__main__")
    shell = InteractiveShell.instance(config=config, user_module=main)
    atexit.unregister(shell.atexit_operations)

    def publish(data=None, metadata=None, **more):
        json.dumps(data)
        displays.append(data)

    shell.display_pub.publish = publish
    random.seed()
    numpy.random.seed()
    return shell


# What happens between two rounds, by its name: whether it changes something of the run, and code.
TEMPORARY = "t0 t1 t2 u0 fh0 v1"
HARMLESS = {
    "draws": "import random, numpy; random.random(); numpy.random.rand(3)",
    "seeds": "import random, numpy; random.seed(99); numpy.random.seed(99)",
    "binds": "unrelated = [1, 2]; other = {'a': unrelated}",
    "reads": "copies = [repr(type(v)) for v in list(globals().values())]",
    "temporary": " = ".join((TEMPORARY + " result i").split()) + " = 77",
}


class Trial:
    """One program with its events."""

    def __init__(self, seed, counts):
        self.rng, self.counts = random.Random(seed), counts
        self.program = Program(self.rng, seed)
        self.want, self.end = self.program.alone()
        self.second = Program(self.rng, 4)
        if self.rng.random() < 0.5:
            self.second.rename()
        self.second_want, _ = self.second.alone()
        self.displays, self.results = [], {}
        self.recorded = self.marked = 0
        self.carried = self.copy = self.stop = None
        self.needed = set()  # why it may stop and ask
        self.tainted = self.finished = False
        self.saved = None
        self.events = []
        self.kind = self.rng.choice(["quiet", "lost", "changed", "raised", "interrupt", "state",
                                     "second", "anything", "anything"])  # fmt: skip
        self.plan = None  # what the next hook does, and where
        self.made = 1
        self.every = self.rng.choice([0, 0, 1e9])  # seconds between two copies
        self.failures = 0
        self.last_i = None  # of the last hook
        self.in_second = False

    def run(self):
        folder = tempfile.mkdtemp()
        self.folder = os.path.join(folder, "temp")
        os.mkdir(self.folder)
        os.environ["COLAB_RELAY_TEMP"] = self.folder
        tempfile.tempdir = None
        builtins.hook, builtins.outside = self.hook, self.outside
        run.hide_frames = lambda *args: None  # takes 100 ms
        interrupts.GRACE = self.rng.choice([0.5, -1])
        run.FEW, run.MAX_FEW = self.rng.choice([20, 0]), math.inf  # however slow the machine is
        try:
            self.shell = new_shell(self.displays)
            answer = ""
            for _ in range(60):
                answer = self.job(answer)
                if answer is None or self.finished:
                    break
            else:
                raise Wrong("it does not end")
            self.check()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def outside(self):
        """Another value in each kernel that goes on from an earlier one."""
        if self.in_second:  # which stays in its kernel
            return 1
        self.made += self.recorded > 0
        return self.made

    # The relay

    def order(self, answer):
        return {
            "key": "key", "setup": self.program.setup, "loop": self.program.loop,
            "setup_sha256": "1" + self.program.setup, "n": self.program.n,
            "batch_size": self.program.batch, "seconds": 10, "done": self.recorded,
            "marked": self.marked, "carried": self.carried, "independent": False, "replaces": "",
            "on_stop": answer, "copy": self.copy,
            "keep": {"every": self.every, "share": 1e9, "bytes": 1 << 26},
        }  # fmt: skip

    def job(self, answer):
        """Prepares and runs rounds until the job ends. Returns the answer for the next one."""
        self.stop = None
        try:
            self.part(lambda: run.prepare(self.order(answer)))
            while True:
                self.between()
                self.part(lambda: run.round("key"))
                if not registry.runs()["key"].pop("again"):
                    break
        except Died:
            self.shell = new_shell(self.displays)
            if self.saved and self.rng.random() < 0.5:
                self.do_restore()
            return ""
        except (ArithmeticError, KeyboardInterrupt):
            if not registry.runs()["key"]["incomplete"]:
                return ""
            self.counts["incomplete"] += 1
        except Exception as e:
            raise Wrong("%s: %s" % (type(e).__name__, e)) from e
        if self.finished:
            return None
        if self.stop is None and registry.runs()["key"]["incomplete"]:
            return self.choose("iteration_incomplete")
        if self.stop is None:
            raise Wrong("the job ended without a reason")
        return self.choose(self.stop)

    def choose(self, reason):
        self.events.append(reason)
        self.counts["stops"] += 1
        if reason not in self.needed:
            raise Wrong("needless stop: %s %s" % (reason, self.names))
        if reason == "variables_lost" or self.copy is None or self.rng.random() < 0.2:
            return None
        return "restore"

    def part(self, call):
        """A step or round, with the markers that the relay reads of it."""
        self.displays.clear()
        self.plan = self.next_plan()
        try:
            call()
        except BaseException:
            if self.plan == "died":
                self.undo_death()
                self.read(self.displays[: self.at_death])
                raise Died from None
            self.read(self.displays)
            raise
        self.read(self.displays)

    def read(self, displays):
        for data in displays:
            m = data.get(markers.MIME)
            if m is None:
                continue
            self.marked = m["done"]
            event = m["event"]
            if event == "done":
                for value in m.get("values", ()):
                    self.results[value["i"]] = json.loads(value["result"])
            elif event == "round":
                self.recorded, self.carried = m["done"], m["carried"]
                self.copy = m["kept"] or self.copy
                self.unkept = m["unkept"]
            elif event == "stopped":
                self.stop, self.names = m["reason"], m["names"]
            elif event == "failed":
                self.names = m["changed"]
            elif event == "finished":
                self.finished = True
            elif event == "restored":
                self.recorded = m["done"]

    # Events

    def next_plan(self):
        if self.failures > 4 or self.rng.random() < 0.6:
            return None
        kinds = {"lost": ["die"], "raised": ["raise"], "interrupt": ["interrupt"]}
        kinds["anything"] = ["die", "raise", "interrupt"]
        kind = self.rng.choice(kinds.get(self.kind, [None]))
        if kind is None:
            return None
        self.failures += 1
        self.left = self.rng.randrange(12)
        return kind

    def hook(self, place):
        """Called by the loop at several places."""
        first, self.last_i = self.last_i != self.shell.user_ns["i"], self.shell.user_ns["i"]
        if self.plan not in ("die", "raise", "interrupt"):
            return
        if self.left:
            self.left -= 1
            return
        plan, self.plan = self.plan, None
        self.events.append("%s at %d of %s" % (plan, place, self.shell.user_ns["i"]))
        if plan == "die":
            self.lose()
            self.plan, self.at_death = "died", len(self.displays)
            shutil.copytree(self.folder, self.folder + ".dead")
            raise Died
        # Otherwise it has changed nothing up to here.
        if self.has_unkept() or not first or not run.FEW:
            self.needed.add("iteration_incomplete")
        if plan == "raise":
            raise ZeroDivisionError("planned")
        signal.raise_signal(signal.SIGINT)

    def undo_death(self):
        shutil.rmtree(self.folder)
        os.rename(self.folder + ".dead", self.folder)

    def lose(self):
        """A new kernel may stop the run only if something could not be kept."""
        if self.has_unkept():
            self.needed.add("variables_lost")

    def has_unkept(self):
        """Whether the run may have something that can't be compared or kept. Where code can reach
        any name, temporaries count."""
        kinds = self.program.kinds
        opaque = kinds & {"exec", "exec alone", "globals", "magic", "deleted"}
        unsure = opaque and any(kind.startswith("temporary") for kind in kinds)
        return unsure or any(kind.startswith("unkept") for kind in kinds)

    def between(self):
        """What others do between two rounds."""
        rng = self.rng
        if rng.random() < 0.6:
            return
        does = {"lost": ["die"], "changed": ["change", "harmless"], "second": ["second"],
                "state": ["save", "restore", "restore"], "quiet": ["harmless"]}  # fmt: skip
        everything = ["die", "change", "harmless", "second", "save", "restore", "cleanup"]
        what = rng.choice(
            does.get(self.kind, ["harmless"] if self.kind != "anything" else everything)
        )
        getattr(self, "do_" + what)()

    def do_die(self):
        self.failures += 1
        if self.failures > 6:
            return
        self.events.append("new kernel")
        self.lose()
        raise Died

    def do_harmless(self):
        name = self.rng.choice(list(HARMLESS))
        self.events.append(name)
        exec(HARMLESS[name], self.shell.user_ns)
        last = registry.lives["key"].last
        mine = last.reached if last else set()
        if name == "temporary" and mine & set(TEMPORARY.split()):
            self.needed.add("variables_changed")

    def do_change(self):
        """Changes a variable of the run, if there is one that can be changed."""
        names, rng = self.shell.user_ns, self.rng
        mine = [
            n for n in names
            if re.fullmatch("[a-z]+[0-9]", n) and not isinstance(names[n], types.ModuleType)
        ]  # fmt: skip
        if mine:
            name = rng.choice(mine)
            how = rng.choice(["bind", "copy", "change", "delete"])
            self.events.append("change: %s %s" % (how, name))
            if change(names, name, how, rng):
                self.needed.add("variables_changed")

    def do_second(self):
        """Another run, with the same names or others."""
        if "key2" not in registry.runs():
            order = dict(self.order(""), key="key2", setup=self.second.setup, done=0, marked=0)
            order.update(loop=self.second.loop, carried=None, copy=None, setup_sha256="second")
            order.update(n=self.second.n, batch_size=self.second.batch)
            action = lambda: run.prepare(order)  # noqa: E731
        else:
            action = lambda: run.round("key2")  # noqa: E731
        self.events.append("second run")
        self.needed.add("variables_changed")
        plan, self.plan = self.plan, None
        self.in_second = True
        try:
            action()
        except Exception:
            pass
        self.plan, self.in_second = plan, False
        for m in (d[markers.MIME] for d in self.displays if markers.MIME in d):
            if m["run"] == "key2" and m["event"] == "done" and self.second.with_result:
                for value in m.get("values", ()):
                    got, want = json.loads(value["result"]), self.second_want[value["i"]]
                    if got != want:
                        raise Wrong("second run, %d:\n%s\ninstead of\n%s" % (value["i"], got, want))
        self.displays.clear()

    def do_save(self):
        report = operate.save()
        path = report["path"]
        kept = self.folder + ".kept"
        shutil.copy(path, kept)
        m = report["manifest"]
        self.saved = kept, m["bytes"], m["sha256"]
        self.skipped = {s["name"] for s in m["skipped"]}
        self.saved_in = self.folder
        operate.remove(path)
        self.events.append("save at %d" % registry.runs()["key"]["done"])

    def do_restore(self):
        if not self.saved:
            self.do_save()
            return
        path = operate.prepare()["path"]
        shutil.copy(self.saved[0], path)
        report = operate.restore(path, self.saved[1], self.saved[2])
        self.events.append("restore")
        if self.skipped or report["failed"] or "variables_changed" in self.needed:
            self.needed.add("variables_changed")
        self.needed.update(["iteration_incomplete"] if self.kind == "anything" else [])

    def do_cleanup(self):
        self.events.append("cleanup")
        cleanup.cleanup()
        self.needed.add("variables_lost")

    def check(self):
        if not self.needed:
            self.counts["tame"] += 1
            self.counts["tame, asked"] += not self.finished
        if not self.finished:
            self.counts["asked"] += 1
            self.counts["asked %s" % self.events[-1]] += 1
            return
        self.counts["finished"] += 1
        if self.program.with_result:
            got = [self.results.get(i) for i in range(self.program.n)]
            for i, (one, two) in enumerate(zip(got, self.want)):
                if one != two:
                    raise Wrong("result of %d:\n%s\ninstead of\n%s" % (i, one, two))
        names = self.shell.user_ns
        exec("import collections, os, random\nimport numpy as np, pandas as pd", names)
        others = [e for e in self.events if e in ("second run", "temporary") or "change:" in e]
        if "temporary" in self.events or others and not self.program.with_result:
            return  # temporaries and what only the setup uses are the others' to change
        end = self.program.end(names)
        if end != self.end:
            raise Wrong("at the end:\n%s\ninstead of\n%s" % (end, self.end))


def change(names, name, how, rng):
    """Changes a variable as other code could. Returns whether a look must or may see it."""
    import copy

    value = names[name]
    if how == "bind":
        names[name] = rng.choice([1000, [], "other"])
    elif how == "copy":
        try:
            names[name] = copy.deepcopy(value)
        except Exception:
            return False
    elif how == "delete":
        del names[name]
    elif isinstance(value, list):
        value.append("other")
    elif isinstance(value, dict):
        value["other"] = 1
    elif isinstance(value, set):
        value.add("other")
    elif hasattr(value, "fill"):
        value.fill(9)
    elif hasattr(value, "n"):
        value.n = 1000
    elif isinstance(value, (int, float)):
        names[name] = value + 1
    else:
        return False
    return True


class Wrong(Exception):
    pass


def attempt(seed, counts):
    """One trial. Returns what was wrong, or None."""
    counts["programs"] += 1
    linecache.clearcache()
    trial = Trial(seed, counts)
    main = sys.modules["__main__"]
    try:
        trial.run()
    except Wrong as e:
        return "seed %d, %s: %s\nevents: %s\nstops needed: %s\n--- setup\n%s\n--- loop\n%s\n" % (
            seed, trial.kind, e, trial.events, trial.needed, trial.program.setup, trial.program.loop
        )  # fmt: skip
    finally:
        sys.modules["__main__"] = main
    return None


def main(seed, number, seconds):
    counts, wrong, end = collections.Counter(), 0, time.monotonic() + seconds
    for one in range(seed, seed + number):
        if time.monotonic() > end:
            break
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = attempt(one, counts)
        except Exception:
            found = "seed %d: %s" % (one, traceback.format_exc())
        if found:
            wrong += 1
            print(found, flush=True)
    asked = ", ".join("%s %d" % (k, n) for k, n in sorted(counts.items()) if k.startswith("asked "))
    print("chunked runs, seeds from %d: %d programs, %d wrong" % (seed, counts["programs"], wrong))
    print("stopped and asked: %d (%s)" % (counts["asked"], asked))
    print(
        "of %d that can be kept and were left alone: %d" % (counts["tame"], counts["tame, asked"])
    )
    return 1 if wrong or counts["tame, asked"] else 0


if __name__ == "__main__":
    arguments = [int(text) for text in sys.argv[1:]] + [60 * 1_000_000]
    sys.exit(main(*arguments[:2], seconds=60 * arguments[2]))
