"""Log of a command on standard error."""

import sys
from typing import TYPE_CHECKING

from loguru import logger

if TYPE_CHECKING:
    from loguru import Record

EXPECTED_WARNINGS = ("ideo transceiver is available", "Media stream error while reading the audio")


def configure_log(verbosity: int) -> None:
    """Log to stderr, one line per event. Pipecat's default (DEBUG) costs a noticeable share of the CPU."""
    logger.remove()
    level = ("WARNING", "INFO", "DEBUG", "TRACE")[min(verbosity, 3)]
    # ``diagnose`` is off: the values of variables in a traceback would include callers' words.
    logger.add(sys.stderr, level=level, filter=None if verbosity else is_news, diagnose=False)


def is_news(record: "Record") -> bool:
    """Return False for Pipecat's expected warnings: about every audio-only call, and about every hang-up."""
    return not any(text in record["message"] for text in EXPECTED_WARNINGS)
