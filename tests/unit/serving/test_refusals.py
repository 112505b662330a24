"""Form of the refusals: a status and ``{"error": "why"}`` on all of Parley's own routes."""

from pathlib import Path

import pytest

from tests.peers.session_gateway import Turns, application, client_of

NOWHERE = "/api/sessions/00000000-0000-4000-8000-000000000000"


async def test_every_part_of_the_gateway_refuses_in_one_form(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), allowed_hosts=["localhost"]) as (app, _),
        client_of(app) as client,
    ):
        for method, path, content, status, why in (
            ("GET", "/nothing/here", None, 404, "Not Found"),
            ("PUT", "/api/sessions", None, 405, "Method Not Allowed"),
            ("GET", "/shared/nothing.js", None, 404, "Not Found"),
            ("GET", "/api/sessions", None, 403, "for the operator"),
            ("GET", f"{NOWHERE}/timeline?limit=many", None, 422, "query.limit"),
            ("GET", NOWHERE, None, 404, "00000000"),
            ("GET", "/api/sessions/wrong", None, 404, "no such session"),
            ("POST", "/api/offer", b"{", 400, "not JSON"),
            ("POST", "/api/offer", b"x" * 300_000, 413, "body over"),
            ("POST", "/sessions/none/api/offer", b"{}", 404, "POST /start first"),
            ("POST", "/api/token", b"{}", 404, "no token is needed here"),
        ):
            refused = await client.request(method, path, content=content)
            assert refused.status_code == status, (path, refused.text)
            assert list(refused.json()) == ["error"] and why in refused.json()["error"], refused.text
        refused = await client.get("/health", headers={"host": "elsewhere.example"})
        assert refused.status_code == 403 and list(refused.json()) == ["error"]


async def test_the_routes_of_openai_refuse_in_its_form(tmp_path: Path):
    async with application(tmp_path, Turns(), modes=["cascade"]) as (app, _), client_of(app) as client:
        for path, status in (
            ("/v1/chat/completions", 400),
            ("/v1/realtime/client_secrets", 404),
            ("/v1/chat/none", 404),
        ):
            refused = await client.post(path, json=[])
            assert refused.status_code == status
            assert set(refused.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("content", "kind", "why"),
    [
        (b'{"tenant": "acme"}', "application/json", "body.tenant: Extra inputs are not permitted"),
        (b'"hello"', "application/json", "body: Input should be a valid dictionary"),
        (b"[1]", "application/json", "body: Input should be a valid dictionary"),
        (b"{", "application/json", "JSON decode error"),
        (b"{}", "text/plain", "body: expected JSON with the header Content-Type: application/json, not text"),
    ],
)
async def test_the_body_of_a_new_session_is_checked(tmp_path: Path, content: bytes, kind: str, why: str):
    async with application(tmp_path, Turns()) as (app, store), client_of(app) as client:
        headers = {"content-type": kind}
        refused = await client.post("/api/sessions", content=content, headers=headers)
        assert refused.status_code == 422 and why in refused.json()["error"]
        assert await store.sessions(limit=1, before=None) == []


async def test_a_new_session_needs_no_body(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, _), client_of(app) as client:
        assert (await client.post("/api/sessions")).status_code == 201
        assert (await client.post("/api/sessions", json={})).status_code == 201
        headers = {"content-type": "application/json"}
        assert (await client.post("/api/sessions", content=b"null", headers=headers)).status_code == 201
