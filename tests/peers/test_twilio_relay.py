"""A caller by Twilio's ConversationRelay, event by event, against a running server."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
import pytest_asyncio
import yaml
from twilio.request_validator import RequestValidator
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.operations_gateway import BEARER
from tests.peers.text_gateway import text_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = ("The museum opens at nine. ", "The garden opens at ten. ", "The cafe opens at eleven.")


class Museum(OpenAiServer):
    """Model whose answer depends on the caller's last words."""

    async def stream(self, response: Any, turn: Turn) -> None:
        last = self.requests[-1]["messages"][-1]
        asked = str(last["content"])
        if last["role"] == "tool":
            turn = Turn(("Done.",))
        elif "menu" in asked:
            turn = Turn(tool="press_keys", arguments='{"keys": "40#22"}')
        elif "enough" in asked:
            turn = Turn(tool="hang_up", arguments="{}")
        elif "Spanish" in asked:
            turn = Turn(tool="switch_language", arguments='{"language": "es-ES"}')
        elif "map" in asked and "listen" in asked:
            turn = Turn(tool="play_recording", arguments='{"name": "way"}')
        elif "manager" in asked:
            turn = Turn(tool="transfer_to_a_person", arguments="{}")
        elif "story" in asked:
            turn = Turn(["and on "] * 400, between_ms=50)
        elif "price" in asked:
            turn = Turn(("It costs ", "five euros."))
        elif "4711" in asked:
            turn = Turn(("Thank you.",))
        await super().stream(response, turn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm() -> AsyncIterator[Museum]:
    async with Museum([Turn(LONG)]) as llm:
        yield llm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(llm: Museum, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("own")
    configuration = {
        "bot": {"greeting": "Hello there."},
        "thinking": thinking(llm),
        "phone": {
            "signatures": False,
            "relay": {"language": "en-GB"},
            "transfer_to": "+15550123",
            "number": "+15550199",
        },
        "remembering": {"store": {"url": f"sqlite:///{folder}/sessions.db"}},
    }
    async with text_gateway(folder, yaml.safe_dump(configuration)) as url:
        yield url


def thinking(llm: Museum) -> dict[str, Any]:
    return {"llm": {"name": "openai_compatible", "settings": {"base_url": f"{llm.url}/v1", "model": "m"}}}


class Twilio:
    """Twilio's side of one call: its webhooks, and the socket that the answer names."""

    def __init__(self, url: str, call_sid: str) -> None:
        self._url, self.call_sid = url, call_sid

    async def post(self, path: str, **more: str) -> ElementTree.Element:
        form = {"CallSid": self.call_sid, "From": "+15550100", "To": "+15550199", "Direction": "inbound"}
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client:
            answer = await client.post(path, data={**form, **more})
        assert answer.status_code == 200, answer.text
        return ElementTree.fromstring(answer.text)

    @asynccontextmanager
    async def connected(self, path: str = "/twilio_relay/voice") -> AsyncIterator["Line"]:
        document = await self.post(path)
        relay = document.find("Connect/ConversationRelay")
        assert relay is not None, ElementTree.tostring(document)
        assert (relay.get("dtmfDetection"), relay.get("language")) == ("true", "en-GB")
        address = str(relay.get("url"))
        async with connect(address) as socket:
            line = Line(socket, address)
            await line.send("setup", sessionId="VX1", callSid=self.call_sid, customParameters={})
            yield line


class Line:
    def __init__(self, socket: ClientConnection, url: str) -> None:
        self.socket, self.url = socket, url

    async def send(self, kind: str, **fields: object) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def say(self, text: str) -> None:
        await self.send("prompt", voicePrompt=text, lang="en-GB", last=True)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return json.loads(await self.socket.recv())

    async def until_end(self) -> str:
        """Return what the end of the session hands on, when the socket is closed after it."""
        ended = await self.next()
        assert ended["type"] == "end"
        with pytest.raises(ConnectionClosed):
            await self.next()
        return str(ended.get("handoffData", ""))

    async def spoken(self) -> str:
        """Return what the bot says up to its last token."""
        said = ""
        while True:
            message = await self.next()
            assert message["type"] == "text"
            said += message["token"]
            if message["last"]:
                return said


async def session_with(client: httpx.AsyncClient, text: str) -> str:
    """Return the session in which a text was said."""
    found = (await client.get("/api/sessions/search", params={"text": text})).json()["sessions"]
    return str(found[0]["id"])


async def turns(url: str, text: str) -> tuple[str, list[tuple[str, Any]]]:
    """Return the session in which a text was said, and the model's view of it."""
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        session = await session_with(client, text)
        view = (await client.get(f"/api/sessions/{session}/prompt")).json()["messages"]
    return session, [(message["role"], message.get("content")) for message in view]


async def reasons(url: str, text: str) -> list[str | None]:
    """Return the reasons for which the streams of a session ended, None where the server did not end it."""
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        path = f"/api/sessions/{await session_with(client, text)}/timeline?limit=1000"
        events = (await client.get(path)).json()["events"]
    bounds = [each for each in events if each["kind"] in ("joined", "left")]
    assert [each["kind"] for each in bounds] == ["joined", "left"] * (len(bounds) // 2)
    assert {each["payload"]["transport"] for each in bounds} == {"twilio_relay"}
    return [each["payload"].get("reason") for each in bounds[1::2]]


async def test_a_caller_is_greeted_and_answered_token_by_token(url: str):
    async with Twilio(url, "CA1").connected() as line:
        assert await line.spoken() == "Hello there."
        # A partial prompt is no turn yet.
        await line.send("prompt", voicePrompt="What is", lang="en-GB", last=False)
        await line.say("What is the price, please?")
        assert await line.next() == {"type": "text", "token": "It costs ", "last": False}
        assert await line.spoken() == "five euros."
        # Messages of other types, and faults, change nothing.
        await line.send("something-new", value=1)
        await line.send("error", description="Invalid message received")
        await line.socket.send("this is not JSON")
        await line.say("And the price for two?")
        assert await line.spoken() == "It costs five euros."
    _, said = await turns(url, "What is the price, please?")
    assert said[-2:] == [("user", "And the price for two?"), ("assistant", "It costs five euros.")]


async def test_what_was_heard_is_remembered_of_an_interrupted_answer(url: str):
    async with Twilio(url, "CA2").connected() as line:
        await line.spoken()
        await line.say("When do you open on Sunday?")
        # The whole answer is here long before it is spoken.
        assert await line.spoken() == "".join(LONG)
        await line.send(
            "interrupt", utteranceUntilInterrupt="The museum opens at", durationUntilInterruptMs=900
        )
        await line.say("What is the price?")
        assert await line.spoken() == "It costs five euros."
        _, said = await turns(url, "When do you open on Sunday?")
        heard = next(text for role, text in said if role == "assistant" and "museum" in text)
        assert heard.startswith("The museum opens at [interrupted by the person here")
        assert "nine. The garden opens" in heard
        # An answer that is being made ends, and so does its sending.
        await line.say("Tell me a story.")
        assert (await line.next())["token"] == "and on "
        await line.send("interrupt", utteranceUntilInterrupt="and on", durationUntilInterruptMs=300)
        await line.say("What is the price?")
        said_after = await line.spoken()
        assert said_after.endswith("It costs five euros.") and said_after.count("and on") < 300


async def test_a_call_that_loses_its_socket_goes_on_in_its_session(url: str):
    twilio = Twilio(url, "CA3")
    async with twilio.connected() as line:
        await line.spoken()
        await line.say("What is the price of a map?")
        await line.spoken()
        address = line.url
    # No socket is opened twice.
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        async with connect(address) as again:
            await again.recv()
    async with twilio.connected("/twilio_relay/reconnect") as line:
        assert await line.spoken() == "Sorry, we were cut off for a moment."
        # The caller talks over the phrase, which is no answer.
        await line.send("interrupt", utteranceUntilInterrupt="Sorry, we were", durationUntilInterruptMs=500)
        await line.say("And the price of two?")
        assert await line.spoken() == "It costs five euros."
    _, said = await turns(url, "What is the price of a map?")
    assert ("user", "And the price of two?") in said
    assert said.count(("assistant", "It costs five euros.")) == 2


async def test_keys_are_a_turn_and_one_of_them_reaches_a_person(url: str, llm: Museum):
    twilio = Twilio(url, "CA4")
    async with twilio.connected() as line:
        await line.spoken()
        for digit in "4711#":
            await line.send("dtmf", digit=digit)
        assert await line.spoken() == "Thank you."
        assert str(llm.requests[-1]["messages"][-1]["content"]).endswith("4711")
        await line.send("dtmf", digit="0")
        assert "colleague" in await line.spoken()
        handoff = await line.until_end()
    assert await number_dialled(twilio, handoff) == "+15550123"
    # The call is over for this side.
    assert [each.tag for each in await twilio.post("/twilio_relay/reconnect")] == ["Hangup"]


async def number_dialled(twilio: Twilio, handoff: str) -> str | None:
    """Return the number to which Twilio is to connect the caller after the session."""
    form = {"HandoffData": handoff, "SessionStatus": "ended"}
    return (await twilio.post("/twilio_relay/reconnect", **form)).findtext("Dial/Number")


async def test_who_asks_for_a_person_in_words_is_passed_on(url: str):
    twilio = Twilio(url, "CA9")
    async with twilio.connected() as line:
        await line.spoken()
        await line.say("I want to speak to a person.")
        assert await line.spoken() == "One moment, I am getting a colleague on the line."
        handoff = await line.until_end()
    assert await number_dialled(twilio, handoff) == "+15550123"
    _, said = await turns(url, "I want to speak to a person.")
    assert said[-2] == ("user", "I want to speak to a person.")
    assert said[-1][1].startswith("One moment")


async def counted(url: str, reason: str) -> float:
    """Return the number of ends with a reason that the server has counted."""
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    begins = f'parley_call_ends_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(begins)) for line in lines if line.startswith(begins))


async def until_counted(url: str, reason: str, count: float) -> None:
    """Wait for a number of ends; the text of the metrics is renewed once in a while."""
    async with asyncio.timeout(20):
        while await counted(url, reason) != count:
            await asyncio.sleep(0.2)


async def test_a_call_whose_session_is_deleted_ends_with_that_reason(url: str):
    before = await counted(url, "session_lost")
    async with Twilio(url, "CA14").connected() as line:
        await line.spoken()
        await line.say("What do I pay in October?")
        await line.spoken()
        async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
            session = await session_with(client, "What do I pay in October?")
            assert (await client.delete(f"/api/sessions/{session}")).status_code == 200
        with pytest.raises(ConnectionClosed):
            await line.next()
    await until_counted(url, "session_lost", before + 1)


async def test_an_operator_sees_a_call_as_text_and_ends_it_in_the_middle_of_an_answer(url: str):
    before = await counted(url, "ended_by_operator")
    twilio = Twilio(url, "CA15")
    async with twilio.connected() as line, httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        await line.spoken()
        await line.say("Tell me the story of November.")
        assert (await line.next())["token"] == "and on "
        [live] = (await client.get("/api/admin/calls")).json()["calls"]
        assert (live["transport"], live["mode"], live["has_audio"]) == ("twilio_relay", "text", False)
        assert live["session_id"] == await session_with(client, "Tell me the story of November.")
        assert (await client.get(f"/api/admin/calls/{live['call_id']}/audio.wav")).status_code == 409
        assert (await client.delete(f"/api/admin/calls/{live['call_id']}")).status_code == 204
        while (message := await line.next())["type"] == "text":
            pass
        assert message["type"] == "end"
        with pytest.raises(ConnectionClosed):
            await line.next()
        assert (await client.get("/api/admin/calls")).json()["calls"] == []
    assert [each.tag for each in await twilio.post("/twilio_relay/reconnect")] == ["Hangup"]
    assert await reasons(url, "Tell me the story of November.") == ["ended_by_operator"]
    await until_counted(url, "ended_by_operator", before + 1)


async def test_a_farewell_ends_the_call_after_its_answer(url: str):
    before = await counted(url, "farewell")
    twilio = Twilio(url, "CA10")
    async with twilio.connected() as line:
        await line.spoken()
        began_s = asyncio.get_running_loop().time()
        await line.say("Thank you, goodbye.")
        assert await line.spoken() == "".join(LONG)
        assert await line.until_end() == ""
        # 15 words take a few seconds to speak.
        assert asyncio.get_running_loop().time() - began_s > 5
    assert [each.tag for each in await twilio.post("/twilio_relay/reconnect")] == ["Hangup"]
    assert (await reasons(url, "Thank you, goodbye."))[-1] == "farewell"
    await until_counted(url, "farewell", before + 1)


async def test_a_caller_who_goes_on_after_a_farewell_is_not_cut_off(url: str):
    async with Twilio(url, "CA11").connected() as line:
        await line.spoken()
        await line.say("Goodbye.")
        await line.spoken()
        await line.send("interrupt", utteranceUntilInterrupt="The museum", durationUntilInterruptMs=300)
        await line.say("Wait, what is the price?")
        assert await line.spoken() == "It costs five euros."
        # Longer than both answers take.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12):
                await line.socket.recv()


async def test_a_noise_during_the_last_words_does_not_keep_the_call(url: str):
    async with Twilio(url, "CA16").connected() as line:
        await line.spoken()
        await line.say("Bye bye, thank you.")
        await line.spoken()
        await line.send("interrupt", utteranceUntilInterrupt="The museum", durationUntilInterruptMs=300)
        # No words follow.
        await line.send("prompt", voicePrompt="", lang="en-GB", last=True)
        async with asyncio.timeout(20):
            assert await line.until_end() == ""
    assert (await reasons(url, "Bye bye, thank you."))[-1] == "farewell"


async def count_sessions(url: str) -> int:
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        return len((await client.get("/api/sessions")).json()["sessions"])


@pytest.mark.parametrize("second_call", ["takes_over", "apart"])
async def test_a_second_call_of_a_number_ends_the_first_or_leaves_it_alone(
    llm: Museum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_call: str
):
    monkeypatch.setenv("PARLEY_CALLER_KEY", "k" * 32)
    # The list of sessions is read a page at a time: this test has a store of its own.
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{tmp_path}/sessions.db")
    configuration = {
        "bot": {"greeting": "Hello there."},
        "thinking": thinking(llm),
        "phone": {
            "signatures": False,
            "relay": {"language": "en-GB"},
            "remember_callers": {"trust": "any", "second_call": second_call},
        },
    }
    async with text_gateway(tmp_path, yaml.safe_dump(configuration)) as url:
        twilio = Twilio(url, "CA30")
        async with twilio.connected() as first:
            await first.spoken()
            before = await count_sessions(url)
            async with Twilio(url, "CA31").connected() as second:
                await second.spoken()
                if second_call == "apart":
                    await first.say("And the price of two?")
                    assert await first.spoken() == "It costs five euros."
                else:
                    with pytest.raises(ConnectionClosed):
                        await first.next()
                    # It does not come back, to take the session in its turn.
                    tags = [each.tag for each in await twilio.post("/twilio_relay/reconnect")]
                    assert tags == ["Hangup"]
                await second.say("And the price of three?")
                assert await second.spoken() == "It costs five euros."
        assert await count_sessions(url) - before == (0 if second_call == "takes_over" else 1)


async def test_a_model_presses_keys_hangs_up_and_passes_the_call_on(url: str):
    async with Twilio(url, "CA12").connected() as line:
        await line.spoken()
        await line.say("This is the menu of another machine.")
        assert await line.next() == {"type": "sendDigits", "digits": "40#22"}
        assert await line.spoken() == "Done."
        await line.say("That is enough.")
        assert await line.spoken() == "Done."
        assert await line.until_end() == ""
    assert (await reasons(url, "That is enough."))[-1] == "ended_by_model"
    twilio = Twilio(url, "CA13")
    async with twilio.connected() as line:
        await line.spoken()
        await line.say("Get me your manager, would you?")
        assert await line.spoken() == "Done."
        handoff = await line.until_end()
    assert await number_dialled(twilio, handoff) == "+15550123"
    assert (await reasons(url, "your manager"))[-1] == "passed_on"


NOTICE = {
    "source": "https://files.example/notice.mp3",
    "text": "This call is made by a machine.",
    "duration_s": 4,
    "interruptible": False,
}
WAY = {
    "source": "https://files.example/way.mp3",
    "text": "Leave the station by the north gate.",
    "duration_s": 6,
    "purpose": "the caller wants to hear the way",
    "loop": 2,
}


@asynccontextmanager
async def media_gateway(
    folder: Path, llm: Museum, *, conversation: Mapping[str, object] | None = None, **relay: object
) -> AsyncIterator[str]:
    """Yield the address of a server whose calls have languages and recordings."""
    media = {"languages": {"es-ES": {"voice": "Pilar"}}, "recordings": {"notice": NOTICE, "way": WAY}}
    configuration = {
        "bot": {"greeting": "Hello there."},
        "thinking": thinking(llm),
        "phone": {
            "signatures": False,
            "transfer_to": "+15550123",
            "relay": {"language": "en-GB", **media, **relay},
        },
        "remembering": {
            "store": {"url": f"sqlite:///{folder}/sessions.db"},
            "conversation": dict(conversation or {}),
        },
    }
    async with text_gateway(folder, yaml.safe_dump(configuration)) as url:
        yield url


async def test_recordings_are_played_before_the_greeting_and_by_the_model(llm: Museum, tmp_path: Path):
    async with media_gateway(tmp_path, llm, opening="notice") as url, Twilio(url, "CA20").connected() as line:
        assert await line.next() == {
            "type": "play",
            "source": NOTICE["source"],
            "loop": 1,
            "interruptible": False,
            "preemptible": False,
        }
        assert await line.spoken() == "Hello there."
        began_s = asyncio.get_running_loop().time()
        await line.say("Let me listen to the map, please.")
        played = await line.next()
        assert (played["type"], played["source"], played["loop"]) == ("play", WAY["source"], 2)
        assert await line.spoken() == "Done."
        result = json.loads(llm.requests[-1]["messages"][-1]["content"])
        assert WAY["text"] in str(result)
        # The end waits for the recording, which is played twice.
        await line.say("Thank you, goodbye.")
        await line.spoken()
        assert await line.until_end() == ""
        assert asyncio.get_running_loop().time() - began_s > 12
        _, said = await turns(url, "Let me listen to the map, please.")
        assert said[1] == ("assistant", f"{NOTICE['text']}\n\nHello there.")


async def test_a_model_switches_the_language_and_the_session_keeps_it(llm: Museum, tmp_path: Path):
    async with media_gateway(tmp_path, llm) as url:
        twilio = Twilio(url, "CA21")
        document = await twilio.post("/twilio_relay/voice")
        languages = document.findall("Connect/ConversationRelay/Language")
        assert [each.attrib for each in languages] == [{"code": "es-ES", "voice": "Pilar"}]
        switch = {"type": "language", "ttsLanguage": "es-ES", "transcriptionLanguage": "es-ES"}
        twilio = Twilio(url, "CA22")
        async with twilio.connected() as line:
            assert await line.spoken() == "Hello there."
            await line.say("Can you speak Spanish with me?")
            assert await line.next() == switch
            assert await line.spoken() == "Done."
            # A phrase of the deployment stays in its own language.
            await line.send("dtmf", digit="0")
            phrase = await line.next()
            assert (phrase["type"], phrase["lang"]) == ("text", "en-GB")
            await line.say("And the price of it?")
            await line.spoken()
        # Over a new socket Twilio begins in the language of the document.
        async with twilio.connected("/twilio_relay/reconnect") as line:
            assert await line.next() == switch
            assert (await line.next())["lang"] == "en-GB"


async def test_the_language_of_a_session_outlives_a_summary_of_the_switch(llm: Museum, tmp_path: Path):
    small = {"budget_tokens": 300}
    async with media_gateway(tmp_path, llm, conversation=small) as url:
        twilio = Twilio(url, "CA24")
        async with twilio.connected() as line:
            await line.spoken()
            await line.say("Can you speak Spanish with me?")
            switch = await line.next()
            assert (switch["type"], switch["ttsLanguage"]) == ("language", "es-ES")
            await line.spoken()
            async with asyncio.timeout(60), httpx.AsyncClient(base_url=url, headers=BEARER) as client:
                session = await session_with(client, "Can you speak Spanish with me?")
                summaries: list[Any] = []
                while not summaries:
                    await line.say(f"{len(LONG)} of us like gardens and museums a lot. " * 4)
                    await line.spoken()
                    timeline = await client.get(f"/api/sessions/{session}/timeline?limit=1000")
                    summaries = [each for each in timeline.json()["events"] if each["kind"] == "summary"]
            assert summaries[-1]["payload"]["state"]["language"] == "es-ES"
        async with twilio.connected("/twilio_relay/reconnect") as line:
            assert await line.next() == switch


async def test_the_voice_follows_a_caller_whose_language_is_recognised(llm: Museum, tmp_path: Path):
    async with media_gateway(tmp_path, llm, transcription_language="multi") as url:
        async with Twilio(url, "CA23").connected() as line:
            await line.spoken()
            await line.say("What is the price?")
            assert await line.spoken() == "It costs five euros."
            await line.send("prompt", voicePrompt="and the price in Spain?", lang="es", last=True)
            assert await line.next() == {"type": "language", "ttsLanguage": "es-ES"}
            assert await line.spoken() == "It costs five euros."
            # The same language again, and one that the deployment does not have, switch nothing.
            for language in ("es-MX", "fr-FR"):
                await line.send("prompt", voicePrompt="and the price?", lang=language, last=True)
                assert await line.spoken() == "It costs five euros."
            await line.say("What is the price?")
            assert await line.next() == {"type": "language", "ttsLanguage": "en-GB"}


async def test_a_caller_who_has_hung_up_is_connected_to_nothing(url: str):
    twilio = Twilio(url, "CA7")
    async with twilio.connected() as line:
        await line.spoken()
    document = await twilio.post("/twilio_relay/reconnect", CallStatus="completed", SessionStatus="completed")
    assert [each.tag for each in document] == ["Hangup"]
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        assert (await client.get("/status")).json()["calls"] == 0


async def test_a_call_whose_minutes_are_used_up_ends_after_a_goodbye(llm: Museum, tmp_path: Path):
    configuration = {
        "bot": {"greeting": "Hello there."},
        "thinking": thinking(llm),
        "phone": {"signatures": False, "relay": {"language": "en-GB"}},
        "remembering": {"store": {"url": f"sqlite:///{tmp_path}/sessions.db"}},
        "server": {"tenants": {"others": {"minutes_per_day": 0.01}, "phrase": "Your minutes are over."}},
    }
    async with text_gateway(tmp_path, yaml.safe_dump(configuration)) as url:
        async with Twilio(url, "CA8").connected() as line:
            assert await line.spoken() == "Hello there."
            assert await line.spoken() == "Your minutes are over."
            assert (await line.next())["type"] == "end"
            with pytest.raises(ConnectionClosed):
                await line.next()


async def test_a_socket_of_another_call_is_closed(url: str):
    document = await Twilio(url, "CA5").post("/twilio_relay/voice")
    relay = document.find("Connect/ConversationRelay")
    assert relay is not None
    async with connect(str(relay.get("url"))) as socket:
        await socket.send(json.dumps({"type": "setup", "sessionId": "VX1", "callSid": "CA6"}))
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(60):
                await socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


async def test_webhooks_and_sockets_have_to_be_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", "1" * 32)
    monkeypatch.setenv("PARLEY_CALL_KEYS", "a-key-of-an-application-of-32-letters")
    configuration = {
        "phone": {"public_url": "https://talk.example.org", "relay": {}},
        "remembering": {"store": {"url": f"sqlite:///{tmp_path}/sessions.db"}},
    }
    async with text_gateway(tmp_path, yaml.safe_dump(configuration)) as url:
        form = {"CallSid": "CA1", "From": "+15550100", "To": "+15550199", "Direction": "inbound"}
        async with httpx.AsyncClient(base_url=url) as client:
            for route in ("voice", "reconnect"):
                path = f"/twilio_relay/{route}"
                assert (await client.post(path, data=form)).status_code == 403
                signature = RequestValidator("1" * 32).compute_signature(
                    f"https://talk.example.org{path}", form
                )
                signed = await client.post(path, data=form, headers={"X-Twilio-Signature": signature})
                assert signed.status_code == 200
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{url.replace('http', 'ws')}/twilio_relay/media/token"):
                pass
        assert refused.value.response.status_code == 403
