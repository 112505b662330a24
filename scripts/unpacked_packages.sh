#!/bin/sh
# Unpacks Debian packages into a folder without installing them, so that no daemon of theirs starts and no administrator is
# needed. Without a network or apt it says so and goes on: the tests that need them then say what is missing.
# usage: unpacked_packages.sh FOLDER PACKAGE...
set -u
folder="$1"
shift
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
  echo "Not unpacked, because this system has no apt:" "$@" >&2
  exit 0
fi
echo "Unpacking Debian packages for the tests:" "$@"
rm -rf "$folder"
mkdir -p "$folder/archives"
download() { (cd "$folder/archives" && apt-get download -qq "$@" 2>/dev/null); }
# The second time with new lists, which only the administrator may fetch.
if ! download "$@" && ! { apt-get update -qq >/dev/null 2>&1 && download "$@"; }; then
  echo "Could not download (run apt-get update once):" "$@" >&2
  exit 0
fi
for archive in "$folder"/archives/*.deb; do
  dpkg-deb -x "$archive" "$folder" || exit 1
done
rm -r "$folder/archives"
echo "$*" >"$folder/.packages"
