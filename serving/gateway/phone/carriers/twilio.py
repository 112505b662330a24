"""Twilio: signed forms and sockets, answered by TwiML.

A signature covers the configured address, by the account's auth token or by a shared key. Twilio also signs
the upgrade of a media socket.
"""

import os
from collections.abc import Sequence

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from parley.core.errors import ConfigError
from parley.protocols import twiml
from parley.protocols.twilio_signature import Algorithm, Fields, algorithm_of, is_signed
from parley.serving.gateway.phone.carriers.carrier import (
    FORM,
    CallDocument,
    CallRequest,
    Carrier,
    PhoneCall,
    as_socket,
    asked_address,
    base_of,
    body_of,
    call_of,
    field_of,
    forbidden,
    form_of,
    is_form,
)
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

SIGNATURE, SIGNATURE_SETTINGS = "x-twilio-signature", "x-twilio-webhooks-signature-settings"
IN_PROGRESS = "in-progress"
# Values of ``CallStatus`` of a call that has ended.
OVER = frozenset({"completed", "busy", "failed", "no-answer", "canceled"})
# Path of the request that follows a stream.
RECONNECT = "/reconnect"
# Variables of the environment: the account's auth token, and the secret of a shared key (SHA-256), where
# there is one.
AUTH_TOKEN_ENV = "TWILIO_AUTH_TOKEN"
SHARED_KEY_ENV = "TWILIO_WEBHOOK_KEY"


class TwilioCarrier(Carrier):
    """Twilio, as a ``Carrier``.

    Args:
        phone: settings of phone calls.
        secrets: empty; one of two variables of Twilio's is enough.

    Raises:
        ConfigError: signatures are to be checked, and there is no secret.
    """

    name = "twilio"
    methods = ("POST",)

    def __init__(self, phone: PhoneRoutesSettings, secrets: Sequence[str] = ()) -> None:
        self._phone = phone
        self._secrets = {
            Algorithm.SHA1: os.environ.get(AUTH_TOKEN_ENV, ""),
            Algorithm.SHA256: os.environ.get(SHARED_KEY_ENV, ""),
        }
        if phone.signatures and not any(self._secrets.values()):
            raise ConfigError(
                f"phone: set phone.public_url and {AUTH_TOKEN_ENV}, or phone.signatures: false for a "
                "local run"
            )

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook (``Carrier.request_of``)."""
        fields = await self.form(request)
        return CallRequest(self.call_of_fields(fields), is_answered=self.is_in_progress(fields))

    def is_in_progress(self, fields: Fields) -> bool:
        """Return whether the caller has heard something already."""
        return field_of(fields, "CallStatus") == IN_PROGRESS

    def call_of_fields(self, fields: Fields) -> PhoneCall:
        """Return the call of a webhook.

        Raises:
            HTTPException: it has no id.
        """
        # "outbound-api" and "outbound-dial".
        is_ours = field_of(fields, "Direction").startswith("outbound")
        return call_of(
            self.name,
            field_of(fields, "CallSid"),
            field_of(fields, "From"),
            field_of(fields, "To"),
            "outbound" if is_ours else "inbound",
            verstat=field_of(fields, "StirVerstat"),
        )

    def check_socket(self, connection: HTTPConnection) -> None:
        """Check the signature of the upgrade (``Carrier.check_socket``)."""
        self._check(connection, {}, None)

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call (``Carrier.connect``)."""
        numbers = {"caller": call.caller, "called": call.called}
        status = f"{base}/{self.name}/stream-status"
        after = None
        if (reconnect := self._phone.reconnect) is not None:
            after = twiml.AfterStream(f"{base}/{self.name}{RECONNECT}", reconnect.pause_s)
        return CallDocument(twiml.connect(media, numbers, status_address=status, after=after))

    def hold(self, words: str, pause_s: int, again: str) -> CallDocument:
        """Return the answer that makes a caller wait (``Carrier.hold``)."""
        return CallDocument(twiml.hold(words, pause_s, again))

    def dial(self, words: str, to: str, caller: str) -> CallDocument:
        """Return the answer that speaks and connects the call to another number."""
        return CallDocument(twiml.dial(words, to, caller=caller))

    def end(self, words: str = "") -> CallDocument:
        """Return the answer that ends a call (``Carrier.end``)."""
        return CallDocument(twiml.end(words))

    def refuse(self, words: str) -> CallDocument:
        """Return the answer that refuses a call (``Carrier.refuse``)."""
        return CallDocument(twiml.refuse(words))

    async def form(self, request: Request) -> Fields:
        """Return the fields of a webhook.

        Raises:
            HTTPException: it is not signed (403), or not a form.
        """
        body = await body_of(request)
        fields = form_of(body) if is_form(request) else {}
        self._check(request, fields, None if is_form(request) else body)
        if not is_form(request):
            raise HTTPException(415, f"expected {FORM}")
        return fields

    def _check(self, connection: HTTPConnection, fields: Fields, body: bytes | None) -> None:
        if not self._phone.signatures:
            return
        algorithm = algorithm_of(connection.headers.get(SIGNATURE_SETTINGS, ""))
        secret = self._secrets[algorithm] if algorithm is not None else ""
        base = base_of(connection, self._phone.public_url)
        address = asked_address(
            connection, as_socket(base) if connection.scope["type"] == "websocket" else base
        )
        given = connection.headers.get(SIGNATURE, "")
        if (
            algorithm is None
            or not secret
            or not is_signed(secret, address, fields, given, algorithm=algorithm, body=body)
        ):
            raise forbidden("Twilio")
