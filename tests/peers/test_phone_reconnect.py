"""Phone calls whose server dies, or whose stream is lost: they go on in their session, or end."""

import asyncio
import json
import os
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.evals.harness.launcher import PRODUCT, Server, command, free_port, started
from parley.evals.harness.phone_caller import Recording, Script, call
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC, Front, front_of
from parley.evals.harness.phone_speech import packets
from parley.evals.harness.sessions import operator_headers
from tests.peers.twilio_rest import ACCOUNT, Phone, RestServer, twilio_rest
from tests.voices import say

GREETING = (
    "Hello, this is Parley. We open at nine in the morning. We close at five in the afternoon. "
    "On Saturdays we are open until two. On Sundays the office stays closed."
)
PHRASE = "Sorry, we were cut off for a moment."
# A document that Twilio serves itself: it asks again every second.
BIN = (
    '<Response><Pause length="1"/><Redirect method="POST">'
    + f"{PUBLIC}/twilio/reconnect</Redirect></Response>"
)
WITHIN_S = 60.0


@dataclass
class Deployed:
    """A server that is started, killed and started again on one port, with one store."""

    folder: Path
    phone: str = ""
    more: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    server_settings: str = "server: {open: true, admission: 'off'}\n"
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def server(self) -> AbstractAsyncContextManager[Server]:
        config = self.folder / "phone.yaml"
        bot = f"bot: {{greeting: {json.dumps(GREETING)}}}\n"
        config.write_text(
            f"phone: {{public_url: '{PUBLIC}'{self.phone}}}\n{bot}"
            f"{self.server_settings}hearing: {{spare_processes: false}}\n{self.more}"
        )
        # All deployments of the tests use the store of this variable.
        store = f"sqlite:///{self.folder}/sessions.db"
        environment = {"TWILIO_AUTH_TOKEN": AUTH_TOKEN, "PARLEY_STORE_URL": store, **self.environment}
        arguments = command(PRODUCT, self.port, "--config", str(config))
        return started(arguments, self.port, self.folder / "server.log", environment=environment)

    async def timelines(self) -> list[list[dict[str, Any]]]:
        """Return the timelines of all sessions, the newest first."""
        # Requests wait while a server starts again.
        headers, timeout = operator_headers(), httpx.Timeout(WITHIN_S)
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout) as client:
            sessions = (await client.get("/api/sessions")).json()["sessions"]
            return [
                (await client.get(f"/api/sessions/{each['id']}/timeline", params={"limit": 500})).json()[
                    "events"
                ]
                for each in sessions
            ]

    async def until(self, kind: str, count: int) -> list[dict[str, Any]]:
        """Return the timeline of the newest session when it has so many events of a kind."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                newest = ((await self.timelines()) or [[]])[0]
                if len(of_kind(newest, kind)) >= count:
                    return newest
                await asyncio.sleep(0.05)


def of_kind(timeline: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in timeline if event["kind"] == kind]


async def kill(server: Server) -> None:
    """Kill a server, as a machine without memory does."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(f"{server.url}/health")
            except httpx.TransportError:
                return
            await asyncio.sleep(0.01)


def listening(until: asyncio.Event) -> Any:
    """Return the script of a caller who listens until an event."""

    def script(recording: Recording) -> Script:
        while not until.is_set():
            yield from recording.wait(0.2)

    return script


async def test_a_call_survives_its_killed_server_and_no_word_is_lost_or_repeated(tmp_path: Path):
    deployed = Deployed(tmp_path)
    async with front_of(deployed.url) as front:
        front.fallback = BIN
        async with deployed.server() as server:
            calling = asyncio.create_task(call(front.url, listening(done := asyncio.Event())))
            await deployed.until("heard", 2)
            await kill(server)
        async with deployed.server():
            timeline = await deployed.until("bot_turn", 1)
            done.set()
            held = await calling
            [timeline] = await deployed.timelines()
    assert front.streams == 2 and front.failed and held.result.violations == []
    assert len(of_kind(timeline, "joined")) == 2
    [rest] = of_kind(timeline, "bot_turn")
    before = [each["text"] for each in of_kind(timeline, "heard") if each["reply_id"] != rest["reply_id"]]
    # What was recorded as heard, and what was said over the new stream, are the reply: every word of it once.
    assert rest["text"].startswith(f"{PHRASE} ") and not rest["truncated"]
    assert f"{before[-1]} {rest['text'].removeprefix(PHRASE).strip()}" == GREETING


async def test_a_call_that_the_bot_has_ended_is_not_connected_again(tmp_path: Path):
    deployed = Deployed(tmp_path)
    goodbye = packets(say("Thank you, goodbye.", "kal16"))

    def script(recording: Recording) -> Script:
        yield from recording.until_heard(0.0, 20)
        yield from recording.until_quiet(1.0, 40)
        yield from recording.say("Thank you, goodbye.", goodbye)
        yield from recording.wait(20)

    async with front_of(deployed.url) as front, deployed.server():
        front.fallback = BIN
        held = await call(front.url, script)
        [timeline] = await deployed.timelines()
    # Without an account the server closes the stream, and Twilio asks what comes next: nothing.
    assert front.streams == 1 and front.hung_up == 1 and not front.failed
    assert held.result.closed_by == "agent" and len(of_kind(timeline, "joined")) == 1


