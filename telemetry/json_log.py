"""Lines of the log as JSON objects, for programs that collect logs.

One object a line: ``at`` (RFC 3339, UTC), ``level``, ``module``, ``function``, ``line``, ``message``; in a
call also ``session`` and ``call`` (the first characters of both ids); of an error ``error`` (its type) and
``stack`` (file, line and function, the innermost last). No line holds words of a conversation: messages of
this program have none, those of libraries below a warning are left out, and so are the texts of exceptions,
which may quote what was said.
"""

import json
import traceback
from collections.abc import Callable
from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loguru import Message, Record

OWN = "parley"
WARNING = 30
MOST_FRAMES = 20


class JsonLog:
    """Sink that writes each record as a line.

    Args:
        write: takes a line with its end; may block.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def __call__(self, message: "Message") -> None:
        """Write a record."""
        self._write(json.dumps(fields_of(message.record), ensure_ascii=False, default=str) + "\n")


def is_without_words(record: "Record") -> bool:
    """Return False for a record of a library that may hold words of a conversation."""
    return record["level"].no >= WARNING or (record["name"] or "").partition(".")[0] == OWN


def fields_of(record: "Record") -> dict[str, Any]:
    """Return a record as JSON values."""
    fields: dict[str, Any] = {
        "at": record["time"].astimezone(UTC).isoformat(timespec="milliseconds"),
        "level": record["level"].name.lower(),
        "module": record["name"],
        "function": record["function"],
        "line": record["line"],
        "message": record["message"],
    }
    fields |= {name: record["extra"][name] for name in ("session", "call") if name in record["extra"]}
    error = record["exception"]
    if error is not None and error.type is not None:
        fields["error"] = error.type.__name__
        frames = traceback.extract_tb(error.traceback)[-MOST_FRAMES:]
        fields["stack"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return fields
