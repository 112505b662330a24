"""What the gateway needs of a telephone network: who asks, which call it is about, and the answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import parse_qs, urlsplit, urlunsplit

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from core.errors import ConfigError
from core.registry import Row
from protocols.twilio_signature import Fields
from serving.gateway.requests import read_body

MOST_BODY_BYTES, BODY_S = 64_000, 10.0
MOST_FIELD_CHARS = 200
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class PhoneCall:
    """A call that was answered.

    Attributes:
        call_sid: the network's name for it; empty where it comes with the stream.
        caller, called: numbers, as the network says them.
        direction: who began it: "outbound" is us.
        verstat: what the network says of the caller's number, in Twilio's words; empty where it says nothing.
        network: name of the transport that the call comes over.
    """

    call_sid: str
    caller: str
    called: str
    direction: Literal["inbound", "outbound"] = "inbound"
    verstat: str = ""
    network: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A network asks what to do with a call.

    Attributes:
        call: that it asks about.
        is_answered: the caller has heard something already.
    """

    call: PhoneCall
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class CallDocument:
    """What a network is told to do with a call.

    Attributes:
        text: of the answer.
        media_type: of the answer.
        status: of HTTP.
    """

    text: str
    media_type: str = "text/xml"
    status: int = 200


class Carrier(Protocol):
    """One telephone network.

    The factory of its row is called with the settings of telephone calls (``PhoneRoutesSettings``) and the
    row's secrets, which are none for a local run that checks no signatures.

    Attributes:
        name: of the network; its routes begin with it.
        methods: of the webhook.
    """

    name: str
    methods: tuple[str, ...]

    async def request_of(self, request: Request) -> CallRequest:
        """Return what a webhook asks.

        Raises:
            HTTPException: it is not the network that asks (403), or it cannot be read.
        """
        ...

    def check_socket(self, connection: HTTPConnection) -> None:
        """Raise HTTPException for the upgrade of a media socket that is not the network's.

        Most networks sign none: the token in its path is what is checked.
        """
        ...

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call to a media socket.

        Args:
            base: https:// address of the server, without a slash behind it.
            media: wss:// address of the socket.
            call: that it is about.
        """
        ...

    def hold(self, words: str, pause_s: int, again: str) -> CallDocument | None:
        """Return the answer that says something, pauses, and asks ``again``; None: nobody can wait."""
        ...

    def end(self, words: str = "") -> CallDocument:
        """Return the answer that says something and ends the call."""
        ...

    def refuse(self, words: str) -> CallDocument:
        """Return the answer to a call that is not taken; without words the line is engaged."""
        ...


def secrets_of(name: str, row: Row, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of a network.

    Raises:
        ConfigError: one of them is not set.
    """
    missing = [variable for variable in row.env if not environ.get(variable)]
    if missing:
        raise ConfigError(f"phone.carriers: {name} needs {', '.join(missing)} in the environment")
    return tuple(environ[variable] for variable in row.env)


def base_of(connection: HTTPConnection, public_url: str | None) -> str:
    """Return where a network reaches this server, without a slash behind it."""
    if public_url is not None:
        return public_url
    # Without signatures only: a caller on this machine.
    parts = urlsplit(str(connection.base_url))
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, "", "", ""))


def as_socket(address: str) -> str:
    """Return an http(s):// address with the scheme of a socket."""
    scheme, rest = address.split("://", 1)
    return f"{'wss' if scheme == 'https' else 'ws'}://{rest}"


def asked_address(connection: HTTPConnection, base: str) -> str:
    """Return the address of a request, with its query, at the configured base."""
    path, query = connection.scope["path"], connection.scope.get("query_string", b"").decode("latin-1")
    return f"{base}{path}" + (f"?{query}" if query else "")


def form_of(body: bytes) -> Fields:
    """Return the fields of a posted form.

    Raises:
        HTTPException: it cannot be read.
    """
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=200)
    except (UnicodeDecodeError, ValueError) as error:
        raise HTTPException(400, "the form cannot be read") from error


def is_form(connection: HTTPConnection) -> bool:
    """Return whether a body is a form."""
    return connection.headers.get("content-type", "").split(";")[0].strip().lower() == FORM


async def body_of(request: Request) -> bytes:
    """Return the body of a webhook. Raises HTTPException for one that is too large or too slow."""
    return await read_body(request, max_bytes=MOST_BODY_BYTES, within_s=BODY_S)


def forbidden(network: str) -> HTTPException:
    """Return the error of a request that is not the network's."""
    return HTTPException(403, f"the request is not signed by {network} for this address")


def field_of(fields: Mapping[str, object], name: str) -> str:
    """Return a field of a form or of JSON as text, cut; empty where there is none."""
    value = fields.get(name)
    if isinstance(value, list):
        value = value[0] if value else ""
    return str(value)[:MOST_FIELD_CHARS] if isinstance(value, str | int) else ""


def call_of(name: str, call_sid: str, caller: str, called: str, *, verstat: str = "") -> PhoneCall:
    """Return the call that a network asks about.

    Raises:
        HTTPException: it does not say which, so that any stream would be that of the call.
    """
    if not call_sid:
        raise HTTPException(400, "the call has no name")
    return PhoneCall(call_sid, caller, called, verstat=verstat, network=name)


def plus(number: str) -> str:
    """Return a number of a network that leaves out the plus of E.164."""
    return f"+{number}" if number.isascii() and number.isdigit() else number
