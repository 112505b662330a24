import numpy as np
import pytest
from pipecat.audio.vad.silero import SileroVADAnalyzer

from core.media import pcm16_to_float
from models.vad.silero import SileroSettings, SileroVad
from tests.voices import say

NEVER = SileroSettings(reset_after_ms=0)
WINDOW = 512


def windows(audio: np.ndarray) -> np.ndarray:
    return audio[: len(audio) // WINDOW * WINDOW].reshape(-1, WINDOW)


def speech() -> np.ndarray:
    return windows(pcm16_to_float(say("how do i block a lost card please")))


def music(duration_s: int) -> np.ndarray:
    chooser = np.random.default_rng(0)
    seconds = np.arange(4_000) / 16_000
    notes = []
    for _ in range(duration_s * 4):
        hz = 220 * 2 ** (chooser.integers(0, 24) / 12)
        notes.append(0.1 * sum(np.sin(2 * np.pi * hz * k * seconds) / k for k in (1, 2, 3, 4)))
    return windows(np.concatenate(notes).astype(np.float32))


def first_voice(detector: SileroVad, before: np.ndarray) -> int:
    """Windows from the beginning of speech to the fourth window of voice in a row."""
    stream = detector.open_stream()
    for window in before:
        stream.probability(window)
    run = 0
    for count, window in enumerate(speech()):
        run = run + 1 if stream.probability(window) > 0.7 else 0
        if run == 4:
            return count
    return len(speech())


def test_probabilities_equal_those_of_the_reference() -> None:
    reference = SileroVADAnalyzer(sample_rate=16_000)
    reference.set_sample_rate(16_000)
    stream = SileroVad(NEVER).open_stream()
    for window in speech()[:50]:
        expected = float(reference.voice_confidence((window * 32_768).astype("<i2").tobytes())[0])
        assert stream.probability(window) == pytest.approx(expected, abs=1e-6)


def test_a_voice_after_music_is_noticed_in_half_a_second() -> None:
    after_music = first_voice(SileroVad(), music(30))
    assert after_music * 32 < 500
    assert after_music <= first_voice(SileroVad(NEVER), music(30))


def test_long_silence_does_not_delay_a_voice() -> None:
    quiet = np.zeros((1_000, WINDOW), dtype=np.float32)
    assert first_voice(SileroVad(), quiet) - first_voice(SileroVad(), quiet[:10]) <= 2


def test_speech_is_never_forgotten_in_the_middle() -> None:
    audio = np.tile(speech(), (4, 1))
    with_resets, without = SileroVad().open_stream(), SileroVad(NEVER).open_stream()
    differences = [abs(with_resets.probability(w) - without.probability(w)) for w in audio]
    assert max(differences) == 0
