#!/usr/bin/env bash
# Runs pytest with the interpreter of every kernel stack, and the tests of the data tools with
# that of data; changes nothing:
#
#   pytest.sh [-short] FOLDER TESTS...   FOLDER as in setup.sh
#
# With -short it runs the tests that are not marked as long, on Colab's stack alone. pytest
# comes from FOLDER/tools, behind the stack's own packages, so that the stacks stay as they are
# on Colab. Without pytest (pip reached no index) it prints a notice and exits with 0.
set -euo pipefail

stacks=(old new data) marked=
if [ "$1" = -short ]; then
	stacks=(old) marked="not long"
	shift
fi
folder=$1
shift
site=$(echo "$folder"/tools/lib/python*/site-packages)
if [ ! -d "$site/pytest" ]; then
	echo "pytest: left out: $(cat "$folder/tools.left-out" 2>/dev/null || echo run make python)"
	exit 0
fi

# run_on STACK
run_on() {
	local only=
	[ "$1" != data ] || only=test_data # the other tests are the same as on new
	echo "pytest: the $1 stack"
	PYTHONDONTWRITEBYTECODE=1 "$folder/$1/bin/python" -c '
import sys
sys.path[:] = [path for path in sys.path if path] + [sys.argv.pop(1)]
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", sys.argv.pop(1), "-m", sys.argv.pop(1), *sys.argv[1:]]))
' "$site" "$only" "$marked" "${tests[@]}"
}

# The stacks run at the same time; what each prints is shown as a whole.
tests=("$@")
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
started=() processes=()
for stack in "${stacks[@]}"; do
	[ -x "$folder/$stack/bin/python" ] || continue
	run_on "$stack" >"$results/$stack" 2>&1 &
	started+=("$stack") processes+=($!)
done
failed=0
for i in "${!started[@]}"; do
	wait "${processes[i]}" || failed=1
	cat "$results/${started[i]}"
done
exit $failed
