"""Lines of the log as JSON."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from loguru import logger

from parley.telemetry.json_log import JsonLog, is_without_words

WORDS = "walrus"


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    sink = logger.add(
        JsonLog(lambda line: found.append(json.loads(line))), level="DEBUG", filter=is_without_words
    )
    yield found
    logger.remove(sink)


def test_a_line_says_what_happened_where_and_in_which_call(lines: list[dict[str, Any]]):
    with logger.contextualize(session="0123abcd", call="4567cdef", secret=WORDS):
        logger.warning('the engine is "late"\nand slow')
    [line] = lines
    assert (line["level"], line["message"]) == ("warning", 'the engine is "late"\nand slow')
    assert (line["session"], line["call"]) == ("0123abcd", "4567cdef")
    assert line["function"] == "test_a_line_says_what_happened_where_and_in_which_call"
    assert line["at"].endswith("+00:00")
    assert WORDS not in str(line)


def test_an_error_has_its_type_and_stack_and_not_its_text(lines: list[dict[str, Any]]):
    def say(text: str) -> None:
        raise ValueError(f"cannot say {text}")

    try:
        say(WORDS)
    except ValueError as error:
        logger.opt(exception=error).error("a stage failed: {}", type(error).__name__)
    [line] = lines
    assert line["error"] == "ValueError"
    assert line["stack"][-1].endswith(" say")
    assert WORDS not in str(line)


@pytest.mark.parametrize(
    ("name", "level", "is_kept"),
    [
        ("pipecat.services.tts_service", "DEBUG", False),
        ("pipecat.services.tts_service", "INFO", False),
        ("pipecat.services.tts_service", "WARNING", True),
        ("parley.runtime.engine_process", "DEBUG", True),
        ("parleyx.other", "INFO", False),
    ],
)
def test_messages_of_libraries_below_a_warning_are_left_out(
    lines: list[dict[str, Any]], name: str, level: str, is_kept: bool
):
    logger.patch(lambda record: record.update(name=name)).log(level, f"Generating TTS [{WORDS}]")
    assert len(lines) == is_kept
