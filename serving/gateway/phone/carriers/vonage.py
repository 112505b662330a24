"""Vonage: JSON with a signed token, answered by call control objects. Its sockets are not signed.

The answer URL of the application must be requested by POST: the token of a GET does not cover the caller.
"""

import time
from collections.abc import Callable, Sequence

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from parley.protocols import vonage
from parley.protocols.client_protocol import ProtocolError, json_object
from parley.serving.gateway.phone.carriers.carrier import (
    CallDocument,
    CallRequest,
    PhoneCall,
    body_of,
    call_of,
    field_of,
    forbidden,
    plus,
)
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

JSON = "application/json"


class VonageCarrier:
    """Vonage, as a ``Carrier``.

    Args:
        phone: settings of phone calls.
        secrets: the account's signature secret.
        wall_s: Unix time.
    """

    name = "vonage"
    methods = ("POST",)

    def __init__(
        self, phone: PhoneRoutesSettings, secrets: Sequence[str], wall_s: Callable[[], float] = time.time
    ) -> None:
        self._secret = secrets[0] if phone.signatures else None
        self._wall_s = wall_s

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook (``Carrier.request_of``)."""
        body = await body_of(request)
        authorization = request.headers.get("authorization", "")
        if self._secret is not None and not vonage.is_signed(
            self._secret, authorization, body, now_s=self._wall_s()
        ):
            raise forbidden("Vonage")
        try:
            fields = json_object(body.decode())
        except (UnicodeDecodeError, ProtocolError) as error:
            raise HTTPException(400, "expected JSON") from error
        return CallRequest(
            call_of(
                self.name,
                field_of(fields, "uuid"),
                plus(field_of(fields, "from")),
                plus(field_of(fields, "to")),
            )
        )

    def check_socket(self, connection: HTTPConnection) -> None:
        """Accept every socket: only the token in its path is checked."""

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call (``Carrier.connect``)."""
        return CallDocument(vonage.connect(media, call.call_sid), JSON)

    def hold(self, words: str, pause_s: int, again: str) -> None:
        """Return None: no action of Vonage repeats the request."""

    def end(self, words: str = "") -> CallDocument:
        """Return the answer that ends a call (``Carrier.end``)."""
        return CallDocument(vonage.end(words), JSON)

    def refuse(self, words: str) -> CallDocument:
        """Return the answer that refuses a call (``Carrier.refuse``)."""
        return CallDocument(vonage.end(words), JSON)
