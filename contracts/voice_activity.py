"""Contract of voice activity detectors (``models.vad``)."""

import threading

import numpy as np
import pytest

from parley.contracts.speech import say
from parley.core.errors import ShapeError
from parley.core.media import pcm16_to_float
from parley.models.vad import VoiceActivityDetector


def windows(detector: VoiceActivityDetector, audio: np.ndarray) -> np.ndarray:
    """Return audio in the windows of a detector."""
    size = detector.window_samples
    return audio[: len(audio) // size * size].reshape(-1, size)


def speech(detector: VoiceActivityDetector) -> np.ndarray:
    """Return a spoken question in windows."""
    audio = pcm16_to_float(say("how do i block a lost card please"))
    # Every second sample: flite's voices have little above 4 kHz, so the alias does not matter to a detector.
    return windows(detector, audio[:: 16_000 // detector.rate_hz])


def probabilities(detector: VoiceActivityDetector, audio: np.ndarray) -> list[float]:
    """Return the probability of each window, from a new stream."""
    stream = detector.open_stream()
    return [stream.probability(window) for window in audio]


class VoiceActivityContract:
    """Tests of a detector; needs a fixture ``detector``."""

    def test_silence_is_no_voice(self, detector: VoiceActivityDetector) -> None:
        quiet = np.zeros((30, detector.window_samples), dtype=np.float32)
        assert max(probabilities(detector, quiet)) < 0.3

    def test_speech_is_a_voice(self, detector: VoiceActivityDetector) -> None:
        assert np.mean(np.array(probabilities(detector, speech(detector))) > 0.7) > 0.6

    def test_probabilities_lie_between_0_and_1(self, detector: VoiceActivityDetector) -> None:
        loud = np.random.default_rng(0).uniform(-1, 1, (20, detector.window_samples)).astype(np.float32)
        assert all(0.0 <= p <= 1.0 for p in probabilities(detector, loud))

    def test_another_window_length_is_refused(self, detector: VoiceActivityDetector) -> None:
        stream = detector.open_stream()
        with pytest.raises(ShapeError):
            stream.probability(np.zeros(detector.window_samples - 1, dtype=np.float32))
        with pytest.raises(ShapeError):
            stream.probability(np.zeros((1, detector.window_samples), dtype=np.float32))

    def test_a_reset_stream_hears_like_a_new_one(self, detector: VoiceActivityDetector) -> None:
        audio = speech(detector)
        stream = detector.open_stream()
        for window in audio:
            stream.probability(window)
        stream.reset()
        assert [stream.probability(window) for window in audio[:20]] == probabilities(detector, audio[:20])

    def test_callers_do_not_hear_each_other(self, detector: VoiceActivityDetector) -> None:
        audio = speech(detector)
        alone = probabilities(detector, audio)
        one, other = detector.open_stream(), detector.open_stream()
        together = []
        for window in audio:
            together.append(one.probability(window))
            other.probability(-window[::-1].copy())
        assert together == alone

    def test_streams_work_in_threads_at_the_same_time(self, detector: VoiceActivityDetector) -> None:
        audio = speech(detector)
        alone = probabilities(detector, audio)
        heard: list[list[float]] = []
        threads = [
            threading.Thread(target=lambda: heard.append(probabilities(detector, audio))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heard == [alone] * 4
