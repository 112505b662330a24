"""Exotel: requests with a user name and a password, answered by the address of a socket.

Exotel signs nothing. The user name and the password are part of the address that its Voicebot applet
requests, so they are only as secret as that applet. An answer cannot contain words. A call that is not
accepted is refused with 503, and the flow continues with the step after the applet.
"""

from collections.abc import Sequence

from fastapi import Request
from starlette.requests import HTTPConnection

from parley.protocols import exotel
from parley.serving.gateway.phone.carriers.carrier import (
    CallDocument,
    CallRequest,
    PhoneCall,
    call_of,
    field_of,
    forbidden,
)
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

JSON = "application/json"
REFUSED = CallDocument("{}", JSON, 503)


class ExotelCarrier:
    """Exotel, as a ``Carrier``.

    Args:
        phone: settings of phone calls.
        secrets: the user name and the password.
    """

    name = "exotel"
    methods = ("GET",)

    def __init__(self, phone: PhoneRoutesSettings, secrets: Sequence[str]) -> None:
        self._known = (secrets[0], secrets[1]) if phone.signatures else None

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook (``Carrier.request_of``)."""
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
        """Accept every socket: only the token in its path is checked."""

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call (``Carrier.connect``)."""
        return CallDocument(exotel.connect(media), JSON)

    def hold(self, words: str, pause_s: int, again: str) -> None:
        """Return None: an answer cannot contain words."""

    def end(self, words: str = "") -> CallDocument:
        """Return the refusal, which is the only other answer."""
        return REFUSED

    def refuse(self, words: str) -> CallDocument:
        """Return the refusal."""
        return REFUSED
