"""What query_dataframes runs, and what it refuses."""

import importlib.util
import itertools
import json
import os
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal as D

import pytest
from colab_relay.data.exact import Unfit, exact
from colab_relay.data.query import query
from test_data_preview import FRAMES, HOSTILE, LIBRARIES
from test_variables import run_file

HAS_DUCKDB = importlib.util.find_spec("duckdb") is not None


def ask(sql, rows=20, seconds=30.0):
    answer = query(sql, rows, seconds)
    json.dumps(answer, allow_nan=False)
    return answer


def refused(sql, seconds=30.0):
    error = ask(sql, seconds=seconds).get("error")
    assert error, "%s is not refused" % sql
    return error["code"], error["message"] + " " + error["hint"]


@pytest.mark.parametrize("name", ["duckdb.py", "duckdb/__init__.py"])
def test_a_module_of_the_working_folder_is_not_taken_for_duckdb(shell, tmp_path, monkeypatch, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.delitem(sys.modules, "duckdb", raising=False)
    code, text = refused("SELECT 1")
    assert code == "not_supported" and "hides DuckDB" in text and not os.path.exists("ran")


ANY = [True, 2, 2**53 + 1, 2**64, -(10**38), 10**37, 0.5, float("nan"), "x", "\ud800", b"x", None]
ANY += [D("0.10"), D("1E+5"), D("NaN"), D("Infinity"), D("1E-39"), date(2020, 1, 1), time(1)]
ANY += [datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=timezone.utc), timedelta(40)]


def test_sql_gets_the_values_of_objects_exactly_or_not_at_all():
    for pair in itertools.product(ANY, repeat=2):
        try:
            got, sql_type = exact(list(pair))
        except Unfit:
            continue
        got = [D(v) if v and sql_type.startswith("DECIMAL") else v for v in got]
        assert got == [None if v != v else v for v in pair], pair
        assert len({type(v) for v in got if v is not None}) <= 1, pair
    for fits in (ANY[2:4], [D("0.10"), D("NaN"), 10**30], [2**53, 0.5, None], [timedelta(1), None]):
        exact(list(fits))


if not HAS_DUCKDB:

    def test_without_duckdb_the_hint_says_how_to_install_it(shell):
        code, text = refused("SELECT 1")
        assert code == "not_supported" and "colab-relay packages duckdb" in text

