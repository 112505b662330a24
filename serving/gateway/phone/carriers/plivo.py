"""Plivo: signed forms (version 3), answered by Plivo's XML. Its media sockets are not signed."""

from collections.abc import Sequence

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from parley.protocols import plivo
from parley.serving.gateway.phone.carriers.carrier import (
    FORM,
    CallDocument,
    CallRequest,
    PhoneCall,
    asked_address,
    base_of,
    body_of,
    call_of,
    field_of,
    forbidden,
    form_of,
    is_form,
    plus,
)
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

SIGNATURE, NONCE = "x-plivo-signature-v3", "x-plivo-signature-v3-nonce"
IN_PROGRESS = "in-progress"


class PlivoCarrier:
    """Plivo, as a ``Carrier``.

    Args:
        phone: settings of phone calls.
        secrets: the account's auth token.
    """

    name = "plivo"
    methods = ("POST",)

    def __init__(self, phone: PhoneRoutesSettings, secrets: Sequence[str]) -> None:
        self._phone = phone
        self._token = secrets[0] if phone.signatures else None

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook (``Carrier.request_of``)."""
        body = await body_of(request)
        fields = form_of(body) if is_form(request) else {}
        given, nonce = request.headers.get(SIGNATURE, ""), request.headers.get(NONCE, "")
        address = asked_address(request, base_of(request, self._phone.public_url))
        if self._token is not None and not plivo.is_signed(self._token, address, fields, nonce, given):
            raise forbidden("Plivo")
        if not is_form(request):
            raise HTTPException(415, f"expected {FORM}")
        call = call_of(
            self.name,
            field_of(fields, "CallUUID"),
            plus(field_of(fields, "From")),
            plus(field_of(fields, "To")),
        )
        return CallRequest(call, is_answered=field_of(fields, "CallStatus") == IN_PROGRESS)

    def check_socket(self, connection: HTTPConnection) -> None:
        """Accept every socket: only the token in its path is checked."""

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call (``Carrier.connect``)."""
        return CallDocument(plivo.connect(media))

    def hold(self, words: str, pause_s: int, again: str) -> CallDocument:
        """Return the answer that makes a caller wait (``Carrier.hold``)."""
        return CallDocument(plivo.hold(words, pause_s, again))

    def end(self, words: str = "") -> CallDocument:
        """Return the answer that ends a call (``Carrier.end``)."""
        return CallDocument(plivo.end(words))

    def refuse(self, words: str) -> CallDocument:
        """Return the answer that refuses a call (``Carrier.refuse``)."""
        return CallDocument(plivo.refuse(words))
