"""OpenAPI 3.1 description of the routes that a server has, and the page that shows it.

Inputs: the application with all its routes, and the table of who may use each (``auth.route_access``).
Outputs: ``GET /openapi.json``, which any client may read because it names no data, and ``GET /docs``. A
socket is no operation of OpenAPI: ``x-sockets`` lists them. The description is made by a thread at the first
request, which takes 0.3 s, and kept.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from fastapi.routing import APIRoute

from parley.serving.gateway.auth.client_auth import COOKIE
from parley.serving.gateway.auth.route_access import ROUTES, SOCKET, Audience, routes_of
from parley.serving.gateway.openai_http.errors import OPENAI_PATHS
from parley.serving.gateway.page_files import PageFiles

SPECIFICATION, PAGE = "/openapi.json", "/docs"
ABOUT = (
    'Routes of this server. A refusal is a status and {"error": "why"}; the routes below /v1 that clients of '
    "OpenAI use answer in its form. A route names who may use it."
)
# Section of the page to the beginnings of its paths; the first section that fits has the route.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Health": ("/health", "/ready", "/status", "/v1/health", "/metrics", SPECIFICATION),
    "Sessions": ("/api/sessions", "/api/people/"),
    "Links to sessions": ("/share/", "/api/shared/"),
    "Browser calls (WebRTC)": ("/start", "/api/offer", "/sessions/"),
    "OpenAI's routes": ("/v1/chat", "/v1/audio", "/v1/models", "/v1/realtime"),
    "Sockets": ("/ws", "/api/chat"),
    "Clients": ("/api/token", "/api/client"),
    "Operation": ("/api/admin/", "/api/queue", "/api/config/", "/workers"),
    "Apps, presets and voices": (
        *(
            "/api/apps",
            "/api/choices",
            "/api/presets",
            "/api/frontend_defaults",
            "/api/assets/",
            "/api/default_ref_audio",
        ),
        *("/v1/voices", "/v1/voice-donation"),
    ),
    "Phone": ("/twilio", "/telnyx/", "/plivo/", "/vonage/", "/exotel/"),
    "Pages": ("/",),
}
# Offers and candidates of WebRTC; a test compares them with the models of ``transports.webrtc.signaling``, of
# which this package knows nothing.
_OFFER = {
    "type": "object",
    "properties": {
        "sdp": {"type": "string"},
        "type": {"const": "offer"},
        "pc_id": {"type": ["string", "null"]},
        "restart_pc": {"type": ["boolean", "null"]},
        "requestData": {"type": ["object", "null"], "description": "fields of a call"},
    },
    "required": ["sdp", "type"],
}
_CANDIDATE = {
    "type": "object",
    "properties": {
        "candidate": {"type": "string"},
        "sdp_mid": {"type": "string"},
        "sdp_mline_index": {"type": "integer"},
    },
    "required": ["candidate", "sdp_mid", "sdp_mline_index"],
}
_CANDIDATES = {
    "type": "object",
    "properties": {"pc_id": {"type": "string"}, "candidates": {"type": "array", "items": _CANDIDATE}},
    "required": ["pc_id", "candidates"],
}
_START = {"type": "object", "properties": {"transport": {"type": "string"}, "body": {"type": "object"}}}
_CHAT = {
    "type": "object",
    "properties": {
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        "tts": {"type": ["object", "null"], "properties": {"enabled": {"type": "boolean"}}},
    },
    "required": ["messages"],
}
_UPLOAD = {
    "type": "object",
    "properties": {"file": {"type": "string", "format": "binary"}},
    "required": ["file"],
}
_JSON = "application/json"
# Bodies that a route reads itself, bounded while they arrive: media type and schema.
OWN_BODIES: Mapping[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("POST", "/start"): (_JSON, _START),
    ("POST", "/api/offer"): (_JSON, _OFFER),
    ("PATCH", "/api/offer"): (_JSON, _CANDIDATES),
    ("POST", "/sessions/{session_id}/api/offer"): (_JSON, _OFFER),
    ("PATCH", "/sessions/{session_id}/api/offer"): (_JSON, _CANDIDATES),
    ("POST", "/api/sessions/import"): ("application/x-ndjson", {"type": "string"}),
    # Or a form with ``sdp`` and ``session``.
    ("POST", "/v1/realtime/calls"): ("application/sdp", {"type": "string"}),
    ("POST", "/api/chat"): (_JSON, _CHAT),
    ("POST", "/api/sessions/{session_id}/upload-recording"): ("multipart/form-data", _UPLOAD),
}
_REFUSAL = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_OPENAI_REFUSAL = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
            "required": ["message", "type"],
        }
    },
    "required": ["error"],
}
# Credentials of an audience; a route of the others needs none, or one that is not in a header.
_SECURITY: Mapping[Audience, list[dict[str, list[str]]]] = {
    Audience.CLIENT: [{"client": []}, {}],
    Audience.APPLICATION: [{"client": []}],
    Audience.SESSION: [{"client": []}, {"operator": []}, {}],
    Audience.OWNER: [{"client": []}, {"operator": []}, {"browser": []}],
    Audience.OPERATOR: [{"operator": []}],
    Audience.VAULT: [{"client": []}],
}
_SCHEMES = {
    "client": {"type": "http", "scheme": "bearer", "description": "a client key, or a token made with one"},
    "operator": {"type": "http", "scheme": "bearer", "description": "the operator's token"},
    "browser": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}


def section_of(path: str) -> str:
    """Return the section of a path."""
    return next(title for title, begins in SECTIONS.items() if path.startswith(begins))


def describe_routes(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application's routes, as OpenAPI 3.1.

    Raises:
        UndeclaredRouteError: a route is of a kind that the table does not know.
    """
    found = get_openapi(title="Parley", version="1", summary=ABOUT, routes=app.routes)
    sockets: list[dict[str, str]] = []
    for method, path, route in routes_of(app.routes):
        audience = ROUTES[method, path]
        if method == SOCKET:
            about = inspect.getdoc(route.endpoint) or ""
            sockets.append({"path": path, "x-audience": audience.value, "summary": about.partition("\n")[0]})
            continue
        operation = found["paths"].get(path, {}).get(method.lower())
        if operation is not None and isinstance(route, APIRoute):
            _complete(operation, method, path, audience)
    schemas: dict[str, Any] = found.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= {"Refusal": _REFUSAL, "OpenAiRefusal": _OPENAI_REFUSAL}
    found["components"]["securitySchemes"] = _SCHEMES
    found["tags"] = [{"name": title} for title in SECTIONS]
    return {**found, "x-sockets": sockets}


