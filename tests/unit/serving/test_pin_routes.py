"""Routes of pins: for the operator, of sessions that have recordings."""

import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from parley.pipelines.call_recording import CallRecordings
from parley.recording.retention import clean
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.auth.audit import AuditLog
from tests.peers.operations_gateway import BEARER
from tests.peers.session_gateway import Turns, application, client_of
from tests.recorded_call import record_call

DAYS_S = 5 * 86_400


class Gateway:
    """A gateway with one session.

    Attributes:
        client: at the gateway.
        session: its id.
        folder: of the recordings.
        audit: file of actions.
    """

    def __init__(self, client: httpx.AsyncClient, session: str, folder: Path, audit: Path) -> None:
        self.client, self.session, self.folder, self.audit = client, session, folder, audit
        self.path = f"/api/sessions/{session}/pin"

    async def is_pinned(self) -> bool:
        answer = await self.client.get(self.path, headers=BEARER)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["is_pinned"])

    def cleaned(self) -> dict[str, str]:
        """Remove what is old in some days; return what stays with its reason."""
        return clean(self.folder, retention_days=3, now_s=time.time() + DAYS_S).kept


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    recordings = CallRecordings(RecordingSettings(folder=tmp_path), "embedded")
    audit = AuditLog(tmp_path / "audit.jsonl")
    async with (
        application(tmp_path, Turns(), recordings=recordings, audit=audit) as (app, _),
        client_of(app) as client,
    ):
        session = (await client.post("/api/sessions")).json()["id"]
        yield Gateway(client, session, tmp_path, tmp_path / "audit.jsonl")


async def test_pinned_recordings_stay_until_they_are_unpinned(gateway: Gateway):
    call = await record_call(gateway.folder, gateway.session)
    assert not await gateway.is_pinned()
    for _ in range(2):
        assert (await gateway.client.put(gateway.path, headers=BEARER)).status_code == 204
    assert await gateway.is_pinned()
    assert gateway.cleaned() == {gateway.session: "pinned"} and call.exists()

    for _ in range(2):
        assert (await gateway.client.delete(gateway.path, headers=BEARER)).status_code == 204
    assert not await gateway.is_pinned()
    assert gateway.cleaned() == {} and not call.exists()
    actions = gateway.audit.read_text()
    assert actions.count("recordings.pinned") == actions.count("recordings.unpinned") == 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_an_operator_pins(gateway: Gateway, method: str):
    await record_call(gateway.folder, gateway.session)
    assert (await gateway.client.request(method, gateway.path)).status_code == 403
    assert not await gateway.is_pinned()


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_session_without_recordings_cannot_be_pinned(gateway: Gateway, method: str):
    for path in (gateway.path, f"/api/sessions/{uuid.uuid4()}/pin", "/api/sessions/nonsense/pin"):
        assert (await gateway.client.request(method, path, headers=BEARER)).status_code == 404
    assert not (gateway.folder / "sessions").exists()


async def test_a_deleted_session_takes_its_pin_along(gateway: Gateway):
    await record_call(gateway.folder, gateway.session)
    await gateway.client.put(gateway.path, headers=BEARER)
    await gateway.client.delete(f"/api/sessions/{gateway.session}", headers=BEARER)
    assert (await gateway.client.get(gateway.path, headers=BEARER)).status_code == 404
    assert not list((gateway.folder / "sessions").iterdir())
