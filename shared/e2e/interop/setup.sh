#!/usr/bin/env bash
# Installs the MCP clients of make interop, each version pinned, and node 22 to run them:
#
#   setup.sh FOLDER
#
#   FOLDER/node      what node/package-lock.json lists, and the drivers beside it
#   FOLDER/python1   the Python SDK, version 1
#   FOLDER/python2   the Python SDK, version 2
#
# Each is made once and again when its list changes. It touches nothing but FOLDER.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)

# is_ready NAME LIST, mark NAME LIST: LIST is the file from which NAME was made.
is_ready() { [ "$(cat "$folder/$1/.stamp" 2>/dev/null)" = "$(cksum <"$2")" ]; }
mark() { cksum <"$2" >"$folder/$1/.stamp"; }

node() {
	local lock=$here/node/package-lock.json
	if ! is_ready node "$lock"; then
		echo "interop: installing the TypeScript clients, the Inspector, the conformance suite and node 22"
		command -v npm >/dev/null || {
			echo "interop: no npm on PATH: install node 20 or newer with npm" >&2
			exit 1
		}
		rm -rf "$folder/node" && mkdir "$folder/node"
		cp "$here/node/package.json" "$lock" "$folder/node"
		(cd "$folder/node" && npm ci --no-audit --no-fund --loglevel error)
		mark node "$lock"
	fi
	cp "$here"/node/*.mjs "$folder/node" # node finds the packages from there
}

python() {
	local list=$here/python/requirements-$1.txt
	is_ready "python$1" "$list" && return
	echo "interop: installing the Python SDK, version $1"
	python3 -m venv --clear "$folder/python$1"
	"$folder/python$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$list"
	mark "python$1" "$list"
}

node
python 1
python 2
