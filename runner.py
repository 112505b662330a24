"""A name for the command that runs one process of a deployment: the gateway for callers, or a worker.

``python runner.py --role gateway --config NAME`` serves every surface (pages, calls, sockets, operators) and
starts the workers that the deployment names; ``all`` does the same, for a deployment on one machine.
``python runner.py --role worker --engine moshi --port 22400`` hosts an engine, as ``parley worker`` does. The
command is ``parley.command.runner_line``.
"""

from parley.runtime.interrupts import end_at_once

if __name__ == "__main__":
    # Before the other imports, during which Ctrl-C would be an exception inside other packages.
    end_at_once()

from parley.command.runner_line import main
from parley.runtime.process_exit import exit_process

__all__ = ["main"]

if __name__ == "__main__":
    exit_process(main())
