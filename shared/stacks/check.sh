#!/usr/bin/env bash
# Checks Python files, above all those that are embedded in the programs; changes nothing:
#
#   check.sh FOLDER FILE...   FOLDER as in setup.sh
#
# Each file compiles on every kernel stack and has the format and none of the faults that
# ruff finds; mypy checks the types of the package colab_relay. Without these tools (pip
# reached no index) it prints a notice and exits with 0.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

folder=$1
shift
[ $# -gt 0 ] || exit 0

for stack in old new; do
	python=$folder/$stack/bin/python
	[ -x "$python" ] || continue
	"$python" -c 'import sys; [compile(open(f, "rb").read(), f, "exec") for f in sys.argv[1:]]' "$@"
done

tools=$(cd "$folder" && pwd)/tools/bin
if [ ! -x "$tools/ruff" ] || [ ! -x "$tools/mypy" ]; then
	echo "check: no ruff and mypy: $(cat "$folder/tools.left-out" 2>/dev/null || echo run make python)"
	exit 0
fi
"$tools/ruff" format --isolated --no-cache --line-length 100 --target-version py38 --check "$@"
"$tools/ruff" check --isolated --no-cache --line-length 100 --target-version py38 --select E,W,F,B,I --ignore B018,B905 "$@"
cd "$here/../kernelpy"
"$tools/python" -m mypy --config-file= --cache-dir=/dev/null --strict --no-warn-return-any --ignore-missing-imports --allow-subclassing-any -p colab_relay
