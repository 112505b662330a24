"""Reader of the logs of ticks that calls have written (``telemetry.ticks``)."""

import json
from collections.abc import Iterator
from pathlib import Path

from parley.core.errors import MediaError


def read_ticks(path: Path) -> tuple[dict[str, object], Iterator[dict[str, object]]]:
    """Return the head of a log and its units, which are read lazily.

    Raises:
        MediaError: it cannot be read, or is no log of ticks.
    """
    try:
        file = path.open(encoding="utf-8")
        head = json.loads(file.readline() or "null")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MediaError(f"{path} is not a tick log: {error}") from error
    if not isinstance(head, dict) or head.get("kind") != "head":
        file.close()
        raise MediaError(f"{path} is not a tick log")

    def units() -> Iterator[dict[str, object]]:
        with file:
            for number, line in enumerate(file, start=2):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    # Incomplete last line of a call that died.
                    if file.readline():
                        raise MediaError(f"{path}, line {number}: {error}") from error

    return head, units()
