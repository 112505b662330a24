"""The OpenAPI description of the routes, and its page."""

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openapi_spec_validator import validate
from pydantic import BaseModel
from starlette.routing import Mount

from parley.evals.abuse.routes import application
from parley.serving.gateway.api_description import OWN_BODIES, describe_routes, serve_description
from parley.serving.gateway.auth.route_access import ROUTES, SOCKET, routes_of
from parley.serving.gateway.page_files import page_files
from parley.transports.webrtc.signaling import CandidatesRequest, OfferRequest


def test_every_route_and_socket_is_described_with_who_may_use_it() -> None:
    app = application()
    described = describe_routes(app)
    names = {
        (method, path)
        for method, path, route in routes_of(app.routes)
        if method != SOCKET and not isinstance(route, Mount)
    }
    operations = {
        (method.upper(), path): operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == names
    assert set(OWN_BODIES) <= names
    for name, operation in operations.items():
        assert operation["x-audience"] == ROUTES[name].value
        assert operation["summary"] and operation["tags"]
        assert operation["responses"]["default"]
    sockets = {path for method, path, _ in routes_of(app.routes) if method == SOCKET}
    assert {each["path"] for each in described["x-sockets"]} == sockets


def test_the_description_is_valid_openapi_and_names_no_answer_that_never_comes() -> None:
    described = describe_routes(application())
    validate(described)
    # FastAPI describes its own form of refusals, which no route here has.
    assert "HTTPValidationError" not in json.dumps(described)


async def test_any_client_reads_the_description_and_the_page() -> None:
    app = FastAPI(openapi_url=None, docs_url=None)
    serve_description(app, page_files())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        first, again = [await client.get("/openapi.json") for _ in range(2)]
        assert first.json()["openapi"].startswith("3.1") and first.content == again.content
        page = await client.get("/docs")
    assert page.status_code == 200 and "/shared/docs.js" in page.text


@pytest.mark.parametrize(("method", "model"), [("POST", OfferRequest), ("PATCH", CandidatesRequest)])
def test_the_bodies_of_webrtc_are_those_that_are_read(method: str, model: type[BaseModel]) -> None:
    def shape(schema: dict[str, Any]) -> tuple[set[str], set[str]]:
        return set(schema["properties"]), set(schema["required"])

    read = model.model_json_schema()
    for path in ("/api/offer", "/sessions/{session_id}/api/offer"):
        described = OWN_BODIES[method, path][1]
        assert shape(described) == shape(read)
        for inner in read.get("$defs", {}).values():
            assert shape(described["properties"]["candidates"]["items"]) == shape(inner)
