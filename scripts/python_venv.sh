#!/bin/sh
# Creates a virtual environment with Python 3.11, 3.12 or 3.13, or says in one line what is missing.
# usage: python_venv.sh PYTHON FOLDER
# Without PYTHON it takes the oldest one that is installed, which is the one that the tests use.
set -u
python=$1
folder=$2
if [ -z "$python" ]; then
  for python in python3.11 python3.12 python3.13 python3; do
    command -v "$python" >/dev/null 2>&1 && break
  done
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
  found=$("$python" --version 2>&1) || found="not found"
  echo "Parley needs Python 3.11, 3.12 or 3.13 ($python is $found); set PYTHON=/path/to/python3.11" >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  sh "$(dirname "$0")/apt_packages.sh" python3-venv || exit 1
fi
"$python" -m venv "$folder"
