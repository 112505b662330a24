"""Words and speakers of recognisers in the cloud, against local servers that speak their protocols."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pipecat.frames.frames import InputAudioRawFrame, TranscriptionFrame, VADUserStoppedSpeakingFrame
from pipecat.tests.utils import SleepFrame, run_test
from websockets.asyncio.server import ServerConnection, serve

from parley.processors.perception.hosted_words import (
    HostedWord,
    SpeakerStretch,
    hosted_words,
    speaker_stretches,
)
from parley.processors.perception.services import STT_SERVICES, DeepgramSettings, SonioxSettings

TOKENS = [
    {"text": "Can", "start_ms": 120, "end_ms": 240, "is_final": True, "speaker": "1"},
    {"text": "cel", "start_ms": 240, "end_ms": 400, "is_final": True, "speaker": "1"},
    {"text": " it.", "start_ms": 460, "end_ms": 600, "is_final": True, "speaker": "1"},
    {"text": " No", "start_ms": 900, "end_ms": 1_100, "is_final": True, "speaker": "2"},
    {"text": ",", "start_ms": 1_100, "end_ms": 1_120, "is_final": True, "speaker": "2"},
]
SAID = (
    HostedWord("Cancel", 120, 400, "speaker 1"),
    HostedWord("it.", 460, 600, "speaker 1"),
    HostedWord("No,", 900, 1_120, "speaker 2"),
)


def test_tokens_are_joined_to_words():
    assert hosted_words(TOKENS) == SAID


def test_stretches_of_one_speaker_each():
    assert speaker_stretches(SAID) == [
        SpeakerStretch(120, 600, "speaker 1"),
        SpeakerStretch(900, 1_120, "speaker 2"),
    ]
    assert speaker_stretches([HostedWord("Hm", 0, 10, None)]) == []


DEEPGRAM = {
    "type": "Results",
    "channel_index": [0, 1],
    "duration": 2.0,
    "start": 0.0,
    "is_final": True,
    "channel": {
        "alternatives": [
            {
                "transcript": "Cancel no hm",
                "confidence": 0.9,
                "words": [
                    {
                        "word": "cancel", "punctuated_word": "Cancel",
                        "start": 0.12, "end": 0.4, "confidence": 0.9, "speaker": 0,
                    },
                    {"word": "no", "start": 0.9, "end": 1.12, "confidence": 0.9, "speaker": 1},
                    {"word": "hm", "start": 1.2, "end": 1.3, "confidence": 0.9},
                ],
            }
        ]
    },
    "metadata": {
        "request_id": "r",
        "model_info": {"name": "nova", "version": "1", "arch": "nova"},
        "model_uuid": "u",
    },
}  # fmt: skip


@pytest.fixture
async def deepgram() -> AsyncIterator[tuple[str, list[dict[str, list[str]]]]]:
    """Serve one utterance in Deepgram's protocol; the list gets the query of each client."""
    asked: list[dict[str, list[str]]] = []

    async def answer(client: ServerConnection) -> None:
        assert client.request is not None
        asked.append(parse_qs(urlsplit(client.request.path).query))
        async for message in client:
            if isinstance(message, str) and "Finalize" in message:
                await client.send(json.dumps(DEEPGRAM))

    async with serve(answer, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", asked


@pytest.mark.parametrize("speakers", [True, False])
async def test_deepgram_is_asked_for_speakers_and_its_words_are_read(
    deepgram: tuple[str, list[dict[str, list[str]]]], monkeypatch: pytest.MonkeyPatch, speakers: bool
):
    pytest.importorskip("deepgram", reason="needs the extra 'deepgram'")
    url, asked = deepgram
    monkeypatch.setenv("DEEPGRAM_API_KEY", "key")
    service = STT_SERVICES.create("deepgram", DeepgramSettings(base_url=url, speakers=speakers)).build()
    audio = InputAudioRawFrame(b"\0\0" * 1_600, 16_000, 1)
    down, _ = await run_test(
        service,
        frames_to_send=[
            SleepFrame(0.3),
            audio,
            SleepFrame(0.1),
            VADUserStoppedSpeakingFrame(),
            SleepFrame(0.3),
        ],
    )
    [final] = [frame for frame in down if isinstance(frame, TranscriptionFrame)]
    assert asked[0].get("diarize", ["false"]) == ["true" if speakers else "false"]
    assert hosted_words(final.result) == (
        HostedWord("Cancel", 120, 400, "speaker 1"),
        HostedWord("no", 900, 1_120, "speaker 2"),
        HostedWord("hm", 1_200, 1_300, None),
    )


@pytest.mark.parametrize(
    "result",
    [
        None,
        "text",
        [],
        ["word", None, {"text": "no times"}, {"text": 5, "start_ms": 0, "end_ms": 1}],
        object(),
    ],
)
def test_a_result_without_words_gives_none(result: Any):
    assert hosted_words(result) == ()


@pytest.fixture
async def soniox() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve one utterance in Soniox's protocol; the list gets the configuration of each client."""
    configured: list[dict[str, Any]] = []

    async def answer(client: ServerConnection) -> None:
        configured.append(json.loads(await client.recv()))
        async for message in client:
            if isinstance(message, str) and "finalize" in message:
                tokens = [*TOKENS, {"text": "<end>", "is_final": True}]
                await client.send(json.dumps({"tokens": tokens}))

    async with serve(answer, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}", configured


@pytest.mark.parametrize("speakers", [True, False])
async def test_soniox_is_asked_for_speakers_and_its_tokens_are_read(
    soniox: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, speakers: bool
):
    url, configured = soniox
    monkeypatch.setenv("SONIOX_API_KEY", "key")
    service = STT_SERVICES.create("soniox", SonioxSettings(url=url, speakers=speakers)).build()
    audio = InputAudioRawFrame(b"\0\0" * 1_600, 16_000, 1)
    down, _ = await run_test(
        service, frames_to_send=[audio, SleepFrame(0.1), VADUserStoppedSpeakingFrame(), SleepFrame(0.3)]
    )
    [final] = [frame for frame in down if isinstance(frame, TranscriptionFrame)]
    assert configured[0]["enable_speaker_diarization"] is speakers
    assert hosted_words(final.result) == SAID
