"""Routes for Twilio calls only: their states, transfers to a person, and outbound calls.

Inputs: signed webhooks, and requests of the operator. Outputs: TwiML, and posts of Twilio's REST API
(``CallManager``).
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from parley.core.errors import EngineError
from parley.core.grants import ANONYMOUS
from parley.protocols import twiml
from parley.serving.gateway.auth.audit import AuditLog, masked
from parley.serving.gateway.limits import Rate
from parley.serving.gateway.phone.call_manager import ENDED, CallManager
from parley.serving.gateway.phone.carriers.carrier import PhoneCall, as_socket, field_of
from parley.serving.gateway.phone.carriers.twilio import IN_PROGRESS, TwilioCarrier
from parley.serving.gateway.phone.queue import PhoneQueue
from parley.serving.gateway.phone.settings import REACHED, PhoneRoutesSettings
from parley.serving.gateway.phone.tokens import StreamTokens
from parley.serving.gateway.sockets.realtime_sockets import CheckBody

# Twilio limits the calls placed per second, and queues others for this long; it reports when one has ended.
MOST_QUEUED_S = 300.0


class OutboundCall(BaseModel):
    """Body of a request for an outbound call."""

    model_config = ConfigDict(extra="forbid")

    to: str = Field(pattern=REACHED, description="number to call, with its country code: +15550100")


class TwilioRoutes:
    """Routes for Twilio calls.

    Args:
        carrier: checks webhooks.
        phone: settings of phone calls.
        tokens: of calls that were answered.
        queue: of callers who wait for a line; None: they do not.
        check_body: raises when a call is not possible.
        mode: of calls.
        uses_recogniser: returns whether such a call uses the recogniser.
        wake: called when a caller has left the queue.
        desk: controls calls.
        check: a dependency for the operator's routes; None: no calls are placed here.
        check_tenant: raises when the tenant of phone calls may not have another call; None: it always may.
        audit: records outbound calls.
    """

    def __init__(
        self,
        carrier: TwilioCarrier,
        phone: PhoneRoutesSettings,
        *,
        tokens: StreamTokens,
        queue: PhoneQueue | None,
        check_body: CheckBody,
        mode: str,
        uses_recogniser: Callable[[], bool],
        wake: Callable[[], None],
        desk: CallManager,
        check: Callable[[Request], Awaitable[None]] | None,
        check_tenant: Callable[[], Awaitable[None]] | None,
        audit: AuditLog,
    ) -> None:
        self._carrier, self._phone = carrier, phone
        self._tokens, self._queue = tokens, queue
        self._check_body, self._mode = check_body, mode
        self._uses_recogniser, self._wake = uses_recogniser, wake
        self._desk, self._check, self._audit = desk, check, audit
        self._check_tenant = check_tenant
        # One bucket: every call with the operator's token is at the deployment's expense.
        too_many = "over {limit} calls were begun, see phone.calls_per_minute and phone.calls_per_hour"
        self._begun = (
            Rate(phone.calls_per_minute, too_many, clients=1),
            Rate(phone.calls_per_hour, too_many, clients=1, period_s=3_600.0),
        )
        self._prefix = f"/{carrier.name}"
        if phone.public_url is not None:
            desk.serve_at(f"{phone.public_url}{self._prefix}")

    def add_to(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        prefix = self._prefix
        router.add_api_route(f"{prefix}/stream-status", self.stream_status, methods=["POST"])
        router.add_api_route(f"{prefix}/call-status", self.call_status, methods=["POST"])
        router.add_api_route(f"{prefix}/transfer/{{token}}/answer", self.transfer_answer, methods=["POST"])
        router.add_api_route(f"{prefix}/transfer/{{token}}/status", self.transfer_status, methods=["POST"])
        if self._check is None:
            return
        operator = [Depends(self._check)]
        router.add_api_route(
            f"{prefix}/calls", self.begin, methods=["POST"], status_code=201, dependencies=operator
        )
        router.add_api_route(
            f"{prefix}/calls/{{call_sid}}", self.state, methods=["GET"], dependencies=operator
        )

    async def begin(self, wanted: OutboundCall) -> dict[str, str]:
        """Place a call for an operator: the bot talks to the person who answers."""
        phone = self._phone
        if phone.number is None or phone.public_url is None or not self._desk.can_call:
            missing = "phone.number, phone.public_url and an account of Twilio are needed to begin calls"
            raise HTTPException(409, missing)
        if not phone.may_call(wanted.to):
            self._audit.record("call.refused", to=masked(wanted.to))
            raise HTTPException(403, "this number may not be called: see phone.call_prefixes")
        await self._check_body({"mode": self._mode}, ANONYMOUS)
        if self._check_tenant is not None:
            # Before it rings: its stream would be refused, and the person who answers would hear nothing.
            await self._check_tenant()
        for rate in self._begun:
            rate.check("")
        call = PhoneCall("", wanted.to, phone.number, "outbound", network=self._carrier.name)
        within_s = MOST_QUEUED_S + phone.ring_s + self._tokens.token_s
        token = self._tokens.expect(call, within_s=within_s, uses_recogniser=self._uses_recogniser())
        for rate in self._begun:
            rate.take("")
        self._audit.record("call.begun", to=masked(wanted.to))
        sid: str | None = None
        try:
            base = phone.public_url
            media = f"{as_socket(base)}{self._prefix}/media/{token}"
            sid = await self._desk.call(
                wanted.to, phone.number, self._carrier.connect(base, media, call).text
            )
        except EngineError as error:
            raise HTTPException(502, str(error)) from error
        finally:
            if sid is None:
                self._tokens.forget(token)
        if self._tokens.name(token, replace(call, call_sid=sid)):
            self._follow(sid, self._desk.state_of(sid) or "")
        return {"call_sid": sid}

    async def state(self, call_sid: str) -> dict[str, str]:
        """Return the state of a call that was placed here, in Twilio's terms."""
        state = self._desk.state_of(call_sid)
        if state is None:
            raise HTTPException(404, "there is no such call")
        return {"call_sid": call_sid, "status": state}

    async def call_status(self, request: Request) -> Response:
        """Process a webhook about the state of a call."""
        fields = await self._carrier.form(request)
        call_sid, state = field_of(fields, "CallSid"), field_of(fields, "CallStatus")
        logger.info(f"call {call_sid[:40]}: {state[:40]}")
        self._desk.record_state(call_sid, state[:40])
        self._follow(call_sid, state)
        return Response(status_code=204)

    async def transfer_answer(self, request: Request, token: str) -> Response:
        """Process the key that the person of a transfer has pressed, or none."""
        fields = await self._carrier.form(request)
        answer = await self._desk.answered(token, field_of(fields, "Digits"))
        text = answer if answer is not None else twiml.end("The caller is not there any more.")
        return Response(text, media_type="text/xml")

    async def transfer_status(self, request: Request, token: str) -> Response:
        """Process a webhook about the state of that person's call."""
        fields = await self._carrier.form(request)
        self._desk.ended(token, field_of(fields, "CallStatus"))
        return Response(status_code=204)

    async def stream_status(self, request: Request) -> Response:
        """Log the beginning, the end or the failure of a stream."""
        fields = await self._carrier.form(request)
        event, error = field_of(fields, "StreamEvent"), field_of(fields, "StreamError")
        level = "WARNING" if error else "INFO"
        logger.log(level, f"stream {field_of(fields, 'StreamSid')[:40]}: {event[:40]} {error[:200]}".rstrip())
        return Response(status_code=204)

    def _follow(self, call_sid: str, state: str) -> None:
        """Revoke the token of a call that has ended; restart the time limit of one that is answered."""
        if self._queue is not None and state in ENDED and self._queue.leave(call_sid) is not None:
            self._wake()
        if state in ENDED:
            self._tokens.ended(call_sid)
        elif state == IN_PROGRESS:
            self._tokens.answered(call_sid, self._tokens.token_s)
