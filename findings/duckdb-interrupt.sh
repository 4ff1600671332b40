#!/usr/bin/env bash
# DuckDB's Python client forgets an interrupt that comes while no statement runs.
#
# Package:  duckdb 2.0.0
# Expected: interrupt() on a connection ends the work that the connection is asked for, so that
#           one timer which calls it bounds a function that runs several statements.
# Seen:     An interrupt during a statement raises InterruptException. One that comes between
#           two statements, or between sql(), which only plans, and fetchall(), which runs, is
#           lost: the next statement runs to its end. A bound must interrupt until the work ends.
#
# Exits with 0 while that is so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import threading

import duckdb

print("duckdb", duckdb.__version__)
connection = duckdb.connect()
# Some seconds of work, which an interrupt ends at once.
work = "SELECT sum(a.range * b.range) FROM range(100000) a, range(100000) b"

ended = threading.Event()


def interrupt_until_ended():
    while not ended.wait(0.1):
        connection.interrupt()


again = threading.Thread(target=interrupt_until_ended)
again.start()
try:
    connection.execute(work).fetchall()
    during = "finished"
except duckdb.InterruptException:
    during = "interrupted"
ended.set()
again.join()
print("interrupted during a statement:", during)

connection.interrupt()
before = connection.execute("SELECT 42").fetchall()
print("interrupted before a statement:", before)

planned = connection.sql("SELECT 43")
connection.interrupt()
between = planned.fetchall()
print("interrupted between sql() and fetchall():", between)

if during != "interrupted" or before != [(42,)] or between != [(43,)]:
    sys.exit("this has changed")
PYTHON
