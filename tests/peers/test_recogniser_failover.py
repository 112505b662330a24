"""Recognisers that are services against servers of their protocols: whose words count."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pipecat.frames.frames import (
    ErrorFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.failover import CircuitBreaker, FailoverReason
from parley.evals.harness.services.cloud_recognisers import (
    KEY,
    WORDS,
    CloudRecogniser,
    Deepgram,
    RecogniserFault,
    Soniox,
    running_recogniser,
)
from parley.processors.perception.services import (
    STT_SERVICES,
    DeepgramSettings,
    KyutaiSettings,
    MistralSettings,
    SonioxSettings,
    answer_deadline_s,
)
from parley.processors.service_rows import ServiceRow
from tests.fakes.mistral_server import MistralServer
from tests.fakes.moshi_server import MoshiServer
from tests.fakes.recogniser_line import EMBEDDED, RecogniserLine
from tests.peers.operations_gateway import BEARER
from tests.peers.server import running_server
from tests.peers.test_command import speech
from tests.peers.test_sessions import call as call_of_session
from tests.peers.test_sessions import new_session, timeline, until_not_live
from tests.peers.test_webrtc_call import turns_of
from tests.voices import silence, tone

RATE_HZ = 16_000
FRAME_BYTES = 640
ONSET_MS, END_MS = 120, 200


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONIOX_API_KEY", KEY)
    monkeypatch.setenv("DEEPGRAM_API_KEY", KEY)
    monkeypatch.setenv("MOSHI_KEY", KEY)
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)


def new_breaker() -> CircuitBreaker:
    return CircuitBreaker(max_failures=1, cool_down_ms=60_000)


def row_of(server: CloudRecogniser) -> ServiceRow[Any]:
    """Return the row of the service that speaks to a server."""
    if isinstance(server, Deepgram):
        pytest.importorskip("deepgram", reason="needs the extra 'deepgram'")
        return STT_SERVICES.create("deepgram", DeepgramSettings(base_url=server.url))
    if isinstance(server, MoshiServer):
        return STT_SERVICES.create("kyutai", KyutaiSettings(url=server.url, api_key_env="MOSHI_KEY"))
    if isinstance(server, MistralServer):
        return STT_SERVICES.create("mistral", MistralSettings(url=server.url))
    return STT_SERVICES.create("soniox", SonioxSettings(url=server.url))


def line_to(server: CloudRecogniser, breaker: CircuitBreaker | None = None) -> RecogniserLine:
    """Return a call with the service that speaks to a server, and an embedded recogniser after it."""
    row = row_of(server)

    async def build() -> FrameProcessor:
        return row.build()

    return RecogniserLine(row.name, build, breaker or new_breaker(), answer_s=answer_deadline_s(row))


KINDS = [Soniox, Deepgram, MoshiServer, MistralServer]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_that_works_transcribes_everything(kind: type[CloudRecogniser]):
    async with running_recogniser(kind) as server:
        line = line_to(server)

        async def script() -> None:
            await line.speaks(4)
            await line.speaks(3)

        await line.hold(script)
    assert line.finals() == [*WORDS[:4], *WORDS[4:7]]
    assert line.reasons() == [] and line.breaker.is_closed


@pytest.mark.parametrize("kind", KINDS)
async def test_a_voice_that_is_over_before_the_service_is_open_is_transcribed_by_it(
    kind: type[CloudRecogniser],
):
    async with running_recogniser(kind) as server:
        row, breaker = row_of(server), new_breaker()

        async def build() -> FrameProcessor:
            await asyncio.sleep(1.2)
            return row.build()

        line = RecogniserLine(row.name, build, breaker, answer_s=answer_deadline_s(row))
        await line.hold(lambda: line.speaks(4, pause_ms=3_000))
    assert line.finals() == list(WORDS[:4])
    assert line.reasons() == [] and line.breaker.is_closed


FAULTS = [
    (RecogniserFault.REFUSED, 0, FailoverReason.ERROR),
    (RecogniserFault.UNAUTHORIZED, 0, FailoverReason.ERROR),
    (RecogniserFault.TOO_MANY, 0, FailoverReason.ERROR),
    (RecogniserFault.HANDSHAKE_HANGS, 0, FailoverReason.SILENT),
    (RecogniserFault.HANGS, 0, FailoverReason.SILENT),
    (RecogniserFault.NO_FINALS, 0, FailoverReason.SILENT),
    (RecogniserFault.CUT, 2, FailoverReason.ERROR),
    (RecogniserFault.GARBAGE, 0, None),
    (RecogniserFault.LIMITED, 0, None),
    (RecogniserFault.FLAPS, 0, None),
]
# Faults that concern the protocol; the others are those of any WebSocket.
OF_PROTOCOL = (
    RecogniserFault.NO_FINALS,
    RecogniserFault.CUT,
    RecogniserFault.GARBAGE,
    RecogniserFault.LIMITED,
)


def repeats(kind: type[CloudRecogniser], fault: RecogniserFault) -> bool:
    """Return whether a test shows again what it shows with another service."""
    return kind in (MoshiServer, MistralServer) and fault not in OF_PROTOCOL


@pytest.mark.parametrize(
    ("kind", "fault", "cut_words", "reason"),
    [
        pytest.param(kind, *fault, marks=[pytest.mark.slow] if repeats(kind, fault[0]) else [])
        for kind in KINDS
        for fault in FAULTS
        # What Mistral's service has by its own deadline is final (``test_mistral_stt``).
        if (kind, fault[0]) != (MistralServer, RecogniserFault.NO_FINALS)
    ],
)
async def test_the_words_of_every_fault_are_those_of_the_embedded_recogniser_and_each_once(
    kind: type[CloudRecogniser], fault: RecogniserFault, cut_words: int, reason: FailoverReason | None
):
    async with running_recogniser(kind, fault, cut_words=cut_words) as server:
        line = line_to(server)
        # Mistral's service has longer for its words than the others.
        is_slow = kind is MistralServer
        is_long = is_slow or fault is RecogniserFault.NO_FINALS

        async def script() -> None:
            await line.speaks(5, pause_ms=3_000 if is_long else 1_500)
            await line.speaks(3)

        await line.hold(script)
    assert line.finals() == [*EMBEDDED, *EMBEDDED[:3]]
    [found] = line.reasons()
    if is_slow and fault is RecogniserFault.HANDSHAKE_HANGS:
        # The deadline of the connection is over first.
        reason = FailoverReason.ERROR
    # A service may report what is no answer, or close without a word: either is noticed.
    assert found in ((FailoverReason.ERROR, FailoverReason.SILENT) if reason is None else (reason,))
    # Final words that did not come once may have been slow, so other calls go on with the service.
    assert line.breaker.is_closed is (fault is RecogniserFault.NO_FINALS)
    assert not line.upstream.of(ErrorFrame)


async def test_words_that_were_final_before_the_connection_was_lost_are_not_heard_again():
    async with running_recogniser(Soniox, RecogniserFault.CUT, cut_words=6) as server:
        line = line_to(server)

        async def script() -> None:
            # Two voices of one turn; the connection is lost in the second.
            await line.speaks(4, pause_ms=400)
            await line.speaks(4)

        await line.hold(script)
    assert line.finals() == [*WORDS[:4], *EMBEDDED[:4]]
    assert line.reasons() == [FailoverReason.ERROR]


async def test_a_noise_in_which_no_recogniser_finds_words_is_no_failure():
    async with running_recogniser(Soniox, RecogniserFault.HANGS) as server:
        line = line_to(server)

        async def script() -> None:
            # Voice activity takes a soft hum for a voice; neither of the two recognisers does.
            hum = tone(2_600, level=0.002)
            await line.worker.queue_frame(VADUserStartedSpeakingFrame())
            await line.sends(hum)
            await line.worker.queue_frame(VADUserStoppedSpeakingFrame())
            await line.sends(silence(3_500))
            server.fault = RecogniserFault.NONE
            await line.speaks(3)

        await line.hold(script)
    assert line.finals() == list(WORDS[:3])
    assert line.reasons() == [] and line.breaker.is_closed


async def test_a_call_after_a_failure_begins_with_the_embedded_recogniser():
    async with running_recogniser(Soniox) as server:
        breaker = new_breaker()
        breaker.on_failure(round(asyncio.get_running_loop().time() * 1000))
        line = line_to(server, breaker)
        await line.hold(lambda: line.speaks(3))
    assert line.finals() == list(EMBEDDED[:3])
    assert line.reasons() == [FailoverReason.BROKEN]
    assert server.connections == 0


@pytest.mark.parametrize(
    ("fault", "words"), [(RecogniserFault.NONE, WORDS), (RecogniserFault.LIMITED, EMBEDDED)]
)
async def test_after_the_cool_down_one_call_tries_the_service_and_loses_no_word(
    fault: RecogniserFault, words: tuple[str, ...]
):
    async with running_recogniser(Soniox, fault) as server:
        breaker = new_breaker()
        breaker.on_failure(-60_000)
        line, other = line_to(server, breaker), line_to(server, breaker)

        async def both() -> None:
            await line.speaks(3)

        await line.hold(both)
        if fault is RecogniserFault.LIMITED:
            await other.hold(lambda: other.speaks(2))
    assert line.finals() == list(words[:3])
    assert breaker.is_closed is (fault is RecogniserFault.NONE)
    if fault is RecogniserFault.LIMITED:
        assert other.finals() == list(EMBEDDED[:2])
        assert server.connections == 1


@pytest.mark.paired
async def test_a_caller_is_answered_although_the_service_takes_audio_and_never_answers(tmp_path: Path):
    async with running_recogniser(Soniox, RecogniserFault.HANGS) as server:
        config = tmp_path / "deployment.yaml"
        settings = {
            "extends": "embedded",
            "bot": {"greeting": "Hello there.", "idle": None},
            "hearing": {
                "stt": {"name": "soniox", "settings": {"url": server.url}},
                "fallback": {"name": "pocketsphinx"},
            },
        }
        config.write_text(yaml.safe_dump(settings))
        async with running_server("--config", str(config), log=tmp_path / "log") as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client:
                session = await new_session(client)
                async with call_of_session(client, session) as caller:
                    question = speech("What are your opening hours on Saturday?") + bytes(32_000 * 8)
                    caller.microphone.say(question)
                    await caller.until(lambda: len(turns_of(caller)) == 2)
                    caller.microphone.say(question)
                    await caller.until(lambda: len(turns_of(caller)) == 3)
                    turns = turns_of(caller)
                await until_not_live(client, session)
                events = await timeline(client, session)
    assert ["opening hours" in turn["user_text"] for turn in turns] == [False, True, True]
    assert all("ten until two" in turn["bot_text"] for turn in turns[1:])
    assert len([each for each in events if each["kind"] == "user_turn"]) == 2
    [failover] = [each["payload"] for each in events if each["kind"] == "failover"]
    assert (failover["stage"], failover["engine"], failover["successor"], failover["reason"]) == (
        *("hearing", "soniox", "pocketsphinx", "silent"),
    )
