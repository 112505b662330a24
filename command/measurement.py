"""The process of a measurement: ``python -m`` of its module, with Ctrl-C as in other commands."""

import runpy
import sys

from parley.runtime.interrupts import EXIT_INTERRUPTED, end_at_once, end_at_once_during_imports

if __name__ == "__main__":
    end_at_once()
    end_at_once_during_imports()
    module = sys.argv.pop(1)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
