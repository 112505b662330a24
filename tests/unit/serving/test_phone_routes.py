"""Webhooks and streams of phone calls: the callers that get a line, and those that do not."""

import asyncio
import io
import time
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from loguru import logger
from pydantic import ValidationError
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from twilio.request_validator import RequestValidator

from parley.core.errors import CapacityError, ConfigError, StoreError
from parley.core.grants import ClientIdentity
from parley.protocols.twilio_signature import Algorithm, signature
from parley.serving.gateway.app import add_error_answers
from parley.serving.gateway.auth.tenants import TenantLimitError
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.phone.call_manager import CallManager
from parley.serving.gateway.phone.routes import TOKEN_S, PhoneArguments, PhoneRoutes
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.admission import Admitted
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings
from tests.unit.serving.test_call_manager import Posts

TOKEN = "12345678901234567890123456789012"
PUBLIC = "https://talk.example.org"


class Line:
    """Routes of phone calls with conversations that last until their caller has left."""

    def __init__(
        self,
        *,
        most_calls: int = 2,
        desk: CallManager | None = None,
        bounds: Any = None,
        token_s: float = TOKEN_S,
        **settings: Any,
    ) -> None:
        self.now_s = 100.0
        self.calls: list[PhoneArguments] = []
        self.is_store_away = self.is_used_up = False
        given = {"public_url": PUBLIC, "call_prefixes": ("+1555",), **settings}
        self.waiting = CallQueue(CallQueueSettings(**(bounds or {})), lambda: self.now_s)
        self.routes = PhoneRoutes(
            PhoneRoutesSettings(**given),
            ServerTuning(),
            calls=CallTasks(self._hold, max_calls=most_calls, drain_s=0.0, hang_up_s=0.1, queue=self.waiting),
            check_body=self._check,
            default_mode="cascade",
            desk=desk,
            check=self._operator,
            check_tenant=self._check_tenant,
            clock_s=lambda: self.now_s,
            token_s=token_s,
        )
        app = FastAPI()
        app.include_router(self.routes.router())
        add_error_answers(app)
        self.client = TestClient(app)

    async def _check(self, _body: Mapping[str, object], _identity: ClientIdentity) -> None:
        if self.is_store_away:
            raise StoreError("the store is away")

    async def _check_tenant(self) -> None:
        if self.is_used_up:
            raise TenantLimitError("others", "calls", 1, retry_s=1.0, frees="it is free when a call ends")

    async def _operator(self, request: Request) -> None:
        if request.headers.get("authorization") != "Bearer operator":
            raise HTTPException(401)

    async def _hold(self, arguments: Any) -> None:
        self.calls.append(arguments)
        while (await arguments.websocket.receive())["type"] != "websocket.disconnect":
            pass

    def post(self, path: str, form: dict[str, str], *, secret: str = TOKEN) -> httpx.Response:
        """Post a webhook."""
        signature = RequestValidator(secret).compute_signature(f"{PUBLIC}{path}", form)
        return self.client.post(path, data=form, headers={"X-Twilio-Signature": signature})

    def voice(self, call_sid: str, *, secret: str = TOKEN) -> httpx.Response:
        form = {"CallSid": call_sid, "From": "+15550100", "To": "+15550199"}
        return self.post("/twilio/voice", form, secret=secret)

    def begin(self, to: str = "+15550123") -> httpx.Response:
        """Place a call as an operator."""
        return self.client.post(
            "/twilio/calls", json={"to": to}, headers={"Authorization": "Bearer operator"}
        )

    def state(self, call_sid: str) -> httpx.Response:
        return self.client.get(f"/twilio/calls/{call_sid}", headers={"Authorization": "Bearer operator"})

    def post_state(self, call_sid: str, state: str) -> None:
        """Post Twilio's status of a call."""
        form = {"CallSid": call_sid, "CallStatus": state}
        assert self.post("/twilio/call-status", form).status_code == 204

    def token(self, call_sid: str) -> str | None:
        """Return the token of the call's stream; None: there is no stream for this call."""
        stream = ElementTree.fromstring(self.voice(call_sid).text).find("./Connect/Stream")
        return None if stream is None else stream.attrib["url"].rsplit("/", 1)[1]

    def held(self, call_sid: str) -> str | None:
        """Return the announcement to a caller who waits for a line; None: they do not wait."""
        answer = ElementTree.fromstring(self.voice(call_sid).text)
        if answer.find("Redirect") is None:
            return None
        assert answer.findtext("Redirect") == f"{PUBLIC}/twilio/voice"
        assert [each.tag for each in answer][-2:] == ["Pause", "Redirect"]
        return answer.findtext("Say") or ""

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


