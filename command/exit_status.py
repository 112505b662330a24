"""Exit statuses of the commands, and the one line with which an error ends one."""

import sys
from collections.abc import Callable

from parley.core.errors import ConfigError, EngineError, MediaError, StoreError
from parley.runtime.interrupts import EXIT_INTERRUPTED

EXIT_ENGINE = 1
EXIT_USAGE = 2
MEANING = (
    "Exit status: 0 when the conversation or the server has ended, 1 when an engine fails to "
    "load or to work, 2 when the command, the deployment or one of the user's files is "
    "wrong, 130 when interrupted."
)


def status_of(program: str, work: Callable[[], int]) -> int:
    """Run the work of a command.

    Args:
        program: name of the command, which begins the line of an error.
        work: returns the exit status.

    Returns:
        The exit status: 2 for an error that the user can correct and 1 when an engine fails, both with one
        line that names the cause; 130 after Ctrl-C.
    """
    try:
        return work()
    except (ConfigError, MediaError, StoreError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except EngineError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_ENGINE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
