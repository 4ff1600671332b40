"""What a chunked run does about other code, exceptions and new kernels."""

import os
import random
import signal
import sys
import types

import pytest
from colab_relay import cleanup, registry
from colab_relay.chunked import copies as copying
from colab_relay.chunked import interrupts, markers
from colab_relay.chunked import run as rounds
from colab_relay.chunked.body import Body
from colab_relay.chunked.names import Names
from colab_relay.state import operate
from conftest import new_ipython


class Run:
    """A run as a relay sees it."""

    def __init__(self, shell, setup, loop, n=12, key="run", **more):
        self.shell, self.key, self.stop = shell, key, None
        self.events, self.results, self.unkept, self.anew = [], [], [], []
        self.spec = {
            "key": key, "setup": setup, "loop": loop, "setup_sha256": "of " + setup,
            "n": n, "batch_size": 4, "seconds": 10, "done": 0, "marked": 0,
            "carried": None, "independent": False, "replaces": "", "copy": None,
            "keep": {"every": 0, "share": 1e9, "bytes": 64 << 20},
        }  # fmt: skip
        self.spec.update(more)

    def prepare(self, on_stop=""):
        self.step(lambda: rounds.prepare(dict(self.spec, on_stop=on_stop)))

    def round(self):
        self.step(lambda: rounds.round(self.key))
        return registry.runs()[self.key].pop("again")

    def step(self, call):
        self.stop = None
        try:
            call()
        finally:
            for m in self.shell.displayed(markers.MIME):
                self.read(m)

    def read(self, m):
        self.events.append(m["event"])
        self.spec["marked"] = m["done"]
        if m["event"] == "round":
            self.spec.update(
                done=m["done"], carried=m["carried"], copy=m["kept"] or self.spec["copy"]
            )
            self.unkept = m["unkept"]
        elif m["event"] == "stopped":
            self.stop = m["reason"], m["names"]
        elif m["event"] == "variables":
            self.unkept = m["unkept"]
        elif m["event"] == "anew":
            self.anew = m["names"]
        elif m["event"] == "failed":
            self.changed = m["changed"]
        self.results += [(v["i"], v["result"]) for v in m.get("values", ())]

    def finish(self, on_stop=None):
        """Prepares again if on_stop is given, and runs rounds to the end, or to a stop."""
        if on_stop is not None:
            self.prepare(on_stop)
        while self.stop is None and self.round():
            pass
        return self.stop or "finished"


def new_kernel(shell):
    """The kernel was killed, and another one began."""
    registry.runs().clear()
    registry.lives.clear()
    shell.use(new_ipython())
    random.seed()


@pytest.fixture(autouse=True)
def no_lives():
    yield
    registry.lives.clear()


def begun(shell, setup, loop, **more):
    """A run after its first round, of four iterations."""
    run = Run(shell, setup, loop, **more)
    run.prepare()
    assert run.round()
    return run


def older_state(shell, run):
    """Other code changes a variable, saves it, and restores it later."""
    shell.run("total = -500")
    report = operate.save()
    shell.run("total = 77")
    operate.restore(report["path"], report["manifest"]["bytes"], report["manifest"]["sha256"])


