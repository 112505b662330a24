"""Pipecat's Cartesia service against a server of that protocol that fails in many ways: who says what."""

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml
from pipecat.frames.frames import ErrorFrame, InterruptionFrame, TTSTextFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.failover import CircuitBreaker, FailoverReason
from parley.evals.harness.services.cartesia import (
    KEY,
    WORD_MS,
    CartesiaFault,
    closed_port_url,
    running_cartesia,
)
from parley.processors.speech.audio_deadlines import FIRST_AUDIO_S, NEXT_AUDIO_S
from parley.processors.speech.service_voice import ServiceVoice
from parley.processors.speech.services import TTS_SERVICES, CartesiaSettings
from tests.fakes.failover_call import RATE_HZ, FailoverCall
from tests.fakes.tts import ToneTts
from tests.peers.operations_gateway import BEARER
from tests.peers.server import running_server
from tests.peers.spoken_greeting import GREETING, hear_greeting, tone_s
from tests.peers.test_sessions import new_session, timeline, until_not_live
from tests.peers.test_webrtc_call import loudness
from tests.peers.webrtc_caller import Caller

REPLY = "Our shop is open until nine today."
WORDS = REPLY.split()
# Time of an idle machine's loop, and more on a busy one.
SLACK_S = 0.5


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARTESIA_API_KEY", KEY)


def call_with(url: str, *, cool_down_ms: int = 60_000) -> FailoverCall:
    """Return a call with Cartesia's service, and an embedded voice after it."""
    row = TTS_SERVICES.create("cartesia", CartesiaSettings(voice="v", url=url))

    async def build() -> FrameProcessor:
        return row.build()

    breaker = CircuitBreaker(max_failures=1, cool_down_ms=cool_down_ms)
    return FailoverCall([ServiceVoice("cartesia", build, breaker, rate_hz=RATE_HZ)], ToneTts(word_ms=WORD_MS))


async def one_reply(call: FailoverCall) -> None:
    """Have the call say a reply, and wait until it has been heard."""
    await call.says(REPLY)
    async with asyncio.timeout(60):
        while len(call.words()) < len(WORDS):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


@pytest.mark.alone
async def test_a_server_that_works_says_every_word_at_its_time():
    async with running_cartesia() as cartesia:
        call = call_with(cartesia.url)
        await call.hold(lambda: one_reply(call))
    assert call.words() == WORDS and call.tones() == ["service"] and call.changes() == []
    assert cartesia.transcripts == [REPLY]
    times = [at for at, frame in call.heard.frames if isinstance(frame, TTSTextFrame)]
    assert np.diff(times) == pytest.approx([WORD_MS / 1000] * (len(WORDS) - 1), abs=0.15)


SAID_BY_BOTH = ["service", "embedded"]


@pytest.mark.parametrize(
    ("fault", "cut_ms", "reason", "sounds", "within_s"),
    [
        (None, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.UNAUTHORIZED, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.TOO_MANY, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.HANDSHAKE_HANGS, 0, FailoverReason.LATE, ["embedded"], FIRST_AUDIO_S),
        (CartesiaFault.HANGS, 0, FailoverReason.LATE, ["embedded"], FIRST_AUDIO_S),
        (CartesiaFault.CUT, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.CUT, 600, FailoverReason.ERROR, SAID_BY_BOTH, 0.0),
        (CartesiaFault.STALLS, 650, FailoverReason.STALLED, SAID_BY_BOTH, 0.0),
        (CartesiaFault.GARBAGE, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.STRANGE, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.LIMITED, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.SILENT, 0, FailoverReason.SILENT, ["embedded"], 0.6),
        # Pipecat reports it as an error.
        (CartesiaFault.EMPTY, 0, FailoverReason.ERROR, ["embedded"], 0.0),
        (CartesiaFault.FLAPS, 0, None, ["embedded"], FIRST_AUDIO_S),
    ],
)
async def test_every_fault_is_heard_as_the_whole_reply_and_no_word_twice(
    fault: CartesiaFault | None,
    cut_ms: int,
    reason: FailoverReason | None,
    sounds: list[str],
    within_s: float,
):
    async with running_cartesia(fault or CartesiaFault.NONE, cut_ms=cut_ms) as cartesia:
        call = call_with(cartesia.url if fault is not None else closed_port_url())
        await call.hold(lambda: one_reply(call))
    assert call.words() == WORDS
    assert call.tones() == sounds
    assert call.first_sound_s() <= within_s + SLACK_S
    [(engine, successor, given)] = call.changes()
    assert (engine, successor) == ("cartesia", "embedded")
    assert reason is None or given is reason
    # The pipeline was spared: an error frame would be shown to the client.
    assert not call.upstream.of(ErrorFrame)
    pieces = [at for at, _ in call.output.played]
    assert max(np.diff(pieces)) <= NEXT_AUDIO_S + SLACK_S


