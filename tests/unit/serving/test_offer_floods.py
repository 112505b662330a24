"""Offers that a server refuses before it builds anything for them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from pipecat.transports.smallwebrtc import connection as smallwebrtc

from parley.core.errors import CapacityError, PeerError
from parley.serving.gateway.app import create_app
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.webrtc import signaling
from parley.transports.webrtc.signaling import CandidateBody, CandidatesRequest, Signaling
from tests.peers.session_gateway import client_of, no_call
from tests.peers.webrtc_caller import Caller
from tests.unit.serving.test_session_routes import no_turn

UNKNOWN = "0" * 32
KEY = "a key of an application"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RTCPeerConnection]]:
    """Collect the peer connections that were built for offers."""
    built: list[RTCPeerConnection] = []

    class Counted(RTCPeerConnection):
        def __init__(self, configuration: RTCConfiguration | None = None) -> None:
            super().__init__(configuration)
            built.append(self)

    monkeypatch.setattr(smallwebrtc, "RTCPeerConnection", Counted)
    yield built


@asynccontextmanager
async def application(folder: Path, **settings: Any) -> AsyncIterator[Any]:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    conversations = Conversations(store, compactor=Compactor())
    app = create_app(
        ServerTuning(**{"drain_s": 0, **settings}),
        run_call=no_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=4, hang_up_s=0.2),
        conversations=conversations,
        type_turn=no_turn,
    )
    try:
        yield app
    finally:
        await app.state.door.close()
        await conversations.close()
        await store.close()


async def offer_of(sections: int, **more: Any) -> dict[str, Any]:
    """Return a browser's offer whose last section is repeated until there are that many."""
    caller = Caller()
    sdp = (await caller.offer())["sdp"]
    await caller.hang_up()
    head, first, *_ = sdp.split("m=")
    repeated = "".join(
        f"m={first}".replace("a=mid:0", f"a=mid:{number}").replace("a=sendrecv", "a=recvonly")
        for number in range(sections)
    )
    bundled = " ".join(map(str, range(sections)))
    lines = [line for line in head.splitlines() if not line.startswith("a=group")]
    return {
        "sdp": "\r\n".join([*lines, f"a=group:BUNDLE {bundled}", repeated]),
        "type": "offer",
        **more,
    }


async def test_an_offer_of_190_sections_builds_no_peer_connection(
    tmp_path: Path, built: list[RTCPeerConnection]
):
    offer = await offer_of(190, requestData={"session": UNKNOWN})
    # Within the bound of its text: small sections, as an attacker writes them.
    keep = (
        "v=",
        "o=",
        "s=",
        "t=",
        "m=",
        "c=",
        "a=group",
        "a=mid",
        "a=ice-",
        "a=fingerprint:sha-256",
        "a=setup",
    )
    offer["sdp"] = "\r\n".join(line for line in offer["sdp"].splitlines() if line.startswith(keep)) + "\r\n"
    async with application(tmp_path) as app, client_of(app) as client:
        answer = await client.post("/api/offer", json=offer)
    assert (answer.status_code, answer.json()["error"]) == (400, "the offer has over 8 media sections")
    assert built == []


async def test_an_offer_for_an_unknown_session_builds_no_peer_connection(
    tmp_path: Path, built: list[RTCPeerConnection]
):
    async with application(tmp_path) as app, client_of(app) as client:
        answer = await client.post("/api/offer", json=await offer_of(1, requestData={"session": UNKNOWN}))
        assert answer.status_code == 404
        started = await client.post("/sessions/none/api/offer", json=await offer_of(1))
        assert started.status_code == 404
    assert built == []


