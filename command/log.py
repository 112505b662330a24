"""Log of a command on standard error."""

import sys
from typing import TYPE_CHECKING

from loguru import logger

from parley.telemetry.json_log import JsonLog, is_without_words
from parley.telemetry.standard_log import take_standard_log

if TYPE_CHECKING:
    from loguru import Record

EXPECTED_WARNINGS = ("ideo transceiver is available", "Media stream error while reading the audio")


def configure_log(verbosity: int, *, as_json: bool = False) -> None:
    """Log to stderr, one line per event. Pipecat's default (DEBUG) costs a noticeable share of the CPU.

    Args:
        verbosity: number of times that ``-v`` was given.
        as_json: each line is a JSON object (``telemetry.json_log``).
    """
    logger.remove()
    take_standard_log()
    level = ("WARNING", "INFO", "DEBUG", "TRACE")[min(verbosity, 3)]
    if as_json:
        logger.add(JsonLog(_write), level=level, filter=lambda record: _is_for_json(record, verbosity))
        return
    # ``diagnose`` is off: the values of variables in a traceback would include callers' words.
    logger.add(sys.stderr, level=level, filter=None if verbosity else is_news, diagnose=False)


def _write(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _is_for_json(record: "Record", verbosity: int) -> bool:
    return is_without_words(record) and (verbosity > 0 or is_news(record))


def is_news(record: "Record") -> bool:
    """Return False for Pipecat's expected warnings: about every audio-only call, and about every hang-up."""
    return not any(text in record["message"] for text in EXPECTED_WARNINGS)
