"""Tone for a caller who waits and for whom there are no words: two soft beats. Pure."""

import numpy as np

from parley.audio import g711

RATE_HZ = 8_000
# The pitch of a dial tone in most countries (ITU-T E.180), as loud as soft speech.
PITCH_HZ, LEVEL_DB = 425.0, -24.0
BEAT_MS, PAUSE_MS, RAMP_MS = 180, 120, 20


def holding_tone() -> bytes:
    """Return the tone as mu-law at 8 kHz."""
    places = np.arange(BEAT_MS * RATE_HZ // 1000)
    ramp = RAMP_MS * RATE_HZ // 1000
    edge = np.minimum(1.0, np.minimum(places + 1, places[::-1] + 1) / ramp)
    # LEVEL_DB is RMS, and the peak of a sine is 3 dB more.
    peak = 32_768 * 10 ** (LEVEL_DB / 20) * np.sqrt(2)
    beat = peak * edge * np.sin(2 * np.pi * PITCH_HZ * places / RATE_HZ)
    samples = np.concatenate((beat, np.zeros(PAUSE_MS * RATE_HZ // 1000), beat))
    return g711.encode(np.round(samples).astype(np.int16), g711.Law.MU)
