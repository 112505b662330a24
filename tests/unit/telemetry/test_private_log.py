"""A log without words of libraries."""

from loguru import logger

from parley.telemetry.private_log import INSTEAD, log_no_words


def _logging(module: str, level: str, message: str) -> None:
    """Log a message as a module does."""
    scope = {"__name__": module, "logger": logger}
    exec(f"logger.log({level!r}, {message!r})", scope)


def test_steps_of_libraries_are_logged_without_their_words_and_the_rest_as_it_is():
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}", level="TRACE")
    log_no_words()
    try:
        _logging("pipecat.services.stt_service", "DEBUG", "heard: my card is 4242")
        _logging("parley.pipelines.call", "INFO", "the call begins")
        _logging("pipecat.services.stt_service", "WARNING", "a library warns")
    finally:
        logger.configure(patcher=lambda _record: None)
        logger.remove(sink)
    assert lines == [f"{INSTEAD}\n", "the call begins\n", "a library warns\n"]
