#!/usr/bin/env bash
# Runs pytest with the interpreter of every kernel stack, and the tests of the data tools with
# that of data; changes nothing:
#
#   pytest.sh FOLDER TESTS...   FOLDER as in setup.sh
#
# pytest comes from FOLDER/tools, behind the stack's own packages, so that the stacks stay as
# they are on Colab. Without pytest (pip reached no index) it prints a notice and exits with 0.
set -euo pipefail

folder=$1
shift
site=$(echo "$folder"/tools/lib/python*/site-packages)
if [ ! -d "$site/pytest" ]; then
	echo "pytest: left out: $(cat "$folder/tools.left-out" 2>/dev/null || echo run make python)"
	exit 0
fi
for stack in old new data; do
	python=$folder/$stack/bin/python
	[ -x "$python" ] || continue
	echo "pytest: the $stack stack"
	only=
	[ $stack != data ] || only=test_data # the other tests are the same as on new
	PYTHONDONTWRITEBYTECODE=1 "$python" -c '
import sys
sys.path[:] = [path for path in sys.path if path] + [sys.argv.pop(1)]
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", sys.argv.pop(1), *sys.argv[1:]]))
' "$site" "$only" "$@"
done
