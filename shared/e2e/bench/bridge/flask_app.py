"""The VM's side of an old-style bridge, which make bench compares with: an HTTP server that
executes the code that it gets in its own process.

flask_app.py PORT; the environment variable BRIDGE_TOKEN holds the token of its header.
"""

import ast
import contextlib
import io
import os
import sys
import traceback

from flask import Flask, jsonify, request

app = Flask(__name__)
namespace = {"__name__": "__main__"}


def run(code):
    """Executes code and returns the repr of its last expression, or None."""
    tree = ast.parse(code)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "<code>", "exec"), namespace)
    if last is None:
        return None
    value = eval(compile(last, "<code>", "eval"), namespace)
    return None if value is None else repr(value)


@app.post("/execute")
def execute():
    if request.headers.get("X-Auth-Token") != os.environ["BRIDGE_TOKEN"]:
        return jsonify(error="unauthorized"), 401
    stdout, result, error = io.StringIO(), None, None
    with contextlib.redirect_stdout(stdout):
        try:
            result = run(request.get_json()["code"])
        except Exception:
            error = traceback.format_exc()
    return jsonify(success=error is None, stdout=stdout.getvalue(), result=result, error=error)


app.run(host="127.0.0.1", port=int(sys.argv[1]), threaded=True)
