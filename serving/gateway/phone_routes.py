"""Telephone calls of Twilio: ``POST /twilio/voice`` and the socket of the stream that it asks for.

In: webhooks, signed by Twilio over the configured address, and one WebSocket for each call. Out: TwiML that
connects the call to ``/twilio/media/{token}``, and one conversation for each stream. The token is
unguessable, for one stream and for ``token_s``: who replays it, or brings a second socket with it, is
refused before the socket is accepted, and so is an upgrade that Twilio did not sign. A call has one token,
however often its webhook comes while it waits, and none behind its stream: a webhook that somebody recorded
opens nothing. Without signatures (``signatures: false``, a local run) nothing is checked, and nothing is
needed; nobody but this machine may ask then.

Full: a caller for whom there is no line waits for one in the queue of all callers (``phone_queue``), and
hears their place; one for whom there is no place there, or no store, is told so, in the answer. A call that
was answered has its line from then on; one whose stream never comes, or that Twilio says has ended, is
forgotten. Nothing stands behind ``<Connect>``: it would be heard behind every call that this side ends, and a
stream that is refused all the same ends the call in silence.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import parse_qs, urlsplit, urlunsplit

from fastapi import APIRouter, Depends, HTTPException, Request, Response, WebSocket
from loguru import logger
from pipecat.runner.types import RunnerArguments
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection

from core.errors import AgentError, CapacityError, ConfigError, EngineError
from core.grants import ANONYMOUS
from core.newest import Newest
from protocols import twiml
from protocols.twilio_signature import Algorithm, Fields, algorithm_of, is_signed
from serving.gateway.audit import AuditLog, masked
from serving.gateway.calls import CallTasks
from serving.gateway.eval_socket import close_socket
from serving.gateway.limits import Rate
from serving.gateway.phone_desk import ENDED, PhoneDesk
from serving.gateway.phone_queue import PhoneQueue
from serving.gateway.phone_settings import REACHED, PhoneRoutesSettings
from serving.gateway.requests import read_body
from serving.gateway.settings import ServerSettings
from serving.gateway.talk_sockets import CheckBody, deny
from telemetry.seldom import Seldom

PREFIX = "/twilio"
SIGNATURE, SIGNATURE_SETTINGS = "x-twilio-signature", "x-twilio-webhooks-signature-settings"
MOST_BODY_BYTES, BODY_S = 64_000, 10.0
FORM = "application/x-www-form-urlencoded"
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
# Calls that have had their stream; Twilio signs no webhook of one that is older than that many.
MOST_SPENT = 10_000
# Twilio begins so many calls a second, and lets others wait this long: it says when one has ended.
MOST_QUEUED_S = 300.0
IN_PROGRESS = "in-progress"


class SpentError(AgentError):
    """A call asks for a second stream."""


@dataclass(frozen=True, slots=True)
class PhoneCall:
    """A call that was answered.

    Attributes:
        call_sid: Twilio's name for it; empty where it is told with the stream.
        caller, called: numbers, as Twilio says them.
        direction: who began it: "outbound" is us.
        verstat: what the network says of the caller's number; empty where it says nothing.
    """

    call_sid: str
    caller: str
    called: str
    direction: Literal["inbound", "outbound"] = "inbound"
    verstat: str = ""


@dataclass(kw_only=True)
class PhoneArguments(RunnerArguments):
    """One conversation over a media stream.

    Attributes:
        websocket: accepted; closed by whoever holds the conversation.
        phone: the call.
        desk: what can be done with it.
        mode: of the pipeline.
    """

    websocket: WebSocket
    phone: PhoneCall
    desk: PhoneDesk
    mode: str


class Wanted(BaseModel):
    """Body of a call that is to be begun."""

    model_config = ConfigDict(extra="forbid")

    to: str = Field(pattern=REACHED)


class PhoneRoutes:
    """The routes.

    Args:
        phone: settings of telephone calls.
        settings: bounds of the server.
        calls: where conversations are started.
        check_body: raises when no call can be held.
        default_mode: where the settings name none.
        desk: what can be done with calls.
        check: a dependency of what only the operator may do.
        audit: where calls that are begun are written down.
        clock_s: monotonic.

    Raises:
        ConfigError: signatures are to be checked, and there is no address or no secret; or they are not,
            and others than this machine could ask.
    """

    def __init__(
        self,
        phone: PhoneRoutesSettings,
        settings: ServerSettings,
        *,
        calls: CallTasks,
        check_body: CheckBody,
        default_mode: str,
        desk: PhoneDesk | None = None,
        check: Callable[[Request], Awaitable[None]] | None = None,
        audit: AuditLog | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._phone, self._settings, self._calls = phone, settings, calls
        self._check_body = check_body
        self._mode = phone.mode or default_mode
        self._desk = desk or PhoneDesk(None)
        self._check = check
        self._audit = audit or AuditLog()
        # One bucket: every call with the operator's token is at the deployment's expense.
        too_many = "over {limit} calls were begun, see phone.calls_per_minute and phone.calls_per_hour"
        self._begun = (
            Rate(phone.calls_per_minute, too_many, clients=1),
            Rate(phone.calls_per_hour, too_many, clients=1, period_s=3_600.0),
        )
        if phone.public_url is not None:
            self._desk.address = f"{phone.public_url}{PREFIX}"
        self._clock_s = clock_s
        self._secrets = {
            Algorithm.SHA1: os.environ.get(phone.auth_token_env, ""),
            Algorithm.SHA256: os.environ.get(phone.shared_key_env, ""),
        }
        if phone.signatures and (phone.public_url is None or not any(self._secrets.values())):
            raise ConfigError(
                f"phone: set phone.public_url and {phone.auth_token_env}, or phone.signatures: false for a "
                "local run"
            )
        if not phone.signatures and (phone.public_url is not None or settings.host not in THIS_MACHINE):
            raise ConfigError(
                "phone: signatures: false is for a local run: without phone.public_url, and with a host of "
                f"this machine ({', '.join(THIS_MACHINE)})"
            )
        # Tokens of calls whose stream has not come, with the time until which it may.
        self._waiting: dict[str, tuple[float, PhoneCall]] = {}
        self._spent: Newest[str, None] = Newest(MOST_SPENT)
        calls.promised = self._promised
        self._queue = None
        if phone.queue is not None and calls.queue is not None:
            self._queue = PhoneQueue(phone.queue, calls.queue, clock_s)
        self._unsigned, self._refused = Seldom(), Seldom()

    def router(self) -> APIRouter:
        """The routes, to be included in an application."""
        router = APIRouter(prefix=PREFIX)
        router.add_api_route("/voice", self.voice, methods=["POST"])
        router.add_api_route("/stream-status", self.stream_status, methods=["POST"])
        router.add_api_route("/call-status", self.call_status, methods=["POST"])
        router.add_api_route("/transfer/{token}/answer", self.transfer_answer, methods=["POST"])
        router.add_api_route("/transfer/{token}/status", self.transfer_status, methods=["POST"])
        if self._check is not None:
            operator = [Depends(self._check)]
            router.add_api_route(
                "/calls", self.begin, methods=["POST"], status_code=201, dependencies=operator
            )
            router.add_api_route("/calls/{call_sid}", self.state, methods=["GET"], dependencies=operator)
        router.add_api_websocket_route("/media/{token}", self.media)
        return router

    async def voice(self, request: Request) -> Response:
        """A call comes in: what Twilio is to do with it."""
        fields = await self._signed_form(request)
        call = PhoneCall(
            _field(fields, "CallSid"),
            _field(fields, "From"),
            _field(fields, "To"),
            # "outbound-api" and "outbound-dial".
            "outbound" if _field(fields, "Direction").startswith("outbound") else "inbound",
            verstat=_field(fields, "StirVerstat"),
        )
        try:
            await self._check_body({"mode": self._mode}, ANONYMOUS)
            token = self._expect(call, within_s=self._phone.token_s)
        except SpentError as error:
            self._note_refusal("call", error)
            return _xml(twiml.end())
        except AgentError as error:
            # Who waits is not sent away because a store is.
            waits = self._queue is not None and call.call_sid in self._queue
            held = self._hold(request, call) if waits or isinstance(error, CapacityError) else None
            if held is not None:
                return _xml(held)
            self._note_refusal("call", error)
            # Who has waited was answered: it is too late to reject them.
            is_answered = _field(fields, "CallStatus") == IN_PROGRESS
            return _xml((twiml.end if is_answered else twiml.refuse)(self._phone.busy))
        return _xml(self._connected(self._base(request), token, call))

    async def begin(self, wanted: Wanted) -> dict[str, str]:
        """An operator has somebody rung up: the bot talks to whoever answers."""
        phone = self._phone
        if phone.number is None or phone.public_url is None or not self._desk.can_call:
            missing = "phone.number, phone.public_url and an account of Twilio are needed to begin calls"
            raise HTTPException(409, missing)
        if not phone.may_call(wanted.to):
            self._audit.record("call.refused", to=masked(wanted.to))
            raise HTTPException(403, "the number is not one that may be called: see phone.call_prefixes")
        await self._check_body({"mode": self._mode}, ANONYMOUS)
        for rate in self._begun:
            rate.check("")
        call = PhoneCall("", wanted.to, phone.number, "outbound")
        token = self._expect(call, within_s=MOST_QUEUED_S + phone.ring_s + phone.token_s)
        for rate in self._begun:
            rate.take("")
        self._audit.record("call.begun", to=masked(wanted.to))
        sid: str | None = None
        try:
            answer = self._connected(phone.public_url, token, call)
            sid = await self._desk.call(wanted.to, phone.number, answer)
        except EngineError as error:
            raise HTTPException(502, str(error)) from error
        finally:
            if sid is None:
                self._waiting.pop(token, None)
        if token in self._waiting:
            until_s, call = self._waiting[token]
            self._waiting[token] = until_s, replace(call, call_sid=sid)
            self._follow(sid, self._desk.state_of(sid) or "")
        return {"call_sid": sid}

    async def state(self, call_sid: str) -> dict[str, str]:
        """How a call that was begun here stands, in Twilio's words."""
        state = self._desk.state_of(call_sid)
        if state is None:
            raise HTTPException(404, "no such call is known")
        return {"call_sid": call_sid, "status": state}

    async def call_status(self, request: Request) -> Response:
        """How a call stands."""
        fields = await self._signed_form(request)
        call_sid, state = _field(fields, "CallSid"), _field(fields, "CallStatus")
        logger.info(f"call {call_sid[:40]}: {state[:40]}")
        self._desk.told(call_sid, state[:40])
        self._follow(call_sid, state)
        return Response(status_code=204)

    async def transfer_answer(self, request: Request, token: str) -> Response:
        """A person who was rung up has pressed a key, or none."""
        fields = await self._signed_form(request)
        answer = await self._desk.answered(token, _field(fields, "Digits"))
        return _xml(answer if answer is not None else twiml.end("The caller is not there any more."))

    async def transfer_status(self, request: Request, token: str) -> Response:
        """How their call stands."""
        fields = await self._signed_form(request)
        self._desk.ended(token, _field(fields, "CallStatus"))
        return Response(status_code=204)

    async def stream_status(self, request: Request) -> Response:
        """How a stream began, ended or failed: for the log."""
        fields = await self._signed_form(request)
        event, error = _field(fields, "StreamEvent"), _field(fields, "StreamError")
        level = "WARNING" if error else "INFO"
        logger.log(level, f"stream {_field(fields, 'StreamSid')[:40]}: {event[:40]} {error[:200]}".rstrip())
        return Response(status_code=204)

    async def media(self, websocket: WebSocket, token: str) -> None:
        """One stream, from its handshake to the end of its conversation."""
        try:
            self._check_signature(websocket, {}, None)
            # Used up, whatever comes of it: Twilio opens no stream twice, and the line is free again.
            call = self._claim(token)
            hears = self._calls.hears(self._mode)
            self._calls.check_room(promised=len(self._waiting), is_promised=True, hears=hears)
            await self._check_body({"mode": self._mode}, ANONYMOUS)
            await websocket.accept()
            task = self._calls.start(
                PhoneArguments(websocket=websocket, phone=call, desk=self._desk, mode=self._mode, body={}),
                call_id=f"phone.{secrets.token_hex(4)}",
                hang_up=lambda: close_socket(websocket, within_s=self._settings.hang_up_s),
                says_goodbye=True,
                promised=len(self._waiting),
                is_promised=True,
                hears=hears,
            )
        except (HTTPException, AgentError) as error:
            self._note_refusal("stream", error)
            await deny(websocket, error)
        else:
            await asyncio.wait({task})

    def _hold(self, request: Request, call: PhoneCall) -> str | None:
        """TwiML for a caller who waits for a line; None: they cannot."""
        if self._queue is None or self._phone.queue is None or self._calls.is_stopping or not call.call_sid:
            return None
        words = self._queue.wait(call.call_sid, hears=self._calls.hears(self._mode))
        if words is None:
            return None
        return twiml.hold(words, self._phone.queue.every_s, f"{self._base(request)}{PREFIX}/voice")

    # Tokens.

    def _connected(self, base: str, token: str, call: PhoneCall) -> str:
        return twiml.connect(
            f"{_scheme(base, secure='wss', plain='ws')}{PREFIX}/media/{token}",
            {"caller": call.caller, "called": call.called},
            status_address=f"{base}{PREFIX}/stream-status",
        )

    def _expect(self, call: PhoneCall, *, within_s: float) -> str:
        """A token for the stream of a call: the one that it has, or a new one with a line promised to it.

        Raises:
            SpentError: it has had its stream.
            CapacityError: there is no line.
        """
        now_s = self._clock_s()
        self._forget_the_late()
        if call.call_sid:
            for token, (_, waiting) in self._waiting.items():
                if waiting.call_sid == call.call_sid:
                    return token
            if call.call_sid in self._spent:
                raise SpentError("the call has had its stream")
        if self._queue is not None:
            if self._queue.was_removed(call.call_sid):
                raise CapacityError("an operator removed the caller from the queue", limit=0)
            self._queue.asked(call.call_sid)
        self._calls.check_room(
            promised=len(self._waiting), hears=self._calls.hears(self._mode), ticket=call.call_sid
        )
        if len(self._waiting) >= self._phone.most_waiting:
            raise CapacityError(
                "too many calls were answered and have no stream", limit=self._phone.most_waiting
            )
        waited_s = self._queue.leave(call.call_sid) if self._queue is not None else None
        if waited_s is not None:
            self._calls.wake()
            logger.info(f"call {call.call_sid[:40]} has a line, behind {waited_s:.0f} s in the queue")
        token = secrets.token_urlsafe(32)
        self._waiting[token] = (now_s + within_s, call)
        return token

    def _promised(self) -> int:
        """Lines of calls that were answered and have no stream yet."""
        self._forget_the_late()
        return len(self._waiting)

    def _forget_the_late(self) -> None:
        now_s = self._clock_s()
        for token in [token for token, (until_s, _) in self._waiting.items() if until_s <= now_s]:
            del self._waiting[token]

    def _follow(self, call_sid: str, state: str) -> None:
        """The token of a call that has ended is void; one that is answered has as long as any other."""
        if self._queue is not None and state in ENDED and self._queue.leave(call_sid) is not None:
            self._calls.wake()
        token = next((each for each, (_, call) in self._waiting.items() if call.call_sid == call_sid), None)
        if not call_sid or token is None:
            # Calls that Twilio has not named yet have no name in common.
            return
        if state in ENDED:
            del self._waiting[token]
        elif state == IN_PROGRESS:
            self._waiting[token] = self._clock_s() + self._phone.token_s, self._waiting[token][1]

    def _claim(self, token: str) -> PhoneCall:
        """Raises HTTPException for a token that is none, was used, or has expired."""
        until_s, call = self._waiting.pop(token, (0.0, None))
        if call is None or until_s <= self._clock_s():
            raise HTTPException(403, "the token is none, was used before, or has expired")
        if call.call_sid:
            self._spent[call.call_sid] = None
        return call

    def _note_refusal(self, what: str, error: Exception) -> None:
        reason = error.detail if isinstance(error, HTTPException) else error
        line = self._refused.line(f"a telephone {what} is refused: {reason}", self._clock_s())
        if line is not None:
            logger.warning(line)

    # Signatures.

    async def _signed_form(self, request: Request) -> Fields:
        body = await read_body(request, max_bytes=MOST_BODY_BYTES, within_s=BODY_S)
        is_form = request.headers.get("content-type", "").split(";")[0].strip().lower() == FORM
        try:
            fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=200) if is_form else {}
        except (UnicodeDecodeError, ValueError) as error:
            raise HTTPException(400, "the form cannot be read") from error
        self._check_signature(request, fields, None if is_form else body)
        if not is_form:
            raise HTTPException(415, f"expected {FORM}")
        return fields

    def _check_signature(self, connection: HTTPConnection, fields: Fields, body: bytes | None) -> None:
        if not self._phone.signatures:
            return
        algorithm = algorithm_of(connection.headers.get(SIGNATURE_SETTINGS, ""))
        secret = self._secrets[algorithm] if algorithm is not None else ""
        given = connection.headers.get(SIGNATURE, "")
        is_socket = connection.scope["type"] == "websocket"
        base = self._base(connection)
        address = _scheme(base, secure="wss", plain="ws") if is_socket else base
        path, query = connection.scope["path"], connection.scope.get("query_string", b"").decode("latin-1")
        whole = f"{address}{path}" + (f"?{query}" if query else "")
        if (
            algorithm is None
            or not secret
            or not is_signed(secret, whole, fields, given, algorithm=algorithm, body=body)
        ):
            what = f"a request to {path.rsplit('/', 1)[0][:60]} is not signed by Twilio"
            if (line := self._unsigned.line(what, self._clock_s())) is not None:
                logger.warning(line)
            raise HTTPException(403, "the request is not signed by Twilio for this address")

    def _base(self, connection: HTTPConnection) -> str:
        """Where Twilio reaches this server, without a slash behind it."""
        if self._phone.public_url is not None:
            return self._phone.public_url
        # Without signatures only: a caller on this machine.
        parts = urlsplit(str(connection.base_url))
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        return urlunsplit((scheme, parts.netloc, "", "", ""))


def _scheme(base: str, *, secure: str, plain: str) -> str:
    scheme, rest = base.split("://", 1)
    return f"{secure if scheme == 'https' else plain}://{rest}"


def _field(fields: Fields, name: str) -> str:
    values = fields.get(name) or [""]
    return values[0][:200]


def _xml(text: str) -> Response:
    return Response(text, media_type="text/xml")