def queued(position: int) -> str:
    return f"All lines are busy. You are number {position} in the queue. Please hold."


async def nothing() -> None:
    pass


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", TOKEN)


def test_a_call_has_one_token_while_it_waits_and_none_after_its_stream():
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
    # The same call requests again, and is not another one.
    assert line.token("CA1") == first
    # A call that never comes returns its line.
    line.now_s += 31
    assert line.token("CA3") is not None


def test_a_caller_whom_the_machine_cannot_answer_in_time_waits_in_the_queue():
    line = Line(most_calls=8)
    admitted = [Admitted(1, "this machine hears 1 at once")]
    line.routes._calls.admitted = lambda _uses_recogniser: admitted[0]
    token = line.token("CA1")
    assert token is not None
    with line.open(token):
        assert [line.held("CA2"), line.held("CA3")] == [queued(1), queued(2)]
        # The machine was measured to be faster: the caller who waited has the line.
        admitted[0] = Admitted(2, "this machine hears 2 at once")
        assert line.token("CA2") is not None
        assert line.held("CA3") == queued(1)


def test_a_caller_for_whom_there_is_no_line_waits_for_one_and_no_one_overtakes_them():
    line = Line(most_calls=1)
    token = line.token("CA1")
    assert token is not None
    with line.open(token):
        assert [line.held("CA2"), line.held("CA3")] == [queued(1), queued(2)]
        for _ in range(5):
            line.now_s += 5
            assert line.held("CA2") == line.held("CA3") == ""
        # The line does not count as dead.
        line.now_s += 5
        assert line.held("CA2") == queued(1)
    wait_until(lambda: line.routes._calls.active == 0)
    # The line is the first caller's; later calls, earlier requests and browsers do not get it.
    with pytest.raises(CapacityError):
        line.routes._calls.check_room()
    assert line.held("CA4") == queued(3)
    assert line.held("CA3") == queued(2)
    token = line.token("CA2")
    assert token is not None and line.held("CA3") == queued(1)
    with line.open(token):
        # One hangs up, and of one no request comes any more.
        line.post_state("CA3", "completed")
        assert line.held("CA4") == queued(1)
        line.now_s += 36
        assert line.held("CA5") == queued(1)


def test_a_caller_who_was_removed_from_the_queue_hears_it_at_the_next_poll_and_does_not_queue_again():
    line = Line(most_calls=1)
    token = line.token("CA1")
    assert token is not None
    with line.open(token):
        assert [line.held("CA2"), line.held("CA3")] == [queued(1), queued(2)]
        [caller, _] = line.routes._calls.queued()
        assert (caller.ticket, caller.transport, caller.is_polled) == ("CA2", "phone", True)
        assert line.routes._calls.remove_queued("CA2", "an operator removed you from the queue")
        assert line.held("CA3") == queued(1)
    wait_until(lambda: line.routes._calls.active == 0)
    # The free line is the next caller's.
    form = {"CallSid": "CA2", "From": "+15550100", "To": "+15550199", "CallStatus": "in-progress"}
    for _ in range(2):
        answer = ElementTree.fromstring(line.post("/twilio/voice", form).text)
        assert [each.tag for each in answer] == ["Say", "Hangup"]
        assert "call again later" in (answer.findtext("Say") or "")
    assert line.token("CA3") is not None