@pytest.mark.slow
async def test_a_server_that_dies_again_and_again_ends_the_call_with_words(tmp_path: Path):
    phone = ", transfer_to: '+15550123', number: '+15550199'"
    phone += ", reconnect: {most: 1, apology: 'This line is broken.'}"
    deployed = Deployed(tmp_path, phone=phone)
    async with front_of(deployed.url) as front:
        front.fallback = BIN
        async with deployed.server() as server:
            calling = asyncio.create_task(call(front.url, listening(asyncio.Event())))
            await deployed.until("heard", 1)
            await kill(server)
        async with deployed.server() as server:
            await deployed.until("joined", 2)
            await kill(server)
        async with deployed.server():
            async with asyncio.timeout(WITHIN_S):
                held = await calling
    assert front.streams == 2 and front.said == ["This line is broken."]
    assert front.dialled == ["+15550123"] and held.result.closed_by == "agent"


@pytest.mark.slow
async def test_a_transfer_is_put_through_after_a_reconnection(tmp_path: Path):
    async with twilio_rest() as rest:
        rest.phone = Phone(answers_s=0.2)
        phone = f", api_url: '{rest.url}', transfer_to: '+15550123', number: '+15550199'"
        deployed = Deployed(tmp_path, phone=phone, environment={"TWILIO_ACCOUNT_SID": ACCOUNT})
        rest.server = deployed.url
        async with front_of(deployed.url) as front:
            front.fallback, rest.on_redirect = BIN, front.redirect
            await transferred(deployed, front, rest)
    assert front.streams == 2
    assert len(rest.in_conference) == 2 and len(set(rest.in_conference)) == 1


async def transferred(deployed: Deployed, front: Front, rest: RestServer) -> None:
    """Have a caller ask for a person after the server was killed."""
    back = asyncio.Event()
    words = packets(say("Can I talk to a person please?"))

    def script(recording: Recording) -> Script:
        while not back.is_set():
            yield from recording.wait(0.2)
        yield from recording.until_quiet(1.0, 40)
        yield from recording.say("Can I talk to a person please?", words)
        yield from recording.wait(30)

    async with deployed.server() as server:
        calling = asyncio.create_task(call(front.url, script))
        await deployed.until("heard", 1)
        await kill(server)
    async with deployed.server():
        await deployed.until("joined", 2)
        await deployed.until("heard", 2)
        back.set()
        async with asyncio.timeout(WITHIN_S):
            await calling
            # The caller is there before the person is.
            while len(rest.in_conference) < 2:
                await asyncio.sleep(0.1)


async def test_a_stream_that_is_lost_while_the_server_lives_goes_on_there(tmp_path: Path):
    deployed = Deployed(tmp_path)
    async with front_of(deployed.url) as front, deployed.server():
        calling = asyncio.create_task(call(front.url, listening(done := asyncio.Event())))
        await deployed.until("heard", 1)
        # Its server would notice after 10 s without audio.
        front.lose_streams()
        await deployed.until("joined", 2)
        timeline = await deployed.until("bot_turn", 2)
        done.set()
        await calling
    cut, rest = of_kind(timeline, "bot_turn")
    assert front.streams == 2 and cut["truncated"] and not rest["truncated"]
    assert f"{cut['text']} {rest['text'].removeprefix(PHRASE).strip()}" == GREETING


ANNOUNCED = "This call is recorded. We keep it for a month, in order to improve the service for everyone."


@pytest.mark.parametrize("is_whole", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_a_caller_hears_the_whole_announcement_of_a_recording_and_only_once(
    tmp_path: Path, is_whole: bool
):
    folder = tmp_path / "recordings"
    recording = f"{{enabled: true, folder: '{folder}', min_free_gb: 0, announcement: '{ANNOUNCED}'}}"
    deployed = Deployed(tmp_path, more=f"recording: {recording}\n")
    async with front_of(deployed.url) as front:
        front.fallback = BIN
        async with deployed.server() as server:
            calling = asyncio.create_task(call(front.url, listening(done := asyncio.Event())))
            await deployed.until("recording" if is_whole else "heard", 1)
            await kill(server)
        async with deployed.server():
            timeline = await deployed.until("bot_turn", 2)
            done.set()
            await calling
            [timeline] = await deployed.timelines()
    said = [each["text"] for each in of_kind(timeline, "bot_turn") if each["text"]]
    states = [each["state"] for each in of_kind(timeline, "recording")]
    # Nothing is recorded before it, and the greeting is owed that the killed server had not begun.
    assert states[:2] == ["announced", "started"]
    assert said.count(ANNOUNCED) == 1
    assert states.count("announced") == 1 and states.count("started") == (2 if is_whole else 1)
    assert said[1].startswith(PHRASE) and said[1].endswith(GREETING.partition(". ")[2])


@pytest.mark.parametrize("signed", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_the_request_after_a_stream_is_verified_like_every_webhook(tmp_path: Path, signed: bool):
    deployed = Deployed(tmp_path)
    form = {"CallSid": "CA" + "5" * 32, "From": "+15550100", "To": "+15550199"}
    address = f"{PUBLIC}/twilio/reconnect"
    async with deployed.server(), httpx.AsyncClient() as client:
        headers = Front(deployed.url).headers(address, form) if signed else {}
        answer = await client.post(f"{deployed.url}/twilio/reconnect", data=form, headers=headers)
    # A call that this deployment does not know is hung up.
    assert answer.status_code == (200 if signed else 403)
    assert ("<Hangup" in answer.text) is signed
