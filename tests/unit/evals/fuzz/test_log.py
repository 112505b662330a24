"""Failures in a log, counted by the place that raised them."""

from pathlib import Path

from parley.evals.fuzz.log import Failure, LogWatch

ROOT = Path("/srv/parley")
TRACEBACK = """\
2026-11-28 08:53:32.132 | ERROR    | asyncio:run:118 - Unhandled exception in event loop
Traceback (most recent call last):
> File "uvloop/loop.pyx", line 113, in uvloop.loop.run_in_context2
    return method(arg1, arg2)
  File "/srv/parley/transports/websocket/session.py", line 12, in _read
    text = read()
  File "/srv/parley/.venv/lib/python3.11/site-packages/aioice/stun.py", line 149, in unpack
    value = unpack("!I", data)[0]
struct.error: unpack requires a buffer of 4 bytes
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/srv/parley/serving/worker/conversation.py", line 9, in run
  |     raise
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
"""
LINES = """\
2026-11-28 08:53:18.608 | WARNING  | parley.transports.twilio.stream:_refuse:467 - a message is ignored
2026-11-28 08:53:21.123 | ERROR    | parley.x:y:225 - <Client object at 0x7ffa1abb2910> failed 12 times
2026-11-28 08:53:22.000 | WARNING  | parley.serving.x:y:225 - a conversation failed: KeyError
"""


def failures(folder: Path, *texts: str) -> list[Failure]:
    log = folder / "server.log"
    log.write_text("an old line | ERROR | x:y:1 - before\n")
    watch = LogWatch(log, ROOT)
    found = []
    for text in texts:
        with log.open("a") as file:
            file.write(text)
        found += watch.new()
    return found


def test_a_traceback_is_one_failure_at_its_innermost_place_in_the_product(tmp_path: Path):
    [found] = failures(tmp_path, TRACEBACK)
    assert found.place == "transports/websocket/session.py _read: struct.error"
    assert found.text == "unpack requires a buffer of 4 bytes"


def test_a_traceback_that_is_written_in_parts_is_the_same_failure(tmp_path: Path):
    half = len(TRACEBACK) // 2
    assert failures(tmp_path, TRACEBACK[:half], TRACEBACK[half:]) == failures(tmp_path, TRACEBACK)


def test_a_group_of_exceptions_has_the_place_that_raised_it(tmp_path: Path):
    [found] = failures(tmp_path, GROUP)
    assert found.place == "serving/worker/conversation.py run: ExceptionGroup"


def test_errors_without_a_traceback_count_and_warnings_only_when_no_client_may_cause_them(tmp_path: Path):
    places = [found.place for found in failures(tmp_path, LINES, "the end\n")]
    assert places == ["<Client object at N> failed N times", "a conversation failed: KeyError"]
