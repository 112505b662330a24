"""Write docs/reference/api.md: every route and socket of the server, read from the application itself.

Run by hand after a route, its docstring or a model of a body has changed: ``python -m
scripts.write_api_reference``. Who may use a route is read from ``serving.gateway.auth.route_access``.
"""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Mount

from parley.configs.describe import as_markdown, described, plain, settings_of
from parley.evals.abuse.routes import application
from parley.serving.gateway.api_description import SECTIONS, section_of
from parley.serving.gateway.auth.route_access import ROUTES, SOCKET, routes_of
from parley.serving.gateway.reference_voices.voices_api import Upload
from parley.transports.webrtc.signaling import CandidatesRequest, OfferRequest

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api.md"
HEAD = """# HTTP and WebSocket API

Every route and socket of a server on which everything is switched on, generated from the application by
`python -m scripts.write_api_reference`; a test checks that it is current. A server has the routes of what its
deployment switches on (`GET /status` lists its sockets).

*Who* is an audience of [operations.md](../how-to/operations.md#who-may-call-what);
[exposure.md](exposure.md) shows which credential each accepts. A refusal is a status and `{"error": "why"}`
([serving.md](serving.md#refusals)), also of a socket before it is open. Bounds, and the sessions API in
detail: [serving.md](serving.md).
"""
# Bodies that a route reads itself, bounded while they arrive.
OWN_BODIES: Mapping[str, type[BaseModel] | str] = {
    "POST /start": "JSON: `transport`, `body` ([fields of a call](serving.md#fields-of-a-call))",
    "POST /api/offer": OfferRequest,
    "PATCH /api/offer": CandidatesRequest,
    "POST /sessions/{session_id}/api/offer": OfferRequest,
    "PATCH /sessions/{session_id}/api/offer": CandidatesRequest,
    "POST /api/sessions/import": "JSON lines of an export",
    "POST /v1/realtime/calls": "SDP, or a form with `sdp` and `session` "
    "([openai_realtime.md](openai_realtime.md#calls-over-webrtc))",
    "POST /api/sessions/{session_id}/upload-recording": "multipart form with a `file` "
    "([chat_sockets.md](chat_sockets.md#save-and-share))",
    "POST /api/chat": "JSON: a request of `/ws/chat` ([chat_sockets.md](chat_sockets.md#post-apichat))",
    "POST /api/assets/ref_audio": Upload,
}
# Documents of the protocols that sockets speak.
PROTOCOLS: Mapping[str, str] = {
    "/api/sessions/": "[`AnnotationBatch`](#annotationbatch), "
    "[outside_specialists.md](../how-to/outside_specialists.md)",
    "/v1/realtime": "[openai_realtime.md](openai_realtime.md), [sockets.md](sockets.md)",
    "/ws/duplex/": "[sockets.md](sockets.md)",
    "/ws/": "[chat_sockets.md](chat_sockets.md)",
    "/ws": "Pipecat's own",
    "/": "[phone.md](phone.md)",
}


def written() -> str:
    """Return the document."""
    routes = {(method, path): route for method, path, route in routes_of(application().routes)}
    sections: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
    # In the order of the table of audiences.
    for method, path in (each for each in ROUTES if each in routes):
        sections[section_of(path)].append((method, path))
    parts = [HEAD]
    for title, names in sections.items():
        parts.append(f"## {title}\n\n{_table(names, routes)}\n")
        parts += (f"{_fields(model)}\n" for model in dict.fromkeys(_models(names, routes)))
    return "\n".join(parts)


def _table(names: Iterable[tuple[str, str]], routes: Mapping[tuple[str, str], Any]) -> str:
    lines = ["| route | who | what it does | input |", "|---|---|---|---|"]
    for method, path in names:
        route = routes[method, path]
        who = ROUTES[method, path].value
        lines.append(f"| `{method} {path}` | {who} | {summary(route)} | {_input(method, path, route)} |")
    return "\n".join(lines)


def summary(route: Any) -> str:
    """Return the first line of the docstring of a route's function.

    Raises:
        LookupError: the function has no docstring.
    """
    if isinstance(route, Mount):
        return "Files of the pages."
    endpoint: Callable[..., object] = route.endpoint
    while isinstance(endpoint, functools.partial):
        endpoint = endpoint.func
    text = inspect.getdoc(endpoint)
    if not text:
        raise LookupError(
            f"{route.path}: {endpoint.__qualname__} has no docstring, the text of its reference"
        )
    return as_markdown(text.partition("\n")[0])


def _input(method: str, path: str, route: Any) -> str:
    if method == SOCKET:
        return _protocol(path)
    if not isinstance(route, APIRoute):
        return ""
    words = [f"`?{each.alias}`" for each in route.dependant.query_params]
    words += [f"header `{each.alias}`" for each in route.dependant.header_params]
    body = _body(method, path, route)
    if isinstance(body, str):
        words.append(body)
    elif body is not None:
        words.append(f"[`{body.__name__}`](#{body.__name__.lower()})")
    elif path.startswith(SECTIONS["Phone"]) and not path.endswith("{call_sid}"):
        words.append("the network's webhook ([phone.md](phone.md))")
    return ", ".join(words)


def _protocol(path: str) -> str:
    return PROTOCOLS[next(begins for begins in PROTOCOLS if path.startswith(begins))]


def _models(
    names: Iterable[tuple[str, str]], routes: Mapping[tuple[str, str], Any]
) -> Iterator[type[BaseModel]]:
    for name in names:
        body = _body(*name, routes[name])
        if body is not None and not isinstance(body, str):
            yield body
            for field in body.model_fields.values():
                if len(forms := list(_forms(field.annotation))) > 1:
                    yield from forms


def _forms(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in the type of a field: several where its value has several forms."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _forms(part)


def _body(method: str, path: str, route: Any) -> type[BaseModel] | str | None:
    """Return the model of a route's body, or its description."""
    field = route.body_field if isinstance(route, APIRoute) else None
    if field is None:
        return OWN_BODIES.get(f"{method} {path}")
    annotation = field.field_info.annotation
    return next(
        each
        for each in (annotation, *get_args(annotation))
        if isinstance(each, type) and issubclass(each, BaseModel)
    )


def _fields(model: type[BaseModel]) -> str:
    lines = [f"### {model.__name__}", "", described(model)]
    if model.model_fields:
        lines += ["", "| field | type | default |", "|---|---|---|"]
    for field in settings_of(model):
        name = model.model_fields[field.name].alias or field.name
        inside = (
            "" if field.group is None else f"of {', '.join(f'`{each}`' for each in field.group.model_fields)}"
        )
        facts = "; ".join(filter(None, (field.kind, inside, field.bounds, field.unit, field.description)))
        default = "required" if field.is_required else f"`{json.dumps(plain(field.default))}`"
        lines.append(f"| `{name}` | {facts} | {default} |")
    return "\n".join(lines)


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")
