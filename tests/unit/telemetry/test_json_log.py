"""Lines of the log as JSON."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from loguru import logger

from parley.telemetry.json_log import JsonLog, is_without_words
from parley.telemetry.standard_log import StandardLog

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


def test_what_libraries_log_has_the_same_form_and_not_their_objects(lines: list[dict[str, Any]]):
    log = logging.Logger("asyncio")
    log.addHandler(StandardLog(logging.WARNING))
    log.info("nothing new")
    try:
        raise KeyError(WORDS)
    except KeyError:
        log.exception("Task exception was never retrieved\nfuture: <Task exception=KeyError('%s')>", WORDS)
    [line] = lines
    assert (line["module"], line["level"]) == ("asyncio", "error")
    assert line["message"] == "Task exception was never retrieved"
    assert line["error"] == "KeyError" and line["function"] == (
        "test_what_libraries_log_has_the_same_form_and_not_their_objects"
    )
    assert WORDS not in str(line)


@pytest.mark.parametrize(
    ("number", "level"), [(30, "warning"), (35, "warning"), (40, "error"), (99, "critical")]
)
def test_a_level_that_is_no_usual_one_is_the_one_below(lines: list[dict[str, Any]], number: int, level: str):
    log = logging.Logger("one")
    log.addHandler(StandardLog(logging.WARNING))
    log.log(number, "late {by}")
    assert [(line["level"], line["message"]) for line in lines] == [(level, "late {by}")]


def test_a_line_whose_arguments_do_not_fit_harms_no_library(lines: list[dict[str, Any]]):
    log = logging.Logger("one")
    log.addHandler(StandardLog(logging.WARNING))
    log.warning("late by %d ms", WORDS)
    assert [line["message"] for line in lines] == ["late by %d ms"]
