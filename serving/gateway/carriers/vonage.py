"""Vonage: JSON with a signed token in, call control objects out. Its sockets are not signed.

The answer URL of the application has to be asked by POST: a token of a GET covers no caller.
"""

import time
from collections.abc import Callable, Sequence

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from protocols import vonage
from protocols.surface import Refusal, json_object
from serving.gateway.carriers.carrier import (
    CallDocument,
    CallRequest,
    PhoneCall,
    body_of,
    call_of,
    field_of,
    forbidden,
    plus,
)
from serving.gateway.phone_settings import PhoneRoutesSettings

JSON = "application/json"


class VonageCarrier:
    """See ``Carrier``.

    Args:
        phone: settings of telephone calls.
        secrets: the account's signature secret.
        wall_s: seconds of the epoch.
    """

    name = "vonage"
    methods = ("POST",)

    def __init__(
        self, phone: PhoneRoutesSettings, secrets: Sequence[str], wall_s: Callable[[], float] = time.time
    ) -> None:
        self._secret = secrets[0] if phone.signatures else None
        self._wall_s = wall_s

    async def request_of(self, request: Request) -> CallRequest:
        """See ``Carrier``."""
        body = await body_of(request)
        authorization = request.headers.get("authorization", "")
        if self._secret is not None and not vonage.is_signed(
            self._secret, authorization, body, now_s=self._wall_s()
        ):
            raise forbidden("Vonage")
        try:
            fields = json_object(body.decode())
        except (UnicodeDecodeError, Refusal) as error:
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
        """See ``Carrier``: the token is all that there is."""

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """See ``Carrier``."""
        return CallDocument(vonage.connect(media, call.call_sid), JSON)

    def hold(self, words: str, pause_s: int, again: str) -> None:
        """See ``Carrier``: no action asks again."""

    def end(self, words: str = "") -> CallDocument:
        """See ``Carrier``."""
        return CallDocument(vonage.end(words), JSON)

    def refuse(self, words: str) -> CallDocument:
        """See ``Carrier``."""
        return CallDocument(vonage.end(words), JSON)
