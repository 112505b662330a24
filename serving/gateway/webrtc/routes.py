"""Routes of WebRTC calls: ``/start``, and offers and candidates with or without a started session.

Input: requests of browsers and Pipecat clients. Output: answers of the signalling
(``transports.webrtc.signaling``). Decides what a started session may do: its offer gets the body with which
it was started, and it holds one call at a time, which it may renegotiate. With client keys a second call
needs a credential of its own.

A client that gave its request up before it was answered keeps its token: the answer would have brought the
next one.

Decides the order in which an offer is checked, the cheapest check first: the rate of its address or key, a
free line or a place in the queue for one, the credential, the size and fields of the SDP, the session that it
names. A peer connection is created after all of them, also for a call in the queue, because its data channel
reports the position to the caller.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter, HTTPException, Request
from pipecat.runner.types import SmallWebRTCRunnerArguments
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.core.call_choices import CallChoices
from parley.core.errors import PeerError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import RequestRate, UsageLimits, unless_refused
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.requests import check_connected, read_json
from parley.serving.gateway.line_request import Queueing
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.webrtc.started_sessions import StartedSession, StartedSessions
from parley.serving.gateway.webrtc.turn_credentials import TurnServer

OnConnection = Callable[[SmallWebRTCConnection, dict[str, object]], Awaitable[None]]
CheckBody = Callable[[Mapping[str, object], ClientIdentity], Awaitable[None]]
APP = "browser"
# Name of the transport in the body of ``/start``, by the protocol of Pipecat's clients, and in the queue.
TRANSPORT = "webrtc"
# Started sessions that wait for their offer; with the default start_body_bytes they hold some 4 MB.
MAX_STARTED_SESSIONS = 1_000


# Bytes that POST /start may keep for its offer; more gets 413.
START_BODY_BYTES = 4_096


def offer_rate(settings: ServerTuning) -> RequestRate:
    """Return the rate of the offers of each client, which count whatever their result.

    A page needs two requests: POST /start, and the offer.
    """
    return RequestRate(
        settings,
        2 * settings.sessions_per_minute,
        key_per_minute=2 * settings.clients.key_sessions_per_minute,
        full="over {limit} offers a minute from this address, try again later",
    )


@dataclass(frozen=True, slots=True)
class Offering:
    """Offer that a task answers.

    Attributes:
        identity: client that sent it.
        begin: begins its conversation; None: that of a browser.
    """

    identity: ClientIdentity
    begin: OnConnection | None = None


# The signalling between a route and the call carries the client's own data; these must not be part of it.
OFFERING: ContextVar[Offering] = ContextVar("parley.offering")


@dataclass
class BrowserArguments(Queueing, SmallWebRTCRunnerArguments):
    """Arguments of a browser call.

    Attributes:
        identity: client that opened it, with its grants.
        on_first_word: called when the first media or message of the client has come.
        choices: of the caller, checked.
    """

    identity: ClientIdentity = ANONYMOUS
    on_first_word: Callable[[], None] | None = None
    choices: CallChoices = CallChoices()


class Door(Protocol):
    """Interface of the WebRTC signalling (``transports.webrtc.signaling.Signaling``) for the routes."""

    def is_open(self, pc_id: str) -> bool: ...
    def check_json(self, body: dict[str, object]) -> dict[str, object]: ...
    async def offer_json(self, body: dict[str, object], *, has_events: bool = False) -> dict[str, str]: ...
    async def candidates_json(self, body: dict[str, object]) -> None: ...
    async def hang_up(self, connection: SmallWebRTCConnection) -> None: ...
    async def close(self) -> None: ...


class WebRtcRoutes:
    """Routes of WebRTC calls, and the sessions that they have started.

    Args:
        settings: bounds.
        door: answers offers.
        calls: conversations that the door starts.
        check_body: raises when a call is not possible with the client's body.
        usage: limits what each client may begin; a call that names no session begins one.
        access: checks that a client may start a session, or send an offer without one.

    Raises:
        ConfigError: the secret of the TURN server is missing.
    """

    def __init__(
        self,
        settings: ServerTuning,
        *,
        door: Door,
        calls: CallTasks,
        check_body: CheckBody,
        usage: UsageLimits,
        access: Access,
    ) -> None:
        self._settings = settings
        self._turn = None if settings.turn is None else TurnServer(settings.turn)
        self._door = door
        self._calls = calls
        self._check_body = check_body
        self._usage = usage
        self._access = access
        self._requests = offer_rate(settings)
        self._sessions = StartedSessions(max_sessions=MAX_STARTED_SESSIONS, expire_s=settings.start_expire_s)

    def router(self) -> APIRouter:
        """Return the routes, to be included in an application."""
        router = APIRouter()
        router.post("/start")(self.start)
        router.post("/api/offer")(self.offer)
        router.patch("/api/offer")(self.candidates)
        router.post("/sessions/{session_id}/api/ice")(self.session_ice)
        router.post("/sessions/{session_id}/api/offer")(self.session_offer)
        router.patch("/sessions/{session_id}/api/offer")(self.session_candidates)
        return router

    async def start(self, request: Request) -> dict[str, object]:
        """Keep a client's body for its offer; return the session and how to connect."""
        body = await self._read(request)
        transport = body.get("transport", TRANSPORT)
        if transport != TRANSPORT:
            raise PeerError(f"transport {str(transport)[:40]!r} is not supported here (known: {TRANSPORT})")
        self._requests.take(self._access.compare(request))
        given = body.get("body")
        uses_recogniser = self._calls.uses_recogniser(given.get("mode") if isinstance(given, dict) else None)
        self._calls.check_room(uses_recogniser=uses_recogniser, may_wait=True)
        identity = await self._access.check(request, APP)
        self._calls.check_room(identity=identity, uses_recogniser=uses_recogniser, may_wait=True)
        await self._check_body(given if isinstance(given, dict) else {}, identity)
        # As text: parsed, a body of empty objects would take twenty times as much memory.
        text = json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
        kept = text.encode("utf-8", "surrogatepass")
        if len(kept) > START_BODY_BYTES:
            raise HTTPException(413, f"body: over {START_BODY_BYTES} bytes as JSON")
        # Last, so that a token is used up only by a call that may begin, of a client that is answered.
        await check_connected(request)
        admitted = await self._access.admit(request, APP)
        session_id = self._sessions.open(kept, client=identity.address, identity=identity)
        answer: dict[str, object] = {"sessionId": session_id}
        if admitted.next_token is not None:
            answer["next_token"] = admitted.next_token
        if ice := self._ice_servers():
            answer["iceConfig"] = {"iceServers": ice}
        return answer

    async def session_ice(self, session_id: str, request: Request) -> dict[str, object]:
        """Return the servers of a started session with new credentials, before it restarts ICE."""
        session = self._session(session_id)
        await self._read(request)
        self._requests.take(session.identity)
        self._access.check_current(session.identity)
        return {"iceServers": self._ice_servers()}

    def _ice_servers(self) -> list[dict[str, object]]:
        stun: list[dict[str, object]] = [{"urls": [url]} for url in self._settings.ice_servers]
        return stun if self._turn is None else [*stun, self._turn.ice_server()]

    async def offer(self, request: Request) -> dict[str, str]:
        """Answer an offer of a client that started no session."""
        return await self._answer(request, await self._read(request), None)

    async def candidates(self, request: Request) -> dict[str, str]:
        """Accept candidates of any call."""
        await self._door.candidates_json(await self._read(request))
        return {"status": "success"}

    async def session_offer(self, session_id: str, request: Request) -> dict[str, str]:
        """Answer an offer of a started session: its call, or a renegotiation of it."""
        session = self._session(session_id)
        body = await self._read(request)
        renegotiates = body.get("pc_id") == session.pc_id
        if session.opening or (self._door.is_open(session.pc_id) and not renegotiates):
            raise HTTPException(
                409, "this session is in a call: end the call, or POST /start for another session"
            )
        # Its credential was used up by one call: with keys a second call needs another one.
        admitted = session.identity if self._access.is_open or not session.pc_id else None
        body.setdefault("requestData", session.body())
        with session.being_opened():
            answer = await self._answer(request, body, admitted)
        self._sessions.called(session, answer["pc_id"], self._calls.get(answer["pc_id"]))
        return answer

    async def session_candidates(self, session_id: str, request: Request) -> dict[str, str]:
        """Accept candidates of a call of a started session."""
        self._session(session_id)
        await self._door.candidates_json(await self._read(request))
        return {"status": "success"}

    async def _read(self, request: Request) -> dict[str, object]:
        return await read_json(request, allowed_origins=self._settings.allowed_origins)

    async def _answer(
        self, request: Request, body: dict[str, object], admitted: ClientIdentity | None
    ) -> dict[str, str]:
        """Answer an offer after all checks; nothing is created for one that is refused.

        Args:
            request: with the offer.
            body: of the request.
            admitted: client whose credential was checked when its session was started; None: none was.

        Raises:
            ShareError: too many offers or calls of this address or client.
            CapacityError: every line is taken, and the queue is full.
            HTTPException, AgentError, ValidationError: the credential, the offer or the client's body is
                wrong.
        """
        pc_id = body.get("pc_id")
        if isinstance(pc_id, str) and self._door.is_open(pc_id):
            # A renegotiation: the signalling counts those of each call.
            return await self._door.offer_json(body)
        self._requests.take(self._access.compare(request) if admitted is None else admitted)
        # The mode is one of its fields, which are not parsed yet.
        self._calls.check_room(uses_recogniser=False, may_wait=True)
        identity = await self._access.check(request, APP) if admitted is None else admitted
        self._access.check_current(identity)
        given = self._door.check_json(body)
        uses_recogniser = self._calls.uses_recogniser(given.get("mode"))
        self._calls.check_room(identity=identity, uses_recogniser=uses_recogniser, may_wait=True)
        await self._check_body(given, identity)
        counted = self._usage.take_session(identity) if given.get("session") is None else None
        with unless_refused(counted):
            # Last, so that a token is used up only by a call that may begin, of a client that is answered.
            more: dict[str, str] = {}
            if admitted is None:
                await check_connected(request)
                begun = await self._access.admit(request, APP)
                if begun.next_token is not None:
                    more["next_token"] = begun.next_token
            offering = OFFERING.set(Offering(identity))
            try:
                return {**await self._door.offer_json(body), **more}
            finally:
                OFFERING.reset(offering)

    def _session(self, session_id: str) -> StartedSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise HTTPException(404, "there is no such session: POST /start first")
        return session
