"""Webhooks and streams of telephone calls: who gets a line, and who gets none."""

import asyncio
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from twilio.request_validator import RequestValidator

from core.errors import ConfigError, StoreError
from serving.gateway.calls import CallTasks
from serving.gateway.phone_routes import PhoneArguments, PhoneRoutes
from serving.gateway.phone_settings import PhoneRoutesSettings
from serving.gateway.settings import ServerSettings

TOKEN = "12345678901234567890123456789012"
PUBLIC = "https://talk.example.org"


class Line:
    """Routes of telephone calls with conversations that last until their caller is gone."""

    def __init__(self, *, most_calls: int = 2, **settings: Any) -> None:
        self.now_s = 100.0
        self.calls: list[PhoneArguments] = []
        self.is_store_away = False
        given = {"public_url": PUBLIC, **settings}
        self.routes = PhoneRoutes(
            PhoneRoutesSettings(**given),
            ServerSettings(),
            calls=CallTasks(self._hold, max_calls=most_calls, drain_s=0.0, hang_up_s=0.1),
            check_body=self._check,
            default_mode="cascade",
            clock_s=lambda: self.now_s,
        )
        app = FastAPI()
        app.include_router(self.routes.router())
        self.client = TestClient(app)

    async def _check(self, _body: Mapping[str, object]) -> None:
        if self.is_store_away:
            raise StoreError("the store is away")

    async def _hold(self, arguments: Any) -> None:
        self.calls.append(arguments)
        while (await arguments.websocket.receive())["type"] != "websocket.disconnect":
            pass

    def voice(self, call_sid: str, *, secret: str = TOKEN) -> httpx.Response:
        form = {"CallSid": call_sid, "From": "+15550100", "To": "+15550199"}
        signature = RequestValidator(secret).compute_signature(f"{PUBLIC}/twilio/voice", form)
        return self.client.post("/twilio/voice", data=form, headers={"X-Twilio-Signature": signature})

    def token(self, call_sid: str) -> str | None:
        """None: there is no stream for this call."""
        stream = ElementTree.fromstring(self.voice(call_sid).text).find("./Connect/Stream")
        return None if stream is None else stream.attrib["url"].rsplit("/", 1)[1]

    def open(self, token: str, *, secret: str = TOKEN) -> Any:
        address = f"wss://talk.example.org/twilio/media/{token}"
        signature = RequestValidator(secret).compute_signature(address, {})
        return self.client.websocket_connect(
            f"/twilio/media/{token}", headers={"X-Twilio-Signature": signature}
        )

    def is_refused(self, token: str, *, secret: str = TOKEN) -> bool:
        try:
            with self.open(token, secret=secret):
                return False
        except (WebSocketDisconnect, RuntimeError):
            return True


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", TOKEN)


def test_a_call_has_one_token_while_it_waits_and_none_behind_its_stream():
    line = Line()
    token = line.token("CA1")
    assert token is not None and line.token("CA1") == token and line.token("CA2") != token
    with line.open(token):
        pass
    assert line.is_refused(token)
    answer = line.voice("CA1")
    assert answer.status_code == 200 and ElementTree.fromstring(answer.text).find("Hangup") is not None
    assert [each.phone.call_sid for each in line.calls] == ["CA1"]


def test_a_call_that_was_answered_has_its_line():
    line = Line(most_calls=2)
    first, second = line.token("CA1"), line.token("CA2")
    assert first is not None and second is not None
    assert "busy" in line.voice("CA3").text
    # The same one asks again, and is not another one.
    assert line.token("CA1") == first
    # One that never comes gives its line back.
    line.now_s += 31
    assert line.token("CA3") is not None


def test_a_caller_for_whom_there_is_no_store_is_told_and_no_token_is_spent():
    line = Line(busy="Sorry.")
    token = line.token("CA1")
    line.is_store_away = True
    assert ElementTree.fromstring(line.voice("CA2").text).findtext("Say") == "Sorry."
    assert token is not None and line.is_refused(token) and not line.calls


def test_forged_signatures_and_tokens_open_nothing():
    line = Line()
    assert line.voice("CA1", secret="another").status_code == 403
    token = line.token("CA1")
    assert token is not None
    assert line.is_refused(token, secret="another") and line.is_refused("x" * 43)
    # Whoever has it and no signature has not used it up.
    with line.open(token):
        pass
    assert len(line.calls) == 1


def test_two_sockets_with_one_token_are_one_call():
    line = Line()
    token = line.token("CA1")
    assert token is not None
    with line.open(token):
        assert line.is_refused(token)
        assert len(line.calls) == 1


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("0.0.0.0", {"public_url": None}),
        ("10.0.0.1", {"public_url": None}),
        ("127.0.0.1", {"public_url": PUBLIC}),
    ],
)
def test_without_signatures_nobody_but_this_machine_may_ask(host: str, settings: dict[str, Any]):
    def make(host: str, settings: dict[str, Any]) -> PhoneRoutes:
        async def check(_body: Mapping[str, object]) -> None: ...

        async def hold(_arguments: Any) -> None:
            await asyncio.sleep(0)

        return PhoneRoutes(
            PhoneRoutesSettings(signatures=False, **settings),
            ServerSettings(host=host),
            calls=CallTasks(hold, max_calls=1, drain_s=0.0, hang_up_s=0.1),
            check_body=check,
            default_mode="cascade",
        )

    with pytest.raises(ConfigError, match="local run"):
        make(host, settings)
    make("127.0.0.1", {"public_url": None})


@pytest.mark.parametrize(
    "url", ["https://talk.example.org:x", "https://talk.example.org:99999", "ftp://a", "https://"]
)
def test_an_address_that_is_none_is_no_public_url(url: str):
    with pytest.raises(ValidationError):
        PhoneRoutesSettings(public_url=url)
