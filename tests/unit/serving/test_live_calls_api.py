"""Routes of live calls: who may use them, and what they answer without a call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from parley.pipelines.live_calls import LiveCalls
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.auth.audit import AuditLog
from tests.peers.operations_gateway import BEARER, TOKEN_ENV, asking, gateway

PATH = "/api/admin/calls"
AUDIO = f"{PATH}/none/audio.wav"


@asynccontextmanager
async def client(*, can_listen: bool, **more: object) -> AsyncIterator[httpx.AsyncClient]:
    app = gateway(Operations(calls=LiveCalls(can_listen=can_listen)))
    async with asking(app, **more) as opened:
        yield opened


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_ENV, raising=False)


async def test_a_call_that_is_not_there_is_neither_heard_nor_ended():
    async with client(can_listen=True, headers=BEARER) as operator:
        assert (await operator.get(PATH)).json() == {"can_listen": True, "calls": []}
        for answer in (await operator.get(AUDIO), await operator.delete(f"{PATH}/none")):
            assert answer.status_code == 404
            assert "no such call" in answer.json()["error"]


async def test_listening_needs_the_setting():
    async with client(can_listen=False, headers=BEARER) as operator:
        assert (await operator.get(PATH)).json() == {"can_listen": False, "calls": []}
        answer = await operator.get(AUDIO)
        assert answer.status_code == 409
        assert "listen_in: true" in answer.json()["error"]


async def test_a_call_in_writing_is_listed_and_ended_and_has_nothing_to_hear(tmp_path: Path):
    calls = LiveCalls(can_listen=True)
    app = gateway(Operations(calls=calls), audit=AuditLog(tmp_path / "audit.jsonl"))
    async with asking(app, headers=BEARER) as operator:
        with calls.opened_silent("c1", "s1", "chat") as live:
            [listed] = (await operator.get(PATH)).json()["calls"]
            assert (listed["call_id"], listed["mode"], listed["has_audio"]) == ("c1", "text", False)
            answer = await operator.get(f"{PATH}/c1/audio.wav")
            assert answer.status_code == 409
            assert "no audio" in answer.json()["error"]
            assert (await operator.delete(f"{PATH}/c1")).status_code == 204
            assert live.ending.is_set()
        assert (await operator.get(PATH)).json()["calls"] == []


async def test_only_the_operator_sees_hears_and_ends_calls():
    async with client(can_listen=True) as stranger:
        for answer in (
            await stranger.get(PATH),
            await stranger.get(AUDIO),
            await stranger.delete(f"{PATH}/none"),
        ):
            assert answer.status_code == 403
