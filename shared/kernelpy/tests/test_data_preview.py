"""What preview_dataframe shows of the user's frames, without running their code."""

import json

import pytest
from colab_relay.data.preview import preview
from test_variables import run_file

FRAMES = """
import datetime, decimal, numpy as np, pandas as pd
df = pd.DataFrame({
    "a": [3, 1, 2, 4], "b": ["x", "y", None, "z"], "c": [0.5, None, float("inf"), 2.0],
    "unit cost": [1, 2, 3, 4], "desc": [4, 3, 2, 1],
    "t": pd.date_range("2020", periods=4, tz="Europe/Berlin"),
    "k": pd.Categorical(["u", "v", "u", None]), "n": pd.array([1, None, 3, 4], dtype="Int64"),
    "o": [1, "x", None, 2.5], "z": pd.to_timedelta([1, 2, 3, 4], unit="s"),
})
grouped = df.groupby("b")["a"].sum()
deep = df.groupby(["b", "k"], observed=True)[["a"]].sum()
empty = pd.DataFrame()
one = pd.Series([1, 2, 3], name="n")
values = pd.Series([10**30, True, decimal.Decimal("1.20"), datetime.date(2026, 1, 2), b"ab",
                    [1, "x"], np.float32(0.5), np.datetime64("2026-01-02"), pd.NA, pd.NaT,
                    "é\\ud800"],
                   dtype=object)
other = pd.DataFrame({"p": pd.period_range("2020", periods=2), "i": pd.cut([1, 2], 2),
                      "s": pd.arrays.SparseArray([0, 1])})
"""
LIBRARIES = """
import polars, pyarrow
data = {"a": [3, 1, 2, 4], "b": ["x", "y", None, "z"], "c": [0.5, None, float("inf"), 2.0]}
pl, pa = polars.DataFrame(data), pyarrow.table(data)
batch = pyarrow.RecordBatch.from_pydict({"a": [1, 2]})
days = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]
days = polars.DataFrame({"d": days, "l": [[1], [2]]})
"""


def look(name, rows=20, offset=0, columns="", filter="", sort_by=""):
    answer = preview(name, rows, offset, columns, filter, sort_by)
    json.dumps(answer, allow_nan=False)
    return answer


def rows(*args, **kwargs):
    answer = look(*args, **kwargs)
    assert "error" not in answer, answer
    return answer["rows"]


def refused(*args, **kwargs):
    error = look(*args, **kwargs)["error"]
    return error["code"], error["message"] + " " + error["hint"]


@pytest.fixture
def frames(shell):
    shell.run(FRAMES)
    return shell


def engines(shell):
    """The names of the same frame in each library that is there."""
    try:
        shell.run(LIBRARIES)
    except ImportError:
        return ["df"]
    return ["df", "pl", "pa"]


def test_a_frame_is_shown(frames):
    answer = look("df", rows=2)
    assert {c["name"]: c["dtype"] for c in answer["columns"]}["n"] == "Int64"
    assert answer["rows"] == [
        [3, "x", 0.5, 1, 4, "2020-01-01T00:00:00+01:00", "u", 1, 1, "P0DT0H0M1S"],
        [1, "y", None, 2, 3, "2020-01-02T00:00:00+01:00", "v", None, "x", "P0DT0H0M2S"],
    ]
    assert (answer["row_count"], answer["truncated"], answer["engine"]) == (4, True, "pandas")
    assert rows("df", offset=2, columns="c,b") == [["Infinity", None], [2.0, "z"]]
    assert look("df", offset=9)["rows"] == []


def test_cells(frames):
    assert [row[0] for row in rows("values")] == [
        str(10**30), True, "1.20", "2026-01-02", "b'ab'", "[1, 'x']", 0.5, "2026-01-02", None, None,
        "é\\ud800",
    ]  # fmt: skip
    assert rows("other")[0][0] == "2020-01-01" and rows("other")[0][2] == 0


def test_an_index_is_shown_if_it_says_something(frames):
    assert rows("grouped") == [["x", 3], ["y", 1], ["z", 4]]
    assert rows("deep") == [["x", "u", 3], ["y", "v", 1]]
    assert look("one")["columns"] == [{"name": "n", "dtype": "int64"}]
    assert rows("grouped", filter="b > 'x'", sort_by="a desc") == [["z", 4], ["y", 1]]
    assert look("empty")["row_count"] == 0 and look("empty")["rows"] == []


FILTERS = {
    "a > 1": [3, 2, 4],
    "b is None": [2],
    '"b" != "x"': [1, 4],
    "b in ['x', 'z']": [3, 4],
    "a in (1, 2)": [1, 2],
    "a != 3 and a != 1 and a != 2": [4],
    "": [3, 1, 2, 4],
}


def test_filters(frames):
    for name in engines(frames):
        for filter, want in FILTERS.items():
            assert [row[0] for row in rows(name, filter=filter, columns="a")] == want, (
                name,
                filter,
            )


def test_filters_of_pandas(frames):
    for filter, want in {
        '"unit cost" > 2': [2, 4],
        "t > '2020-01-02 12:00+01:00'": [2, 4],
        "k == 'u'": [3, 2],
        "n >= 3": [2, 4],
        "o == 'x'": [1],
        "o > 2": [4],
        "o is None": [2],
        "z > '2s'": [2, 4],
    }.items():
        assert [row[0] for row in rows("df", filter=filter)] == want, filter


def test_sorting(frames):
    for name in engines(frames):
        assert [row[0] for row in rows(name, sort_by="a")] == [1, 2, 3, 4]
        assert [row[0] for row in rows(name, sort_by="a desc", filter="a < 4")] == [3, 2, 1]
        assert [row[0] for row in rows(name, sort_by="b DESC", columns="b")] == [
            "z",
            "y",
            "x",
            None,
        ]
        assert rows(name, sort_by="a asc", filter="a>1", offset=1, rows=1, columns="a") == [[3]]
    assert [row[0] for row in rows("df", sort_by="desc")] == [4, 2, 1, 3]
    assert refused("df", sort_by="o")[0] == "bad_request"


