"""Records of the standard ``logging`` in the program's log."""

import logging

from loguru import logger

from parley.telemetry.standard_log import StandardLog


def test_a_record_is_passed_on_with_its_first_line_and_without_a_lock():
    lines: list[str] = []
    sink = logger.add(lambda text: lines.append(str(text)), format="{level} {name} {message}")
    try:
        handler = StandardLog(logging.WARNING)
        record = logging.LogRecord("a.library", logging.ERROR, __file__, 1, "%s\nand more", ("late",), None)
        # ``logging`` of Python 3.13 enters the lock itself, where earlier ones call ``acquire``.
        with handler.lock:  # type: ignore[union-attr]
            handler.handle(record)
    finally:
        logger.remove(sink)
    assert lines == ["ERROR a.library late\n"]
