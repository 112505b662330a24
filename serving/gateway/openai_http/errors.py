"""Refusals of OpenAI's HTTP routes in the form that its clients read.

Routes, their dependencies and the parts below raise the errors of the gateway, for which an application has
answers (``app.add_error_answers``). ``add_openai_errors`` puts those of these paths into OpenAI's form: one
object with a text, a type, the field and a code.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from parley.core.errors import AgentError, EngineError, OversizedError
from parley.protocols.client_protocol import ProtocolError
from parley.protocols.openai_http import INVALID, OpenAiHttpError, error_body
from parley.session_store.faults import log_failure

OPENAI_PATHS = ("/v1/chat", "/v1/audio", "/v1/realtime/client_secrets", "/v1/realtime/calls")


class CompletionFailedError(AgentError):
    """A request failed after it had an effect that its client has to know.

    Attributes:
        cause: the error, which decides about the answer.
        headers: of the answer: the session, the next token.
    """

    def __init__(self, cause: Exception, headers: Mapping[str, str]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.headers = dict(headers)


# Errors that have an answer only on these paths.
_OWN = (OpenAiHttpError, EngineError)
# Type and code of a status that clients act on.
_STATUS: dict[int, tuple[str, str | None]] = {
    401: (INVALID, "invalid_api_key"),
    403: (INVALID, "insufficient_permissions"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_overloaded"),
}

_Handler = Callable[[Request, Any], Response | Awaitable[Response]]


def openai_error(error: AgentError) -> OpenAiHttpError:
    """Return an error of a part below as one of this API; for one that comes in the middle of a stream."""
    if isinstance(error, OpenAiHttpError):
        return error
    if isinstance(error, OversizedError):
        return _oversized(error)
    return OpenAiHttpError(str(error), status=500, kind="server_error")


def _oversized(error: OversizedError) -> OpenAiHttpError:
    """Return the refusal of a request that is larger than the limit of a minute, as OpenAI words it."""
    return OpenAiHttpError(
        f"Request too large for `parley` on bytes per min: Limit {error.limit}, Requested {error.size}. The "
        "input must be reduced in order to run successfully.",
        status=429,
        code="rate_limit_exceeded",
        kind="tokens",
    )


def add_openai_errors(app: FastAPI) -> None:
    """Put the answers to errors on these paths into OpenAI's form. Called after all others were added."""

    async def on_error(_request: Request, error: AgentError) -> Response:
        failed = openai_error(error)
        return JSONResponse({"error": str(failed)}, status_code=failed.status)

    for kind in _OWN:
        app.add_exception_handler(kind, on_error)  # type: ignore[arg-type]
    for registered, handler in list(app.exception_handlers.items()):
        if isinstance(registered, type) and issubclass(registered, Exception):
            app.exception_handlers[registered] = _in_form(handler)

    async def on_failed(request: Request, failed: CompletionFailedError) -> Response:
        cause = failed.cause
        kinds = (app.exception_handlers.get(kind) for kind in type(cause).__mro__)
        handler = next((each for each in kinds if each is not None), None)
        if handler is None:
            log_failure("a chat completion failed", cause)
            cause = OpenAiHttpError("the server failed at this request", status=500, kind="server_error")
            handler = app.exception_handlers[OpenAiHttpError]
        made = handler(request, cause)
        response: Response = await made if isawaitable(made) else made
        response.headers.update(failed.headers)
        return response

    app.add_exception_handler(CompletionFailedError, on_failed)  # type: ignore[arg-type]


def _in_form(handler: _Handler) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, _OWN) and not request.url.path.startswith(OPENAI_PATHS):
            raise error
        made = handler(request, error)
        response = await made if isawaitable(made) else made
        if not request.url.path.startswith(OPENAI_PATHS):
            return response
        return _translated(response, error)

    return answer


def _translated(response: Response, error: Exception) -> Response:
    if isinstance(error, OversizedError):
        failed = _oversized(error)
        body = error_body(str(failed), kind=failed.kind, code=failed.code)
        # OpenAI's clients repeat a request with this status by themselves, unless they are asked not to.
        return JSONResponse(body, failed.status, headers={"x-should-retry": "false"})
    body = json.loads(bytes(response.body))
    message = str(body["error"])
    # This API has no 422.
    status = 400 if response.status_code == 422 else response.status_code
    kind, code = _STATUS.get(status, ("server_error" if status >= 500 else INVALID, None))
    param: str | None = None
    if isinstance(error, OpenAiHttpError):
        kind, param, code = error.kind, error.param, error.code
    elif isinstance(error, ProtocolError):
        param, code = error.param, error.code
    kept = {
        name: value
        for name, value in response.headers.items()
        if name not in ("content-length", "content-type")
    }
    return JSONResponse(error_body(message, kind=kind, param=param, code=code), status, headers=kept)
