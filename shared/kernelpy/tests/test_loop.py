"""Rounds of a chunked run, in a shell that records their markers."""

import json

import pytest
from colab_relay import registry
from colab_relay.chunked import markers
from colab_relay.chunked import run as rounds
from colab_relay.chunked.markers import encode


@pytest.fixture(autouse=True)
def new_kernel():
    yield
    registry.lives.clear()


KEEP = {"every": 0, "share": 1, "bytes": 0}


def order(setup, code, **more):
    spec = {"key": "run", "setup": setup, "setup_sha256": "sha of " + setup, "loop": code}
    rest = {
        "n": 3,
        "batch_size": 10_000,
        "seconds": 30,
        "done": 0,
        "marked": 0,
    }
    last = {
        "carried": None,
        "independent": False,
        "replaces": "",
        "on_stop": "",
        "copy": None,
        "keep": KEEP,
    }
    return dict(spec, **dict(rest, **dict(last, **more)))


def run(shell, setup, code, hi=3, **more):
    """The markers of a job that ends after one round."""
    try:
        rounds.prepare(order(setup, code, n=hi, **more))
        rounds.round("run")
    finally:
        run.markers = [m for m in shell.displayed(markers.MIME) if m["event"] != "variables"]
    return run.markers


def events(found):
    return [(m["event"], m["done"]) for m in found]


def results(found):
    """The values of iterations, as "i:JSON" words."""
    values = [value for m in found for value in m.get("values", [])]
    return " ".join("%d:%s" % (v["i"], v["result"]) for v in values)


def test_markers_confirm_the_setup_and_each_iteration(shell):
    found = run(shell, "n = 0", "n += i")
    assert events(found)[:2] == [("start", 0), ("setup", 0)]
    assert events(found)[-3:] == [("done", 3), ("round", 3), ("finished", 3)]
    assert sum(m.get("count", 0) for m in found) == 3
    assert shell.names["n"] == 3 and registry.runs()["run"]["done"] == 3


def test_a_failed_iteration_is_not_counted(shell):
    with pytest.raises(ZeroDivisionError):
        run(shell, "", "1 / (i - 1)")
    assert events(run.markers)[-1] == ("failed", 1)
    assert registry.runs()["run"]["done"] == 1


def test_code_that_replaces_a_clock_loses_no_value(shell):
    replace = "import time\nreal, time.monotonic = time.monotonic, lambda: float('nan')"
    try:
        found = run(shell, replace, "result = i", hi=30)
    finally:
        exec("time.monotonic = real", shell.names)
    done = [m for m in found if m["event"] == "done"]
    assert [v["i"] for m in done for v in m["values"]] == list(range(30))
    assert all(0 <= m["seconds"] < 60 for m in done)


BODIES = {
    "braces": ("", "out.append({'n': {i: {i}}})", [{"n": {0: {0}}}, {"n": {1: {1}}}]),
    "braces in subscripts": (
        "",
        "out.append([5, 6][{i}]); out.append('{i}')",
        [5, "{i}", 6, "{i}"],
    ),
    "continue": ("", "if i == 0:\n    continue\nout.append(i)", [1]),
    "inner break": ("", "for k in range(5):\n    if k == 1:\n        break\nout.append(k)", [1, 1]),
    "a magic": ("", "%time out.append(i)", [0, 1]),
    "comprehensions": ("", "out.append([i for i in range(2)])", [[0, 1], [0, 1]]),
    "not ASCII": ("größe = 'ä😀\u2028'", "out.append(größe)", ["ä😀\u2028"] * 2),
}


@pytest.mark.parametrize("name", BODIES)
def test_any_body_runs(shell, name):
    setup, code, want = BODIES[name]
    run(shell, "out = []\n" + setup, code, hi=2)
    assert shell.names["out"] == want


REFUSED = {
    "break": ("print(1)", "break", "can't end a chunked run"),
    "return": ("", "return 5", "outside function"),
    "continue in the setup": ("continue", "", "continue"),
    "indentation": ("", "if i:\nprint(1)", "indented block"),
    "a NUL": ("", "x = '\x00'", "null"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_code_that_is_no_body_is_refused_before_anything_runs(shell, name):
    setup, code, why = REFUSED[name]
    shown = []
    shell.ipython._showtraceback = lambda kind, error, lines: shown.extend(lines)
    try:
        run(shell, setup, code)
    except SyntaxError:
        shell.ipython.showtraceback()
    assert why in shown[-1] and not any("colab_relay" in line for line in shown)
    assert run.markers == [] and registry.runs() == {} and registry.lives == {}


# Setup, loop, iterations, the values they give, and result in the end.
RESULTS = {
    "always, the same number": ("", "result = 5", 3, "0:5 1:5 2:5", "5"),
    "always, in a tuple": (
        "",
        "for k in []: continue\na, (result, *b) = i, (7, 1)\nif i: continue",
        2,
        "0:7 1:7",
        "7",
    ),
    "under an if": ("", "if i % 2:\n    result = 5", 5, "1:5 3:5", "5"),
    "in a try": (
        "",
        "try:\n    1 / (i - 1)\n    result = 5\nexcept ZeroDivisionError: pass",
        3,
        "0:5 2:5",
        "5",
    ),
    "by a loop that may be empty": ("", "for result in [7] * (i % 2): pass", 4, "1:7 3:7", "7"),
    "by a function": (
        "",
        "def f():\n    global result\n    result = 5\nif i != 1: f()",
        3,
        "0:5 2:5",
        "5",
    ),
    "sometimes, and read": (
        "result = 300",
        "print(result)\nif i % 2: result = result * 300",
        4,
        "1:90000 3:27000000",
        "27000000",
    ),
    "in a timed cell": ("", "%%time\nresult = i", 2, "0:0 1:1", "1"),
    "in exec": ("", "if i: exec('result = 5')", 3, "1:5 2:5", "5"),
    "by another language": ("result = 500", "%%bash\nresult=5", 2, "", "500"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_only_an_iteration_that_set_result_gives_a_value(shell, name):
    setup, code, iterations, want, left = RESULTS[name]
    assert results(run(shell, setup, code, hi=iterations)) == want
    assert str(shell.names["result"]) == left


class Odd:
    def __repr__(self):
        return "odd one"


class Broken:
    def __repr__(self):
        raise ValueError("no repr")


VALUES = [
    (1, 1),
    (-2.5, -2.5),
    ('text ä 😀 "q" \ud800', 'text ä 😀 "q" \ud800'),
    (None, None),
    (True, True),
    ([1, (2, 3)], [1, [2, 3]]),
    ({"a": {1: 2}}, {"a": {"1": 2}}),
    (float("nan"), "nan"),
    (10**30, 10**30),
    ({1}, "{1}"),
    (Odd(), "odd one"),
    (range(2), "range(0, 2)"),
    (b"bytes", "b'bytes'"),
]


@pytest.mark.parametrize("value, want", VALUES)
def test_a_value_is_written_as_json(value, want):
    assert json.loads(encode(value)["result"]) == want


@pytest.mark.parametrize(
    "value, why",
    [
        ("x" * 70000, "over 60 KiB"),
        (list(range(60000)), "items"),
        (Broken(), "ValueError"),
    ],
    ids=["bytes", "items", "broken"],
)
def test_a_value_that_is_too_much_is_omitted(value, why):
    assert why in encode(value)["omitted"]


def test_exit_is_an_error_of_its_iteration(shell):
    with pytest.raises(BaseException) as error:
        run(shell, "", "if i == 1: exit(3)")
    assert error.value.code == 3 and events(run.markers)[-1] == ("failed", 1)
