#!/bin/sh
# Runs a command whose temporary files are in memory, where there is a file system with room for them: databases of tests
# wait for a disk thousands of times. Elsewhere they are where they always are.
# usage: with_memory_files.sh COMMAND [ARGUMENT...]
set -u
needed_kb=4194304
free_kb=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "${free_kb:-0}" -ge "$needed_kb" ]; then
  TMPDIR=$(mktemp -d /dev/shm/parley.XXXXXX) || exit 1
  export TMPDIR
  # The database server of the tests runs as a user of its own.
  chmod 755 "$TMPDIR"
  trap 'rm -rf "$TMPDIR"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
fi
"$@"
