"""SQL over the user's frames by DuckDB, which must run no code of the user's, write nothing, and
read nothing but the frames."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import threading
from typing import Any, Iterator

from IPython.core.getipython import get_ipython

from ..safe import module_dict, short
from ..variables.listing import everything
from . import answer, frames
from .problem import Problem, nearest

MAX_SQL = 100_000  # characters
MAX_COUNTING = 5.0  # seconds to count the rows of a long result
SETTINGS = {
    "python_enable_replacements": "false",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}
TIMES = re.compile("DATE|TIME|INTERVAL|VARIANT")  # in the names of types that hold such
LEAST_MEMORY, MOST_THREADS = 256 << 20, 4
INTERRUPT_AGAIN = 0.1  # seconds
ONLY_SELECT = (
    "Give one SELECT over frames, such as: SELECT city, avg(price) FROM df GROUP BY city. For "
    "anything else use run_code_quick."
)


def query(sql: str, rows: int, seconds: float) -> dict[str, Any]:
    """The first rows of the result of one SELECT over the user's frames."""
    return answer.answered(lambda: run(sql, rows, seconds))


def run(sql: str, rows: int, seconds: float) -> dict[str, Any]:
    duckdb = library()
    try:
        connection = duckdb.connect(
            ":memory:", config=dict(SETTINGS, threads=threads(), memory_limit=memory())
        )
    except duckdb.Error as e:
        raise Problem(
            "not_supported", "this release of DuckDB can't be restricted: " + short(str(e)), UPGRADE
        ) from None
    notes: list[str] = []
    try:
        with interrupted_after(seconds, connection):
            check(connection, sql)
            register(connection, sql, notes)
            hide_progress(connection)
            connection.execute("SET lock_configuration=true")
            return result(connection.sql(sql), rows, notes, connection)
    except duckdb.InterruptException:
        raise Problem(
            "timed_out",
            "the query took longer than %g s and was interrupted" % seconds,
            "Ask for less, raise timeout_seconds, or run the query with duckdb in run_code_long.",
        ) from None
    except duckdb.Error as e:
        raise explained(e, notes) from None
    finally:
        connection.close()


@contextlib.contextmanager
def interrupted_after(seconds: float, connection: Any) -> Iterator[None]:
    """Interrupts what takes longer, and goes on interrupting: DuckDB forgets an interrupt that
    comes between two statements, and the next one would run without an end."""
    ended = threading.Event()

    def watch() -> None:
        wait = seconds
        while not ended.wait(wait):
            connection.interrupt()
            wait = INTERRUPT_AGAIN

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


UPGRADE = "Install a newer duckdb (install_packages, or `colab-relay packages -U duckdb`)."


def library() -> Any:
    """DuckDB, and no module of that name in the working folder: importing that would run it."""
    try:
        spec = importlib.util.find_spec("duckdb")
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise Problem(
            "not_supported",
            "the kernel has no DuckDB",
            "Install duckdb (install_packages, or `colab-relay packages duckdb`), then try again.",
        )
    if in_working_folder(str(spec.origin)):
        raise Problem(
            "not_supported",
            "the working folder has a module named duckdb, which hides DuckDB: "
            + short(str(spec.origin)),
            "Rename it or change the working folder, restart the kernel if it was imported, and "
            "try again.",
        )
    return importlib.import_module("duckdb")


def in_working_folder(origin: str) -> bool:
    """Whether a file is a module, or the start of a package, in the working folder."""
    folder = os.path.dirname(os.path.realpath(origin))
    if os.path.basename(origin).startswith("__init__."):
        folder = os.path.dirname(folder)
    return folder == os.path.realpath(os.curdir)


def threads() -> int:
    return max(1, min(MOST_THREADS, os.cpu_count() or 1))


