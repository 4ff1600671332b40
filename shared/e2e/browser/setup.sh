#!/usr/bin/env bash
# Installs what make browser needs: a Chromium on PATH. It installs Debian's
# if it may (root and apt-get), and else says what to install.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
	command -v "$name" >/dev/null && exit
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "browser: no Chromium on PATH: install it, such as with: sudo apt-get install chromium" >&2
	exit 1
fi
echo "browser: installing Debian's chromium"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