async def test_an_offer_without_a_credential_builds_no_peer_connection(
    tmp_path: Path, built: list[RTCPeerConnection], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    async with application(tmp_path) as app, client_of(app) as client:
        answer = await client.post("/api/offer", json=await offer_of(1))
    assert answer.status_code == 401
    assert built == []


async def test_offers_of_one_address_are_limited_whatever_they_name(
    tmp_path: Path, built: list[RTCPeerConnection]
):
    offer = await offer_of(1, requestData={"session": UNKNOWN})
    broken = {"sdp": "v=0", "type": "offer"}
    async with application(tmp_path, sessions_per_minute=3) as app:
        async with client_of(app) as client:
            codes = [(await client.post("/api/offer", json=offer)).status_code for _ in range(3)]
            codes += [(await client.post("/api/offer", json=broken)).status_code for _ in range(3)]
            refused = await client.post("/api/offer", json=offer)
            start = await client.post("/start", json={})
        assert codes == [404, 404, 404, 400, 400, 400]
        assert (refused.status_code, start.status_code) == (429, 429)
        assert int(refused.headers["retry-after"]) > 0
        async with client_of(app, address="10.1.2.3") as other:
            assert (await other.post("/api/offer", json=offer)).status_code == 404
    assert built == []


class Room:
    """A door whose calls last."""

    def __init__(self) -> None:
        # Tests that fill the places of construction wait for this.
        self.door = Signaling(self.on_call, max_calls=40, hang_up_s=0.5, building_s=0.05)

    async def on_call(self, _connection: object, _body: dict[str, object]) -> None: ...


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    room = Room()
    yield room
    await room.door.close()


async def test_a_call_is_renegotiated_a_few_times_a_minute_and_goes_on(room: Room):
    offer = await offer_of(1)
    answer = await room.door.offer_json(offer)
    again = {**offer, "pc_id": answer["pc_id"]}
    for _ in range(signaling.RENEGOTIATIONS):
        assert (await room.door.offer_json(again))["pc_id"] == answer["pc_id"]
    with pytest.raises(PeerError, match="renegotiated 20 times within a minute"):
        await room.door.offer_json(again)
    assert room.door.is_open(answer["pc_id"])


async def test_a_call_takes_a_bounded_number_of_candidates(room: Room):
    answer = await room.door.offer_json(await offer_of(1))
    candidate = "candidate:1 1 udp 2130706431 127.0.0.1 9 typ host"
    one = CandidateBody(candidate=candidate, sdp_mid="0", sdp_mline_index=0)
    for _ in range(signaling.MAX_CANDIDATES // 20):
        await room.door.add_candidates(CandidatesRequest(pc_id=answer["pc_id"], candidates=[one] * 20))
    with pytest.raises(PeerError, match="over 100 candidates"):
        await room.door.add_candidates(CandidatesRequest(pc_id=answer["pc_id"], candidates=[one]))
    with pytest.raises(PeerError, match="no such call"):
        await room.door.add_candidates(CandidatesRequest(pc_id="other", candidates=[one]))


async def test_few_peer_connections_are_under_construction_at_a_time(
    room: Room, monkeypatch: pytest.MonkeyPatch
):
    begun, may_go_on, at_once = 0, asyncio.Event(), 0

    class Slow(RTCPeerConnection):
        async def setRemoteDescription(self, description: Any) -> None:  # noqa: N802
            nonlocal begun, at_once
            begun += 1
            at_once = max(at_once, begun)
            await may_go_on.wait()
            await super().setRemoteDescription(description)
            begun -= 1

    monkeypatch.setattr(smallwebrtc, "RTCPeerConnection", Slow)
    offer = await offer_of(1)
    calls = [asyncio.create_task(room.door.offer_json(offer)) for _ in range(signaling.BUILDING + 2)]
    refused = await asyncio.gather(*calls[signaling.BUILDING :], return_exceptions=True)
    assert [type(error) for error in refused] == [CapacityError, CapacityError]
    may_go_on.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert at_once == signaling.BUILDING
    assert sum(isinstance(outcome, dict) for outcome in outcomes) == signaling.BUILDING


async def test_a_call_that_waits_in_vain_to_be_restarted_goes_on(room: Room, monkeypatch: pytest.MonkeyPatch):
    offer = await offer_of(1)
    answer = await room.door.offer_json(offer)
    may_go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

    class Slow(RTCPeerConnection):
        async def setRemoteDescription(self, description: Any) -> None:  # noqa: N802
            begun.release()
            await may_go_on.wait()
            await super().setRemoteDescription(description)

    monkeypatch.setattr(smallwebrtc, "RTCPeerConnection", Slow)
    others = [asyncio.create_task(room.door.offer_json(offer)) for _ in range(signaling.BUILDING)]
    for _ in others:
        await begun.acquire()
    with pytest.raises(CapacityError):
        await room.door.offer_json({**offer, "pc_id": answer["pc_id"], "restart_pc": True})
    assert room.door.is_open(answer["pc_id"])
    may_go_on.set()
    await asyncio.gather(*others)