def memory() -> str:
    """Half of the free memory, for DuckDB's buffers. The frames are not copied into them."""
    free = 0
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    free = int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return "%dMiB" % (max(LEAST_MEMORY, free // 2) >> 20)


def hide_progress(connection: Any) -> None:
    """In a notebook, DuckDB refuses even to turn it off if it could not show it."""
    try:
        connection.execute("SET enable_progress_bar=false")
    except module_dict("duckdb")["Error"]:
        pass


def check(connection: Any, sql: str) -> None:
    """Refuses what is not one SELECT. Other statements run as soon as they are parsed by sql()."""
    if len(sql) > MAX_SQL:
        raise Problem("bad_request", "the SQL is over %d characters" % MAX_SQL, ONLY_SELECT)
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise Problem("bad_request", "the SQL has %d statements" % len(statements), ONLY_SELECT)
    kind = statements[0].type.name
    if kind == "MULTI":
        raise Problem(
            "bad_request",
            "this PIVOT is several statements",
            "Name its values: PIVOT df ON city IN ('Bonn', 'Ulm') USING sum(price).",
        )
    if kind not in ("SELECT", "SELECT_STATEMENT"):
        raise Problem("bad_request", "the SQL is not a SELECT but %s" % kind, ONLY_SELECT)


LEFT_OUT = (
    "left out of %s, because SQL has no type that holds all their values exactly, or reading them "
    "would run code of the objects: %s"
)
RENAMED = "in SQL, which ignores capitals in names, these columns of %s have other names: %s"


def register(connection: Any, sql: str, notes: list[str]) -> None:
    shell = get_ipython()
    variables = dict(everything(shell))
    found: dict[str, str] = {}
    wanted_names, certain = tables(connection, sql, variables)
    for wanted in sorted(wanted_names):
        name = named(wanted, variables)
        if name is None:
            raise frames.missing(shell, wanted)
        if found.setdefault(name.casefold(), name) != name:
            raise Problem(
                "bad_request",
                "%s and %s are two frames, and SQL takes them for one"
                % (short(name), short(found[name.casefold()])),
                "Give one of them another name with run_code_quick.",
            )
        frame = frames.adapt(name, variables[name])
        if not put(connection, name, frame, notes) and certain:
            raise Problem("not_supported", notes[-1], "Convert them with run_code_quick.")


def put(connection: Any, name: str, frame: frames.Frame, notes: list[str]) -> bool:
    """Makes a frame a table, without the columns that SQL cannot have. Reports whether it could."""
    if not frame.columns:  # in SQL, a table has one
        empty = 'CREATE TEMP VIEW %s AS SELECT NULL AS "(no columns)" FROM range(%d)'
        connection.execute(empty % (quoted(name), frame.count()))
        return True
    unfit = {n: frame.unfit(n) for n in range(len(frame.columns))}
    if refused(connection, name, frame, unfit):
        unfit = {n: why or refused(connection, name, frame, {n: ""}) for n, why in unfit.items()}
        refused(connection, name, frame, unfit)
    labels = {n: short(c.label, 60) for n, c in enumerate(frame.columns)}
    left_out = ["%s (%s)" % (labels.pop(n), why) for n, why in unfit.items() if why]
    if left_out:
        notes.append(LEFT_OUT % (short(name), nearest("", left_out, 200)))
    if not labels:
        return False
    pairs = zip(labels.values(), (short(c, 60) for c in connection.view(name).columns))
    renamed = ['"%s" is "%s"' % (a, b) for a, b in pairs if a != b]
    if renamed:
        notes.append(RENAMED % (short(name), nearest("", renamed, 200)))
    return True


def refused(connection: Any, name: str, frame: frames.Frame, unfit: dict[int, str]) -> str:
    """Makes the fit columns of a frame a table. Returns why DuckDB refuses, "" if it does not."""
    columns = [n for n, why in unfit.items() if not why]
    casts = {at: frame.casts[n] for at, n in enumerate(columns) if frame.casts.get(n)}
    read = "cast " + name if casts else name
    try:
        if columns:
            connection.register(read, frame.table(columns))
        if casts:
            names = [quoted(c) for c in connection.view(read).columns]
            cast = ["CAST(%s AS %s) AS %s" % (names[at], t, names[at]) for at, t in casts.items()]
            view = "CREATE OR REPLACE TEMP VIEW %s AS SELECT * REPLACE (%s) FROM %s"
            connection.execute(view % (quoted(name), ", ".join(cast), quoted(read)))
    except module_dict("duckdb")["InterruptException"]:
        raise
    except Exception as e:  # of Arrow, for one
        return short(str(e).partition("\n")[0], 100)
    return ""


def quoted(name: str) -> str:
    return '"%s"' % name.replace('"', '""')


def tables(connection: Any, sql: str, variables: dict[str, Any]) -> tuple[set[str], bool]:
    """The names of tables in the SQL that DuckDB does not know, and those of its own views that
    frames hide. DuckDB does not say them for SQL that depends on the columns, as USING does: then
    all frames count that the SQL may name, and the second value is False."""
    views = connection.execute("SELECT view_name FROM duckdb_views()").fetchall()
    hidden = {view for (view,) in views if view in variables and view in sql}
    try:
        return set(connection.get_table_names(sql)) | hidden, True
    except module_dict("duckdb")["InterruptException"]:
        raise
    except module_dict("duckdb")["Error"]:
        return mentioned(sql, variables) | hidden, False


def mentioned(sql: str, variables: dict[str, Any]) -> set[str]:
    """The frames whose names occur in the SQL, in the same letters if there are such."""
    known = [name for name, value in variables.items() if frames.is_readable(name, value)]
    exact = {name for name in known if name in sql}
    folded, taken = sql.casefold(), {name.casefold() for name in exact}
    loose = [n for n in known if n.casefold() in folded and n.casefold() not in taken]
    return exact | set({name.casefold(): name for name in loose}.values())


def named(wanted: str, variables: dict[str, Any]) -> str | None:
    """The variable that a table's name means: SQL does not tell capitals from small letters."""
    if wanted in variables:
        return wanted
    alike = [
        n for n, v in variables.items() if n.casefold() == wanted.casefold() and frames.is_frame(v)
    ]
    return alike[0] if alike else None


def result(relation: Any, rows: int, notes: list[str], connection: Any) -> dict[str, Any]:
    names, types = relation.columns, [str(kind) for kind in relation.types]
    kept = names[: answer.MAX_COLUMNS]
    most = max(0, min(rows, answer.MAX_ROWS))
    got = relation.project(projection(types[: len(kept)])).limit(most + 1).fetchall()
    shown = answer.rows_within([[row[n] for row in got[:most]] for n in range(len(kept))])
    report = {
        "columns": [{"name": short(n), "dtype": short(t)} for n, t in zip(kept, types)],
        "column_count": len(names),
        "rows": shown,
        "truncated": len(shown) < len(got) or len(kept) < len(names),
        "engine": "duckdb",
        "notes": notes,
    }
    count = len(got) if len(got) <= most else counted(relation, connection)
    if count is not None:
        report["row_count"] = count
    return report


def projection(types: list[str]) -> str:
    """All columns; dates and times as texts, because Python's objects have no months, no
    nanoseconds and no infinity, and those with a zone need another package."""
    columns = ["#%d" % (n + 1) for n in range(len(types))]
    return ", ".join(
        "CAST(%s AS VARCHAR) AS c%d" % (c, n) if TIMES.search(types[n]) else "%s AS c%d" % (c, n)
        for n, c in enumerate(columns)
    )


def counted(relation: Any, connection: Any) -> int | None:
    """How many rows a result has, None if counting them takes long."""
    duckdb = module_dict("duckdb")
    try:
        with interrupted_after(MAX_COUNTING, connection):
            return int(relation.aggregate("count(*)").fetchall()[0][0])
    except duckdb["Error"]:
        return None


def explained(error: Exception, notes: list[str]) -> Problem:
    existing = nearest("", frames.names(get_ipython()))
    hint = (
        "Frames that SQL can name: %s." % existing if existing else "No frame exists in the kernel."
    )
    if "OutOfMemory" in type(error).__name__:
        hint = "Ask for less: fewer columns, a WHERE, or an aggregate."
    code = "not_found" if type(error).__name__ == "CatalogException" else "bad_request"
    return Problem(code, short(str(error), answer.MAX_LIBRARY_ERROR), " ".join([hint] + notes))
