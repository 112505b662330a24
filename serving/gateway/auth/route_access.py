"""Table of all routes and sockets of the gateway, with the clients that may use each.

``check_declared`` refuses to build an application with a route that is not in it, or with an operator's route
that does not check for the operator. Documents and tests of the exposure are generated from ``declared`` and
``permits``; docs/how-to/operations.md explains the audiences.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount, WebSocketRoute

from parley.serving.gateway.auth.admin_auth import AdminAuth


class Audience(StrEnum):
    """Clients that a route serves."""

    PUBLIC = "public"
    """Any client that reaches the server. The route shows no client's data and begins nothing."""
    CLIENT = "client"
    """With keys: a key, a token or the operator; without: any client. Begins a call or a session."""
    APPLICATION = "application"
    """A client with a key."""
    SESSION = "session"
    """With keys: the owner of the session, its application or the operator; without: a client with its id."""
    OWNER = "owner"
    """The owner of the session or the operator, with keys and without."""
    CAPABILITY = "capability"
    """A client with an unguessable name that this server issued: a started call, a place in the
    queue, a link to a session."""
    CARRIER = "carrier"
    """The phone network, by its signature; a media socket also needs the token of its call."""
    OPERATOR = "operator"
    """The operator, by a token or a login."""
    VAULT = "vault"
    """A key of an application that names the scope ``reveal``, for its own sessions. No other credential."""


