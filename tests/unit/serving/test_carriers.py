"""Webhooks of telephone carriers: only the carrier opens a call, once, and only with its own token."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from parley.core.errors import ConfigError
from parley.core.grants import ClientIdentity
from parley.serving.gateway.app import add_error_answers
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.phone.call_manager import CallManager
from parley.serving.gateway.phone.carriers import CARRIERS
from parley.serving.gateway.phone.carriers.twilio_relay import RELAY
from parley.serving.gateway.phone.routes import PhoneArguments, PhoneRoutes
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings
from parley.transports.registry import TRANSPORTS
from tests.carriers import (
    CALLED,
    CALLER,
    NETWORKS,
    PUBLIC,
    Exotel,
    Network,
    Plivo,
    Telnyx,
    Vonage,
    Webhook,
    environment,
    text64,
)
from tests.unit.serving.test_call_manager import Posts

each = pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.name)
OTHERS = tuple(name for name in CARRIERS if name != "twilio")


class Gateway:
    """Routes of phone calls whose conversations last until their caller has left."""

    def __init__(self, *, most_calls: int = 2, desk: CallManager | None = None, **settings: Any) -> None:
        self.now_s = 100.0
        self.calls: list[PhoneArguments] = []
        given: dict[str, Any] = {"public_url": PUBLIC, "carriers": OTHERS, **settings}
        queue = CallQueue(CallQueueSettings(), lambda: self.now_s)
        routes = PhoneRoutes(
            PhoneRoutesSettings(**given),
            ServerTuning(),
            calls=CallTasks(self._hold, max_calls=most_calls, drain_s=0.0, hang_up_s=0.1, queue=queue),
            check_body=self._check,
            default_mode="cascade",
            desk=desk,
            clock_s=lambda: self.now_s,
        )
        app = FastAPI()
        app.include_router(routes.router())
        add_error_answers(app)
        self.client = TestClient(app)

    async def _check(self, _body: Mapping[str, object], _identity: ClientIdentity) -> None: ...

    async def _hold(self, arguments: Any) -> None:
        self.calls.append(arguments)
        while (await arguments.websocket.receive())["type"] != "websocket.disconnect":
            pass

    def ask(self, webhook: Webhook) -> httpx.Response:
        return self.client.request(
            webhook.method, webhook.path, content=webhook.body, headers=webhook.headers
        )

    def path_of(self, network: Network) -> str:
        """Return the path at which the stream of a call is opened."""
        address = network.media_url(self.ask(network.webhook()))
        assert address.startswith(f"wss://talk.example.org/{network.name}/media/")
        return address.removeprefix("wss://talk.example.org")

    def is_refused(self, path: str) -> bool:
        try:
            with self.client.websocket_connect(path):
                return False
        except (WebSocketDisconnect, RuntimeError):
            return True


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


def test_each_telephone_network_is_a_row_of_both_registries():
    rows = {row.name: row for row in TRANSPORTS.rows() if row.capabilities.is_phone}
    # Calls as text have no media stream: their webhook is an addition to those of Twilio.
    assert set(rows) == {*CARRIERS, RELAY}
    assert [name for name, row in rows.items() if not row.capabilities.audio] == [RELAY]
    for name, row in rows.items():
        assert row.env == (() if name == RELAY else CARRIERS.row(name).env)
        assert row.routes == (f"/{name}/media/{{token}}",)


@each
def test_a_signed_webhook_opens_one_call_of_the_caller_it_names(kind: type[Network]):
    gateway, network = Gateway(), kind()
    path = gateway.path_of(network)
    # A repeated request is the same call.
    assert gateway.path_of(network) == path
    with gateway.client.websocket_connect(path):
        assert gateway.is_refused(path)
    [call] = [arguments.phone for arguments in gateway.calls]
    assert (call.call_sid, call.caller, call.called) == (network.call_id, CALLER, CALLED)
    assert (call.network, call.direction) == (network.name, "inbound")
    # After the stream was opened, a recorded webhook opens nothing.
    answer = gateway.ask(network.webhook())
    assert "media" not in answer.text


@each
def test_an_account_of_twilio_does_nothing_with_the_calls_of_others(kind: type[Network]):
    gateway = Gateway(desk=CallManager(Posts()))
    with gateway.client.websocket_connect(gateway.path_of(kind())):
        pass
    assert not gateway.calls[0].desk.can_call


def forged(webhook: Webhook) -> list[Webhook]:
    """Return the webhooks that a stranger can make with or without a recorded one."""
    unsigned = {name: value for name, value in webhook.headers.items() if name == "content-type"}
    changed = {
        name: value
        if name in ("content-type", "telnyx-timestamp", "x-plivo-signature-v3-nonce")
        else value[::-1]
        for name, value in webhook.headers.items()
    }
    other = replace(
        webhook,
        body=webhook.body.replace(b"call-1", b"call-2"),
        path=webhook.path.replace("call-1", "call-2"),
    )
    tries = [replace(webhook, headers=unsigned), replace(webhook, headers=changed)]
    # Exotel signs nothing: the password permits a request about any call.
    return tries if "authorization" in webhook.headers and not webhook.body else [*tries, other]


@each
def test_a_stranger_opens_no_call(kind: type[Network]):
    gateway = Gateway()
    for webhook in forged(kind().webhook()):
        answer = gateway.ask(webhook)
        assert answer.status_code == 403 and "media" not in answer.text, webhook
    assert not gateway.calls


@pytest.mark.parametrize("kind", [Telnyx, Vonage])
@pytest.mark.parametrize(("late_s", "taken"), [(290, True), (310, False), (-310, False)])
def test_a_webhook_that_was_recorded_is_good_for_five_minutes(kind: type[Network], late_s: int, taken: bool):
    answer = Gateway().ask(kind().webhook(wall_s=time.time() - late_s))
    assert answer.status_code == (200 if taken else 403)


@each
def test_a_token_is_of_its_network_and_expires(kind: type[Network]):
    gateway, network = Gateway(), kind()
    path = gateway.path_of(network)
    other = next(name for name in OTHERS if name != network.name)
    assert gateway.is_refused(path.replace(f"/{network.name}/", f"/{other}/"))
    assert gateway.is_refused(f"/{network.name}/media/{'x' * 43}")
    gateway.now_s += 31
    assert gateway.is_refused(path) and not gateway.calls


@each
def test_a_call_without_a_name_is_refused(kind: type[Network]):
    answer = Gateway().ask(kind(call_id="").webhook())
    assert answer.status_code == 400


@pytest.mark.parametrize("kind", [Telnyx, Plivo])
def test_a_caller_for_whom_there_is_no_line_waits_where_the_network_asks_again(kind: type[Network]):
    gateway = Gateway(most_calls=1)
    gateway.path_of(kind("call-1"))
    answer = ElementTree.fromstring(gateway.ask(kind("call-2").webhook()).text)
    assert "You are number 1" in (answer.findtext("Say") or answer.findtext("Speak") or "")
    assert answer.findtext("Redirect") == f"{PUBLIC}/{kind.name}/voice"


@pytest.mark.parametrize("kind", [Vonage, Exotel])
def test_a_caller_for_whom_there_is_no_line_is_told_where_no_one_can_wait(kind: type[Network]):
    gateway = Gateway(most_calls=1)
    gateway.path_of(kind("call-1"))
    answer = gateway.ask(kind("call-2").webhook())
    if kind is Vonage:
        assert answer.json() == [{"action": "talk", "text": "All lines are busy. Please call again later."}]
    else:
        assert answer.status_code == 503


@pytest.mark.parametrize("attested", [True, False])
def test_what_telnyx_says_of_a_number_counts_only_when_it_was_validated(attested: bool):
    gateway, network = Gateway(carriers=("telnyx",), signatures=False, public_url=None), Telnyx()
    body = network.webhook().body + b"&ShakenStirAttestation=A&ShakenStirValidated="
    webhook = replace(network.webhook(), body=body + str(attested).lower().encode())
    path = network.media_url(gateway.ask(webhook)).partition("testserver")[2]
    with gateway.client.websocket_connect(path):
        pass
    assert gateway.calls[0].phone.verstat == ("TN-Validation-Passed-A" if attested else "")


@pytest.mark.parametrize(
    ("alg", "secret", "more"),
    [("none", "v" * 32, {}), ("HS256", "w" * 32, {}), ("HS256", "v" * 32, {"payload_hash": "0" * 64})],
)
def test_a_token_of_another_algorithm_secret_or_body_opens_nothing(
    alg: str, secret: str, more: dict[str, Any]
):
    webhook = Vonage().webhook()
    claims = {"iat": int(time.time()), "payload_hash": "", **more}
    token = Vonage.token(claims, alg=alg, secret=secret)
    headers = {**webhook.headers, "authorization": f"Bearer {token}"}
    assert Gateway().ask(replace(webhook, headers=headers)).status_code == 403


@pytest.mark.parametrize(
    "authorization", ["", "Basic", "Basic ***", "Bearer x", f"Basic {text64(b'exotel:')}"]
)
def test_a_wrong_password_opens_nothing(authorization: str):
    webhook = replace(Exotel().webhook(), headers={"authorization": authorization})
    assert Gateway().ask(webhook).status_code == 403


@pytest.mark.parametrize("name", OTHERS)
def test_a_network_without_its_secret_is_named_with_its_variable(name: str, monkeypatch: pytest.MonkeyPatch):
    variable = CARRIERS.row(name).env[0]
    monkeypatch.delenv(variable)
    with pytest.raises(ConfigError, match=f"phone.carriers: {name} needs {variable} in the environment"):
        Gateway(carriers=(name,))


def test_a_key_that_is_none_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TELNYX_PUBLIC_KEY", "no key")
    with pytest.raises(ConfigError, match="TELNYX_PUBLIC_KEY is not an Ed25519 public key"):
        Gateway(carriers=("telnyx",))


@pytest.mark.parametrize("carriers", [("pigeon",), (), ("plivo", "plivo")])
def test_networks_that_are_unknown_none_or_twice_are_refused(carriers: tuple[str, ...]):
    with pytest.raises(ValidationError):
        PhoneRoutesSettings(public_url=PUBLIC, carriers=carriers)
