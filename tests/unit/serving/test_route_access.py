"""Access to every route: the table and the application agree."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from parley.core.speech_formats import SpeechFormat
from parley.pipelines.call_recording import CallRecordings
from parley.pipelines.live_annotations import LiveAnnotations
from parley.protocols.openai_http import RecordingText
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.auth_failures import AuthFailures
from parley.serving.gateway.auth.route_access import (
    CREDENTIALS,
    ROUTES,
    SOCKET,
    Audience,
    Credential,
    UndeclaredRouteError,
    check_declared,
    declared,
    permits,
)
from parley.serving.gateway.phone.call_manager import CallManager
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.phone.caller_settings import CallCodeSettings, RelaySettings
from parley.serving.gateway.phone.carriers import CARRIERS
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.replays.jobs import ReplayJobs
from parley.serving.gateway.session_api import TurnEvent
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.webrtc.signaling import Signaling
from tests.peers.operations_gateway import TOKEN
from tests.peers.session_gateway import client_of, no_call

KEY, OTHER = "k" * 32, "o" * 32
PUBLIC = "https://talk.example.org"
# Headers that proxies on this machine add to a stranger's request; none of them may make a difference.
PROXIES: dict[str, dict[str, str]] = {
    "none": {},
    "tcp tunnel or tls terminator": {"host": "talk.example.org"},
    "nginx proxy_pass": {"host": "127.0.0.1:7860", "connection": "close"},
    "node http-proxy": {"host": "localhost:7860"},
    "forwarding": {"host": "talk.example.org", "x-forwarded-for": "203.0.113.7", "via": "1.1 proxy"},
}
REFUSED = (401, 403)
# A call without a proxy, and through the proxy that changes most, in every run.
ALL_PROXIES = [
    name if name in ("none", "nginx proxy_pass") else pytest.param(name, marks=pytest.mark.slow)
    for name in PROXIES
]


def set_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the secrets of every telephone carrier."""
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", "t" * 32)
    for name in CARRIERS:
        for variable in CARRIERS.row(name).env:
            monkeypatch.setenv(variable, base64.b64encode(bytes(32)).decode())


async def _spoken(_text: str, _kind: SpeechFormat) -> AsyncGenerator[bytes, None]:
    yield b"speech"


async def _transcribed(_pcm: bytes) -> RecordingText:
    return RecordingText("words", (), 1.0, "en")


async def _typed(_session: str, _text: str, **_: object) -> AsyncGenerator[TurnEvent, None]:
    yield TurnEvent("done", {})


async def whole(folder: Path, store: SessionStore) -> FastAPI:
    """Return an application with every surface."""
    phone = PhoneRoutesSettings(
        public_url=PUBLIC,
        number="+15550199",
        call_codes=CallCodeSettings(),
        carriers=CARRIERS.names(),
        relay=RelaySettings(),
    )
    conversations = Conversations(store, compactor=Compactor())
    return create_app(
        ServerTuning(sessions_per_minute=10_000),
        run_call=no_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
        conversations=conversations,
        type_turn=_typed,
        speak=_spoken,
        transcribe=_transcribed,
        annotations=LiveAnnotations(),
        recordings=CallRecordings(RecordingSettings(folder=folder), "embedded"),
        replays=ReplayJobs(str),
        modes=("cascade", "duplex"),
        operations=Operations.open(OperationsSettings(data_dir=folder), pool=None),
        phone=phone,
        desk=CallManager(None),
        book=CallerDirectory(store, None, phone.call_codes, number=phone.number),
        operator_token=TOKEN,
        auth_failures=AuthFailures(clients=1, longest_s=0.0),
    )


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    opened = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    yield opened
    await opened.close()


