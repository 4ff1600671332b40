#!/usr/bin/env bash
# Checks Python files that are embedded in the programs; changes nothing:
#
#   check.sh FOLDER FILE...   FOLDER as in setup.sh
#
# Each file compiles on every kernel stack and has the format and none of the faults
# ruff knows. Without ruff (pip reached no index) it says so and goes on.
set -euo pipefail

folder=$1
shift
[ $# -gt 0 ] || exit 0

for stack in old new; do
	python=$folder/$stack/bin/python
	[ -x "$python" ] || continue
	"$python" -c 'import sys; [compile(open(f, "rb").read(), f, "exec") for f in sys.argv[1:]]' "$@"
done

ruff=$folder/tools/bin/ruff
if [ ! -x "$ruff" ]; then
	echo "check: no ruff: $(cat "$folder/tools.left-out" 2>/dev/null || echo run make python)"
	exit 0
fi
"$ruff" format --isolated --no-cache --line-length 100 --target-version py38 --check "$@"
"$ruff" check --isolated --no-cache --line-length 100 --target-version py38 --select E,W,F,B,I --ignore B018,B905 "$@"
