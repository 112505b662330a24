"""Routes of phone calls: the webhook of each network, and the socket of the stream that it opens.

Inputs: webhooks, signed by the network as it documents (``carriers``), and one WebSocket for each call.
Outputs: an answer that connects the call to ``/{network}/media/{token}``, and one conversation for each
stream. The token is unguessable, and valid for one stream of that network and for ``token_s``
(``tokens``). A socket with a used token is refused before it is accepted, and so is an upgrade that
Twilio did not sign. Without signatures (``signatures: false``, a local run) nothing is checked and no secret
is needed; only this machine may then send requests.

Full: a caller without a line waits for one in the queue of all callers (``queue``) and hears their
position, where the network can repeat its request. A caller who cannot wait, or for whom there is no store,
is refused in the answer. An answered call has its line from then on. One whose stream never comes, or that
has ended according to Twilio, is removed.

After the stream Twilio asks how the call goes on (``/twilio/reconnect``). One that this side has ended, and
one that never had a session, is hung up. Any other lost its stream (this or another process died, or the
connection did) and gets a new one, in the same session, ``phone.reconnect.most`` times in five minutes;
a request that the network repeats for one lost stream counts once.
Then its caller hears an apology, and is passed on or hung up. While the store does not answer, the caller
waits, for ``MOST_STORE_WAITS`` requests at most.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from fastapi import APIRouter, HTTPException, Request, Response, WebSocket
from loguru import logger
from pipecat.runner.types import RunnerArguments

from parley.core.errors import AgentError, CapacityError, ConfigError, PeerError, StoreUnavailableError
from parley.core.grants import ANONYMOUS
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.tenants import TenantLimitError
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.guarded_protocols import HAND_OVER
from parley.serving.gateway.phone.call_links import CallLinks
from parley.serving.gateway.phone.call_manager import CallManager
from parley.serving.gateway.phone.carriers import CARRIERS
from parley.serving.gateway.phone.carriers.carrier import (
    CallDocument,
    CallRequest,
    Carrier,
    PhoneCall,
    as_socket,
    base_of,
    secrets_of,
)
from parley.serving.gateway.phone.carriers.twilio import AUTH_TOKEN_ENV, RECONNECT, TwilioCarrier
from parley.serving.gateway.phone.carriers.twilio_relay import HANDED_TO_PERSON, TwilioRelay
from parley.serving.gateway.phone.queue import LOOK_S, PhoneQueue
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.phone.tokens import TOKEN_S, SpentError, StreamTokens
from parley.serving.gateway.phone.twilio_routes import TwilioRoutes
from parley.serving.gateway.settings import ServerSettings, ServerTuning
from parley.serving.gateway.sockets.eval_socket import close_socket
from parley.serving.gateway.sockets.realtime_sockets import CheckBody, deny
from parley.telemetry.log_throttle import LogThrottle

THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
FORBIDDEN = 403
# Requests of a reconnecting call while the store does not answer, ``LOOK_S`` apart: a minute.
MOST_STORE_WAITS = 12
# Path of the webhook of a call.
VOICE = "/voice"
# Pause before a stream that Twilio could not open is offered again.
OFFER_S = 1


class KeptCall(Protocol):
    """Media stream of a call that another process keeps; see ``transports.keeping.remote_stream``."""

    @property
    def call(self) -> Mapping[str, Any] | None: ...

    async def close(self, reason: str = "") -> None: ...


class HandsOver(Protocol):
    """Connection to the process that keeps streams; see ``transports.keeping.media_link``."""

    def hand_over(
        self, descriptor: int, response: bytes, *, network: str, call_sid: str, call: Mapping[str, Any]
    ) -> KeptCall: ...

    def resume_with(self, resume: Callable[[KeptCall], Coroutine[Any, Any, None]]) -> None: ...


@dataclass(kw_only=True)
class PhoneArguments(RunnerArguments):
    """Arguments of a conversation over a media stream.

    Attributes:
        websocket: accepted; closed by the conversation. None where another process keeps the stream.
        kept: the stream that another process keeps; None where there is a socket.
        phone: the call.
        desk: controls the call.
        mode: of the pipeline.
    """

    websocket: WebSocket | None = None
    kept: KeptCall | None = None
    phone: PhoneCall
    desk: CallManager
    mode: str


class PhoneRoutes:
    """Routes of phone calls.

    Args:
        phone: settings of phone calls.
        settings: bounds of the server.
        calls: starts conversations.
        check_body: raises when a call is not possible.
        default_mode: used where the settings name none.
        desk: controls calls of Twilio.
        check: a dependency for the operator's routes.
        audit: records outbound calls.
        links: sessions of calls that may lose their stream; None: such a call is hung up.
        check_tenant: raises when the tenant of phone calls may not have another call; None: it always may.
        media_link: keeps the streams of calls that can be connected again; None: this process has them.
        clock_s: monotonic.
        token_s: a stream must come within this time after the answer that announced it.

    Raises:
        ConfigError: a network is unknown; signatures are to be checked, and the address or a secret is
            missing; or they are not, and other machines could send requests.
    """

    def __init__(
        self,
        phone: PhoneRoutesSettings,
        settings: ServerTuning,
        *,
        calls: CallTasks,
        check_body: CheckBody,
        default_mode: str,
        desk: CallManager | None = None,
        check: Callable[[Request], Awaitable[None]] | None = None,
        audit: AuditLog | None = None,
        links: CallLinks | None = None,
        check_tenant: Callable[[], Awaitable[None]] | None = None,
        media_link: HandsOver | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        token_s: float = TOKEN_S,
    ) -> None:
        self._phone, self._settings, self._calls = phone, settings, calls
        self._media_link = media_link
        self._check_body = check_body
        self._mode = phone.mode or default_mode
        self._clock_s, self._links = clock_s, links
        self._check_tenant = check_tenant
        self._carriers = open_carriers(phone, settings)
        if phone.relay is not None:
            self._carriers.append(TwilioRelay(phone))
        self._queue = None
        if phone.queue is not None and calls.queue is not None:
            self._queue = PhoneQueue(phone.queue, calls.queue, clock_s)
        self._tokens = StreamTokens(calls, self._queue, clock_s=clock_s, token_s=token_s)
        # Calls are controlled through Twilio's REST API: those of other networks cannot be.
        self._desk, self._no_desk = desk or CallManager(None), CallManager(None)
        # States of calls, and transfers, have the same routes for calls as text.
        twilio = [each for each in self._carriers if type(each) is TwilioCarrier]
        self._twilio = [
            TwilioRoutes(
                carrier,
                phone,
                tokens=self._tokens,
                queue=self._queue,
                check_body=check_body,
                mode=self._mode,
                uses_recogniser=self._uses_recogniser,
                wake=calls.wake,
                desk=self._desk,
                check=check,
                check_tenant=check_tenant,
                audit=audit or AuditLog(),
            )
            for carrier in twilio
        ]
        self._unsigned, self._refused = LogThrottle(), LogThrottle()
        if media_link is not None:
            media_link.resume_with(self.resume)

    def router(self) -> APIRouter:
        """Return the routes, to be included in an application."""
        router = APIRouter()
        for carrier in self._carriers:
            router.add_api_route(
                f"/{carrier.name}{VOICE}",
                partial(self.voice, carrier),
                methods=list(carrier.methods),
                name=f"{carrier.name}.voice",
            )
            router.add_api_websocket_route(
                f"/{carrier.name}/media/{{token}}",
                partial(self.media, carrier),
                name=f"{carrier.name}.media",
            )
            # A call as text names this route also without ``reconnect``: it hands callers to a person.
            if isinstance(carrier, TwilioRelay) or (
                isinstance(carrier, TwilioCarrier) and self._phone.reconnect is not None
            ):
                router.add_api_route(
                    f"/{carrier.name}{RECONNECT}",
                    partial(self.reconnect, carrier),
                    methods=list(carrier.methods),
                    name=f"{carrier.name}.reconnect",
                )
        for routes in self._twilio:
            routes.add_to(router)
        return router

    async def voice(self, carrier: Carrier, request: Request) -> Response:
        """Answer the webhook of a call with instructions for its network."""
        asked = await self._asked(carrier, request)
        call = asked.call
        try:
            await self._check_body({"mode": self._mode}, ANONYMOUS)
            if self._check_tenant is not None and not self._tokens.is_expected(call):
                await self._check_tenant()
            token = self._tokens.expect(
                call, within_s=self._tokens.token_s, uses_recogniser=self._uses_recogniser(carrier)
            )
        except SpentError as error:
            self._note_refusal("call", error)
            return _answer(carrier.end())
        except AgentError as error:
            # A caller who waits is not refused because the store is unavailable.
            waits = self._queue is not None and call.call_sid in self._queue
            is_full = (waits or isinstance(error, CapacityError)) and not isinstance(error, TenantLimitError)
            held = self._hold(carrier, request, call) if is_full else None
            if held is not None:
                return _answer(held)
            if self._queue is not None and self._queue.leave(call.call_sid) is not None:
                self._calls.wake()
            self._note_refusal("call", error)
            # The call of a caller who has waited was answered: it is too late to reject it.
            return _answer((carrier.end if asked.is_answered else carrier.refuse)(self._phone.busy))
        return self._connect(carrier, request, call, token)

    async def reconnect(self, carrier: TwilioCarrier, request: Request) -> Response:
        """Answer the request that follows a stream: connect the call again, or end it."""
        asked, links = await self._asked(carrier, request), self._links
        call = asked.call
        if asked.is_over:
            # No line is reserved for a caller who is gone.
            return _answer(carrier.end())
        if asked.handoff and HANDED_TO_PERSON in asked.handoff and self._phone.transfer_to is not None:
            return _answer(carrier.dial("", self._phone.transfer_to, self._shown_number(call)))
        try:
            link = None if links is None else await links.link_of(call)
            if links is None or link is None:
                return _answer(self._offer_again(carrier, request, call) or carrier.end())
            call = replace(call, session=link.session_id)
            token = self._tokens.expect(
                call,
                within_s=self._tokens.token_s,
                uses_recogniser=self._uses_recogniser(carrier),
                is_again=True,
            )
            try:
                is_taken = await links.take(call, link)
            except BaseException:
                self._tokens.forget(token)
                raise
        except AgentError as error:
            held = self._hold_reconnecting(carrier, request, call, error)
            if held is None:
                self._note_refusal("call", error)
            return _answer(held or carrier.end(self._phone.busy))
        if not is_taken:
            self._tokens.forget(token)
            logger.warning(f"call {call.call_sid[:40]} lost its stream too often, and is not connected again")
            return _answer(self._given_up(carrier, call))
        logger.info(f"call {call.call_sid[:40]} has lost its stream, and is connected again")
        return self._connect(carrier, request, call, token)

    def _connect(self, carrier: Carrier, request: Request, call: PhoneCall, token: str) -> Response:
        base = base_of(request, self._phone.public_url)
        media = f"{as_socket(base)}/{carrier.name}/media/{token}"
        return _answer(carrier.connect(base, media, call))

    def _offer_again(self, carrier: TwilioCarrier, request: Request, call: PhoneCall) -> CallDocument | None:
        """Return the answer to a call whose first stream did not open, until its token expires."""
        if not self._tokens.is_expected(call, is_first=True):
            return None
        again = f"{base_of(request, self._phone.public_url)}/{carrier.name}{VOICE}"
        return carrier.hold("", OFFER_S, again)

    def _given_up(self, carrier: TwilioCarrier, call: PhoneCall) -> CallDocument:
        """Return the answer to a call that keeps losing its stream."""
        phone = self._phone
        words = phone.reconnect.apology if phone.reconnect is not None else ""
        if phone.transfer_to is None:
            return carrier.end(words)
        return carrier.dial(words, phone.transfer_to, self._shown_number(call))

    def _shown_number(self, call: PhoneCall) -> str:
        """Return the number of this side, which a person sees to whom a call is passed on."""
        return self._phone.number or (call.called if call.direction == "inbound" else call.caller)

    async def media(self, carrier: Carrier, websocket: WebSocket, token: str) -> None:
        """Serve the media stream of a call, in the protocol of its network."""
        kept = None
        try:
            self._check_socket(carrier, websocket)
            # Used up in any case: no network opens a stream twice, and the line is free again.
            call = self._tokens.claim(token, carrier.name)
            uses_recogniser = self._uses_recogniser(carrier)
            self._calls.check_room(
                promised=len(self._tokens), is_promised=True, uses_recogniser=uses_recogniser
            )
            await self._check_body({"mode": self._mode}, ANONYMOUS)
            kept = self._hand_over(carrier, websocket, call)
            if kept is None:
                await websocket.accept()
            desk = self._desk if isinstance(carrier, TwilioCarrier) else self._no_desk
            task = self._start(
                PhoneArguments(
                    websocket=websocket if kept is None else None,
                    kept=kept,
                    phone=call,
                    desk=desk,
                    mode=self._mode,
                    body={},
                ),
                uses_recogniser=uses_recogniser,
            )
        except (HTTPException, AgentError) as error:
            self._note_refusal("stream", error)
            if kept is not None:
                await kept.close(str(error))
            else:
                await deny(websocket, error)
        else:
            await asyncio.wait({task})

    async def resume(self, kept: KeptCall) -> None:
        """Hold a call that an earlier process has lost, whose stream is still there, to its end.

        A call that was lost too often is not held: when its stream is closed, its network asks how it goes on
        and gets the apology.
        """
        call, links = PhoneCall(**(kept.call or {})), self._links
        try:
            link = None if links is None else await links.link_of(call)
            if links is not None and link is not None:
                call = replace(call, session=link.session_id)
                if not await links.take(call, link):
                    logger.warning(f"call {call.call_sid[:40]} was lost too often")
                    await kept.close("the call was lost too often")
                    return
            # A call without a link had not begun.
            task = self._start(
                PhoneArguments(kept=kept, phone=call, desk=self._desk, mode=self._mode, body={}),
                uses_recogniser=self._uses_recogniser(),
            )
        except AgentError as error:
            self._note_refusal("call that goes on", error)
            await kept.close(str(error))
        else:
            await asyncio.wait({task})

    def _hand_over(self, carrier: Carrier, websocket: WebSocket, call: PhoneCall) -> KeptCall | None:
        """Hand the connection of a call over, where another process keeps its stream; return the stream.

        Raises:
            AgentError: it cannot be handed over.
        """
        hand_over = websocket.scope.get("extensions", {}).get(HAND_OVER)
        if self._media_link is None or hand_over is None or type(carrier) is not TwilioCarrier:
            return None
        try:
            descriptor, response = hand_over()
        except OSError as error:
            raise PeerError(f"the connection of a call cannot be handed over: {error}") from error
        return self._media_link.hand_over(
            descriptor, response, network=carrier.name, call_sid=call.call_sid, call=asdict(call)
        )

    def _start(self, arguments: PhoneArguments, *, uses_recogniser: bool) -> asyncio.Task[None]:
        """Begin a conversation on a promised line.

        Raises:
            CapacityError: the server is stopping.
        """
        websocket, kept, within_s = arguments.websocket, arguments.kept, self._settings.hang_up_s

        async def hang_up() -> None:
            if kept is not None:
                await kept.close("the call is over")
            elif websocket is not None:
                await close_socket(websocket, within_s=within_s)

        return self._calls.start(
            arguments,
            call_id=f"phone.{secrets.token_hex(4)}",
            hang_up=hang_up,
            says_goodbye=True,
            promised=len(self._tokens),
            is_promised=True,
            uses_recogniser=uses_recogniser,
            goes_on=bool(arguments.phone.session),
        )

    def _uses_recogniser(self, carrier: Carrier | None = None) -> bool:
        # Twilio recognises the callers of calls as text.
        return not isinstance(carrier, TwilioRelay) and self._calls.uses_recogniser(self._mode)

    async def _asked(self, carrier: Carrier, request: Request) -> CallRequest:
        try:
            return await carrier.request_of(request)
        except HTTPException as error:
            self._note_unsigned(carrier, request.url.path, error)
            raise

    def _check_socket(self, carrier: Carrier, websocket: WebSocket) -> None:
        try:
            carrier.check_socket(websocket)
        except HTTPException as error:
            self._note_unsigned(carrier, websocket.url.path.rsplit("/", 1)[0], error)
            raise

    def _hold_reconnecting(
        self, carrier: TwilioCarrier, request: Request, call: PhoneCall, error: AgentError
    ) -> CallDocument | None:
        """Return the answer for a call that cannot be connected again now; None: its caller cannot wait."""
        is_stopping = self._calls.is_stopping
        if isinstance(error, CapacityError) and not is_stopping:
            return self._hold(carrier, request, call, RECONNECT)
        waited = request.query_params.get("waited", "0")
        count = int(waited) if waited.isdecimal() and len(waited) < 3 else MOST_STORE_WAITS
        # What follows a server that stops takes the call; until then this one answers.
        may_wait = is_stopping or isinstance(error, StoreUnavailableError)
        if not may_wait or count >= MOST_STORE_WAITS:
            return None
        again = f"{base_of(request, self._phone.public_url)}/{carrier.name}{RECONNECT}?waited={count + 1}"
        return carrier.hold("", LOOK_S, again)

    def _hold(
        self, carrier: Carrier, request: Request, call: PhoneCall, path: str = VOICE
    ) -> CallDocument | None:
        """Return the answer for a caller who waits for a line; None: they cannot wait."""
        if self._queue is None or self._phone.queue is None or self._calls.is_stopping or not call.call_sid:
            return None
        again = f"{base_of(request, self._phone.public_url)}/{carrier.name}{path}"
        every_s = LOOK_S
        if carrier.hold("", every_s, again) is None:
            return None
        words = self._queue.wait(call.call_sid, uses_recogniser=self._uses_recogniser(carrier))
        return None if words is None else carrier.hold(words, every_s, again)

    def _note_unsigned(self, carrier: Carrier, path: str, error: HTTPException) -> None:
        if error.status_code != FORBIDDEN:
            return
        what = f"a request to {path[:60]} is not signed by {carrier.name.capitalize()}"
        if (line := self._unsigned.line(what, self._clock_s())) is not None:
            logger.warning(line)

    def _note_refusal(self, what: str, error: Exception) -> None:
        reason = error.detail if isinstance(error, HTTPException) else error
        line = self._refused.line(f"a phone {what} is refused: {reason}", self._clock_s())
        if line is not None:
            logger.warning(line)


def open_carriers(phone: PhoneRoutesSettings, settings: ServerSettings) -> list[Carrier]:
    """Return the networks of a deployment, with the secrets by which their requests are verified.

    Raises:
        ConfigError: see ``PhoneRoutes``.
    """
    _check_reach(phone, settings)
    return [_carrier(name, phone) for name in phone.carriers]


def _check_reach(phone: PhoneRoutesSettings, settings: ServerSettings) -> None:
    """Check that requests can be verified, or can come from this machine only.

    Raises:
        ConfigError: neither.
    """
    if not phone.signatures and (phone.public_url is not None or settings.host not in THIS_MACHINE):
        raise ConfigError(
            "phone: signatures: false is only for a local run, without phone.public_url and with a host of "
            f"this machine ({', '.join(THIS_MACHINE)})"
        )
    if phone.signatures and phone.public_url is None:
        raise ConfigError(
            f"phone: set phone.public_url and {AUTH_TOKEN_ENV}, or phone.signatures: false for a local run"
        )


def _carrier(name: str, phone: PhoneRoutesSettings) -> Carrier:
    """Return a network by its name.

    Raises:
        ConfigError: there is no such network, or a secret of it is not set.
    """
    known = secrets_of(name, CARRIERS.row(name), os.environ) if phone.signatures else ()
    return CARRIERS.create(name, phone, known)


def _answer(document: CallDocument) -> Response:
    return Response(document.text, document.status, media_type=document.media_type)
