"""Requests of services over the process's HTTP session, and the errors of their answers.

Messages of errors contain nothing that a caller or the bot has said, which a server may quote.
"""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp
from pipecat.utils.errors import ErrorCategory, classify_http_status_code

from parley.core.errors import PeerError

MOST_ERROR_BYTES, MOST_REASON_CHARS = 4_096, 200
# The same request gives the same answer: a wrong key, a forbidden model, a wrong path or name.
PERMANENT = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
# Answers that do not depend on the text of a request, so their reasons do not speak of it.
_REGARDLESS_OF_TEXT = PERMANENT | {HTTPStatus.TOO_MANY_REQUESTS}


class ServiceAnswerError(PeerError):
    """A server does not give what it was asked for.

    Attributes:
        status: HTTP status of the answer; 200 where the answer itself was wrong; None without an answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def category(self) -> ErrorCategory:
        """Category of the error for Pipecat, which gives up a service with a permanent one."""
        if self.status is None:
            return ErrorCategory.CONNECTIVITY
        category = classify_http_status_code(self.status)
        return ErrorCategory.UNKNOWN if category.is_permanent and self.status not in PERMANENT else category


async def request_answer(
    http: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: Callable[[], Mapping[str, Any]] = dict,
    private: str = "",
    repeats: bool = False,
) -> aiohttp.ClientResponse:
    """Send a request; return an answer with status 200, which the caller closes.

    Args:
        http: the process's HTTP session.
        method: HTTP method.
        url: address.
        headers: headers of the request.
        body: returns the argument of aiohttp for the body.
        private: text of the request that no error may quote. The server's reason is left out where the text
            may be the cause, because a server also quotes a part of it, its spelled numbers or its phonemes.
        repeats: the request is sent again, once, where the connection is lost before any answer. A server
            closes a connection that was idle in the moment at which a request leaves.

    Raises:
        ServiceAnswerError: it is answered with another status.
        aiohttp.ClientError, OSError: there is no answer (``connection_error``).
    """

    async def send() -> aiohttp.ClientResponse:
        return await http.request(
            method,
            url,
            headers=headers,
            # A key is meant for this address, and a redirection may turn the request into another one.
            allow_redirects=False,
            # Deadlines are watched by the caller, for the whole of an answer.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            **body(),
        )

    try:
        response = await send()
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        if not repeats:
            raise
        response = await send()
    if response.status == HTTPStatus.OK:
        return response
    try:
        reason = _reason(await response.content.read(MOST_ERROR_BYTES))
        if private and (response.status not in _REGARDLESS_OF_TEXT or _words(private) & _words(reason)):
            reason = ""
        raise ServiceAnswerError(f"status {response.status}{reason}", status=response.status)
    finally:
        response.close()


async def read_body(response: aiohttp.ClientResponse, *, most_bytes: int) -> bytes:
    """Return the body of an answer, which is closed.

    Raises:
        ServiceAnswerError: it is longer.
        aiohttp.ClientError, OSError: it breaks off.
    """
    try:
        body = bytearray()
        while len(body) <= most_bytes and (piece := await response.content.readany()):
            body += piece
    finally:
        response.close()
    if len(body) > most_bytes:
        raise ServiceAnswerError(f"the answer is over {most_bytes} bytes", status=HTTPStatus.OK)
    return bytes(body)


async def read_json(response: aiohttp.ClientResponse, *, most_bytes: int) -> Any:
    """Return the JSON of an answer, which is closed; it is short enough to be parsed on the event loop.

    Raises:
        ServiceAnswerError: it is longer, or no JSON.
        aiohttp.ClientError, OSError: it breaks off.
    """
    body = await read_body(response, most_bytes=most_bytes)
    try:
        return parse_json(body)
    except ValueError as error:
        raise ServiceAnswerError("the answer is no JSON", status=HTTPStatus.OK) from error


def parse_json(data: bytes) -> Any:
    """Return the value of JSON that a server sent.

    Raises:
        ValueError: it is none, or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def connection_error(error: aiohttp.ClientError | OSError) -> ServiceAnswerError:
    """Return the error of a connection that could not be opened, or that was lost."""
    if isinstance(error, aiohttp.ClientPayloadError):
        return ServiceAnswerError("the answer was cut off")
    return ServiceAnswerError(f"the connection failed: {type(error).__name__}")


def _reason(body: bytes) -> str:
    """Return the reason in an error's body, to be appended; empty for none.

    OpenAI's has it in ``error.message``, FastAPI's in ``detail``; a list there repeats the request.
    """
    try:
        fields = parse_json(body)
    except ValueError:
        return ""
    for name in ("error", "detail", "message"):
        reason = fields.get(name) if isinstance(fields, dict) else None
        if isinstance(reason, dict):
            reason = reason.get("message")
        if isinstance(reason, str) and reason:
            return f": {' '.join(reason.split())[:MOST_REASON_CHARS]}"
    return ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