OTHERS = {
    "another run": lambda shell, run: Run(shell, "total = 1000", "total += 1", key="2").prepare(),
    "other code": lambda shell, run: shell.run("total = 10**6"),
    "an older state": older_state,
    "a deletion": lambda shell, run: shell.run("del total"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_whose_variable_others_changed_stops(shell, name):
    run = begun(shell, "total = 0", "total += 1\nresult = total", n=16)
    OTHERS[name](shell, run)
    assert run.finish() == ("variables_changed", ["total"])
    assert run.finish("") == ("variables_changed", ["total"])  # nothing runs unasked
    assert run.finish("restore") == "finished" and shell.names["total"] == 16
    assert [value for _, value in run.results] == [str(n) for n in range(1, 17)]


@pytest.mark.parametrize(
    "code, changed",
    {
        "f(7)": [],
        "a = a[::-1]": ["a"],
        "df['x'] = df['x'].to_numpy()[::-1]": ["df"],
        "c.add(dict)": ["c"],
    }.items(),
)
def test_what_counts_as_changed(shell, code, changed):
    setup = "import functools\nimport numpy as np, pandas as pd\nfrom weakref import WeakSet"
    setup += "\na = np.arange(9)\ndf = pd.DataFrame({'x': np.arange(9)})\nclass C: pass"
    setup += "\nc = WeakSet([C])\n@functools.lru_cache(None)\ndef f(x): return x"
    run = begun(shell, setup, "f(i); a.sum(), df.x.sum(), len(c)")
    assert run.spec["carried"] == []
    shell.run(code)
    assert run.finish() == (("variables_changed", changed) if changed else "finished")


def test_what_only_the_setup_uses_is_anybodys(shell):
    setup = "raw = open('f', 'w')\nrows = [[0], [1]]\nrow = rows[0]"
    run = begun(shell, setup, "row.append(i)", n=8)
    assert run.unkept == [] and run.spec["carried"] == ["row", "rows"]
    shell.run("raw = 'mine'")
    run.prepare()
    assert run.stop is None
    new_kernel(shell)
    assert run.finish("") == "finished" and shell.names["rows"][0] == [0, *range(8)]


PASSED = {
    "a number": ("total = 0", "total += i"),
    "items": ("hist = {'loss': []}", "for k, v in hist.items(): v.append(i)"),
    "numpy": ("import numpy as np\nnp.random.seed(1)\nxs = []", "xs.append(np.random.rand())"),
    "a class": ("class C:\n    seen = []\n    def add(self, x): self.seen.append(x)", "C().add(i)"),
}


SLOW = [pytest.param(name, marks=pytest.mark.long) for name in PASSED if name != "a number"]


@pytest.mark.parametrize("name", ["a number", *SLOW])
def test_a_new_kernel_goes_on_with_what_was_passed_on(shell, name):
    setup, loop = PASSED[name]
    shown = "\nresult = repr([%s])" % {
        "a number": "total", "items": "hist", "get": "hist", "enumerate": "rows",
        "a class": "C.seen", "a default": "f.__defaults__",
    }.get(name, "xs")  # fmt: skip
    alone = Run(shell, setup, loop + shown, n=14)
    assert alone.finish("") == "finished"
    shell.run("%reset -f")
    run = begun(shell, setup, loop + shown, n=14, key="killed")
    assert run.spec["copy"]["done"] == 4
    new_kernel(shell)
    assert run.finish("") == "finished" and "restored" in run.events
    assert run.results == alone.results


def test_a_new_kernel_without_a_copy_stops(shell):
    run = begun(shell, "total = 0", "total += 1")
    new_kernel(shell)
    run.spec["copy"] = None
    run.prepare()
    assert run.stop == ("variables_lost", ["total"]) and "setup" not in run.events[-2:]
    assert run.round() is False and run.stop is None and "total" not in shell.names
    assert run.finish("continue") == "finished" and shell.names["total"] == 8


def test_a_damaged_copy_changes_nothing(shell):
    run = begun(shell, "total = 0", "total += 1")
    with open(run.spec["copy"]["path"], "r+b") as file:
        file.seek(40)
        file.write(b"damaged")
    new_kernel(shell)
    assert run.finish("") == ("variables_lost", ["total"])
    assert registry.runs()["run"]["setup"] == ""


@pytest.mark.parametrize("copied", [True, False])
def test_the_setups_values_stay_or_are_named_if_nothing_is_passed_on(shell, monkeypatch, copied):
    setup = "import os\nw = os.environ['NUMBER']\ndef f(): return w"
    monkeypatch.setenv("NUMBER", "1")
    run = begun(shell, setup, "result = f()")
    assert run.spec["carried"] == [] and run.anew == []
    monkeypatch.setenv("NUMBER", "2")
    new_kernel(shell)
    run.spec["copy"] = run.spec["copy"] if copied else None
    assert run.finish("") == "finished" and run.results[-1] == (11, '"1"' if copied else '"2"')
    assert run.anew == ([] if copied else ["w"]) and len(run.results) == 12


def test_what_another_cell_defined_is_followed(shell):
    shell.run("seen = []\nn = 0\ndef add(x): seen.append(x)")
    shell.run("class Base:\n  def step(self):\n    global n\n    n += 1")
    run = begun(shell, "class Mine(Base): pass\nm = Mine()", "add(i); m.step()")
    assert run.spec["carried"] == ["n", "seen"]
    shell.run("seen.clear(); Base.step = print")
    assert run.finish() == ("variables_changed", ["m", "seen"])


FAILS = "if i == 5 and not os.path.exists('told'):\n    open('told', 'w').close()\n    1 / 0\n"


def test_an_iteration_that_changed_something_is_not_tried_again_unasked(shell):
    loop = "total += 1\n" + FAILS
    for answer, total in {"again": 13, "skip": 12, "restore": 12}.items():
        run = begun(shell, "import os\ntotal = 0", loop, key=answer)
        with pytest.raises(ZeroDivisionError):
            run.round()
        assert run.changed == ["total"]
        assert run.finish("") == ("iteration_incomplete", ["total"])
        assert run.finish(answer) == "finished" and shell.names["total"] == total
        os.remove("told")


def test_going_back_removes_what_did_not_exist_then(shell):
    late = """if i >= 4: exec('late = globals().get("late", 0) + 1')\n"""
    late += "result = globals().get('late')\n"
    for more in ("", "total += 1\n"):  # what did not end has changed late, or total alone
        loop = ("" if more else late) + more + FAILS + (late if more else "")
        run = begun(shell, "import os\ntotal = 0", loop, key="run" + more)
        with pytest.raises(ZeroDivisionError):
            run.round()
        assert run.finish("restore") == "finished"
        assert dict(run.results)[4] == "1" and dict(run.results)[11] == "8"
        os.remove("told")
        shell.run("del late")


def test_a_run_does_not_go_back_to_what_the_copy_lacks(shell, monkeypatch):
    monkeypatch.setattr(copying, "SETUP_BYTES", 50_000)
    shell.run("big = list(range(50_000))")
    loop = "total += 1\nif i == 5: big.append(i)\n" + FAILS
    run = begun(shell, "import os\ntotal = 0", loop)
    with pytest.raises(ZeroDivisionError):
        run.round()
    assert run.finish("restore") == ("iteration_incomplete", ["big", "total"])
    assert len(shell.names["big"]) == 50_001 and shell.names["total"] == 6
    assert run.finish("again") == "finished" and shell.names["total"] == 13


def test_an_iteration_that_changed_nothing_is_tried_again(shell):
    setup = "import os, random\nrandom.seed(3)\ntotal = 0"
    run = begun(shell, setup, "x = random.random()\n" + FAILS + "total += x\nresult = total")
    with pytest.raises(ZeroDivisionError):
        run.round()
    assert run.changed == [] and run.spec["done"] == 5  # iteration 4 is recorded
    random.seed(3)
    want = sum(random.random() for _ in range(12))
    assert run.finish("") == "finished" and abs(shell.names["total"] - want) < 1e-9


def test_a_short_iteration_ends_before_an_interrupt(shell):
    loop = "if i == 6: signal.raise_signal(signal.SIGINT)\ntotal += 1"
    run = begun(shell, "import signal\ntotal = 0", loop)
    with pytest.raises(KeyboardInterrupt):
        run.round()
    assert run.spec["done"] == 7 and "failed" not in run.events
    assert run.finish("") == "finished" and shell.names["total"] == 12


def test_an_interrupt_in_the_last_iteration_does_not_keep_the_run_from_its_end(shell):
    loop = "if i == 11: signal.raise_signal(signal.SIGINT)\ntotal += 1"
    run = begun(shell, "import signal\ntotal = 0", loop)
    assert run.finish() == "finished" and shell.names["total"] == 12


def test_a_long_iteration_is_interrupted(shell, monkeypatch):
    monkeypatch.setattr(interrupts, "GRACE", 0.05)
    hangs = "if i == 6:\n    signal.raise_signal(signal.SIGINT)\n    threading.Event().wait(60)"
    loop = "total += 1\n" + hangs
    run = begun(shell, "import signal, threading\ntotal = 0", loop)
    with pytest.raises(KeyboardInterrupt):
        run.round()
    assert run.changed == ["total"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nobodys_random_numbers_disturb_anybodys(shell):
    run = begun(shell, "import random\nrandom.seed(1)", "result = random.random()")
    random.seed(5)
    first = [random.random() for _ in range(3)]
    random.seed(5)
    run.round()
    assert [random.random() for _ in range(3)] == first
    run.finish()
    random.seed(1)
    assert [float(v) for _, v in run.results] == [random.random() for _ in range(12)]


class Torch:
    """As much of torch as a run's random states need. This stack has none."""

    def __init__(self, monkeypatch):
        import numpy

        self.state, self.numpy = b"before", numpy
        module, random = types.ModuleType("torch"), types.ModuleType("torch.random")
        module.uint8, module.frombuffer = numpy.uint8, numpy.frombuffer
        module.manual_seed, module.draw = self.seed, self.draw
        random.get_rng_state, random.set_rng_state = self.get, self.set
        monkeypatch.setitem(sys.modules, "torch", module)
        monkeypatch.setitem(sys.modules, "torch.random", random)

    def get(self):
        tensor = self.numpy.frombuffer(self.state, self.numpy.uint8)
        return types.SimpleNamespace(numpy=lambda: tensor)

    def set(self, tensor):
        self.state = tensor.tobytes()

    def seed(self, number):
        self.state = b"seeded"

    def draw(self):
        self.state += b"!"


def test_a_run_has_its_own_states_of_torch(shell, monkeypatch):
    torch = Torch(monkeypatch)
    run = begun(shell, "import torch", "torch.draw()")
    assert torch.state == b"before" and "the state of torch" in run.spec["carried"]
    torch.state = b"other"
    run.round()
    assert (
        torch.state == b"other" and registry.runs()["run"]["random"]["torch"] == b"seeded!!!!!!!!"
    )


def test_a_run_goes_back_with_a_restored_state(shell):
    run = begun(shell, "total = 0", "total += 1\nif i > 6: total += late * 0\nif i > 5: late = i")
    report = operate.save()
    run.round()
    manifest = report["manifest"]
    operate.restore(report["path"], manifest["bytes"], manifest["sha256"])
    assert "late" not in shell.names
    assert run.finish() == "finished" and shell.names["total"] == 12


def test_a_cleaned_up_kernel_asks_before_it_repeats_anything(shell):
    run = begun(shell, "total = 0", "total += 1", keep={"every": 99, "share": 1, "bytes": 1 << 20})
    run.round()
    cleanup.cleanup()
    assert run.finish() == ("variables_lost", ["total"])
    assert run.finish("") == ("variables_lost", ["total"])
    assert run.finish("restore") == "finished" and shell.names["total"] == 12


def test_the_newest_two_copies_stay_until_the_end(shell, tmp_path):
    run = begun(shell, "total = 0", "total += 1", batch_size=1)
    for _ in range(4):
        run.round()
    assert len(copies(tmp_path)) == 2
    new_kernel(shell)
    assert run.finish("") == "finished" and not copies(tmp_path)


def copies(tmp_path):
    return [name for name in os.listdir(str(tmp_path)) if name.startswith("colab-relay-state-")]


TEMPORARY = {
    "x = i": "x",
    "x = y = i; print(x)": "x y",
    "if i: x = 1\nelse: x = 2\nprint(x)": "x",
    "if i: x = 1\nprint(x)": "",
    "x = 1\nif i: continue\nprint(x)": "x",
    "x += 1": "",
    "for x in y: print(x)": "x",
    "x = 1\nif i: continue\ny = 1": "x",
    "for k in z:\n    if k: continue\ny = 1": "k y",
    "while i:\n    print(x)\n    x = 1": "",
    "try: x = 1\nexcept E: pass\nprint(x)": "",
    "try: 1\nexcept E as e: print(e)": "",
    "try: x = 1\nfinally: print(x)": "",
    "with open(y) as x: z = x": "x z",
    "x = 1\ndel x": "",
    "x = 1\ndef f(): return x": "f",
    "x = [1]\ny = sum(k for k in x)": "x y",
    "x = 1\ny = sum(k * x for k in z)": "y",
    "i and (x := 1)\nprint(x)": "",
    "x = 1\nexec('print(x)')": "",
    "x = 1\n!echo {x} {y}": "",
    "x = 1\nmodel.eval()": "x",
    "class C: y = x\nx = 1": "C",
}


@pytest.mark.parametrize("code", TEMPORARY)
def test_a_name_that_nothing_reads_before_it_is_bound_is_temporary(shell, code):
    setup, loop = Body(shell.ipython, "setup_code", ""), Body(shell.ipython, "loop_code", code)
    names = Names(shell.ipython, setup, loop)
    assert sorted(names.temporary - {"result"}) == TEMPORARY[code].split()


def test_a_detached_stream_keeps_no_state_from_being_saved(shell):
    run = begun(shell, "total = 0", "total += 1")
    shell.run("import io\nw = io.TextIOWrapper(io.BytesIO())\nw.detach()")
    operate.remove(operate.save()["path"])
    assert run.finish() == "finished" and shell.names["total"] == 12
