"""WAV files: bytes of any rate, width and channel count to mono PCM of the requested rate, and PCM to a file.

Pure: takes and returns bytes. Decoding is libsndfile's (``soundfile``). Resampling is ``soxr`` at high
quality, because a file is converted once and before the call.
"""

import io
import wave

import numpy as np
import soundfile
import soxr

from parley.core.errors import MediaError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16

MAX_WAV_S = 3 * 3600


def decode_wav(data: bytes, *, rate_hz: int) -> bytes:
    """Return a whole audio file as 16-bit mono PCM at ``rate_hz``; channels are averaged.

    Raises MediaError when the bytes are not an audio file, hold no sample, or last over ``MAX_WAV_S``.
    """
    try:
        samples, file_rate_hz = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        # The library's text without its name for the in-memory file.
        raise MediaError(f"not an audio file: {error.error_string}") from error
    except (TypeError, ValueError) as error:
        raise MediaError(f"not an audio file: {error}") from error
    if not len(samples):
        raise MediaError("the audio file contains no samples")
    if len(samples) / file_rate_hz > MAX_WAV_S:
        raise MediaError(f"the audio file is longer than {MAX_WAV_S} s")
    mono = np.nan_to_num(samples.mean(axis=1))
    if file_rate_hz != rate_hz:
        mono = soxr.resample(mono, file_rate_hz, rate_hz)
    return float_to_pcm16(np.asarray(mono, dtype=np.float32))


def encode_wav(pcm: bytes, rate_hz: int) -> bytes:
    """Return 16-bit mono PCM as a WAV file."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(PCM_BYTES_PER_SAMPLE)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
    return written.getvalue()
