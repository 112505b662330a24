"""Encode speech as an audio file piece by piece, for a reader that begins to play before the end.

No piece is written twice: a header that would state the length of the whole file states that it is not known
yet, as files of OpenAI's speech API do. Blocks in proportion to the audio: not for the event loop.
"""

import struct
from fractions import Fraction
from typing import Protocol, cast

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream

from parley.core.media import float_to_pcm16
from parley.core.speech_formats import SpeechFormat

# Container, codec and options of FFmpeg. A Xing header of MP3 would be completed at the end, by seeking.
_CODECS: dict[SpeechFormat, tuple[str, str, dict[str, str]]] = {
    "mp3": ("mp3", "libmp3lame", {"write_xing": "0"}),
    "opus": ("ogg", "libopus", {"page_duration": "200000"}),
    "aac": ("adts", "aac", {}),
    "flac": ("flac", "flac", {}),
}
# Length of a RIFF chunk that is not known.
_UNKNOWN = 0xFFFFFFFF


class SpeechFile(Protocol):
    """Audio file that is being written."""

    def feed(self, samples: np.ndarray) -> bytes:
        """Add float32 samples in [-1, 1]; return the bytes of the file that they complete."""
        ...

    def finish(self) -> bytes:
        """Return the last bytes of the file."""
        ...


def speech_file(kind: SpeechFormat, rate_hz: int) -> SpeechFile:
    """Begin a mono file.

    Args:
        kind: format of the file; ``pcm`` is 16-bit, little-endian, without a header.
        rate_hz: rate of the samples; Opus takes 8, 12, 16, 24 and 48 kHz.
    """
    if kind in ("wav", "pcm"):
        return _Plain(wav_header(rate_hz) if kind == "wav" else b"")
    return _Encoded(kind, rate_hz)


def wav_header(rate_hz: int, channels: int = 1) -> bytes:
    """Return the header of a WAV file of 16-bit samples whose length is not known yet."""
    frame_bytes = 2 * channels
    fmt = struct.pack("<HHIIHH", 1, channels, rate_hz, frame_bytes * rate_hz, frame_bytes, 16)
    return b"".join(
        (
            b"RIFF",
            struct.pack("<I", _UNKNOWN),
            b"WAVEfmt ",
            struct.pack("<I", len(fmt)),
            fmt,
            b"data",
            struct.pack("<I", _UNKNOWN),
        )
    )


class _Plain:
    def __init__(self, header: bytes) -> None:
        self._header = header

    def feed(self, samples: np.ndarray) -> bytes:
        header, self._header = self._header, b""
        return header + float_to_pcm16(samples)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header


class _Sink:
    """File that FFmpeg writes to and cannot seek in."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


class _Encoded:
    def __init__(self, kind: SpeechFormat, rate_hz: int) -> None:
        container, codec, options = _CODECS[kind]
        self._sink = _Sink()
        self._container = av.open(self._sink, "w", format=container, options=options)
        self._stream = cast(AudioStream, self._container.add_stream(codec, rate=rate_hz, layout="mono"))
        self._rate_hz = rate_hz
        self._fed_samples = 0

    def feed(self, samples: np.ndarray) -> bytes:
        pcm = np.frombuffer(float_to_pcm16(samples), "<i2")
        if pcm.size:
            frame = AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts, frame.time_base = self._fed_samples, Fraction(1, self._rate_hz)
            self._fed_samples += pcm.size
            self._container.mux(self._stream.encode(frame))
        return self._sink.take()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.take()
