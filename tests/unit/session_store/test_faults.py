import asyncio
from collections.abc import Iterator

import pytest
from loguru import logger
from pipecat.runner.types import RunnerArguments

from parley.serving.gateway.calls import CallTasks
from parley.session_store.faults import log_failure, without_ids
from tests import virtual_time

SESSION = "0f8b1c2d-aaaa-4bbb-8ccc-1234567890ab"


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Collect everything that a sink writes that shows as much as it can."""
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level=0, diagnose=True, backtrace=True)
    yield lines
    logger.remove(sink)


def test_the_id_of_a_session_is_cut_to_its_beginning():
    text = f"GET /api/sessions/{SESSION}/events {SESSION.upper()} typed.{SESSION}.x 12345678-1234"
    assert without_ids(text) == (
        "GET /api/sessions/0f8b1c2d.../events 0F8B1C2D... typed.0f8b1c2d....x 12345678-1234"
    )


def test_a_failure_is_logged_with_its_place_and_without_what_it_was_about(log: list[str]):
    def break_down(session_id: str, said: str) -> None:
        raise RuntimeError(f"session {session_id} is broken")

    said = "my account number is 4172"
    try:
        break_down(SESSION, said)
    except RuntimeError as error:
        log_failure("it failed", error)
    [line] = log
    assert "it failed" in line
    assert "break_down" in line
    assert "RuntimeError: session 0f8b1c2d... is broken" in line
    assert SESSION not in line
    assert "4172" not in line


async def test_a_conversation_that_fails_is_logged_without_the_id_of_its_session(log: list[str]):
    async def run_call(arguments: RunnerArguments) -> None:
        raise LookupError(f"no such thing in {arguments.body}")

    async def hang_up() -> None:
        pass

    calls = CallTasks(run_call, max_calls=1, drain_s=0, hang_up_s=1)
    await calls.start(RunnerArguments(body={"session": SESSION}), call_id="one", hang_up=hang_up)
    assert "a conversation failed" in "".join(log)
    assert "0f8b1c2d" in "".join(log)
    assert SESSION not in "".join(log)


def test_a_server_that_stops_ends_calls_that_say_goodbye_and_waits_for_the_others_once():
    async def scenario() -> None:
        begun: list[str] = []
        ended: list[str] = []

        async def run_call(arguments: RunnerArguments) -> None:
            name = arguments.body["name"]
            begun.append(name)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if name == "stubborn":
                    await asyncio.sleep(0.6)
            ended.append(name)

        async def hang_up() -> None:
            pass

        calls = CallTasks(run_call, max_calls=2, drain_s=0.05, hang_up_s=0.2)
        stubborn = calls.start(RunnerArguments(body={"name": "stubborn"}), call_id="one", hang_up=hang_up)
        polite = RunnerArguments(body={"name": "polite"})
        calls.start(polite, call_id="two", hang_up=hang_up, says_goodbye=True)
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        ended_by_then: list[list[str]] = []

        async def hang_up_all() -> None:
            await asyncio.sleep(0.01)
            ended_by_then.append(list(ended))

        await calls.close(hang_up_all)
        assert begun == ["stubborn", "polite"]
        # At once, and not after all others have been waited for.
        assert ended_by_then == [["polite"]]
        took_s = loop.time() - began_s
        assert took_s == pytest.approx(0.46)
        # A later close has nothing more to wait for.
        await calls.close(hang_up_all)
        assert loop.time() - began_s == took_s
        await stubborn

    virtual_time.run(scenario())
