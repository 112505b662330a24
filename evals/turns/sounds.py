"""Hums and coughs, drawn from a random generator: sounds of a caller that no synthesiser makes.

A hum is a nasal: harmonics of a gliding pitch under the formants of [m] (Fant 1960: about 250, 1,000 and
2,200 Hz), in one stretch ("mm") or two with a breath between them ("mhm"). A cough is one to three bursts:
noise that sets in within a few milliseconds and dies away, then a softer voiced rest (Korpas, Sadlonova and
Vrabec 1996: explosive, intermediate and voiced phase). Neither is a recording.
"""

import numpy as np

RATE_HZ = 16_000
NASAL_HZ = ((250.0, 80.0, 1.0), (1_000.0, 200.0, 0.12), (2_200.0, 300.0, 0.05))
COUGH_HZ = (400.0, 4_500.0)
PEAK = 0.5
HIGHEST_HARMONIC_HZ = 3_500.0


def hum(rng: np.random.Generator) -> np.ndarray:
    """Return a backchannel without words: float32, (samples,), 250 to 700 ms, peaking at ``PEAK``."""
    pitch_hz = float(rng.uniform(95, 230))
    length_ms = int(rng.integers(250, 700))
    if length_ms < 350 or rng.random() < 0.4:
        return _peaked(_nasal(length_ms, pitch_hz, float(rng.uniform(-3, 2)), rng))
    breath_ms = int(rng.integers(50, 100))
    first_ms = int((length_ms - breath_ms) * rng.uniform(0.35, 0.5))
    breath = 0.03 * _band(rng.standard_normal(_samples(breath_ms)), 300.0, 3_000.0)
    last_ms = length_ms - breath_ms - first_ms
    last = _nasal(last_ms, pitch_hz * 2 ** (rng.uniform(1, 4) / 12), float(rng.uniform(-2, 3)), rng)
    return _peaked(np.concatenate((_nasal(first_ms, pitch_hz, float(rng.uniform(-1, 1)), rng), breath, last)))


def cough(rng: np.random.Generator) -> np.ndarray:
    """Return a cough: float32, (samples,), 150 ms to about a second, peaking at ``PEAK``."""
    parts = []
    for _ in range(int(rng.choice((1, 2, 3), p=(0.5, 0.35, 0.15)))):
        parts += [_burst(rng), np.zeros(_samples(int(rng.integers(40, 160))))]
    return _peaked(np.concatenate(parts[:-1]))


def _burst(rng: np.random.Generator) -> np.ndarray:
    size = _samples(int(rng.integers(150, 320)))
    seconds = np.arange(size) / RATE_HZ
    noise = _band(rng.standard_normal(size), *COUGH_HZ)
    explosion = np.minimum(seconds / 0.008, 1) * np.exp(-seconds / rng.uniform(0.03, 0.07))
    rest = np.clip((seconds - 0.06) / 0.03, 0, 1) * np.exp(-seconds / rng.uniform(0.08, 0.16))
    voiced = _nasal(round(1000 * size / RATE_HZ), float(rng.uniform(150, 300)), -6.0, rng)[:size]
    return noise * explosion + rest * (0.35 * noise + 0.15 * np.pad(voiced, (0, size - len(voiced))))


def _nasal(length_ms: int, pitch_hz: float, glide_semitones: float, rng: np.random.Generator) -> np.ndarray:
    size = _samples(length_ms)
    seconds = np.arange(size) / RATE_HZ
    # A voice is never as steady as an oscillator: 1 % of slow wavering.
    waver = 1 + 0.01 * np.sin(2 * np.pi * rng.uniform(4, 7) * seconds + rng.uniform(0, 6))
    hertz = pitch_hz * 2 ** (glide_semitones * seconds / max(seconds[-1], 1e-3) / 12) * waver
    phase = 2 * np.pi * np.cumsum(hertz) / RATE_HZ
    sound = np.zeros(size)
    for harmonic in range(1, int(HIGHEST_HARMONIC_HZ / pitch_hz) + 1):
        at_hz = harmonic * pitch_hz
        gain = sum(peak / (1 + ((at_hz - centre) / width) ** 2) for centre, width, peak in NASAL_HZ)
        sound += gain * np.sin(harmonic * phase + rng.uniform(0, 6))
    ramp = np.minimum(1.0, np.minimum(seconds, seconds[-1] - seconds) / 0.04)
    return sound * ramp + 0.002 * rng.standard_normal(size)


def _band(sound: np.ndarray, low_hz: float, high_hz: float) -> np.ndarray:
    spectrum = np.fft.rfft(sound)
    hertz = np.fft.rfftfreq(len(sound), 1 / RATE_HZ)
    spectrum *= 1 / np.sqrt(1 + (low_hz / np.maximum(hertz, 1.0)) ** 4) / np.sqrt(1 + (hertz / high_hz) ** 4)
    return np.fft.irfft(spectrum, len(sound))


def _samples(length_ms: int) -> int:
    return length_ms * RATE_HZ // 1000


def _peaked(sound: np.ndarray) -> np.ndarray:
    return (PEAK * sound / np.abs(sound).max()).astype(np.float32)
