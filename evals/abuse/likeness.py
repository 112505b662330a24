"""Similarity of received audio and a clause of the bot's voice. Pure: samples in, a number out."""

from functools import cache

import numpy as np
import soxr

from parley.evals.harness.voices import synthesised
from parley.models.tts.hibari import HibariTts

RATE_HZ = 8_000
# Measured: 1.0 over a socket, 0.98 with silence of 100 ms inserted at two places, other clauses at most 0.5.
SAID = 0.65
# A late line inserts silence: the parts of a clause are searched for one by one.
PART_S = 0.7


def at_8_khz(pcm: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return mono samples of any kind as float64 at ``RATE_HZ``."""
    return np.asarray(soxr.resample(pcm.astype(np.float64), rate_hz, RATE_HZ))


def spoken(clause: str) -> np.ndarray:
    """Return a clause in the voice of the server, as it speaks it in one piece."""
    voice = _voice()
    return at_8_khz(np.frombuffer(synthesised(voice, clause), "<i2"), voice.rate_hz)


def likeness(heard: np.ndarray, wanted: np.ndarray) -> float:
    """Return the similarity of the wanted samples and the best part of the received ones; 1 at any level for
    equal.
    """
    parts = np.array_split(wanted, max(1, round(len(wanted) / RATE_HZ / PART_S)))
    return float(np.mean([_likeness(heard, part) for part in parts]))


@cache
def _voice() -> HibariTts:
    return HibariTts()


def _likeness(heard: np.ndarray, wanted: np.ndarray) -> float:
    if len(heard) < len(wanted):
        return 0.0
    size = len(heard) + len(wanted)
    crossed = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(wanted, size)), size)
    sums = np.concatenate(([0.0], np.cumsum(heard**2)))
    energies = sums[len(wanted) :] - sums[: -len(wanted)]
    # Near silence there is nothing to compare.
    energies = np.maximum(energies, max(float(energies.max()) / 100, 1e-9))
    return float((np.abs(crossed[: len(energies)]) / np.sqrt(energies * (wanted**2).sum())).max())
