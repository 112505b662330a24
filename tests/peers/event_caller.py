"""Client of OpenAI's realtime protocol over WebRTC, by aiortc: sound by tracks, events by a data channel."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from aiortc import RTCSessionDescription

from tests.peers.webrtc_caller import Caller

PATH = "/v1/realtime/calls"
SDP = {"content-type": "application/sdp"}


class EventCaller(Caller):
    """The client's side of one call.

    Args:
        session: settings that it sends when its channel is open; None: none.

    Attributes:
        call_id: of the call, once it was answered.
    """

    def __init__(self, *, session: Mapping[str, Any] | None = None) -> None:
        super().__init__(channel="oai-events")
        self._session = session
        self.call_id = ""

    def greet(self) -> None:
        if self._session is not None:
            self.send({"type": "session.update", "session": {"type": "realtime", **self._session}})

    async def call(self, client: httpx.AsyncClient, *, query: str = "model=parley-cascade") -> httpx.Response:
        """Send the offer alone, and accept the answer where there is one."""
        sdp = (await self.offer())["sdp"]
        answer = await client.post(f"{PATH}?{query}", content=sdp, headers=SDP)
        return await self.take(answer)

    async def call_with(self, client: httpx.AsyncClient, session: Mapping[str, Any]) -> httpx.Response:
        """Send the offer in a form with settings, as an application's server does."""
        sdp = (await self.offer())["sdp"]
        parts = {
            "sdp": (None, sdp, SDP["content-type"]),
            "session": (None, json.dumps(session), "application/json"),
        }
        return await self.take(await client.post(PATH, files=parts))

    async def take(self, answer: httpx.Response) -> httpx.Response:
        """Accept an answer."""
        if answer.status_code == 201:
            self.call_id = answer.headers["location"].removeprefix(f"{PATH}/")
            await self.connection.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        return answer

    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]

    def last(self, type_: str) -> dict[str, Any]:
        return self.of_type(type_)[-1]


@asynccontextmanager
async def called(url: str, *, session: Mapping[str, Any] | None = None) -> AsyncIterator[EventCaller]:
    """Hold a call whose session has begun with these settings."""
    caller = EventCaller(session=session)
    async with httpx.AsyncClient(base_url=url) as client:
        try:
            (await caller.call(client)).raise_for_status()
            await caller.until(
                lambda: caller.of_type("session.updated" if session is not None else "session.created")
            )
            yield caller
        finally:
            await caller.hang_up()