Credential = Literal["none", "wrong", "key", "other key", "token", "other token", "operator"]
CREDENTIALS: tuple[Credential, ...] = (
    *("none", "wrong", "key", "other key", "token", "other token", "operator"),
)
SOCKET = "WS"
_P, _C, _S, _O, _X = (
    *(Audience.PUBLIC, Audience.CLIENT, Audience.SESSION, Audience.OPERATOR),
    Audience.CAPABILITY,
)
_SESSION = "/api/sessions/{session_id}"
ROUTES: dict[tuple[str, str], Audience] = {
    # Pages.
    ("GET", "/"): _P,
    ("GET", "/duplex"): _P,
    ("GET", "/omni"): _P,
    ("GET", "/s/{session_id}"): _P,
    ("GET", "/admin"): _P,
    ("GET", "/desk"): _P,
    ("GET", "/sessions"): _P,
    ("GET", "/docs"): _P,
    ("GET", "/openapi.json"): _P,
    ("GET", "/chat"): _P,
    ("GET", "/shared"): _P,
    # Figures of the server and names of its engines.
    ("GET", "/health"): _P,
    ("GET", "/ready"): _P,
    ("GET", "/status"): _P,
    ("GET", "/v1/health"): _P,
    ("GET", "/v1/voices"): _P,
    ("POST", "/v1/voices"): _P,
    ("GET", "/v1/models"): _P,
    ("GET", "/v1/models/{model}"): _P,
    ("GET", "/v1/voice-donation"): _P,
    ("POST", "/v1/voice-donation"): _P,
    ("GET", "/api/apps"): _P,
    ("GET", "/api/choices"): _P,
    ("GET", "/api/presets"): _P,
    ("GET", "/api/presets/{mode}/{preset_id}/audio"): _P,
    ("GET", "/api/frontend_defaults"): _P,
    ("GET", "/api/default_ref_audio"): _P,
    ("GET", "/api/assets/ref_audio"): _P,
    ("GET", "/api/config/eta"): _P,
    # The operator gets more of their contents.
    ("GET", "/workers"): _P,
    ("GET", "/api/admin/session"): _P,
    ("POST", "/api/admin/session"): _P,
    ("DELETE", "/api/admin/session"): _P,
    # Calls and sessions.
    ("POST", "/api/token"): Audience.APPLICATION,
    ("POST", "/v1/realtime/client_secrets"): Audience.APPLICATION,
    ("POST", "/v1/realtime/calls"): _C,
    ("POST", "/v1/realtime/calls/{call_id}/hangup"): _C,
    ("POST", "/v1/chat/completions"): _C,
    ("POST", "/v1/audio/speech"): _C,
    ("POST", "/v1/audio/transcriptions"): _C,
    ("POST", "/api/chat"): _C,
    ("POST", "/api/client"): _C,
    ("POST", "/start"): _C,
    ("POST", "/api/offer"): _C,
    ("PATCH", "/api/offer"): _X,
    ("POST", "/sessions/{session_id}/api/ice"): _X,
    ("POST", "/sessions/{session_id}/api/offer"): _X,
    ("PATCH", "/sessions/{session_id}/api/offer"): _X,
    (SOCKET, "/v1/realtime"): _C,
    (SOCKET, "/ws/duplex/{client_id}"): _C,
    (SOCKET, "/ws/half_duplex/{name}"): _C,
    (SOCKET, "/ws/half_duplex_omni/{name}"): _C,
    (SOCKET, "/ws/chat"): _C,
    (SOCKET, "/ws/streaming/{name}"): _C,
    (SOCKET, "/ws"): _C,
    ("POST", "/api/sessions"): _C,
    ("GET", _SESSION): _S,
    ("GET", f"{_SESSION}/timeline"): _S,
    ("GET", f"{_SESSION}/prompt"): _S,
    ("GET", f"{_SESSION}/events"): _S,
    ("GET", f"{_SESSION}/export"): _S,
    ("GET", f"{_SESSION}/recordings"): _S,
    ("GET", f"{_SESSION}/recordings.zip"): _S,
    ("GET", f"{_SESSION}/recordings/{{call_id}}"): _S,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/replay.wav"): _S,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/replay.mp4"): _S,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/client-replay"): _S,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/frames/{{at_ms}}.jpg"): _S,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/images/{{name}}"): _S,
    ("GET", f"{_SESSION}/meta"): _S,
    ("GET", f"{_SESSION}/recording"): _S,
    ("GET", f"{_SESSION}/assets/{{name}}"): _S,
    ("HEAD", f"{_SESSION}/assets/{{name}}"): _S,
    ("GET", f"{_SESSION}/assets/{{part}}/{{name}}"): _S,
    ("HEAD", f"{_SESSION}/assets/{{part}}/{{name}}"): _S,
    ("GET", f"{_SESSION}/download"): _S,
    ("POST", f"{_SESSION}/upload-recording"): _S,
    ("GET", f"{_SESSION}/comment"): _S,
    ("POST", f"{_SESSION}/comment"): _S,
    ("GET", f"{_SESSION}/comments"): _S,
    ("POST", f"{_SESSION}/comments"): _S,
    ("DELETE", f"{_SESSION}/comments/{{comment_id}}"): _S,
    ("GET", f"{_SESSION}/evidence"): _S,
    ("GET", f"{_SESSION}/shares"): _S,
    ("POST", f"{_SESSION}/shares"): _S,
    ("DELETE", f"{_SESSION}/shares/{{share_id}}"): _S,
    ("GET", "/share/{share_id}"): _X,
    ("POST", "/api/shared/{share_id}"): _X,
    ("GET", "/api/shared/{share_id}/transcript"): _X,
    ("GET", "/api/shared/{share_id}/recordings"): _X,
    ("GET", "/api/shared/{share_id}/recordings/{call_id}"): _X,
    ("GET", "/api/shared/{share_id}/recordings/{call_id}/replay.wav"): _X,
    ("POST", f"{_SESSION}/messages"): _S,
    ("POST", f"{_SESSION}/annotations"): _S,
    (SOCKET, f"{_SESSION}/annotations/socket"): _S,
    ("GET", f"{_SESSION}/redacted"): Audience.VAULT,
    ("POST", f"{_SESSION}/call-code"): _S,
    ("DELETE", f"{_SESSION}/caller"): _S,
    ("DELETE", _SESSION): Audience.OWNER,
    ("GET", "/api/queue/{ticket_id}"): _X,
    ("DELETE", "/api/queue/{ticket_id}"): _X,
    # Telephone.
    ("POST", "/twilio/voice"): Audience.CARRIER,
    ("POST", "/twilio/reconnect"): Audience.CARRIER,
    ("POST", "/twilio/stream-status"): Audience.CARRIER,
    ("POST", "/twilio/call-status"): Audience.CARRIER,
    ("POST", "/twilio/transfer/{token}/answer"): Audience.CARRIER,
    ("POST", "/twilio/transfer/{token}/status"): Audience.CARRIER,
    (SOCKET, "/twilio/media/{token}"): Audience.CARRIER,
    ("POST", "/twilio_relay/voice"): Audience.CARRIER,
    ("POST", "/twilio_relay/reconnect"): Audience.CARRIER,
    (SOCKET, "/twilio_relay/media/{token}"): Audience.CARRIER,
    ("POST", "/telnyx/voice"): Audience.CARRIER,
    (SOCKET, "/telnyx/media/{token}"): Audience.CARRIER,
    ("POST", "/plivo/voice"): Audience.CARRIER,
    (SOCKET, "/plivo/media/{token}"): Audience.CARRIER,
    ("POST", "/vonage/voice"): Audience.CARRIER,
    (SOCKET, "/vonage/media/{token}"): Audience.CARRIER,
    ("GET", "/exotel/voice"): Audience.CARRIER,
    (SOCKET, "/exotel/media/{token}"): Audience.CARRIER,
    ("POST", "/twilio/calls"): _O,
    ("GET", "/twilio/calls/{call_sid}"): _O,
    # Operations.
    ("GET", "/metrics"): _O,
    ("GET", "/api/sessions"): _O,
    ("GET", "/api/sessions/search"): _O,
    ("POST", "/api/sessions/import"): _O,
    ("POST", "/api/people/forget"): _O,
    ("GET", f"{_SESSION}/tags"): _O,
    ("POST", f"{_SESSION}/tags"): _O,
    ("DELETE", f"{_SESSION}/tags"): _O,
    ("PUT", f"{_SESSION}/caller"): _O,
    ("POST", f"{_SESSION}/recordings/{{call_id}}/replays"): _O,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/replays"): _O,
    ("DELETE", f"{_SESSION}/recordings/{{call_id}}/replays"): _O,
    ("GET", f"{_SESSION}/recordings/{{call_id}}/replays/page"): _O,
    ("GET", f"{_SESSION}/pin"): _O,
    ("PUT", f"{_SESSION}/pin"): _O,
    ("DELETE", f"{_SESSION}/pin"): _O,
    ("PUT", f"{_SESSION}/private-pause"): _O,
    ("DELETE", f"{_SESSION}/private-pause"): _O,
    ("GET", "/api/queue"): _O,
    ("PUT", "/api/config/eta"): _O,
    ("GET", "/api/admin/apps"): _O,
    ("PUT", "/api/admin/apps/{app_id}"): _O,
    ("GET", "/api/admin/usage"): _O,
    ("GET", "/api/admin/calls"): _O,
    ("GET", "/api/admin/calls/{call_id}/audio.wav"): _O,
    ("DELETE", "/api/admin/calls/{call_id}"): _O,
    ("GET", "/api/admin/tenants"): _O,
    ("GET", "/api/admin/storage"): _O,
    ("POST", "/api/admin/storage/retention"): _O,
    ("GET", "/api/admin/failures"): _O,
    ("GET", "/api/admin/settings"): _O,
    ("GET", "/api/admin/documents"): _O,
    ("PUT", "/api/admin/documents"): _O,
    ("DELETE", "/api/admin/documents"): _O,
    ("POST", "/api/admin/documents/reading"): _O,
    ("GET", "/api/desk"): _O,
    ("POST", "/api/desk/sessions/{session_id}/take"): _O,
    ("POST", "/api/desk/sessions/{session_id}/say"): _O,
    ("POST", "/api/desk/sessions/{session_id}/whisper"): _O,
    ("POST", "/api/desk/sessions/{session_id}/return"): _O,
    ("POST", "/api/assets/ref_audio"): _O,
    ("GET", "/api/assets/ref_audio/{voice_id}"): _O,
    ("DELETE", "/api/assets/ref_audio/{voice_id}"): _O,
}


