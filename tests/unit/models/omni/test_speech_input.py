"""Input of the small tier: the completeness model judges the current turn, and nothing before it."""

import numpy as np

from parley.models.omni.two_tier.speech_input import PRE_SPEECH_MS, SpeechInput, SpeechInputSettings
from parley.models.turn import TurnEstimate
from parley.turn_taking.duplex_policy import Ask, CloseTurn, DuplexPolicy
from tests.fakes.executor import InlineExecutor
from tests.fakes.vad import EnergyVad

RATE_HZ, UNIT = 16_000, 1_280


class Recorder:
    """Completeness model that records its input."""

    max_samples = 8 * RATE_HZ

    def __init__(self) -> None:
        self.heard: list[np.ndarray] = []

    def estimate(self, audio: np.ndarray) -> TurnEstimate:
        self.heard.append(audio)
        return TurnEstimate(0.9)


def voice(units: int) -> np.ndarray:
    t = np.arange(units * UNIT) / RATE_HZ
    return (0.3 * np.sin(2 * np.pi * 200 * t)).astype(np.float32)


def test_a_pause_is_judged_without_the_turn_before() -> None:
    model, policy = Recorder(), DuplexPolicy()
    ears = SpeechInput(
        policy, vad=EnergyVad(), turn=model, executor=InlineExecutor(), settings=SpeechInputSettings()
    )
    quiet = np.zeros(40 * UNIT, np.float32)
    caller = np.concatenate([voice(20), quiet, voice(10), quiet])
    for start in range(0, len(caller), UNIT):
        ears.hear(caller[start : start + UNIT], bot_speaks=False)
        if any(isinstance(act, Ask | CloseTurn) for act in policy.on_tick(ears.now_ms)):
            ears.turn_over()
    first_ms, *_, last_ms = (len(audio) * 1000 / RATE_HZ for audio in model.heard)
    assert first_ms >= 20 * 80
    assert 10 * 80 <= last_ms <= 10 * 80 + PRE_SPEECH_MS + 300
