"""Interface of a phone network for the gateway: verification of requests, calls, and answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import parse_qs, urlsplit, urlunsplit

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from parley.core.errors import ConfigError
from parley.core.registry import Row
from parley.protocols.twilio_signature import Fields
from parley.serving.gateway.http.requests import read_body

MOST_BODY_BYTES, BODY_S = 64_000, 10.0
MOST_FIELD_CHARS = 200
FORM = "application/x-www-form-urlencoded"

Direction = Literal["inbound", "outbound"]


@dataclass(frozen=True, slots=True)
class PhoneCall:
    """Call that was answered.

    Attributes:
        call_sid: its id in the network; empty where it comes with the stream.
        caller, called: numbers, as the network reports them.
        direction: "outbound" for a call that we placed.
        verstat: the network's attestation of the caller's number, in Twilio's terms; empty where it gives
            none.
        network: name of the call's transport.
        session: id of the session that a reconnected call goes on with; empty for a call that begins.
    """

    call_sid: str
    caller: str
    called: str
    direction: Direction = "inbound"
    verstat: str = ""
    network: str = field(kw_only=True)
    session: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """Request of a network for instructions about a call.

    Attributes:
        call: subject of the request.
        is_answered: true when the caller has heard something already.
        handoff: text of the server at the end of the stream, which the network returns; empty for none.
        is_over: true when the call has ended, so that nothing more can be heard on it.
    """

    call: PhoneCall
    is_answered: bool = False
    handoff: str = ""
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class CallDocument:
    """Instructions to a network about a call.

    Attributes:
        text: of the answer.
        media_type: of the answer.
        status: of HTTP.
    """

    text: str
    media_type: str = "text/xml"
    status: int = 200


class Carrier(Protocol):
    """Phone network.

    The factory of its row is called with the settings of phone calls (``PhoneRoutesSettings``) and the
    row's secrets. There are no secrets for a local run that checks no signatures.

    Attributes:
        name: of the network; its routes begin with it.
        methods: of the webhook.
    """

    name: str
    methods: tuple[str, ...]

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook.

        Raises:
            HTTPException: it does not come from the network (403), or it cannot be read.
        """
        ...

    def check_socket(self, connection: HTTPConnection) -> None:
        """Check that the upgrade of a media socket comes from the network.

        Most networks sign none; there the token in the path is checked instead.

        Raises:
            HTTPException: it does not.
        """
        ...

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call to a media socket.

        Args:
            base: https:// address of the server, without a final slash.
            media: wss:// address of the socket.
            call: to be connected.
        """
        ...

    def hold(self, words: str, pause_s: int, again: str) -> CallDocument | None:
        """Return the answer that speaks, pauses, and requests ``again``; None where callers cannot wait."""
        ...

    def end(self, words: str = "") -> CallDocument:
        """Return the answer that speaks and ends the call."""
        ...

    def refuse(self, words: str) -> CallDocument:
        """Return the answer to a call that is not accepted; without words the caller hears a busy signal."""
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
    """Return the address at which a network reaches this server, without a final slash."""
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
        raise HTTPException(400, "unreadable form") from error


def is_form(connection: HTTPConnection) -> bool:
    """Return whether a body is a form."""
    return connection.headers.get("content-type", "").split(";")[0].strip().lower() == FORM


async def body_of(request: Request) -> bytes:
    """Return the body of a webhook.

    Raises:
        HTTPException: it is too large or too slow.
    """
    return await read_body(request, max_bytes=MOST_BODY_BYTES, within_s=BODY_S)


def forbidden(network: str) -> HTTPException:
    """Return the error for a request that does not come from the network."""
    return HTTPException(403, f"the request is not signed by {network} for this address")


def field_of(fields: Mapping[str, object], name: str) -> str:
    """Return a field of a form or of JSON as text, cut to the limit; empty where there is none."""
    value = fields.get(name)
    if isinstance(value, list):
        value = value[0] if value else ""
    return str(value)[:MOST_FIELD_CHARS] if isinstance(value, str | int) else ""


def call_of(
    name: str,
    call_sid: str,
    caller: str,
    called: str,
    direction: Direction = "inbound",
    *,
    verstat: str = "",
) -> PhoneCall:
    """Return the call of a network's request.

    Raises:
        HTTPException: it has no id, so that any stream could claim to be that of the call.
    """
    if not call_sid:
        raise HTTPException(400, "the call has no id")
    return PhoneCall(call_sid, caller, called, direction, verstat=verstat, network=name)


def plus(number: str) -> str:
    """Return a number with the plus of E.164, which some networks leave out."""
    return f"+{number}" if number.isascii() and number.isdigit() else number
