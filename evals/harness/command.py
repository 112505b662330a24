"""Command line of every evaluation: numbers, errors of the user, log messages, the machine."""

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from loguru import logger

from parley.core.errors import AgentError
from parley.runtime.interrupts import stopping_in_order


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def count(text: str) -> int:
    """Parse a whole number from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def positive_number(text: str) -> float:
    """Parse a number above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def machine() -> dict[str, Any]:
    """Return a description of the machine of a measurement."""
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def quiet_log() -> None:
    """Keep log messages below a warning out of the output."""
    logger.remove()
    logger.add(sys.stderr, level="WARNING")


def exit_code(run: Callable[[], int]) -> int:
    """Run a command; return its exit code.

    An error of the user is one line on standard error and 2. A command that is interrupted or terminated
    stops what it has started, such as a server, and returns 130.
    """
    terminated = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with stopping_in_order():
            return run()
    except (AgentError, OSError, ExceptionGroup) as error:
        reason = _of_user(error)
        if reason is None:
            raise
        print(f"error: {' '.join(str(reason).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, terminated)


def _of_user(error: Exception) -> Exception | None:
    """Return an error of the user, also from work that ran in parallel; None for a bug."""
    if isinstance(error, ExceptionGroup):
        return next((found for each in error.exceptions if (found := _of_user(each)) is not None), None)
    return error if isinstance(error, AgentError | OSError) else None