async def test_every_route_is_in_the_table_and_every_line_is_a_route(
    tmp_path: Path, store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    set_secrets(monkeypatch)
    app = await whole(tmp_path, store)
    assert [(each.method, each.path) for each in declared(app)] == list(ROUTES)


async def test_a_route_that_no_one_declared_is_refused(
    tmp_path: Path, store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    set_secrets(monkeypatch)
    app = await whole(tmp_path, store)

    @app.get("/api/debug")
    async def debug() -> None: ...

    with pytest.raises(UndeclaredRouteError, match="GET /api/debug"):
        check_declared(app)


async def test_an_operators_route_that_does_not_ask_is_refused(
    tmp_path: Path, store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    set_secrets(monkeypatch)
    app = await whole(tmp_path, store)
    monkeypatch.setitem(ROUTES, ("GET", "/status"), Audience.OPERATOR)
    with pytest.raises(UndeclaredRouteError, match="GET /status"):
        check_declared(app)


def has_session(template: str) -> bool:
    return template.startswith("/api/") and "{session_id}" in template


def path_of(template: str) -> str:
    """Return a path with nothing that exists in it, but for the place of a session."""
    path = template
    for name in ("mode", "preset_id", "ticket_id", "token", "call_sid", "app_id", "voice_id"):
        path = path.replace(f"{{{name}}}", "none")
    return path


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("proxy", ALL_PROXIES)
async def test_the_application_admits_as_the_table_says(
    tmp_path: Path, store: SessionStore, monkeypatch: pytest.MonkeyPatch, keys: bool, proxy: str
):
    set_secrets(monkeypatch)
    monkeypatch.delenv("PARLEY_ADMIN_TOKEN", raising=False)
    if keys:
        monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY},{OTHER}")
    else:
        monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    app = await whole(tmp_path, store)
    wrong = []
    async with client_of(app) as client:
        for each in declared(app):
            if each.method == SOCKET or each.path.endswith("/events"):
                # An event stream is endless, and depends on concurrent requests.
                continue
            session = "none"
            for credential in CREDENTIALS:
                # New ones for each request: tokens are spent, sessions are deleted, other limits are used up.
                client.cookies.clear()
                if has_session(each.path) and (session == "none" or each.method != "GET"):
                    # One that is only read serves all credentials.
                    session = await session_for(client, keys=keys)
                shown = await credential_of(client, credential, keys=keys)
                client.cookies.clear()
                headers = {**PROXIES[proxy], **({"authorization": f"Bearer {shown}"} if shown else {})}
                path = path_of(each.path).replace("{session_id}", session)
                answer = await asked(client, each.method, path, headers)
                # Without keys there is no route for tokens.
                absent = (404,) if each.audience is Audience.APPLICATION else ()
                admitted = answer.status_code not in (*REFUSED, *absent)
                if each.path == "/api/admin/session" and each.method == "POST":
                    # The route compares the value in its body.
                    continue
                if each.path == "/api/client" and credential in ("key", "other key", "operator") and keys:
                    assert answer.status_code == 400
                if admitted != permits(each.audience, credential, keys=keys):
                    wrong.append((each.method, each.path, credential, answer.status_code))
    assert wrong == []


async def token_of(client: httpx.AsyncClient, user: str) -> str:
    bearer = {"authorization": f"Bearer {KEY}"}
    return str((await client.post("/api/token", json={"user": user}, headers=bearer)).json()["token"])


async def session_for(client: httpx.AsyncClient, *, keys: bool) -> str:
    """Return a new session; with keys it is that of the user whose token the credential ``token`` is."""
    headers = {"authorization": f"Bearer {await token_of(client, 'ann')}"} if keys else {}
    return str((await client.post("/api/sessions", headers=headers)).json()["id"])


async def credential_of(client: httpx.AsyncClient, credential: Credential, *, keys: bool) -> str:
    """Return what a client sends as its credential."""
    if not keys:
        return {"none": "", "operator": TOKEN}.get(credential, "x" * 32)
    known = {"none": "", "wrong": "x" * 32, "key": KEY, "other key": OTHER, "operator": TOKEN}
    shown = known.get(credential)
    return await token_of(client, "ann" if credential == "token" else "bob") if shown is None else shown


async def asked(client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    body = {"json": {"text": "hello"}} if path.endswith("/messages") else {}
    return await client.request(method, path, headers=headers, **body)  # type: ignore[arg-type]
