"""Telephone calls by streamdouble, a simulated caller of Media Streams: what it says, and what it heard."""

from collections.abc import Sequence

import numpy as np
from streamdouble import api
from streamdouble.session import SessionConfig

from audio import g711
from audio.resample import Resampler
from core.media import float_to_pcm16, pcm16_to_float
from protocols.twilio_media import PACKET_BYTES, RATE_HZ, SILENCE
from tests.voices import say

PACKET = SILENCE * PACKET_BYTES
PACKETS_PER_S = 50


def quiet(seconds: float) -> list[bytes]:
    """Packets in which nothing is said."""
    return [PACKET] * round(seconds * PACKETS_PER_S)


def spoken(pcm: bytes, rate_hz: int = 16_000) -> list[bytes]:
    """PCM as the packets of a telephone line."""
    samples = Resampler(rate_hz, RATE_HZ).feed(pcm16_to_float(pcm))
    mu_law = g711.encode(np.frombuffer(float_to_pcm16(samples), "<i2").astype(np.int16), g711.Law.MU)
    mu_law += SILENCE * (-len(mu_law) % PACKET_BYTES)
    return [mu_law[at : at + PACKET_BYTES] for at in range(0, len(mu_law), PACKET_BYTES)]


async def place(url: str, frames: Sequence[bytes], **config: object) -> api.CallReport:
    """One call, from its first packet until the bot has been quiet."""
    given = {"max_drain_s": 10.0, "quiet_period_s": 1.5} | config
    return await api.call(url, frames=list(frames), config=SessionConfig(**given))  # type: ignore[arg-type]


def heard(report: api.CallReport) -> np.ndarray:
    """What the caller was sent, at 8 kHz."""
    return decoded(report.audio_received)


def decoded(mu_law: bytes) -> np.ndarray:
    return g711.decode(mu_law, g711.Law.MU).astype(np.float64) / 32_768


def likeness(heard: np.ndarray, clause: str, voice: str = "slt") -> float:
    """How much the likest part of what was heard is like this clause in the voice's own words.

    1 is the same, whatever its level; another clause has less than 0.4. The clause has to be as it was
    given to the voice: its two halves are said otherwise.
    """
    wanted = decoded(b"".join(spoken(say(clause, voice))))
    size = len(heard) + len(wanted)
    crossed = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(wanted, size)), size)
    sums = np.concatenate(([0.0], np.cumsum(heard**2)))
    energies = sums[len(wanted) :] - sums[: -len(wanted)]
    # Where hardly anything is heard there is nothing to compare.
    energies = np.maximum(energies, energies.max() / 100)
    return float((np.abs(crossed[: len(energies)]) / np.sqrt(energies * (wanted**2).sum())).max())
