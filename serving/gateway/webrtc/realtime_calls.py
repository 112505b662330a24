"""Routes of calls by OpenAI's realtime protocol over WebRTC: an offer, and the end of a call.

Input: an offer of a page or an app, alone (``application/sdp``) or with the settings of the session (a form
with ``sdp`` and ``session``, as an application's server sends it for a page). Output: the answer, which has
all candidates, and the id of the call in ``Location``. The tracks carry the sound, and the data channel the
events of the protocol; there are no further requests but the one that ends the call.

An offer is admitted as the handshake of the protocol's socket is (``RealtimeSockets.admitted``); a rate, and
the bounds and fields of the SDP, are checked before. The call does not wait for a line: the protocol has no
message for that.
"""

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from pipecat.runner.types import RunnerArguments
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from starlette.datastructures import UploadFile

from parley.core.grants import ANONYMOUS, ClientIdentity, KeyScope
from parley.models.tools.arguments import schema_faults
from parley.protocols.client_protocol import ClientProtocol, ProtocolError, json_object, json_text
from parley.protocols.openai_http import OpenAiHttpError
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.protocols.openai_realtime.shapes import TRANSCRIPTION, VOICE_PARAM
from parley.serving.gateway.admin.apps import AppId
from parley.serving.gateway.auth.client_auth import Access, AdmittedClient
from parley.serving.gateway.call_choices import CallChooser
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.requests import check_connected, check_origin
from parley.serving.gateway.limits import Slot
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.realtime_sockets import MOST_MODEL_CHARS, mode_of
from parley.serving.gateway.webrtc.held_calls import (
    EventsConnection,
    EventsOfCall,
    HeldCall,
    HeldRealtimeCalls,
)
from parley.serving.gateway.webrtc.routes import OFFERING, Door, Offering, offer_rate

PATH = "/v1/realtime/calls"
APP: AppId = "openai_realtime"
# Headers that clients of OpenAI send with an offer from a page.
CLIENT_HEADERS = ("x-openai-agents-sdk", "openai-beta", "openai-safety-identifier")
SDP, FORM = "application/sdp", "multipart/form-data"
MOST_FIELDS = 8

Admitted = Callable[..., AbstractAsyncContextManager[AdmittedClient]]


@dataclass(kw_only=True)
class RealtimeCallArguments(RunnerArguments):
    """Arguments of a call.

    Attributes:
        connection: of the client, whose data channel has the events.
        protocol: of the client.
        mode: of the pipeline.
        identity: client that opened it, with its grants.
        first_event: event that the client has sent with its offer; empty: none.
        on_first_word: called when the first sound or message of the client has come.
        chooser: has the reference voices that the client may choose; None: it may choose none.
    """

    connection: SmallWebRTCConnection
    protocol: ClientProtocol
    mode: str
    identity: ClientIdentity = ANONYMOUS
    first_event: str = ""
    on_first_word: Callable[[], None] | None = None
    chooser: CallChooser | None = None
    # They do not wait for a line.
    line: None = None


