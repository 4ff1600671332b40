#!/usr/bin/env bash
# Installs the proxies of make proxies, as Debian ships them. Without root or apt it says what is
# missing. RUNLEVEL=1 keeps a package from starting its service.
set -euo pipefail

export PATH=$PATH:/usr/sbin
missing=()
for program in nginx haproxy squid tinyproxy; do
	command -v "$program" >/dev/null || missing+=("${program/#nginx/nginx-light}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "proxies: install these packages of Debian: ${missing[*]}" >&2
	exit 1
fi
apt-get update -qq
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"
