import io

import av
import numpy as np
import pytest

from parley.audio.speech_file import speech_file
from parley.core.speech_formats import SPEECH_FORMATS, SpeechFormat

RATE_HZ = 24_000
TONE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(2 * RATE_HZ) / RATE_HZ)).astype(np.float32)


def written(kind: SpeechFormat) -> list[bytes]:
    """Return the pieces of a file of two seconds that comes in pieces of 0.4 s."""
    made = speech_file(kind, RATE_HZ)
    step = RATE_HZ * 2 // 5
    return [*(made.feed(TONE[at : at + step]) for at in range(0, len(TONE), step)), made.finish()]


def decoded(data: bytes) -> np.ndarray:
    with av.open(io.BytesIO(data)) as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE_HZ)
        frames = [each for frame in container.decode(audio=0) for each in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


@pytest.mark.parametrize("kind", [kind for kind in SPEECH_FORMATS if kind != "pcm"])
def test_a_file_that_was_written_in_pieces_holds_the_whole_sound(kind: SpeechFormat):
    pieces = written(kind)
    sound = decoded(b"".join(pieces))
    # Codecs add some silence around it.
    assert 1.99 < len(sound) / RATE_HZ < 2.2
    middle = sound[RATE_HZ // 2 : RATE_HZ * 3 // 2]
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)
    peak_hz = np.argmax(np.abs(np.fft.rfft(middle)))
    assert peak_hz == pytest.approx(440, abs=2)


@pytest.mark.parametrize("kind", [kind for kind in SPEECH_FORMATS if kind != "flac"])
def test_most_of_a_file_comes_before_its_end(kind: SpeechFormat):
    pieces = written(kind)
    assert len(b"".join(pieces[:-1])) > 0.8 * len(b"".join(pieces))


def test_pcm_is_the_samples_alone():
    samples = np.frombuffer(b"".join(written("pcm")), "<i2")
    assert len(samples) == len(TONE)
    assert np.abs(samples / 32_767 - TONE).max() < 1e-4


@pytest.mark.parametrize("kind", SPEECH_FORMATS)
def test_a_file_without_sound_ends_too(kind: SpeechFormat):
    speech_file(kind, RATE_HZ).finish()