@dataclass(frozen=True, slots=True)
class Declared:
    """Route of an application, with its audience.

    Attributes:
        method: of HTTP, or ``WS``.
        path: as a template.
        audience: clients that may use it.
    """

    method: str
    path: str
    audience: Audience


class UndeclaredRouteError(Exception):
    """A route of the application is not in the table, or differs from it: a bug."""


def permits(audience: Audience, credential: Credential, *, keys: bool) -> bool:
    """Return whether a credential passes the check of a route; the content of the route may still be missing.

    The origin of the request, and the proxies on its way, make no difference.

    Args:
        audience: of the route.
        credential: none, a wrong one, the key of the application that owns the session, that of another
            application, a token of the user who owns the session, one of another user, or the operator's.
        keys: true when client keys are set. Without them keys and tokens are wrong.
    """
    if audience is Audience.VAULT:
        # None of these names its scope.
        return False
    if credential == "operator":
        return audience not in (Audience.APPLICATION, Audience.CARRIER)
    if audience in (Audience.PUBLIC, Audience.CAPABILITY):
        return True
    if audience in (Audience.OPERATOR, Audience.CARRIER):
        return False
    if audience is Audience.APPLICATION:
        return keys and credential in ("key", "other key")
    if audience is Audience.CLIENT:
        return not keys or credential in ("key", "other key", "token", "other token")
    if audience is Audience.SESSION:
        return not keys or credential in ("key", "token")
    # Without keys the owner is a browser, identified by its cookie.
    return keys and credential in ("key", "token")