def test_who_waits_is_not_sent_away_because_the_store_is():
    line = Line(most_calls=1, token_s=600)
    assert line.token("CA1") is not None and line.held("CA2") == queued(1)
    line.is_store_away = True
    assert line.held("CA2") == ""
    # A new caller is notified as before.
    assert line.held("CA3") is None
    line.is_store_away = False
    for _ in range(2):
        line.now_s += 12
        assert line.held("CA2") == ""
    line.now_s += 12
    assert line.held("CA2") == queued(1)
    # A long phrase does not move its listener to the end of the queue.
    line.now_s += 29
    assert line.held("CA4") == queued(2)
    line.now_s += 7
    assert line.held("CA2") is not None and line.held("CA4") is not None
    line.post_state("CA2", "completed")
    assert line.held("CA4") == queued(1)


def test_a_waiting_caller_whom_a_limit_of_the_tenant_refuses_holds_up_no_other():
    line = Line(most_calls=1, token_s=600)
    assert line.token("CA1") is not None
    assert [line.held("CA2"), line.held("CA3")] == [queued(1), queued(2)]
    line.is_used_up = True
    assert line.held("CA2") is None
    line.is_used_up = False
    assert line.held("CA3") == queued(1)


def test_a_call_without_an_id_gets_no_stream():
    line = Line()
    for form in ({"From": "+15550100", "To": "+15550199"}, {"CallSid": "", "From": "", "To": ""}):
        assert line.post("/twilio/voice", form).status_code == 400
    assert len(line.routes._tokens) == 0


def test_who_hangs_up_while_nothing_is_said_keeps_a_line_for_a_moment():
    line = Line(most_calls=1, token_s=600)
    assert line.token("CA1") is not None and line.held("CA2") == queued(1)
    line.now_s += 5
    assert line.held("CA2") == ""
    # Twilio's request comes again after 5 s, and takes a moment.
    line.now_s += 12
    assert line.held("CA3") == queued(2)
    line.now_s += 2
    assert line.held("CA3") == queued(1)


def test_a_queue_that_is_full_or_too_long_says_so_and_one_that_stops_holds_nobody():
    line = Line(most_calls=1, bounds={"most": 1, "longest_s": 20})
    assert line.token("CA1") is not None
    assert line.held("CA2") == queued(1)
    assert "call again later" in line.voice("CA3").text and line.held("CA3") is None
    line.now_s += 10
    assert line.held("CA2") == ""
    line.now_s += 10
    form = {"CallSid": "CA2", "From": "+15550100", "To": "+15550199", "CallStatus": "in-progress"}
    # Those calls were answered: they cannot be rejected any more.
    assert "call again later" in line.post("/twilio/voice", form).text
    asyncio.run(line.routes._calls.close(nothing))
    assert line.held("CA4") is None
    engaged = Line(most_calls=1, busy="", bounds={"longest_s": 20})
    assert engaged.token("CA1") is not None and engaged.held("CA2") == queued(1)
    engaged.now_s += 20
    text = engaged.post("/twilio/voice", form).text
    assert "<Hangup" in text and "<Reject" not in text
    # A call that was not answered is rejected without an answer.
    assert "<Reject" in Line(most_calls=0, busy="", queue=None).voice("CA3").text
    none = Line(most_calls=1, queue=None)
    assert none.token("CA1") is not None and none.held("CA2") is None


def test_a_line_that_is_promised_to_a_caller_is_no_one_elses():
    line = Line(most_calls=1)
    token = line.token("CA1")
    with pytest.raises(CapacityError):
        line.routes._calls.check_room()
    assert token is not None
    with line.open(token):
        assert len(line.calls) == 1


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
    # The token without a signature has not used it up.
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


def calling(most_calls: int = 1) -> tuple[Line, Posts]:
    """Return routes with an account."""
    posts = Posts()
    return Line(most_calls=most_calls, desk=CallManager(posts, ring_s=20), number="+15550199"), posts


