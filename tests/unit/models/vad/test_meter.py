"""The network pauses in silence, and no voice is detected later for it."""

import numpy as np
import pytest

from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.models.vad.meter import AGAIN_MS, REST_AFTER_MS, VoiceMeter
from parley.models.vad.silero import SileroVad
from parley.turn_taking.voice_gate import GateEvent, VoiceGate
from tests.voices import say

RATE_HZ, WINDOW = 16_000, 512
LEAST_DB = -60.0


class Counted:
    """Stream that counts its calls."""

    def __init__(self) -> None:
        self._stream = SileroVad().open_stream()
        self.asked = 0

    def probability(self, window: np.ndarray) -> float:
        self.asked += 1
        return self._stream.probability(window)

    def reset(self) -> None:
        self._stream.reset()


def heard(pcm: bytes, least_db: float | None) -> tuple[list[tuple[GateEvent, int]], int]:
    """Return the gate's events with their positions, and the number of calls of the network."""
    stream = Counted()
    meter = VoiceMeter(stream, WINDOW, rate_hz=RATE_HZ, least_db=least_db)
    gate = VoiceGate(
        WINDOW, rate_hz=RATE_HZ, start_ms=128, stop_ms=128, pause_ms=96, confidence=0.7, least_db=LEAST_DB
    )
    events = []
    for at in range(0, len(pcm) - 2 * WINDOW + 1, 2 * WINDOW):
        for probability, power in meter.measure(pcm[at : at + 2 * WINDOW]):
            event = gate.on_window(probability, power)
            if event in (GateEvent.STARTED, GateEvent.STOPPED):
                events.append((event, gate.position))
    return events, stream.asked


@pytest.mark.parametrize("noise_db", [-70.0, -80.0, -120.0])
@pytest.mark.parametrize(("voice_db", "windows"), [(-25.0, 1), (-50.0, 3)])
def test_a_caller_after_a_long_silence_is_heard_at_the_same_place(
    noise_db: float, voice_db: float, windows: int
):
    rng = np.random.default_rng(3)
    voice = pcm16_to_float(say("hello i would like to ask about my card please", "rms"))
    voice = voice * 10 ** (voice_db / 20) / np.sqrt(np.mean(voice**2))
    parts = []
    for quiet_s in (3.0, 2.0, 5.0):
        parts += [np.zeros(int(quiet_s * RATE_HZ)), voice]
    sound = np.concatenate([*parts, np.zeros(3 * RATE_HZ)])
    sound = sound + rng.standard_normal(len(sound)) * 10 ** (noise_db / 20)
    pcm = float_to_pcm16(sound.astype(np.float32))
    always, asked_always = heard(pcm, None)
    resting, asked = heard(pcm, LEAST_DB)
    assert [event for event, _ in always] == [event for event, _ in resting]
    assert [event for event, _ in always] == [GateEvent.STARTED, GateEvent.STOPPED] * 3
    apart = [abs(one - other) for (_, one), (_, other) in zip(always, resting, strict=True)]
    assert max(apart) <= windows * WINDOW
    # 13 s of quiet in four stretches, except for the windows before it pauses and again after it.
    rests = (13_000 - 4 * (REST_AFTER_MS + AGAIN_MS)) * RATE_HZ // 1000 // WINDOW
    assert asked < asked_always - 0.8 * rests


def test_what_is_nearly_loud_enough_is_not_rested_in():
    rng = np.random.default_rng(3)
    pcm = float_to_pcm16((rng.standard_normal(5 * RATE_HZ) * 10 ** (-64 / 20)).astype(np.float32))
    _, asked = heard(pcm, LEAST_DB)
    assert asked == 5 * RATE_HZ // WINDOW
