"""A client like Unmute's front end: the subprotocol ``realtime``, Opus in Ogg, the bot speaks first."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from parley.audio.resample import Resampler
from parley.transports.websocket.opus import OpusDecoder, OpusEncoder
from tests.peers.test_browser import Served, serving
from tests.voices import say, silence

# All events that its front end knows; any other stops it.
KNOWN = {
    "error",
    "session.updated",
    "response.created",
    "unmute.response.text.delta.ready",
    "response.text.delta",
    "response.text.done",
    "response.audio.delta",
    "response.audio.done",
    "unmute.response.audio.delta.ready",
    "conversation.item.input_audio_transcription.delta",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "unmute.interrupted_by_vad",
    "unmute.additional_outputs",
}
PACKET = 24_000 // 50 * 2


class FrontEnd:
    """Client that sends two packets in a message, as its recorder does, and plays the bot's audio."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.got: list[dict[str, Any]] = []
        self.heard = np.zeros(0, np.float32)
        self._encoder = OpusEncoder(24_000)
        self._decoder = OpusDecoder()
        self._speech = b""

    async def update(self, **session: Any) -> None:
        given = {"instructions": {"type": "constant", "text": "Be brief."}, "voice": "v", **session}
        await self.socket.send(json.dumps({"type": "session.update", "session": given}))

    def speak(self, pcm_16k: bytes) -> None:
        samples = np.frombuffer(pcm_16k, "<i2").astype(np.float32) / 32_768
        heard = Resampler(16_000, 24_000).feed(samples)
        self._speech += (np.clip(heard, -1, 1) * 32_767).astype("<i2").tobytes()

    async def microphone(self) -> None:
        due_s = time.monotonic()
        while True:
            piece, self._speech = self._speech[: 2 * PACKET], self._speech[2 * PACKET :]
            pages = self._encoder.encode(piece.ljust(2 * PACKET, b"\0"))
            audio = base64.b64encode(pages).decode()
            await self.socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            due_s += 0.04
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def until(
        self, type_: str, text: str = "", within_s: float = 60, *, any_type: bool = False
    ) -> dict[str, Any]:
        async with asyncio.timeout(within_s):
            while True:
                event = json.loads(await self.socket.recv())
                assert event["type"] in KNOWN and event["event_id"]
                self.got.append(event)
                if event["type"] == "response.audio.delta":
                    audio = self._decoder.decode(self._decoder.packets(base64.b64decode(event["delta"])))
                    self.heard = np.concatenate([self.heard, audio])
                if any_type or (event["type"] == type_ and text in json.dumps(event)):
                    return event

    def types(self) -> list[str]:
        return [event["type"] for event in self.got]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), "llm: {name: documents}", calls=2) as at:
        yield at


# A late server interrupts after the last words of the answer.
@pytest.mark.paired
async def test_the_front_end_talks_with_the_bot(served: Served):
    async with httpx.AsyncClient() as http:
        health = (await http.get(f"{served.address}/v1/health")).json()
        assert health == {
            "tts_up": True,
            "stt_up": True,
            "llm_up": True,
            "voice_cloning_up": False,
            "ok": True,
        }
        voices = (await http.get(f"{served.address}/v1/voices")).json()
        assert voices[0]["name"] and voices[0]["source"]["source_type"] == "file"
        assert (await http.post(f"{served.address}/v1/voices")).status_code == 501
    url = served.address.replace("http", "ws") + "/v1/realtime"
    async with connect(url, subprotocols=["realtime"]) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "realtime"
        one = FrontEnd(socket)
        await one.update()
        assert (await one.until("error"))["error"]["param"] == "session.allow_recording"
        await one.update(allow_recording=False)
        microphone = asyncio.create_task(one.microphone())
        try:
            await one.until("response.text.done", "Parley")
            # The bot speaks first, and all of it was heard.
            assert one.types().index("response.created") < one.types().index("response.audio.delta")
            assert "input_audio_buffer.speech_started" not in one.types()
            assert len(one.heard) > 48_000 * 3 and np.abs(one.heard).max() > 0.1
            one.speak(silence(300) + say("What are your opening hours on saturday?"))
            heard = await one.until("conversation.item.input_audio_transcription.delta", "opening hours")
            assert isinstance(heard["start_time"], float)
            await one.until("response.created")
            await one.until("response.text.delta", "Saturdays")
            one.speak(say("Wait, stop, please stop talking now."))
            await one.until("unmute.interrupted_by_vad")
            done = await one.until("response.text.done")
            assert "Saturdays" in done["text"] and "ten until two" not in done["text"]
            outputs = await one.until("unmute.additional_outputs")
            history = outputs["args"]["chat_history"]
            assert [turn["role"] for turn in history][:3] == ["assistant", "user", "assistant"]
        finally:
            microphone.cancel()