def stream_of(answer: str) -> tuple[str, dict[str, str], str]:
    """Return token, parameters and address of the states, of a stream in TwiML."""
    stream = ElementTree.fromstring(answer).find("./Connect/Stream")
    assert stream is not None
    given = {each.attrib["name"]: each.attrib["value"] for each in stream.iter("Parameter")}
    return stream.attrib["url"].rsplit("/", 1)[1], given, stream.attrib["statusCallback"]


def test_the_stream_is_told_who_calls_and_where_its_states_are_heard():
    line, logged = Line(), io.StringIO()
    token, given, status = stream_of(line.voice("CA1").text)
    assert len(token) > 40 and given == {"caller": "+15550100", "called": "+15550199"}
    path = status.removeprefix(PUBLIC)
    form = {"StreamSid": "MZ1", "StreamEvent": "stream-error", "StreamError": "31921 closed"}
    assert line.post(path, form, secret="another").status_code == 403
    sink = logger.add(logged, level="WARNING")
    assert line.post(path, form).status_code == 204
    logger.remove(sink)
    assert "stream MZ1: stream-error 31921 closed" in logged.getvalue()


def test_a_call_that_is_begun_is_of_the_operator_and_its_stream_of_that_call():
    line, posts = calling()
    assert line.client.post("/twilio/calls", json={"to": "+15550123"}).status_code == 401
    for no_number in ("no number", "+15550\u0661\u0662\u0663"):
        assert line.begin(no_number).status_code == 422 and not posts.begun
    answer = line.begin()
    sid = answer.json()["call_sid"]
    assert answer.status_code == 201 and line.state(sid).json() == {"call_sid": sid, "status": "queued"}
    assert line.state("CA9").status_code == 404
    [begun] = posts.begun
    assert (begun["to"], begun["caller"], begun["ring_s"]) == ("+15550123", "+15550199", 20)
    assert begun["status_address"] == f"{PUBLIC}/twilio/call-status"
    token, given, _ = stream_of(begun["twiml"])
    assert given == {"caller": "+15550123", "called": "+15550199"}
    # Twilio lets calls wait, and a telephone rings.
    line.now_s += 200
    line.post_state(sid, "ringing")
    line.post_state(sid, "in-progress")
    assert line.state(sid).json()["status"] == "in-progress"
    line.now_s += 29
    with line.open(token):
        pass
    [call] = line.calls
    assert (call.phone.call_sid, call.phone.direction) == (sid, "outbound")


@pytest.mark.parametrize("state", ["busy", "no-answer", "failed", "canceled", "completed"])
def test_a_call_that_no_one_answers_gives_its_line_back(state: str):
    line, posts = calling()
    sid = line.begin().json()["call_sid"]
    token, _, _ = stream_of(posts.begun[0]["twiml"])
    assert line.held("CA1") == queued(1)
    line.post_state("CA7", state)
    assert line.held("CA1") == ""
    line.post_state(sid, state)
    assert line.state(sid).json()["status"] == state
    assert line.token("CA1") is not None and line.is_refused(token)


def test_what_is_said_of_a_call_before_its_name_is_known_counts_and_an_end_is_the_last_word():
    line, posts = calling()
    posts.on_begun = lambda sid: asyncio.to_thread(line.post_state, sid, "busy")
    sid = line.begin().json()["call_sid"]
    assert line.state(sid).json()["status"] == "busy"
    assert line.token("CA1") is not None
    # Webhooks may overtake each other; calls that were not placed here are not recorded.
    line.post_state(sid, "ringing")
    line.post_state("CA1", "in-progress")
    assert line.state(sid).json()["status"] == "busy" and line.state("CA1").status_code == 404


def test_a_call_that_twilio_refuses_or_that_cannot_be_begun_promises_no_line():
    line, posts = calling()
    posts.fails = "begin"
    answer = line.begin()
    assert answer.status_code == 502 and "no such number" in answer.text
    assert line.token("CA1") is not None
    without = Line(number="+15550199")
    assert without.begin().status_code == 409


