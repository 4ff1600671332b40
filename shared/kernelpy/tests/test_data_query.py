"""What query_dataframes runs, and what it refuses."""

import importlib.util
import json
import os
import sys

import pytest
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


if not HAS_DUCKDB:

    def test_without_duckdb_the_hint_says_how_to_install_it(shell):
        code, text = refused("SELECT 1")
        assert code == "not_supported" and 'packages="duckdb"' in text

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
            ["2019-12-31 23:00:00+00", "u", 1, "0:00:01"]
        ]
        assert rows("WITH c AS (FROM DF) SELECT count(*) FROM c") == [[4]]
        assert rows("PIVOT pl ON b IN ('x') USING sum(a)") != []
        assert (
            rows("SUMMARIZE pl")
            and rows("DESCRIBE df")
            and rows("FROM df -- all")
            and rows("FROM df;")
        )

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
