"""The command ``parley``: ``python -m parley``."""

from parley.runtime.interrupts import end_at_once

if __name__ == "__main__":
    # Before the imports, during which Ctrl-C would be an exception inside other packages.
    end_at_once()

    from parley.command.main import main
    from parley.runtime.process_exit import exit_process

    exit_process(main())
