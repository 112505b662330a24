"""A gateway with the routes that operators use, without calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.gateway.settings import ServerTuning
from parley.transports.webrtc.signaling import Signaling

TOKEN = "a token of the tests that is long enough"
TOKEN_ENV = "PARLEY_ADMIN_TOKEN"
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def _no_call(_arguments: object) -> None:
    raise AssertionError("no call is made here")


def gateway(
    operations: Operations | None = None,
    *,
    audit: AuditLog | None = None,
    recordings: SessionRecordings | None = None,
    **settings: Any,
) -> FastAPI:
    """Return the application."""
    return create_app(
        ServerTuning.model_validate(settings),
        run_call=_no_call,
        describe=lambda: {"deployment": "test", "exposure": "Calls need no key."},
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=1),
        recordings=recordings,
        operations=operations,
        operator_token=TOKEN,
        audit=audit,
    )


@asynccontextmanager
async def asking(app: FastAPI, *, peer: str = "127.0.0.1", **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Yield an HTTP client at this address."""
    transport = httpx.ASGITransport(app, client=(peer, 40_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", **more) as client:
        yield client
