"""Exotel: a question with a name and a password in, the address of a socket out.

Exotel signs nothing: the name and the password stand in the address that its Voicebot applet asks, and are as
good as the secrecy of that applet. Its answer has no words: a call that is not taken is refused with 503, and
the flow goes on with what stands behind the applet.
"""

from collections.abc import Sequence

from fastapi import Request
from starlette.requests import HTTPConnection

from protocols import exotel
from serving.gateway.carriers.carrier import (
    CallDocument,
    CallRequest,
    PhoneCall,
    call_of,
    field_of,
    forbidden,
)
from serving.gateway.phone_settings import PhoneRoutesSettings

JSON = "application/json"
REFUSED = CallDocument("{}", JSON, 503)


class ExotelCarrier:
    """See ``Carrier``.

    Args:
        phone: settings of telephone calls.
        secrets: the name and the password.
    """

    name = "exotel"
    methods = ("GET",)

    def __init__(self, phone: PhoneRoutesSettings, secrets: Sequence[str]) -> None:
        self._known = (secrets[0], secrets[1]) if phone.signatures else None

    async def request_of(self, request: Request) -> CallRequest:
        """See ``Carrier``."""
        authorization = request.headers.get("authorization", "")
        if self._known is not None and not exotel.is_known(*self._known, authorization):
            raise forbidden("Exotel")
        fields = dict(request.query_params)
        return CallRequest(
            call_of(
                self.name,
                field_of(fields, "CallSid"),
                field_of(fields, "CallFrom"),
                field_of(fields, "CallTo"),
            )
        )

    def check_socket(self, connection: HTTPConnection) -> None:
        """See ``Carrier``: the token is all that there is."""

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """See ``Carrier``."""
        return CallDocument(exotel.connect(media), JSON)

    def hold(self, words: str, pause_s: int, again: str) -> None:
        """See ``Carrier``: an answer has no words."""

    def end(self, words: str = "") -> CallDocument:
        """See ``Carrier``."""
        return REFUSED

    def refuse(self, words: str) -> CallDocument:
        """See ``Carrier``."""
        return REFUSED
