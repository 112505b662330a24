"""Phone calls by streamdouble, a simulated caller of Media Streams that ignores what it receives."""

from collections.abc import Sequence

import numpy as np
from streamdouble import api
from streamdouble.session import SessionConfig

from parley.evals.harness.phone_speech import packets, samples_of
from tests.voices import bot_says

RATE_HZ = 8_000
ROWS_HZ, COLUMNS_HZ = (697, 770, 852, 941), (1_209, 1_336, 1_477)
KEYPAD = ("123", "456", "789", "*0#")
# Relative to full scale 1: softer tones are not counted as keys.
LOUD_POWER = 1e-4


async def place(url: str, frames: Sequence[bytes], **config: object) -> api.CallReport:
    """Place one call, from its first packet until the bot has been quiet."""
    given = {"max_drain_s": 10.0, "quiet_period_s": 1.5} | config
    return await api.call(url, frames=list(frames), config=SessionConfig(**given))  # type: ignore[arg-type]


def heard(report: api.CallReport) -> np.ndarray:
    """Return the audio that the caller received, at 8 kHz."""
    return samples_of(report.audio_received).astype(np.float64)


def keys_in(heard: np.ndarray) -> str:
    """Return the keys whose two tones (ITU-T Q.23) are audible, each once while it lasts.

    A block of 25 ms is a key where at least four fifths of its energy are in one row and one column.
    """
    size = RATE_HZ // 40
    turns = np.exp(-2j * np.pi * np.outer([*ROWS_HZ, *COLUMNS_HZ], np.arange(size)) / RATE_HZ)
    keys, before = "", ""
    for block in heard[: len(heard) // size * size].reshape(-1, size):
        # Power of a sine: half the square of its amplitude, which is twice the sum over the size.
        tones = 2 * np.abs(turns @ block) ** 2 / size
        row, column = int(tones[:4].argmax()), int(tones[4:].argmax())
        energy = (block**2).sum()
        is_key = energy > size * LOUD_POWER and tones[row] + tones[4 + column] > 0.8 * energy
        key = KEYPAD[row][column] if is_key else ""
        keys += key if key != before else ""
        before = key
    return keys


def likeness(heard: np.ndarray, clause: str) -> float:
    """Return the likeness of a clause in the bot's voice to the part of the audio that is most like it.

    1 is the same, whatever its level; another clause has less than 0.4. The clause has to be as it was
    given to the voice: its two halves sound different when they are spoken separately.
    """
    wanted = samples_of(b"".join(packets(bot_says(clause)))).astype(np.float64)
    size = len(heard) + len(wanted)
    crossed = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(wanted, size)), size)
    sums = np.concatenate(([0.0], np.cumsum(heard**2)))
    energies = sums[len(wanted) :] - sums[: -len(wanted)]
    # Where there is almost no sound there is nothing to compare.
    energies = np.maximum(energies, energies.max() / 100)
    return float((np.abs(crossed[: len(energies)]) / np.sqrt(energies * (wanted**2).sum())).max())
