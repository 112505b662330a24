"""Evidence of a session, verified: ``GET /api/sessions/{id}/evidence``.

The answer names the number of entries, the public keys that signed them, and what does not hold
(``session_store.evidence``). Those who may read the session may read it; the entries themselves are events of
its timeline and of its export, from which others verify it without this server.
"""

from collections.abc import Sequence
from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.params import Depends as DependsOn

from parley.serving.gateway.http.read_pace import VIEW_COST_BYTES
from parley.serving.gateway.share_routes import ShareReading
from parley.session_store.evidence_check import verify_session


def add_evidence_route(router: APIRouter, reading: ShareReading, *, in_use: Sequence[DependsOn]) -> None:
    """Add the route to the routes of a session.

    Args:
        router: of the sessions.
        reading: of sessions.
        in_use: check that a client may read the session.
    """

    @router.get("/{session_id}/evidence", dependencies=in_use)
    async def evidence(request: Request, session_id: str) -> dict[str, object]:
        """Return whether the signed evidence of the session holds."""
        client = reading.client(request)
        with reading.pace.take(client):
            found = await verify_session(reading.store, session_id)
            await reading.pace.read(client, VIEW_COST_BYTES)
        return asdict(found)
