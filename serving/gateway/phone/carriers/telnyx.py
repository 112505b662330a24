"""Telnyx: forms signed by Ed25519, answered by TeXML. Its media sockets are not signed."""

import time
from collections.abc import Callable, Sequence

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from parley.protocols import texml, twiml
from parley.serving.gateway.phone.carriers.carrier import (
    FORM,
    CallDocument,
    CallRequest,
    PhoneCall,
    body_of,
    call_of,
    field_of,
    forbidden,
    form_of,
    is_form,
)
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

SIGNATURE, TIMESTAMP = "telnyx-signature-ed25519", "telnyx-timestamp"
IN_PROGRESS = "in-progress"


class TelnyxCarrier:
    """Telnyx, as a ``Carrier``.

    Args:
        phone: settings of phone calls.
        secrets: the account's public key, in base64.
        wall_s: Unix time.

    Raises:
        ConfigError: the key is invalid.
    """

    name = "telnyx"
    methods = ("POST",)

    def __init__(
        self, phone: PhoneRoutesSettings, secrets: Sequence[str], wall_s: Callable[[], float] = time.time
    ) -> None:
        self._key = texml.public_key(secrets[0]) if phone.signatures else None
        self._wall_s = wall_s

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook (``Carrier.request_of``)."""
        body = await body_of(request)
        given, timestamp = request.headers.get(SIGNATURE, ""), request.headers.get(TIMESTAMP, "")
        if self._key is not None and not texml.is_signed(
            self._key, given, timestamp, body, now_s=self._wall_s()
        ):
            raise forbidden("Telnyx")
        if not is_form(request):
            raise HTTPException(415, f"expected {FORM}")
        fields = form_of(body)
        attested = field_of(fields, "ShakenStirAttestation")
        is_valid = field_of(fields, "ShakenStirValidated").lower() == "true"
        call = call_of(
            self.name,
            field_of(fields, "CallSid"),
            field_of(fields, "From"),
            field_of(fields, "To"),
            verstat=f"TN-Validation-Passed-{attested}" if is_valid and attested else "",
        )
        return CallRequest(call, is_answered=field_of(fields, "CallStatus") == IN_PROGRESS)

    def check_socket(self, connection: HTTPConnection) -> None:
        """Accept every socket: only the token in its path is checked."""

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call (``Carrier.connect``)."""
        return CallDocument(texml.connect(media))

    def hold(self, words: str, pause_s: int, again: str) -> CallDocument:
        """Return the answer that makes a caller wait (``Carrier.hold``)."""
        return CallDocument(twiml.hold(words, pause_s, again))

    def end(self, words: str = "") -> CallDocument:
        """Return the answer that ends a call (``Carrier.end``)."""
        return CallDocument(twiml.end(words))

    def refuse(self, words: str) -> CallDocument:
        """Return the answer that refuses a call (``Carrier.refuse``)."""
        return CallDocument(twiml.refuse(words))