NOT_FILTERS = (
    "a|a >|a > b|f(a) > 1|a > 1 or a < 0|0 < a < 2|a.b > 1|a > 1 + 1|a in 3|not a == 1|a > None|"
    "a is 3|b in [None]|`a` > 1|a > __import__('os')|a > 1; b|a > 1\x00"
).split("|") + ["(" * 500, "a == " + "9" * 5000, "x" * 20_000, " and ".join(["a > 1"] * 101)]


def test_other_filters_are_refused_with_an_example(frames):
    for filter in NOT_FILTERS:
        code, text = refused("df", filter=filter)
        assert code == "bad_request" and "price >= 9.5" in text, filter


def test_comparisons_that_would_find_nothing_are_refused(frames):
    for name in engines(frames):
        for filter in ("a == '1'", "b == 1", "a in ['1']", "b > True"):
            assert refused(name, filter=filter)[0] == "bad_request", (name, filter)
    frames.run("objects = pd.DataFrame({'b': pd.Series(['x', None], dtype=object)})")
    assert refused("objects", filter="b == 1")[0] == "bad_request"
    assert rows("objects", filter="b == 'x'") == [["x"]]
    assert refused("df", filter="k == 1")[0] == "bad_request"


def test_missing_names_come_with_those_that_exist(frames):
    code, text = refused("dff")
    assert code == "not_found" and "These frames exist: df" in text and "grouped" in text
    code, text = refused("df", filter="unit_cost > 1")
    assert code == "not_found" and "Its columns: unit cost" in text
    assert (
        refused("df", columns="a,nope")[0] == refused("df", sort_by="nope desc")[0] == "not_found"
    )
    frames.names["x"] = {"a": 1}
    code, text = refused("x")
    assert code == "not_supported" and "inspect_variable" in text and "dict" in text


LARGE = """
wide = pd.DataFrame(np.zeros((300, 3000)), columns=["c%d" % n for n in range(3000)])
texts = pd.DataFrame({"t": ["é" * 10_000] * 300, "u": ["\\x00" * 10_000] * 300})
labels = pd.DataFrame([[1]], columns=["x" * 10_000])
"""


def test_answers_are_bounded(frames):
    frames.run(LARGE)
    answer = look("wide", rows=10_000)
    assert len(answer["columns"]) == 50 and answer["column_count"] == 3000 and answer["truncated"]
    assert 100 < len(answer["rows"]) < 200 and answer["row_count"] == 300
    assert len(look("wide", rows=10_000, columns="c0")["rows"]) == 200
    answer = look("texts", rows=200)
    assert answer["truncated"] and 20 < len(answer["rows"]) < 200
    assert all(len(cell) <= 200 and cell.endswith("…") for row in answer["rows"] for cell in row)
    assert len(json.dumps(answer["rows"], ensure_ascii=False).encode()) <= 37_000
    assert len(look("labels")["columns"][0]["name"]) == 200
    assert len(look("wide", filter="q > 1")["error"]["hint"]) < 2100


HOSTILE = """
import datetime
class Zone(datetime.tzinfo):
    def utcoffset(self, moment): _ran.append("utcoffset"); return datetime.timedelta(0)
    dst = tzname = utcoffset
    __str__ = __repr__ = utcoffset
import numpy as np, pandas as pd
class Loud:
    def __eq__(self, other): _ran.append("__eq__"); return True
    def __hash__(self): _ran.append("__hash__"); return 1
    def __lt__(self, other): _ran.append("__lt__"); return True
    def __bool__(self): _ran.append("__bool__"); return True
    def __str__(self): _ran.append("__str__"); return "loud"
    __ne__ = __gt__ = __ge__ = __le__ = __eq__
    __repr__ = __str__
loud = [Loud(), Loud()]
many = pd.DataFrame({"x": [1, 2], "o": pd.Series(loud, dtype=object)})
kinds = pd.DataFrame({"x": [1, 2], "o": pd.Categorical(loud[:1] + [1])})
moment = pd.Series([datetime.datetime(2020, 1, 1, tzinfo=Zone())], dtype=object)
zoned = pd.DataFrame({"x": [1], "o": moment})
stamped = pd.DataFrame({"o": pd.DatetimeIndex(["2020"]).tz_localize(Zone())})
labelled = pd.DataFrame([[1, 2]], columns=pd.Index(loud, dtype=object))
rowed = pd.DataFrame({"x": [1, 2]}, index=pd.Index(loud, dtype=object, name=loud[0]))
leveled = pd.DataFrame({"x": [1]}, index=pd.MultiIndex.from_arrays([loud[:1], [1]]))
_ran.clear()
"""


def test_no_code_of_the_users_runs(shell):
    run_file(shell, "hostile.py")
    shell.run(HOSTILE)
    for name in list(shell.names):
        if name != "_spies":
            look(name)
            look(name, filter="x == 1", sort_by="x desc")
            look(name, filter="o == 1")
            look(name, sort_by="o")
    assert shell.names["_ran"] == []
    assert rows("many") == [[1, "<__main__.Loud>"], [2, "<__main__.Loud>"]]
    assert refused("many", filter="o == 1")[0] == refused("many", sort_by="o")[0] == "bad_request"
    assert refused("a_subframe")[0] == "not_supported"
    assert rows("stamped") != [] and rows("zoned") != []
    shell.run("many[many['o'] == 1]")
    assert shell.names["_ran"] != [], "the spies do not notice what runs"
