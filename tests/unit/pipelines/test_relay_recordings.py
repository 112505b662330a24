"""Recordings in a call by ConversationRelay: how long they may play, and the silence after them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.websockets import WebSocket

from parley.configs.deployment import Deployment
from parley.core.call_events import CallEnding
from parley.core.errors import EngineError
from parley.language import find_language
from parley.pipelines.live_calls import LiveCalls
from parley.pipelines.phone.relay import SILENT_S, RelayCall
from parley.pipelines.phone.relay_media import PLAY, RelayMedia
from parley.pipelines.sessions import TypedTurns
from parley.processors.turns.idle import SILENCE
from parley.serving.gateway.phone.caller_settings import LONGEST_PLAYED_S, RelayRecording, RelaySettings
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.serving.gateway.phone.carriers.twilio_relay import RELAY
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.session_store.events import Kind
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.unit.pipelines.test_typed_answers import World, play
from tests.virtual_time import run

INTENTS = find_language("en").intents
MUSIC: dict[str, Any] = {
    "source": "https://files.example/music.mp3",
    "text": "Music.",
    "duration_s": 200,
    "loop": 3,
    "purpose": "the caller waits",
}


def test_what_is_played_ends_before_a_silent_call_does():
    assert RelayRecording(**MUSIC).played_s == LONGEST_PLAYED_S < SILENT_S
    with pytest.raises(ValidationError, match="loop: 800 s are played, at most 600"):
        RelayRecording(**{**MUSIC, "loop": 4})


def test_recordings_do_not_queue_for_longer_than_one_may_play():
    sent: list[str] = []

    async def send(message: str) -> None:
        sent.append(message)

    async def scenario() -> None:
        settings = RelaySettings(recordings={"music": RelayRecording(**MUSIC)})
        media = RelayMedia(settings, INTENTS, send, lambda _code: None)
        [tool] = [each for each in media.tools() if each.name == PLAY]
        await tool.run({"name": "music"}, key="1")
        with pytest.raises(EngineError, match="too long with the recordings that the caller still hears"):
            await tool.run({"name": "music"}, key="2")
        assert media.playing_s == LONGEST_PLAYED_S and len(sent) == 1
        await asyncio.sleep(LONGEST_PLAYED_S)
        await tool.run({"name": "music"}, key="3")
        assert media.playing_s == LONGEST_PLAYED_S and len(sent) == 2

    run(scenario())


class Line:
    """Twilio's side of a socket on which the caller says nothing."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, dict[str, Any]]] = []
        scope: dict[str, Any] = {"type": "websocket", "path": "/", "headers": [], "query_string": b""}
        self.socket = WebSocket(scope, self._receive, self._send)
        self._is_new = True

    async def _receive(self) -> dict[str, Any]:
        if self._is_new:
            self._is_new = False
            return {"type": "websocket.connect"}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Any) -> None:
        if message["type"] == "websocket.send":
            self.sent.append((asyncio.get_running_loop().time(), json.loads(message["text"])))


def relay_call(
    world: World, line: Line, phone: PhoneRoutesSettings, *, greeting: str = "", disclosure: str = ""
) -> RelayCall:
    return RelayCall(
        line.socket,
        PhoneCall("CA1", "+15550100", "+15550199", network=RELAY),
        phone,
        lambda _control: TypedTurns(world.conversations, world.answering),
        intents=INTENTS,
        greeting=greeting,
        disclosure=disclosure,
        apology="",
        stopping=asyncio.Event(),
        used_up=None,
        goodbye="",
        live_calls=LiveCalls(can_listen=False),
    )


def test_a_disclosure_is_sent_first_and_nothing_interrupts_it(tmp_path: Path):
    phone = Deployment.model_validate({"phone": {"signatures": False, "relay": {}}}).phone
    assert phone is not None

    async def scenario(world: World) -> None:
        line = Line()
        await line.socket.accept()
        call = relay_call(world, line, phone, greeting="Hello.", disclosure="You are talking to an AI.")
        async with world.conversations.open() as conversation:
            assert await call.hold(conversation)
            await conversation.flushed()
            events = await world.conversations.store.events(conversation.session_id, limit=100)
        await call.close()
        sent = [message for _, message in line.sent if message["type"] == "text"]
        assert [(each["token"], each.get("interruptible")) for each in sent[:2]] == [
            ("You are talking to an AI.", False),
            ("Hello.", None),
        ]
        [disclosed] = [event for event in events if event.kind is Kind.DISCLOSED]
        assert disclosed.payload["text"] == "You are talking to an AI."

    play(tmp_path, ScriptedLanguageModel(("unused",)), scenario)


@pytest.mark.parametrize("opening", [None, "music"])
def test_a_caller_who_listens_to_a_recording_is_not_silent(tmp_path: Path, opening: str | None):
    relay = {"recordings": {"music": MUSIC}, "opening": opening}
    deployment = Deployment.model_validate({"phone": {"signatures": False, "relay": relay}})
    phone = deployment.phone
    assert phone is not None

    async def scenario(world: World) -> None:
        line = Line()
        await line.socket.accept()
        call = relay_call(world, line, phone)
        ends: list[CallEnding] = []
        call.events.subscribe(CallEnding, ends.append)
        began_s = asyncio.get_running_loop().time()
        async with world.conversations.open() as conversation:
            assert await call.hold(conversation)
        await call.close()
        at_s, ended = line.sent[-1]
        assert ended["type"] == "end"
        assert [(end.reason, end.message) for end in ends] == [SILENCE]
        played_s = LONGEST_PLAYED_S if opening else 0.0
        assert at_s - began_s == pytest.approx(played_s + SILENT_S, abs=1)

    play(tmp_path, ScriptedLanguageModel(("unused",)), scenario)