def declared(app: FastAPI) -> list[Declared]:
    """Return the routes of an application, in the order of the table.

    Raises:
        UndeclaredRouteError: one is not in the table.
    """
    found = {}
    for method, path, _ in routes_of(app.routes):
        audience = ROUTES.get((method, path))
        if audience is None:
            raise UndeclaredRouteError(f"{method} {path}: route_access.ROUTES does not say who may use it")
        found[method, path] = Declared(method, path, audience)
    return [found[each] for each in ROUTES if each in found]


def check_declared(app: FastAPI) -> None:
    """Check that an application matches the table.

    Raises:
        UndeclaredRouteError: a route is not in the table, or an operator's route does not check for the
            operator.
    """
    audiences = {(each.method, each.path): each.audience for each in declared(app)}
    for method, path, route in routes_of(app.routes):
        asks = isinstance(route, APIRoute) and _asks_for_operator(route.dependant)
        if asks != (audiences[method, path] is Audience.OPERATOR):
            raise UndeclaredRouteError(
                f"{method} {path}: the table and the route disagree about operator access"
            )


def routes_of(routes: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (method, path, route) of the routes of an application, with those of included routers.

    Raises:
        UndeclaredRouteError: a route of a kind that is not known here.
    """
    for route in routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path, route
        elif isinstance(route, WebSocketRoute) or type(route).__name__ == "APIWebSocketRoute":
            yield SOCKET, route.path, route
        elif isinstance(route, Mount):
            yield "GET", route.path, route
        elif (included := getattr(route, "original_router", None)) is not None:
            # FastAPI keeps an included router as one route; older releases copy its routes.
            yield from routes_of(included.routes)
        else:
            raise UndeclaredRouteError(f"{route!r}: the table does not know this kind of route")


def _asks_for_operator(dependant: Any) -> bool:
    return any(
        getattr(each.call, "__func__", None) is AdminAuth.check or _asks_for_operator(each)
        for each in dependant.dependencies
    )
