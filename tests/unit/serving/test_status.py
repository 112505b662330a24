"""Transports and sockets that ``/status`` lists."""

import asyncio
from pathlib import Path

import httpx
import pytest

from parley.serving.gateway.app import create_app
from parley.serving.gateway.phone.caller_settings import RelaySettings
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.registry import TRANSPORTS
from parley.transports.webrtc.signaling import Signaling


async def no_call(_arguments: object) -> None: ...


async def no_turn(*_arguments: object, **_named: object):
    return
    yield


async def status(
    folder: Path, *, modes: tuple[str, ...], phone: bool, text: bool, relay: bool = False
) -> dict[str, object]:
    networks = PhoneRoutesSettings(signatures=False, relay=RelaySettings() if relay else None)
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    app = create_app(
        ServerTuning(),
        run_call=no_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, ice_servers=[], hang_up_s=1),
        conversations=Conversations(store, compactor=Compactor()) if text else None,
        type_turn=no_turn if text else None,
        modes=modes,
        served=TRANSPORTS.served,
        phone=networks if phone else None,
    )
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            return (await client.get("/status")).json()
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("modes", "phone", "text", "transports"),
    [
        ((), False, False, ["webrtc", "pipecat", "eval"]),
        (("cascade",), False, True, ["webrtc", "websocket", "realtime_webrtc", "text", "pipecat", "eval"]),
        (("cascade",), True, False, ["webrtc", "websocket", "realtime_webrtc", "twilio", "pipecat", "eval"]),
    ],
)
def test_the_status_names_every_way_in_that_is_served(
    tmp_path: Path, modes: tuple[str, ...], phone: bool, text: bool, transports: list[str]
):
    received = asyncio.run(status(tmp_path, modes=modes, phone=phone, text=text))
    assert received["transports"] == transports
    sockets = received["sockets"]
    assert isinstance(sockets, list)
    assert ("/v1/realtime" in sockets) == bool(modes)
    assert any(path.startswith("/twilio/") for path in sockets) == phone


def test_the_status_names_calls_as_text_where_they_are_served(tmp_path: Path):
    received = asyncio.run(status(tmp_path, modes=("cascade",), phone=True, text=False, relay=True))
    transports = received["transports"]
    assert isinstance(transports, list)
    assert [each for each in transports if "twilio" in each] == ["twilio", "twilio_relay"]