class LoadTest(FrontEnd):
    """Client like Unmute's load test, which reads the conversation at the moments of its own turns.

    Attributes:
        turns: role and words of each turn, as it would report them.
        order: phases of the present reply that it times.
    """

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__(socket)
        self.turns: list[tuple[str, str]] = []
        self.order: list[str] = []
        self._history: list[dict[str, str]] = []

    async def until_spoken(self) -> None:
        """Take events up to the end of the next reply."""
        while True:
            before = len(self.got)
            await self.until("", any_type=True)
            event = self.got[before]
            match event["type"]:
                case "unmute.additional_outputs":
                    self._history = event["args"]["chat_history"]
                case "response.created":
                    self.order = ["response_created"]
                    said = [each["content"] for each in self._history if each["role"] == "user"]
                    if said:
                        self.turns.append(("user", said[-1]))
                case "unmute.response.text.delta.ready":
                    self._phase("text_start")
                case "response.audio.delta":
                    self._phase("audio_start")
                case "response.audio.done":
                    last = self._history[-1]
                    self.turns.append((last["role"], last["content"]))
                    return

    def _phase(self, name: str) -> None:
        if name not in self.order:
            self.order.append(name)


@pytest.mark.slow
async def test_the_load_test_reads_each_turn_when_it_is_over(served: Served):
    url = served.address.replace("http", "ws") + "/v1/realtime"
    async with connect(url, subprotocols=["realtime"]) as socket:  # type: ignore[list-item]
        one = LoadTest(socket)
        await one.update(allow_recording=False)
        microphone = asyncio.create_task(one.microphone())
        try:
            await one.until_spoken()
            for question in ("What are your opening hours on Saturday?", "Do you have a car park?"):
                one.speak(silence(300) + say(question))
                await one.until_spoken()
                assert sorted(one.order) == ["audio_start", "response_created", "text_start"]
        finally:
            microphone.cancel()
    assert [role for role, _ in one.turns] == ["assistant", "user", "assistant", "user", "assistant"]
    words = [text.lower() for _, text in one.turns]
    assert "parley" in words[0] and "opening hours" in words[1] and "saturdays" in words[2]
    assert "park" in words[3]


async def test_what_is_no_opus_is_answered(served: Served):
    url = served.address.replace("http", "ws") + "/v1/realtime"
    async with connect(url, subprotocols=["realtime"]) as socket:  # type: ignore[list-item]
        one = FrontEnd(socket)
        await one.update(allow_recording=False)
        await one.until("session.updated")
        for audio, why in (
            (base64.b64encode(b"RIFF").decode(), "begin an Ogg stream"),
            ("*", "base64"),
            (None, "base64"),
        ):
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            assert why in (await one.until("error"))["error"]["message"]
        await socket.send(json.dumps({"type": "unmute.input_audio_buffer.append_anonymized"}))
        assert (await one.until("error"))["error"]["code"] == "unknown_event"
        await one.update(allow_recording=True, instructions={"type": "opera"})
        assert (await one.until("error"))["error"]["param"] == "session.instructions.type"
        await one.until("response.text.done", "Parley")
