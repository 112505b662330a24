"""Leave words of a conversation out of the log of a process, also where it logs the steps of its libraries.

Messages of this program hold no words. Those of libraries below a warning may: a deployment that redacts
words has none of them at any level (``telemetry.json_log`` leaves them out for the same reason).
"""

from typing import TYPE_CHECKING

from loguru import logger

from parley.telemetry.json_log import is_without_words

if TYPE_CHECKING:
    from loguru import Record

INSTEAD = "(not logged: it may hold words, and this deployment has private ones)"


def log_no_words() -> None:
    """Replace such messages from here on, in every sink of the process."""
    logger.configure(patcher=_without_words)


def _without_words(record: "Record") -> None:
    if not is_without_words(record):
        record["message"] = INSTEAD
