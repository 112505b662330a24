"""The request that follows a stream: which call gets another one, and what the others hear."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from twilio.request_validator import RequestValidator

from parley.core.grants import ClientIdentity
from parley.serving.gateway.app import add_error_answers
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.phone.call_links import CallLinks
from parley.serving.gateway.phone.caller_settings import ReconnectSettings, ReconnectTuning
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.serving.gateway.phone.routes import MOST_STORE_WAITS, PhoneRoutes
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.phone.tokens import TOKEN_S
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings
from parley.session_store.call_links import CallLink
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

TOKEN = "12345678901234567890123456789012"
PUBLIC = "https://talk.example.org"
CALL = PhoneCall("CA1", "+15550100", "+15550199", network="twilio")


class Gateway:
    """Routes of a gateway whose calls never come, over a real store."""

    def __init__(self, store: SessionStore, *, most_calls: int = 4, **settings: Any) -> None:
        reconnect = settings.setdefault("reconnect", ReconnectTuning(most=1))
        phone = PhoneRoutesSettings(public_url=PUBLIC, **settings)
        self.now_s = 0.0
        self.store, self.links = store, CallLinks(store, reconnect or ReconnectSettings())
        queue = CallQueue(CallQueueSettings(), lambda: 0.0)
        self.calls = CallTasks(self._hold, max_calls=most_calls, drain_s=0.0, hang_up_s=0.1, queue=queue)
        routes = PhoneRoutes(
            phone,
            ServerTuning(),
            calls=self.calls,
            check_body=self._check,
            default_mode="cascade",
            links=self.links,
            clock_s=lambda: self.now_s,
        )
        app = FastAPI()
        app.include_router(routes.router())
        add_error_answers(app)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PUBLIC)

    async def _hold(self, arguments: Any) -> None:
        raise AssertionError("no stream is opened")

    async def _check(self, _body: object, _identity: ClientIdentity) -> None:
        return None

    async def began(self, call: PhoneCall = CALL) -> None:
        """Begin a stream of the call in a session of its own."""
        await self.links.began(call, (await self.store.create()).id, "stream")

    async def began_again(self, holder: str) -> None:
        """Begin another stream of the call in its session."""
        link = await self.links.link_of(CALL)
        assert link is not None
        await self.links.began(CALL, link.session_id, holder)

    async def post(self, path: str, call: PhoneCall = CALL) -> ElementTree.Element:
        form = {"CallSid": call.call_sid, "From": call.caller, "To": call.called, "Direction": call.direction}
        signature = RequestValidator(TOKEN).compute_signature(f"{PUBLIC}{path}", form)
        answer = await self.client.post(path, data=form, headers={"X-Twilio-Signature": signature})
        assert answer.status_code == 200, answer.text
        return ElementTree.fromstring(answer.text)

    async def reconnect(self, call: PhoneCall = CALL) -> list[str]:
        """Return the verbs of the answer."""
        return [each.tag for each in await self.post("/twilio/reconnect", call)]


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", TOKEN)


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    yield opened
    await opened.close()


async def test_a_call_in_a_session_gets_another_stream_and_one_that_is_over_none(store: SessionStore):
    gateway = Gateway(store)
    assert await gateway.reconnect() == ["Hangup"]
    await gateway.began()
    assert await gateway.reconnect() == ["Connect", "Redirect"]
    await gateway.links.over(CALL, "stream")
    assert await gateway.reconnect() == ["Hangup"]


async def test_every_stream_is_followed_by_the_request(store: SessionStore):
    answer = await Gateway(store).post("/twilio/voice")
    assert answer.findtext("Redirect") == f"{PUBLIC}/twilio/reconnect"
    without = Gateway(store, reconnect=None)
    assert [each.tag for each in await without.post("/twilio/voice")] == ["Connect"]


async def test_a_call_whose_first_stream_twilio_could_not_open_is_offered_it_again_for_a_while(
    store: SessionStore,
):
    gateway = Gateway(store)
    stream = (await gateway.post("/twilio/voice")).find("Connect/Stream")
    assert stream is not None
    answer = await gateway.post("/twilio/reconnect")
    assert [each.tag for each in answer] == ["Pause", "Redirect"]
    assert answer.findtext("Redirect") == f"{PUBLIC}/twilio/voice"
    again = (await gateway.post("/twilio/voice")).find("Connect/Stream")
    assert again is not None and again.attrib["url"] == stream.attrib["url"]
    gateway.now_s += TOKEN_S
    assert await gateway.reconnect() == ["Hangup"]


@pytest.mark.parametrize("person", [None, "+15550123"])
async def test_a_call_that_keeps_losing_its_stream_ends_with_words(store: SessionStore, person: str | None):
    gateway = Gateway(store, transfer_to=person, number="+15550199")
    await gateway.began()
    # The network repeats a request whose answer it did not get.
    for _ in range(3):
        assert (await gateway.reconnect())[0] == "Connect"
    await gateway.began_again("second")
    answer = await gateway.post("/twilio/reconnect")
    assert answer.findtext("Say") == ReconnectSettings().apology
    assert answer.findtext("Dial/Number") == person
    assert (answer.find("Hangup") is None) is (person is not None)


async def test_a_call_for_which_there_is_no_line_waits_for_one_and_keeps_its_session(store: SessionStore):
    gateway = Gateway(store, most_calls=1)
    await gateway.began()
    other = replace(CALL, call_sid="CA2")
    assert (await gateway.post("/twilio/voice", other)).find("Connect") is not None
    answer = await gateway.post("/twilio/reconnect")
    assert "number 1 in the queue" in (answer.findtext("Say") or "")
    # It asks again here and not for a call that begins; and the wait is no reconnection.
    assert answer.findtext("Redirect") == f"{PUBLIC}/twilio/reconnect"
    link = await gateway.links.link_of(CALL)
    assert link is not None and await gateway.links.take(CALL, CallLink(link.session_id, "other"))


async def close_calls(gateway: Gateway) -> None:
    async def hang_up_all() -> None:
        return None

    await gateway.calls.close(hang_up_all)


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_a_call_waits_a_minute_for_a_store_or_for_the_next_server(
    store: SessionStore, is_stopping: bool
):
    gateway = Gateway(store)
    await gateway.began()
    await (close_calls(gateway) if is_stopping else store.close())
    path, waits = "/twilio/reconnect", 0
    while (redirect := (answer := await gateway.post(path)).findtext("Redirect")) is not None:
        path, waits = redirect.removeprefix(PUBLIC), waits + 1
        assert waits <= MOST_STORE_WAITS
    assert waits == MOST_STORE_WAITS and answer.find("Hangup") is not None


async def test_a_call_of_ours_is_passed_on_under_our_number(store: SessionStore):
    ours = replace(CALL, caller="+15550199", called="+15550100", direction="outbound")
    gateway = Gateway(store, transfer_to="+15550123", reconnect=ReconnectTuning(most=1))
    await gateway.began(ours)
    link = await gateway.links.link_of(ours)
    assert link is not None
    await gateway.links.take(ours, CallLink(link.session_id, "earlier"))
    form = {"direction": "outbound-api"}
    answer = await gateway.post("/twilio/reconnect", replace(ours, **form))
    assert answer.find("Dial").attrib["callerId"] == "+15550199"  # type: ignore[union-attr]
