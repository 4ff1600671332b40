#!/bin/sh
# Starts the program for this system from the folder of this script.
folder=$(dirname -- "$0")
case "$(uname -s)-$(uname -m)" in
Darwin-*) exec "$folder/colab-relay-macos" "$@" ;;
Linux-x86_64 | Linux-amd64) exec "$folder/colab-relay-linux-amd64" "$@" ;;
Linux-aarch64 | Linux-arm64) exec "$folder/colab-relay-linux-arm64" "$@" ;;
esac
echo "colab-relay: there is no program for $(uname -s) on $(uname -m)" >&2
exit 69
