"""The command ``parley``: ``python -m parley``."""

from parley.command.main import main
from parley.runtime.process_exit import exit_process

if __name__ == "__main__":
    exit_process(main())
