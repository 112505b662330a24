#!/bin/sh
# Creates a virtual environment with Python 3.11, or says in one line what is missing.
# usage: python_venv.sh PYTHON FOLDER
set -u
python=$1
folder=$2
command -v "$python" >/dev/null 2>&1 || python=python3
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
  echo "Parley needs Python 3.11 ($python is $("$python" --version 2>&1)); set PYTHON=/path/to/python3.11" >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  sh "$(dirname "$0")/apt_packages.sh" python3-venv || exit 1
fi
"$python" -m venv "$folder"
