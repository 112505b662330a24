#!/bin/sh
# Installs the Debian packages it is given where it may, and otherwise names them in one line and fails.
# usage: apt_packages.sh PACKAGE...
set -u
missing=""
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "Please install with this system's package manager (Debian names):$missing" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  run=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  run="sudo -n"
else
  echo "Please run once: sudo apt-get install$missing" >&2
  exit 1
fi
echo "Installing Debian packages:$missing"
log=$(mktemp)
if { $run apt-get update -qq && DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
  rm -f "$log"
  exit 0
fi
tail -n 5 "$log" >&2
rm -f "$log"
echo "Could not install:$missing (run: sudo apt-get install$missing)" >&2
exit 1
