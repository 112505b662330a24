"""Parts that the commands of all evaluations share: numbers on the command line, errors, the machine."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from core.errors import AgentError


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def count(text: str) -> int:
    """A whole number from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def positive_number(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def machine() -> dict[str, Any]:
    """What it was measured on."""
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def exit_code(run: Callable[[], int]) -> int:
    """Run a command and return its exit code: 2, and one line on standard error, for what a user can mend."""
    try:
        return run()
    except (AgentError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
