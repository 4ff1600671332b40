#!/usr/bin/env bash
# Installs the MCP hosts of make hosts, as node/package-lock.json lists them:
#
#   setup.sh FOLDER
#
# It installs the packages that hold the programs, without running their scripts, and again
# when the list changes. It touches nothing but FOLDER.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lock=$here/node/package-lock.json

fail() {
	echo "hosts: $1" >&2
	exit 1
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "make hosts needs Linux on x86-64: the list has no other packages"
command -v npm >/dev/null || fail "no npm on PATH: install node 20 or newer with npm"
# Gemini CLI runs in it.
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || fail "node $(node --version) is too old: install node 20 or newer"

mkdir -p "$1"
cd "$1"
[ "$(cat .stamp 2>/dev/null)" != "$(cksum <"$lock")" ] || exit 0
echo "hosts: installing Claude Code, Codex, Gemini CLI and OpenCode, 1.1 GB"
rm -rf node_modules .stamp
cp "$here/node/package.json" "$lock" .
npm ci --ignore-scripts --omit=optional --no-audit --no-fund --loglevel error
cksum <"$lock" >.stamp