@pytest.mark.parametrize(
    ("to", "allowed"),
    [
        ("+15550123", True),
        ("+4930901820", True),
        ("+44906123456", False),
        ("+1900555012", False),
        ("sip:desk@pbx.example.org", True),
        ("sip:desk@pbx.example.org.evil.example", False),
    ],
)
def test_only_numbers_of_the_allowed_prefixes_are_called(to: str, allowed: bool):
    posts = Posts()
    line = Line(
        desk=CallManager(posts, ring_s=20),
        number="+15550199",
        call_prefixes=("+1555", "+4930", "sip:desk@pbx.example.org"),
    )
    answer = line.begin(to)
    assert answer.status_code == (201 if allowed else 403) and len(posts.begun) == allowed
    if not allowed:
        assert "phone.call_prefixes" in answer.text


def test_no_number_is_called_where_no_prefix_is_allowed():
    posts = Posts()
    line = Line(desk=CallManager(posts, ring_s=20), number="+15550199", call_prefixes=())
    assert line.begin().status_code == 403 and not posts.begun


def test_no_number_is_called_whose_stream_a_limit_of_the_tenant_would_refuse():
    line, posts = calling()
    line.is_used_up = True
    answer = line.begin()
    assert answer.status_code == 429 and "calls" in answer.text and not posts.begun
    assert len(line.routes._tokens) == 0


def test_calls_that_are_begun_have_a_rate():
    posts = Posts()
    line = Line(most_calls=10, desk=CallManager(posts, ring_s=20), number="+15550199", calls_per_minute=2)
    with line.client:
        assert [line.begin().status_code for _ in range(3)] == [201, 201, 429]
    assert len(posts.begun) == 2
    line = Line(most_calls=10, desk=CallManager(posts, ring_s=20), number="+15550199", calls_per_hour=1)
    with line.client:
        refused = [line.begin(), line.begin()][1]
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 60


def test_a_shared_key_signs_webhooks_and_streams(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TWILIO_AUTH_TOKEN")
    monkeypatch.setenv("TWILIO_WEBHOOK_KEY", "shared")
    line = Line()
    form = {"CallSid": "CA1", "From": "+15550100", "To": "+15550199"}
    fields = {name: [value] for name, value in form.items()}

    def signed(address: str, fields: dict[str, list[str]], secret: str = "shared") -> dict[str, str]:
        return {
            "X-Twilio-Signature": signature(secret, address, fields, Algorithm.SHA256),
            "X-Twilio-Webhooks-Signature-Settings": "algorithm=HMAC_SHA256",
        }

    voice, address = "/twilio/voice", f"{PUBLIC}/twilio/voice"
    for wrong in ({}, signed(address, fields, "another")):
        assert line.client.post(voice, data=form, headers=wrong).status_code == 403
    # There is no key for the other algorithm.
    assert line.voice("CA1", secret="shared").status_code == 403
    answer = line.client.post(voice, data=form, headers=signed(address, fields))
    token, _, _ = stream_of(answer.text)
    media = f"/twilio/media/{token}"
    assert line.is_refused(token, secret="shared")
    with line.client.websocket_connect(media, headers=signed(f"wss://talk.example.org{media}", {})):
        pass
    assert len(line.calls) == 1


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("0.0.0.0", {"public_url": None}),
        ("10.0.0.1", {"public_url": None}),
        ("127.0.0.1", {"public_url": PUBLIC}),
    ],
)
def test_without_signatures_no_one_but_this_machine_may_ask(host: str, settings: dict[str, Any]):
    def make(host: str, settings: dict[str, Any]) -> PhoneRoutes:
        async def check(_body: Mapping[str, object], _identity: ClientIdentity) -> None: ...

        async def hold(_arguments: Any) -> None:
            await asyncio.sleep(0)

        return PhoneRoutes(
            PhoneRoutesSettings(signatures=False, **settings),
            ServerTuning(host=host),
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
