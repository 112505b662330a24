"""The measuring chain, from the caller's microphone to the figures, against a server of known timing."""

from pathlib import Path

import numpy as np
import pytest

from parley.evals.harness.launcher import Server
from parley.evals.harness.manners import Manners, ask, hear_greeting
from parley.evals.harness.speech import RATE_HZ, Spoken, decode, encode, framed
from parley.evals.harness.webrtc_caller import Line
from parley.evals.latency.capacity import STOLEN_SHARE, answers_of, measure, packet_lateness, replies_of
from parley.evals.latency.conversation import converse
from parley.evals.latency.figures import summary
from parley.evals.latency.report import capacity_table
from tests.peers.latency_peer import LatencyPeer, serving

pytestmark = pytest.mark.alone

MANNERS = Manners(greeting_ms=3_000, greeting_quiet_ms=300, answer_ms=1_500, reply_quiet_ms=500)


def sound(duration_ms: int) -> np.ndarray:
    samples = np.arange(duration_ms * RATE_HZ // 1000)
    return (9000 * np.cos(2 * np.pi * 300 * samples / RATE_HZ)).astype(np.int16)


def question(*, pause_ms: int = 0) -> Spoken:
    silence = np.zeros(pause_ms * RATE_HZ // 1000, dtype=np.int16)
    voice = np.concatenate((sound(600), silence, sound(400))) if pause_ms else sound(1_000)
    pcm = framed(voice)
    packets = encode(pcm)
    return Spoken("a question", decode(packets), packets, pause_ms, 100)


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    return tmp_path / "call.wav"


async def test_recorded_voice_to_voice_is_the_sum_of_the_spans(wav: Path) -> None:
    async with serving(LatencyPeer(wait_ms=300)) as url:
        turns = await converse(url, [question(), question(), question()], wav, MANNERS)
    figures = summary(turns)
    assert figures["turns"] == 3
    assert figures["unanswered"] == figures["false_cut_ins"] == 0
    # 300 ms of waiting, two jitter buffers of four packets and two packets account for all of it.
    assert 450 <= figures["voice_to_voice_ms"]["p50"] <= 600
    assert figures["span_error_ms"]["p95"] <= 20
    assert 290 <= figures["spans_ms"]["endpoint_wait"] <= 345
    assert 60 <= figures["client_buffer_ms"] <= 100
    assert turns[0].heard_as == "words"


async def test_answer_inside_a_pause_is_a_false_cut_in(wav: Path) -> None:
    async with serving(LatencyPeer(wait_ms=150)) as url:
        (turn,) = await converse(url, [question(pause_ms=650)], wav, MANNERS)
    assert turn.cut_in
    assert turn.voice_to_voice_us is None


async def test_silent_bot_is_unanswered(wav: Path) -> None:
    async with serving(LatencyPeer(wait_ms=None)) as url:
        (turn,) = await converse(url, [question()], wav, MANNERS)
    assert turn.unanswered


async def test_punctual_packets_are_not_late_and_replies_keep_their_length() -> None:
    peer = LatencyPeer(wait_ms=200)
    async with serving(peer) as url:
        line = Line(url)
        await line.dial()
        await hear_greeting(line, MANNERS)
        assert await ask(line, question(), MANNERS)
        (reply,) = replies_of(line)
        (answer_us,) = answers_of(line)
        late, audible = packet_lateness(line)
        await line.hang_up()
    assert abs(reply.length_us - 400_000) <= 20_000
    # As in a recording: the wait and two jitter buffers.
    assert 350_000 <= answer_us <= 500_000
    spoken = [us for us, heard in zip(late, audible, strict=True) if heard]
    assert len(spoken) >= 18
    assert sorted(spoken)[len(spoken) // 2] <= 20_000


async def test_a_step_in_which_a_call_is_refused_is_a_finding_and_not_the_end_of_the_run() -> None:
    # Two calls by themselves, and the first of the two at once.
    async with serving(LatencyPeer(wait_ms=200, offers=3)) as url:
        result = await measure(Server(url), [question()], seconds=1, max_calls=8, seed=1)
    (step,) = result["steps"]
    assert (result["capacity"], step["calls"], step["passed"]) == (0, 2, False)
    assert step["broken"] == f"{url}/api/offer answered 503"
    assert result["unloaded_replies"] == 2
    assert f"| {url}/api/offer answered 503 |" in capacity_table(result)


async def test_a_number_of_calls_at_which_answers_come_late_is_not_the_capacity() -> None:
    # After the two calls alone; its packets are punctual. With this seed both callers begin at once.
    async with serving(LatencyPeer(wait_ms=200, crowded_from=3)) as url:
        result = await measure(Server(url), [question()], seconds=4, max_calls=2, seed=19)
    # A step is measured again when the host has taken the processor away in it: answers are late in each.
    for step in result["steps"]:
        assert not step["answers_in_time"]
        assert step["voice_to_voice_ms"]["p95"] > 1.5 * result["unloaded_voice_to_voice_ms"]["p95"]
    assert all(step["host_took"] >= STOLEN_SHARE for step in result["steps"][:-1])
    assert (result["capacity"], result["capacity_by_lateness"]) == (0, 2)


async def test_client_does_the_duties_of_a_pipecat_client() -> None:
    peer = LatencyPeer()
    async with serving(peer) as url:
        line = Line(url)
        await line.dial()
        await hear_greeting(line, MANNERS)
        await line.hang_up()
    assert peer.received[0]["type"] == "client-ready"
    assert peer.pings >= 1