async def test_after_an_outage_the_voice_comes_back_without_a_wait():
    async with running_cartesia(CartesiaFault.LIMITED) as cartesia:
        call = call_with(cartesia.url, cool_down_ms=500)

        async def script() -> None:
            await one_reply(call)
            cartesia.fault = CartesiaFault.NONE
            for _ in range(2):
                await call.says("Yes.")
                await asyncio.sleep(2)
                assert call.first_sound_s() < SLACK_S

        await call.hold(script)
    assert call.words() == [*WORDS, "Yes.", "Yes."]
    assert call.tones() == ["embedded", "service"]
    assert [each[2] for each in call.changes()] == [FailoverReason.ERROR, FailoverReason.RECOVERED]
    # A connection for the call, and one for the probe.
    assert cartesia.connections == 2


async def test_an_interruption_cancels_the_context_at_the_provider():
    async with running_cartesia() as cartesia:
        call = call_with(cartesia.url)

        async def script() -> None:
            await call.says("one two three four five six seven eight nine ten.")
            await asyncio.sleep(0.3)
            await call.worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(0.3)
            await call.says("Alpha.")
            await asyncio.sleep(1)

        await call.hold(script)
    assert len(cartesia.cancelled) == 1
    assert cartesia.connections == 1
    assert call.words()[-1] == "Alpha." and len(call.words()) < 5
    assert call.changes() == []


async def test_a_provider_that_closes_an_idle_connection_is_connected_again():
    async with running_cartesia() as cartesia:
        call = call_with(cartesia.url)

        async def script() -> None:
            await one_reply(call)
            cartesia.drop_all()
            await asyncio.sleep(0.3)
            await call.says("Yes.")
            await asyncio.sleep(1)

        await call.hold(script)
    assert call.words() == [*WORDS, "Yes."]
    assert call.tones() == ["service"] and call.changes() == []


@pytest.mark.paired
async def test_a_caller_hears_the_rest_of_a_reply_whose_service_voice_dies_in_it(tmp_path: Path):
    # Dies within the second clause, about two seconds after the first word.
    async with running_cartesia(CartesiaFault.CUT, cut_ms=900) as cartesia:
        tts = {"name": "cartesia", "settings": {"voice": "v", "url": cartesia.url}}
        heard, events = await hear_greeting(tts, tmp_path)
    [reply] = [each["payload"] for each in events if each["kind"] == "bot_turn"]
    assert reply["text"] == GREETING and not reply["truncated"]
    [failover] = [each["payload"] for each in events if each["kind"] == "failover"]
    assert (failover["engine"], failover["successor"]) == ("cartesia", "flite")
    # The tone of the service voice, and then speech to the end of the greeting.
    assert 0.7 < tone_s(heard) < 1.5
    assert len(heard) / 2 / 16_000 > 5


async def test_a_call_without_any_voice_left_says_so_and_ends(tmp_path: Path):
    config = tmp_path / "deployment.yaml"
    dead = {"name": "cartesia", "settings": {"voice": "v", "url": closed_port_url()}}
    settings = {
        "extends": "embedded",
        "bot": {"greeting": GREETING, "idle": None, "voiceless_phrase": "I cannot speak any more. Goodbye."},
        "speaking": {"tts": dead, "fallback": [dead]},
    }
    config.write_text(yaml.safe_dump(settings))
    async with running_server("--config", str(config), log=tmp_path / "log") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client:
            session = await new_session(client)
            begin = {"transport": "webrtc", "body": {"session": session}}
            started = (await client.post("/start", json=begin)).json()
            caller = Caller()
            offer = await caller.offer()
            answer = await client.post(f"/sessions/{started['sessionId']}/api/offer", json=offer)
            await caller.accept(answer.json())
            try:
                # It ends without the caller hanging up.
                async with asyncio.timeout(60):
                    while not await timeline(client, session, kind="left"):
                        await asyncio.sleep(0.05)
                await until_not_live(client, session)
            finally:
                await caller.hang_up()
            events = await timeline(client, session)
    assert loudness(bytes(caller.heard)) > 100
    replies = [each["payload"] for each in events if each["kind"] == "bot_turn"]
    assert replies[-1]["text"] == "I cannot speak any more. Goodbye." and not replies[-1]["truncated"]
    assert not [each for each in replies[:-1] if each["text"]]