else:

    @pytest.fixture
    def frames(shell):
        shell.run(FRAMES + LIBRARIES)
        return shell

    def rows(sql, **kwargs):
        answer = ask(sql, **kwargs)
        assert "error" not in answer, answer
        return answer["rows"]

    def test_frames_of_all_libraries_are_tables(frames):
        answer = ask(
            "SELECT d.a, p.b, q.c FROM df d JOIN pl p USING (a) JOIN pa q USING (a) ORDER BY 1"
        )
        assert "rows" in answer, answer
        assert answer["rows"] == [
            [1, "y", None],
            [2, None, "Infinity"],
            [3, "x", 0.5],
            [4, "z", 2.0],
        ]
        assert [c["dtype"] for c in answer["columns"]] == ["BIGINT", "VARCHAR", "DOUBLE"]
        assert (answer["row_count"], answer["engine"]) == (4, "duckdb")
        assert rows("SELECT b, a FROM grouped ORDER BY b") == [["x", 3], ["y", 1], ["z", 4]]
        assert rows("SELECT sum(n) FROM one") == [[6]]
        assert rows("SELECT t, k, n, z FROM df LIMIT 1") == [
            ["2019-12-31 23:00:00+00", "u", 1, "00:00:01"]
        ]
        assert rows("WITH c AS (FROM DF) SELECT count(*) FROM c") == [[4]]
        assert rows("PIVOT pl ON b IN ('x') USING sum(a)") != []
        assert (
            rows("SUMMARIZE pl")
            and rows("DESCRIBE df")
            and rows("FROM df -- all")
            and rows("FROM df;")
        )

    EXACT = {  # of frames, or of none: SQL, rows
        "O(D('123456789.01'), D('NaN'), D('1E+1'))": ("f", [["123456789.01"], [None], ["10.00"]]),
        "O(*[1] * 5, 2**40, *[D('1.5')] * 3000)": ("max(c) FROM f", [["1099511627776.0"]]),
        "O(2**64 + 1, 1)": ("max(c) FROM f", [["18446744073709551617"]]),
        "pd.DataFrame(index=range(3))": ("count(*) FROM f", [[3]]),
        "pd.DataFrame([[1, 2]], columns=['a', 'A'])": ("A_1, a FROM f", [[2, 1]]),
        "O(datetime.timedelta(40))": ("date '2020-01-31' + c FROM f", [["2020-03-11 00:00:00"]]),
        "O(*ns)": ("f", None),
        "pd.DataFrame({'c': ns})": ("f", [["2020-01-01 00:00:00.123456789"]]),
        "pd.DataFrame({'c': ns.tz_localize('UTC')})": ("f", None),
        "O(True, 2)": ("f", None),
        "pd.DataFrame({'c': np.array([1], dtype='g')})": ("f", None),
        "pyarrow.table({'c': pyarrow.array([1], pyarrow.decimal256(9))})": ("f", None),
        "pyarrow.table({'c': pyarrow.array([1], pyarrow.duration('ns'))})": ("f", None),
        "0": ("interval 14 months, ['infinity'::date]", [["1 year 2 months", "[infinity]"]]),
    }

    def test_what_sql_cannot_hold_is_converted_exactly_or_named(frames):
        frames.run("def O(*v): return pd.DataFrame({'c': pd.Series(v, dtype=object)})")
        frames.run("ns = pd.to_datetime(['2020-01-01 00:00:00.123456789']).astype('M8[ns]')")
        for code, (sql, want) in EXACT.items():
            frames.run("from decimal import Decimal as D; f = " + code)
            answer = ask("SELECT " + sql if " " in sql else "FROM f")
            assert answer.get("rows") == want, (code, answer)
            assert want or "left out of f" in answer["error"]["message"], (code, answer)
            assert ('"A" is "A_1"' in str(answer)) == ("'A'" in code), answer

    def test_names_are_quoted_as_in_sql(frames):
        names = frames.names
        for name in ("select", "дф", 'a"b', "A b", "duckdb_tables", "pg_class"):
            names[name] = names["one"]
            assert rows('SELECT count(*) FROM "%s"' % name.replace('"', '""')) == [[3]], name
        names["DF"] = names["one"]
        assert rows("SELECT count(*) FROM DF") == [[3]] and rows("SELECT count(*) FROM df") == [[4]]
        code, text = refused("SELECT * FROM df, DF")
        assert code == "bad_request" and "another name" in text

    def test_long_results_are_counted_and_bounded(frames):
        answer = ask("FROM range(100000)", rows=3)
        assert answer["rows"] == [[0], [1], [2]] and answer["row_count"] == 100_000
        assert answer["truncated"]
        assert len(ask("FROM range(1000)", rows=10_000)["rows"]) == 200
        wide = ask("SELECT %s" % ", ".join("%d AS c%d" % (n, n) for n in range(60)))
        assert len(wide["columns"]) == 50 and wide["column_count"] == 60 and wide["truncated"]
        answer = ask("SELECT repeat('x', 1000000) FROM range(300)", rows=200)
        assert len(answer["rows"][0][0]) == 200 and len(json.dumps(answer)) < 40_000
        assert rows("SELECT 1 WHERE false") == []

    REFUSED = (
        "CREATE TABLE x AS FROM df|DROP TABLE x|INSERT INTO df VALUES (1)|SET threads = 1|"
        "COPY df TO 'x.csv'|COPY (SELECT 1) TO 'x.csv'|ATTACH 'x.db'|INSTALL httpfs|LOAD httpfs|"
        "PRAGMA database_list|CALL pragma_version()|EXPLAIN SELECT 1|EXPORT DATABASE 'x'|VACUUM|"
        "CHECKPOINT|BEGIN|SELECT 1; SELECT 2|SELECT 1; COPY df TO 'x.csv'||;|PIVOT pl ON b|"
        "PREPARE x AS SELECT 1|SELEC 1"
    )

    def test_only_one_select_runs(frames):
        for sql in REFUSED.split("|"):
            assert refused(sql)[0] == "bad_request", sql
        assert os.listdir(".") in ([], ["ipython"])

    OUTSIDE = (
        "FROM read_csv('/etc/passwd')|FROM '/etc/passwd'|FROM read_text('/etc/passwd')|"
        "FROM read_blob('/etc/passwd')|FROM glob('/*')|FROM read_parquet('https://x/y')|"
        "SELECT getenv('HOME')|FROM duckdb_secrets()|FROM query('COPY df TO ''x.csv''')|"
        "FROM sqlite_scan('x', 'y')|FROM arrow_scan(1, 2, 3)|FROM pandas_scan(1)|"
        "FROM python_map_function((SELECT 1))|SELECT $1|"
        "WITH x AS (INSERT INTO df VALUES (1) RETURNING *) FROM x"
    )

    def test_nothing_but_frames_is_read(frames):
        for sql in OUTSIDE.split("|"):
            assert refused(sql)[0] in ("bad_request", "not_found"), sql
        assert os.listdir(".") in ([], ["ipython"])

    def test_variables_of_python_are_no_tables(frames):
        frames.run("con, listed, number = object(), [1], 5\ndef dataframe(): pass")
        for name in ("con", "listed", "number", "dataframe", "np"):
            code, text = refused("SELECT * FROM %s" % name)
            assert code == "not_supported" and "inspect_variable" in text
        code, text = refused("SELECT * FROM dff")
        assert code == "not_found" and "These frames exist: df" in text
        assert refused("SELECT nope FROM df") == refused("SELECT nope FROM df")
        code, text = refused("SELECT nope FROM df")
        assert code == "bad_request" and "nope" in text

    ENDLESS = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        "SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range * b.range % 7 = 3",
        "SELECT max(regexp_matches(repeat('a', 30) || r, 'x')) "
        "FROM (SELECT range::VARCHAR r FROM range(1000000000))",
    )

    def test_endless_queries_end_at_the_deadline(frames):
        for sql in ENDLESS:
            code, text = refused(sql, seconds=0.5)
            assert code == "timed_out" and "run_code_long" in text

    def test_an_interrupt_between_two_statements_is_repeated(frames, monkeypatch):
        import duckdb

        class Connection:
            """Forgets the first interrupt, as DuckDB does while no statement runs."""

            def __init__(self, *args, **kwargs):
                self.own, self.interrupts = connect(*args, **kwargs), 0

            def __getattr__(self, name):
                return getattr(self.own, name)

            def interrupt(self):
                self.interrupts += 1
                if self.interrupts > 1:
                    self.own.interrupt()

        connect = duckdb.connect
        monkeypatch.setattr(duckdb, "connect", Connection)
        assert refused(ENDLESS[0], seconds=0.1)[0] == "timed_out"

    def test_a_count_that_takes_long_is_left_out(frames, monkeypatch):
        monkeypatch.setattr("colab_relay.data.query.MAX_COUNTING", 0.2)
        answer = ask(
            "SELECT a.range FROM range(100000000) a, range(100000) b "
            "WHERE a.range % 7 = b.range % 3"
        )
        assert len(answer["rows"]) == 20 and answer["truncated"] and "row_count" not in answer

    def test_too_much_memory_is_refused(frames, monkeypatch):
        monkeypatch.setattr("colab_relay.data.query.memory", lambda: "100MiB")
        code, text = refused("SELECT list(range || repeat('x', 1000)) FROM range(10000000)")
        assert code == "bad_request" and "Memory" in text and "aggregate" in text

    def test_no_code_of_the_users_runs(shell, capfd):
        run_file(shell, "hostile.py")
        shell.run(HOSTILE)
        shell.run("listed = pd.DataFrame({'x': [1], 'l': [[1]], 's': ['é'], 'm': [1 + 2j]})")
        for name in ("a_frame", "many", "kinds", "zoned", "rowed", "leveled", "labelled", "listed"):
            answer = ask("FROM %s" % name)
            assert "error" not in answer, (name, answer)
            if name != "labelled":
                assert answer["notes"], name
        assert ask("FROM listed")["rows"] == [[1, "é"]]
        assert refused("FROM stamped")[0] == refused("FROM a_subframe")[0] == "not_supported"
        assert shell.names["_ran"] == []
        import duckdb

        duckdb.sql("SELECT * FROM many", connection=shell_connection(shell)).fetchall()
        assert "__str__" in shell.names["_ran"], "the spies do not notice what DuckDB runs"
        assert capfd.readouterr().out == ""

    def shell_connection(shell):
        import duckdb

        connection = duckdb.connect(":memory:")
        connection.register("many", shell.names["many"])
        return connection

    def test_nothing_stays(frames):
        before = set(frames.names)
        ask("FROM df")
        assert set(frames.names) == before
        import duckdb

        assert "df" not in str(duckdb.sql("SHOW TABLES").fetchall())

    def test_joins_that_depend_on_columns_find_their_frames(frames):
        frames.run("dl, DF = df, one")
        sql = "SELECT count(*) FROM df JOIN pl USING (a)"
        assert rows(sql) == [[4]]
        assert rows(sql.replace("pl", "PL")) == [[4]]
        assert refused("SELECT 1 FROM df JOIN nope USING (a)")[0] == "not_found"
