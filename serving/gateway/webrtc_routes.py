"""Routes of WebRTC calls: ``/start``, and offers and candidates with or without a started session.

In: requests of browsers and Pipecat clients. Out: what the door answers (``transports.webrtc.signaling``).
Decides what a started session may do: it brings the body that it was started with to its offer, and holds one
call at a time, which it may renegotiate.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter, HTTPException, Request
from pipecat.runner.types import SmallWebRTCRunnerArguments
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from core.errors import PeerError
from core.grants import ANONYMOUS, ClientIdentity
from serving.gateway.access import Access
from serving.gateway.calls import CallTasks
from serving.gateway.requests import read_json
from serving.gateway.sessions import StartedSession, StartedSessions
from serving.gateway.settings import ServerSettings
from serving.gateway.usage import UsageLimits

OnConnection = Callable[[SmallWebRTCConnection, dict[str, object]], Awaitable[None]]
CheckBody = Callable[[Mapping[str, object], ClientIdentity], Awaitable[None]]
APP = "browser"
# Client of the offer that this task answers. The signalling between the route and the call carries what a
# client gives, and an identity must not be a part of that.
OFFERING: ContextVar[ClientIdentity] = ContextVar("parley.offering")
# Started sessions that wait for their offer; with the default start_body_bytes they hold some 4 MB.
MAX_STARTED_SESSIONS = 1_000


@dataclass
class BrowserArguments(SmallWebRTCRunnerArguments):
    """One browser call.

    Attributes:
        identity: who opened it, and what they may do.
    """

    identity: ClientIdentity = ANONYMOUS


class Door(Protocol):
    """What the routes need of the WebRTC signalling (``transports.webrtc.signaling.Signaling``)."""

    def is_open(self, pc_id: str) -> bool: ...
    async def offer_json(self, body: dict[str, object]) -> dict[str, str]: ...
    async def candidates_json(self, body: dict[str, object]) -> None: ...
    async def hang_up(self, connection: SmallWebRTCConnection) -> None: ...
    async def close(self) -> None: ...


class WebRtcRoutes:
    """The routes and the sessions that were started by them.

    Args:
        settings: bounds.
        door: answers offers.
        calls: the conversations that the door starts.
        check_body: raises when a call cannot do with what the client gives for it.
        usage: what each client may begin; a call that names no session begins one.
        access: who may begin a call: who starts a session, or offers without one.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        door: Door,
        calls: CallTasks,
        check_body: CheckBody,
        usage: UsageLimits,
        access: Access,
    ) -> None:
        self._settings = settings
        self._door = door
        self._calls = calls
        self._check_body = check_body
        self._usage = usage
        self._access = access
        self._sessions = StartedSessions(max_sessions=MAX_STARTED_SESSIONS, expire_s=settings.start_expire_s)

    def router(self) -> APIRouter:
        """The routes, to be included in an application."""
        router = APIRouter()
        router.post("/start")(self.start)
        router.post("/api/offer")(self.offer)
        router.patch("/api/offer")(self.candidates)
        router.post("/sessions/{session_id}/api/offer")(self.session_offer)
        router.patch("/sessions/{session_id}/api/offer")(self.session_candidates)
        return router

    async def start(self, request: Request) -> dict[str, object]:
        """Keep what a client gives for its offer; tell it the session and how to connect."""
        body = await self._read(request)
        transport = body.get("transport", "webrtc")
        if transport != "webrtc":
            raise PeerError(f"transport {str(transport)[:40]!r} is not served here (known: webrtc)")
        self._calls.check_room()
        identity = await self._access.check(request, APP)
        self._calls.check_room(identity=identity)
        given = body.get("body")
        await self._check_body(given if isinstance(given, dict) else {}, identity)
        # As text: parsed, a body of empty objects takes twenty times as much.
        text = json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
        kept = text.encode("utf-8", "surrogatepass")
        if len(kept) > self._settings.start_body_bytes:
            raise HTTPException(413, f"body: over {self._settings.start_body_bytes} bytes as JSON")
        # Last: a token is spent on a call that may begin.
        admission = await self._access.admit(request, APP)
        session_id = self._sessions.open(kept, client=identity.address, identity=identity)
        answer: dict[str, object] = {"sessionId": session_id}
        if admission.next_token is not None:
            answer["next_token"] = admission.next_token
        if self._settings.ice_servers:
            answer["iceConfig"] = {"iceServers": [{"urls": [url]} for url in self._settings.ice_servers]}
        return answer

    async def offer(self, request: Request) -> dict[str, str]:
        """Answer an offer of a client that started no session."""
        body = await self._read(request)
        pc_id = body.get("pc_id")
        if isinstance(pc_id, str) and self._door.is_open(pc_id):
            # A renegotiation: should its call end meanwhile, it begins none.
            return await self._door.offer_json(body)
        identity = await self._access.check(request, APP)
        self._calls.check_room(identity=identity)
        await self._access.admit(request, APP)
        return await self._answer(body, identity)

    async def candidates(self, request: Request) -> dict[str, str]:
        """Take candidates of any call."""
        await self._door.candidates_json(await self._read(request))
        return {"status": "success"}

    async def session_offer(self, session_id: str, request: Request) -> dict[str, str]:
        """Answer an offer of a started session: its call, or a renegotiation of it."""
        body = await self._read(request)
        session = self._session(session_id)
        renegotiates = body.get("pc_id") == session.pc_id
        if session.opening or (self._door.is_open(session.pc_id) and not renegotiates):
            raise HTTPException(409, "this session is in a call: end it, or POST /start for another")
        body.setdefault("requestData", session.body())
        session.opening = True
        try:
            answer = await self._answer(body, session.identity)
        finally:
            session.opening = False
        session.pc_id = answer["pc_id"]
        call = self._calls.get(session.pc_id)
        if call is not None and call is not session.call:
            self._sessions.called(session, call)
        return answer

    async def session_candidates(self, session_id: str, request: Request) -> dict[str, str]:
        """Take candidates of a call of a started session."""
        body = await self._read(request)
        self._session(session_id)
        await self._door.candidates_json(body)
        return {"status": "success"}

    async def _read(self, request: Request) -> dict[str, object]:
        return await read_json(request, allowed_origins=self._settings.allowed_origins)

    async def _answer(self, offer: dict[str, object], identity: ClientIdentity) -> dict[str, str]:
        self._count(offer, identity)
        offering = OFFERING.set(identity)
        try:
            return await self._door.offer_json(offer)
        finally:
            OFFERING.reset(offering)

    def _count(self, offer: dict[str, object], identity: ClientIdentity) -> None:
        """Raises ShareError for an offer of one new session too many of this client."""
        pc_id, given = offer.get("pc_id"), offer.get("requestData", offer.get("request_data"))
        renegotiates = isinstance(pc_id, str) and self._door.is_open(pc_id)
        goes_on = isinstance(given, dict) and given.get("session") is not None
        if renegotiates or goes_on:
            return
        self._calls.check_room(identity=identity)
        self._usage.take_session(identity)

    def _session(self, session_id: str) -> StartedSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise HTTPException(404, "no such session: POST /start first")
        return session
