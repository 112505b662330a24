"""The outermost handler of a request: failures, and events that only look like failures."""

from collections.abc import Iterator

import pytest
from loguru import logger
from starlette.types import Message, Receive, Scope, Send

from parley.serving.gateway.http.middleware import Failures

HTTP: Scope = {"type": "http", "path": "/"}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def nothing() -> Message:
    raise AssertionError


async def answers(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"x"})


@pytest.fixture
def records() -> Iterator[list[str]]:
    records: list[str] = []
    handler = logger.add(lambda record: records.append(str(record)), level="WARNING")
    yield records
    logger.remove(handler)


async def test_a_client_that_resets_its_connection_is_no_failure(records: list[str]):
    async def send(_message: Message) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    await Failures(answers)(HTTP, nothing, send)
    assert records == []


async def test_an_error_of_the_server_is_logged_and_answered_with_500(records: list[str]):
    sent: list[Message] = []

    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("unexpected")

    async def send(message: Message) -> None:
        sent.append(message)

    await Failures(fails)(HTTP, nothing, send)
    assert sent[0]["status"] == 500
    assert len(records) == 1
