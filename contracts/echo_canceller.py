"""Contract of echo cancellers (``models.echo``)."""

import threading

import numpy as np
import pytest

from parley.contracts.speech import say, silence
from parley.core.errors import ShapeError
from parley.models.echo import EchoCanceller


def speech(rate_hz: int, text: str, voice: str) -> np.ndarray:
    """Return speech at the canceller's rate, float32."""
    pcm = np.frombuffer(say(text, voice) + silence(200), dtype="<i2").astype(np.float32) / 32_768
    # Every second sample, or each sample three times: aliases do not matter to a canceller.
    return pcm[::2] if rate_hz == 8_000 else np.repeat(pcm, rate_hz // 16_000)


def run(canceller: EchoCanceller, near: np.ndarray, far: np.ndarray) -> np.ndarray:
    """Return the output for a whole signal."""
    stream = canceller.open_stream()
    size = canceller.frame_samples
    made = [
        stream.process(near[at : at + size], far[at : at + size])
        for at in range(0, len(far) - size + 1, size)
    ]
    stream.close()
    return np.concatenate(made)


class EchoCancellerContract:
    """Tests of a canceller; needs a fixture ``canceller``."""

    def test_a_frame_is_10_ms_and_comes_back_as_long(self, canceller: EchoCanceller) -> None:
        assert canceller.frame_samples * 100 == canceller.rate_hz
        stream = canceller.open_stream()
        quiet = np.zeros(canceller.frame_samples, np.float32)
        made = stream.process(quiet, quiet)
        assert made.shape == quiet.shape
        assert made.dtype == np.float32

    def test_silence_stays_silent(self, canceller: EchoCanceller) -> None:
        quiet = np.zeros(canceller.rate_hz, np.float32)
        assert np.max(np.abs(run(canceller, quiet, quiet))) < 1e-3

    def test_a_caller_is_heard_while_nothing_is_played(self, canceller: EchoCanceller) -> None:
        # Noise suppression needs a second of background noise to adapt: speech from the first sample on loses
        # 4 dB. Every call begins with background noise.
        quiet = 3e-4 * np.random.default_rng(1).standard_normal(canceller.rate_hz).astype(np.float32)
        voice = speech(canceller.rate_hz, "how do i block a lost card please", "rms")
        near = np.concatenate((quiet, voice))
        left = run(canceller, near, np.zeros_like(near))
        assert np.mean(left[len(quiet) :] ** 2) > 0.5 * np.mean(voice**2)

    def test_another_length_is_refused(self, canceller: EchoCanceller) -> None:
        stream = canceller.open_stream()
        good = np.zeros(canceller.frame_samples, np.float32)
        for near, far in ((good[1:], good), (good, good[1:]), (good[None], good)):
            with pytest.raises(ShapeError):
                stream.process(near, far)

    def test_the_input_is_not_changed(self, canceller: EchoCanceller) -> None:
        near = speech(canceller.rate_hz, "hello", "rms")[: canceller.frame_samples].copy()
        far = near[::-1].copy()
        kept = near.copy(), far.copy()
        canceller.open_stream().process(near, far)
        assert np.array_equal(near, kept[0])
        assert np.array_equal(far, kept[1])

    def test_callers_do_not_hear_each_other(self, canceller: EchoCanceller) -> None:
        near = speech(canceller.rate_hz, "hello it is me", "rms")
        far = 0.5 * speech(canceller.rate_hz, "hello this is the bank", "slt")[: len(near)]
        near = near[: len(far)]
        alone = run(canceller, near, far)
        size = canceller.frame_samples
        one, other = canceller.open_stream(), canceller.open_stream()
        together = []
        for at in range(0, len(far) - size + 1, size):
            together.append(one.process(near[at : at + size], far[at : at + size]))
            other.process(far[at : at + size], near[at : at + size])
        assert np.array_equal(np.concatenate(together), alone)

    def test_streams_work_in_threads_at_the_same_time(self, canceller: EchoCanceller) -> None:
        near = speech(canceller.rate_hz, "hello it is me", "rms")
        far = np.zeros_like(near)
        alone = run(canceller, near, far)
        heard: list[np.ndarray] = []
        threads = [threading.Thread(target=lambda: heard.append(run(canceller, near, far))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.array_equal(one, alone) for one in heard)
        assert len(heard) == 3