def _complete(operation: dict[str, Any], method: str, path: str, audience: Audience) -> None:
    """Add what FastAPI does not know of an operation, in place."""
    operation["tags"] = [section_of(path)]
    text: str = operation.get("description", "")
    operation["summary"], operation["x-audience"] = text.partition("\n")[0], audience.value
    if audience in _SECURITY:
        operation["security"] = _SECURITY[audience]
    # A page reads the names in its path itself.
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    known = {each["name"] for each in parameters}
    parameters += [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)(?::\w+)?}", path)
        if name not in known
    ]
    own = OWN_BODIES.get((method, path))
    if own is not None:
        operation["requestBody"] = {"required": True, "content": {own[0]: {"schema": own[1]}}}
    form = "OpenAiRefusal" if path.startswith(OPENAI_PATHS) else "Refusal"
    refusal = {"application/json": {"schema": {"$ref": f"#/components/schemas/{form}"}}}
    responses = operation["responses"]
    responses.pop("422", None)
    responses["default"] = {"description": "A refusal, with its reason", "content": refusal}


def _as_json(app: FastAPI) -> bytes:
    return json.dumps(describe_routes(app), separators=(",", ":")).encode()


def serve_description(app: FastAPI, files: PageFiles) -> None:
    """Add the description of the application's routes and its page; after all other routes.

    Args:
        app: of the gateway.
        files: of the pages.
    """
    making = asyncio.Lock()
    made: list[bytes] = []

    @app.get(SPECIFICATION)
    async def specification() -> Response:
        """Return the OpenAPI description of the server's routes."""
        async with making:
            if not made:
                made.append(await asyncio.to_thread(_as_json, app))
        return Response(made[0], media_type="application/json")

    @app.get(PAGE)
    async def description_page(request: Request) -> Response:
        """Return the page that shows the server's routes."""
        return files.page("docs.html", request)
