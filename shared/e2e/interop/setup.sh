#!/usr/bin/env bash
# Installs what make interop compares with, each version pinned:
#
#   setup.sh FOLDER [PART...]   parts: clients, notebooks; all of them if none is named
#
#   FOLDER/node              of clients: what node/package-lock.json lists, with node 22 and the drivers
#   FOLDER/python1, python2  of clients: the Python SDK, versions 1 and 2
#   FOLDER/pythonnotebooks   of notebooks: nbformat, nbclient, papermill, jupytext, nbdime, a kernel
#   FOLDER/samples           of notebooks: the notebooks in these packages and their sources
#
# Each is made once and again when its list changes. It touches nothing but FOLDER.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift

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
	echo "interop: installing python/requirements-$1.txt"
	python3 -m venv --clear "$folder/python$1"
	"$folder/python$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$list"
	mark "python$1" "$list"
}

# samples copies the notebooks of packages, whose wheels are installed, and of source archives.
samples() {
	local list=$here/python/requirements-notebooks.txt sources
	is_ready samples "$list" && return
	echo "interop: collecting the sample notebooks of packages"
	rm -rf "$folder/samples" && mkdir "$folder/samples"
	sources=$(grep -E '^(nbformat|nbclient|nbconvert)==' "$list")
	# shellcheck disable=SC2086 # one word each
	"$folder/pythonnotebooks/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
		--no-binary nbformat,nbclient,nbconvert --dest "$folder/samples" $sources
	for archive in "$folder"/samples/*.tar.gz; do
		tar xzf "$archive" -C "$folder/samples"
	done
	rm "$folder"/samples/*.tar.gz
	cp -r "$folder"/pythonnotebooks/lib/python3*/site-packages/{nbdime,papermill} "$folder/samples"
	find "$folder/samples" -type f -not -name '*.ipynb' -delete
	find "$folder/samples" -type d -empty -delete
	mark samples "$list"
}

clients() {
	node
	python 1
	python 2
}

notebooks() {
	python notebooks
	samples
}

[ $# -gt 0 ] || set -- clients notebooks
for part in "$@"; do
	"$part"
done
