"""Handler that passes records of Python's ``logging`` to the log of the program, from warnings on.

Libraries (asyncio, uvicorn, aiortc) log there. Of a message only the first line is passed on: asyncio adds
objects in further lines, whose text may quote what was said.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from loguru import logger

if TYPE_CHECKING:
    from loguru import Record


class _NoLock:
    """Lock that excludes no thread. A handler may have no lock at all up to Python 3.12; 3.13 enters it."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""


class StandardLog(logging.Handler):
    """Handler for the root of ``logging``."""

    def createLock(self) -> None:
        """Exclude no thread: the program's log has a lock, and two would be taken in either order."""
        self.lock = cast(Any, _NoLock())

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on with its place, and with its exception."""
        try:
            message = record.getMessage().partition("\n")[0]
        except Exception:  # arguments that do not fit the text, in the code of a library
            message = str(record.msg)
        passed = logger.patch(partial(_place, record))
        passed.opt(exception=record.exc_info).log(_level(record.levelno), "{}", message)


def _place(record: logging.LogRecord, own: "Record") -> None:
    own["name"], own["function"], own["line"] = record.name, record.funcName, record.lineno


def _level(number: int) -> str:
    """Return the program's level for a level of ``logging``, which may be any number."""
    if number >= logging.CRITICAL:
        return "CRITICAL"
    return "ERROR" if number >= logging.ERROR else "WARNING"


def take_standard_log() -> None:
    """Have warnings and errors of all libraries written to the log of the program."""
    logging.basicConfig(handlers=[StandardLog(logging.WARNING)], level=logging.WARNING, force=True)