@dataclass(frozen=True, slots=True)
class _Offer:
    """Offer of a client, read and checked.

    Attributes:
        sdp: of the offer.
        model: name that the client requested.
        first_event: settings of its session, as the event that changes them; empty: none.
        is_transcription: the session has the caller's words alone.
    """

    sdp: str
    model: str
    first_event: str
    is_transcription: bool

    def protocol(self) -> OpenAIRealtime:
        """Return the protocol of a call that has not begun."""
        return OpenAIRealtime(
            self.model or "parley",
            schema_faults=schema_faults,
            is_transcription=self.is_transcription,
            has_tracks=True,
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """Call of a client that was admitted.

    Attributes:
        call_id: unguessable.
        offer: of the client.
        identity: of the client.
        mode: of the pipeline.
        uses_recogniser: true when the call uses the recogniser.
        silent: place with which the client is counted until its first sound or message.
    """

    call_id: str
    offer: _Offer
    identity: ClientIdentity
    mode: str
    uses_recogniser: bool
    silent: Slot


class RealtimeCalls:
    """Routes of the calls, and the calls that are on.

    Args:
        settings: bounds.
        door: answers offers.
        calls: starts conversations.
        access: checks that a client may begin a call, or end its own.
        admitted: admits a client to the protocol's surface (``RealtimeSockets.admitted``).
        held: calls that are on.
        default_mode: of clients that request none.
        chooser: has the voices that clients may choose.
    """

    def __init__(
        self,
        settings: ServerTuning,
        *,
        door: Door,
        calls: CallTasks,
        access: Access,
        admitted: Admitted,
        held: HeldRealtimeCalls,
        default_mode: str,
        chooser: CallChooser | None = None,
    ) -> None:
        self._chooser = chooser
        self._settings = settings
        self._door = door
        self._calls = calls
        self._access = access
        self._admitted = admitted
        self._held = held
        self._default_mode = default_mode
        # As many as of calls of pages.
        self._requests = offer_rate(settings)

    def router(self) -> APIRouter:
        """Return the routes, to be included in an application."""
        router = APIRouter()
        router.post(PATH, status_code=201, response_class=Response)(self.create)
        router.post(PATH + "/{call_id}/hangup")(self.hang_up)
        return router

    async def create(self, request: Request) -> Response:
        """Answer an offer of OpenAI's realtime protocol; `Location` has the id of the call."""
        check_origin(request, allowed=self._settings.allowed_origins)
        self._requests.take(self._access.compare(request))
        self._calls.check_room(uses_recogniser=False)
        await self._access.check(request, APP)
        offer = await _read(request)
        self._door.check_json(_offered(offer.sdp))
        mode = mode_of(offer.model) or request.query_params.get("pipeline") or self._default_mode
        session_id = request.query_params.get("session")
        body: dict[str, object] = {"mode": mode, **({"session": session_id} if session_id else {})}
        uses_recogniser = self._calls.uses_recogniser(mode)
        await check_connected(request)
        async with self._admitted(request, body, uses_recogniser=uses_recogniser) as admitted:
            identity = admitted.identity
            silent = self._calls.take_silent(identity, uses_recogniser=uses_recogniser)
            call = _Call(f"rtc_{secrets.token_hex(16)}", offer, identity, mode, uses_recogniser, silent)
            offering = OFFERING.set(Offering(identity, partial(self._begin, call)))
            has_begun = False
            try:
                offered = {**_offered(offer.sdp), "requestData": body}
                answer = await self._door.offer_json(offered, has_events=True)
                has_begun = True
            finally:
                OFFERING.reset(offering)
                if not has_begun:
                    silent.give_back()
        headers = {"Location": f"{PATH}/{call.call_id}"}
        return Response(answer["sdp"], status_code=201, media_type=SDP, headers=headers)

    async def _begin(self, call: _Call, connection: SmallWebRTCConnection, body: dict[str, object]) -> None:
        protocol = call.offer.protocol()
        arguments = RealtimeCallArguments(
            connection=connection,
            protocol=protocol,
            mode=call.mode,
            body=body,
            identity=call.identity,
            first_event=call.offer.first_event,
            on_first_word=call.silent.give_back,
            chooser=self._chooser,
        )
        task = self._calls.start(
            arguments,
            call_id=call.call_id,
            hang_up=lambda: self._door.hang_up(connection),
            says_goodbye=True,
            identity=call.identity,
            uses_recogniser=call.uses_recogniser,
            transport=protocol.name,
            silent=call.silent,
        )
        held = HeldCall(connection, _events_of(connection), protocol, call.identity.session_owner)
        self._held.add(call.call_id, held, task)

    async def hang_up(self, call_id: str, request: Request) -> Response:
        """End a call of the client, as if it had hung up."""
        check_origin(request, allowed=self._settings.allowed_origins)
        identity = await self._access.identify(request, KeyScope.TALK)
        held = self._held.find(call_id, identity, is_open=self._access.is_open)
        await self._door.hang_up(held.connection)
        return Response(status_code=200)


def _events_of(connection: SmallWebRTCConnection) -> EventsOfCall:
    """Return the events of a connection that was opened for them (``Door.offer_json``)."""
    return cast(EventsConnection, connection).events


def _offered(sdp: str) -> dict[str, object]:
    return {"sdp": sdp, "type": "offer"}


async def _read(request: Request) -> _Offer:
    """Return the offer of a request, whose body is bounded.

    Raises:
        OpenAiHttpError, HTTPException: the body has another form.
        ProtocolError: the settings of the session are not accepted.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    session: dict[str, Any] = {}
    if kind == SDP:
        sdp = _text(await request.body(), "body")
    elif kind == FORM:
        async with request.form(max_files=2, max_fields=MOST_FIELDS) as form:
            sdp = _text(await _part(form.get("sdp"), "sdp"), "sdp")
            if "session" in form:
                session = json_object(_text(await _part(form.get("session"), "session"), "session"))
    else:
        raise OpenAiHttpError(f"the body must be {SDP}, or {FORM} with sdp", code="invalid_content_type")
    named = session.get("model") or request.query_params.get("model") or ""
    intent = session.get("type") or request.query_params.get("intent")
    if intent == TRANSCRIPTION:
        # A socket's session sets with its first event that nothing is answered; sound in a track is no event.
        session.setdefault("type", TRANSCRIPTION)
    first = json_text({"type": "session.update", "session": session}) if session else ""
    offer = _Offer(sdp, str(named)[:MOST_MODEL_CHARS], first, intent == TRANSCRIPTION)
    if first:
        _check_settings(offer, first)
    return offer


def _check_settings(offer: _Offer, first: str) -> None:
    """Refuse settings here where the request can be; what this deployment permits is checked in the call.

    Raises:
        ProtocolError: they are not accepted.
    """
    try:
        for _ in offer.protocol().read(first, 0):
            pass
    except ProtocolError as refusal:
        # The call knows the voices of the deployment.
        if refusal.param != VOICE_PARAM:
            raise


async def _part(given: UploadFile | str | None, name: str) -> bytes:
    """Return a part of a form, with a file name or without."""
    if given is None:
        raise OpenAiHttpError(f"{name}: missing", code="missing_required_parameter", param=name)
    return given.encode() if isinstance(given, str) else await given.read()


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OpenAiHttpError(f"{name}: not UTF-8", code="invalid_value", param=name) from None
