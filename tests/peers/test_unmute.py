"""A client like Unmute's front end: the subprotocol ``realtime``, Opus in Ogg, the bot speaks first."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect

from tests.peers.test_browser import Served, serving
from tests.peers.unmute_front_end import FrontEnd, LoadTest
from tests.voices import say, silence

RECORDS = (
    "recording: {enabled: true, folder: recordings, min_free_gb: 0, merged: false}\n"
    "speaking: {voices: {rms: {name: flite, settings: {voice: rms}}}}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder, "llm: {name: documents}", calls=2, more=RECORDS) as at:
        yield at


def recordings(folder: Path) -> list[Path]:
    """Return the calls that are recorded."""
    return [path.parent for path in (folder / "recordings").rglob("meta.json")]


# A late server interrupts after the last words of the answer.
@pytest.mark.paired
async def test_the_front_end_talks_with_the_bot(served: Served, folder: Path):
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
        assert [(voice["name"], voice["good"]) for voice in voices] == [("parley", True), ("rms", True)]
        assert voices[0]["source"]["source_type"] == "file"
        assert (await http.post(f"{served.address}/v1/voices")).status_code == 501
    url = served.address.replace("http", "ws") + "/v1/realtime"
    async with connect(url, subprotocols=["realtime"]) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "realtime"
        one = FrontEnd(socket)
        await one.update()
        assert (await one.until("error"))["error"]["param"] == "session.allow_recording"
        # Its choice of a voice comes back as the path of that voice.
        await one.update(allow_recording=False, voice=voices[1]["source"]["path_on_server"])
        microphone = asyncio.create_task(one.microphone())
        try:
            assert (await one.until("response.created"))["response"]["voice"] == "rms"
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
    assert recordings(folder) == []


async def test_only_who_agrees_is_recorded_and_who_refuses_later_is_not_kept(served: Served, folder: Path):
    before = recordings(folder)
    url = served.address.replace("http", "ws") + "/v1/realtime"
    async with connect(url, subprotocols=["realtime"]) as socket:  # type: ignore[list-item]
        one = FrontEnd(socket)
        await one.update(allow_recording=True, voice="unmute-prod-website/ex04.wav")
        warning = (await one.until("error"))["error"]
        assert (warning["type"], warning["code"]) == ("warning", "unknown_voice")
        assert (await one.until("session.updated"))["session"]["voice"] == "parley"
        await one.until("response.audio.delta")
        await until(lambda: len(recordings(folder)) == len(before) + 1)
        await one.update(allow_recording=False)
        await until(lambda: recordings(folder) == before)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.02)


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
