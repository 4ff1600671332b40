#!/usr/bin/env bash
# Installs the agent frameworks of make frameworks, as versions.txt lists them:
#
#   setup.sh FOLDER [PART]
#
#   FOLDER/PART   a Python environment for each part of pip's
#   FOLDER/node   the packages of npm's parts
#
# Each is made again when its line changes. It touches nothing but FOLDER.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
cd "$1"
until=$(awk '$1 == "until" { print $2 }' "$here/versions.txt")
export UV_CACHE_DIR=$PWD/cache UV_PYTHON_DOWNLOADS=never # the environments share its files

install_uv() {
	[ -x uv/bin/uv ] || { python3 -m venv --clear uv && uv/bin/python -m pip install --quiet uv==0.13.9; }
}

python() {
	echo "frameworks: installing $1"
	install_uv
	uv/bin/uv venv --quiet --clear --python uv/bin/python "$1"
	uv/bin/uv pip install --quiet --python "$1/bin/python" --exclude-newer "$until" "${@:2}"
}

node() {
	echo "frameworks: installing the packages of npm"
	command -v npm >/dev/null || { echo "frameworks: no npm on PATH: install node 20 or newer with npm" >&2; exit 1; }
	rm -rf node && mkdir node
	(cd node && npm install --before "$until" --ignore-scripts --no-audit --no-fund --loglevel error "$@")
}

# once NAME COMMAND... runs the command unless it has made NAME before.
once() {
	[ "$(cat "$1/.stamp" 2>/dev/null)" != "$until ${*:2}" ] || return 0
	"${@:2}"
	echo "$until ${*:2}" >"$1/.stamp"
}

while read -r part installer packages; do
	[ "$installer" = pip ] && [ "${2:-$part}" = "$part" ] || continue
	# shellcheck disable=SC2086 # one word each
	once "$part" python "$part" $packages
done <"$here/versions.txt"
if [ $# -lt 2 ] || grep -q "^$2 npm " "$here/versions.txt"; then
	# shellcheck disable=SC2046
	once node node $(awk '$2 == "npm" { for (i = 3; i <= NF; i++) print $i }' "$here/versions.txt")
fi
