#!/usr/bin/env bash
# What make verify runs: it makes a release twice, in different folders and with different
# caches, compares the files, and installs them in every way that they are for. Tools and
# homes are in a temporary folder; nothing else changes. It needs PyPI, npm and Go's proxy.
#
# usage: PACKAGE=NAME EXECUTOR_PACKAGE=NAME config/packaging/verify.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
uv=0.13.9 pipx=1.18.4 mcpb=2.1.2 claude=2.1.330 gemini=0.61.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export npm_config_cache=$work/npm PIP_NO_CACHE_DIR=1
export DIST=$work/first/dist VERSION=$1 TOOLS=$work/tools
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export RELEASES=http://127.0.0.1:$port/releases

sources=(executor relay shared colab-bootstrap config go.mod go.sum Makefile LICENSE)
mkdir -p "$work/first" "$work/second" # both from the same moment
cp -r "${sources[@]}" "$work/first/"
cp -r "${sources[@]}" "$work/second/"

echo "--- the first build"
make --no-print-directory -C "$work/first" release DIST="$DIST" VERSION="$VERSION" RELEASES="$RELEASES"
echo "--- the second build"
GOCACHE=$work/cache make --no-print-directory -C "$work/second" release DIST="$work/second/dist" VERSION="$VERSION" RELEASES="$RELEASES" >"$work/second.log" 2>&1 ||
	{ cat "$work/second.log"; exit 1; }
diff -r "$DIST" "$work/second/dist"
echo "reproducible"

echo "--- installing it"
python3 -m venv "$TOOLS"
"$TOOLS/bin/pip" install --quiet --disable-pip-version-check "uv==$uv" "pipx==$pipx"
npm install --silent --no-fund --no-audit --prefix "$TOOLS" "@anthropic-ai/mcpb@$mcpb" "@anthropic-ai/claude-code@$claude" "@google/gemini-cli@$gemini"
go test -count=1 -timeout 10m -tags release -v ./config/packaging/...
