#!/usr/bin/env bash
# Runs a command while NUMBER processes keep processors busy, and exits with its code:
#
#   besideload.sh NUMBER COMMAND...
#
# Tests that lean on the machine's speed fail there.
set -euo pipefail

number=$1
shift
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for ((i = 0; i < number; i++)); do
	(while :; do :; done) &
	busy+=($!)
done
"$@"
