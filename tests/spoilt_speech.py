"""Callers that recognisers find hard, made of recorded speech: whispers, shouts, stutters; and other sounds.

All sounds are float32, (samples,), 16 kHz, in [-1, 1].
"""

import numpy as np

from parley.evals.human.conditions import by_phone, fan
from parley.evals.human.recordings import pauses_of

RATE_HZ = 16_000
LPC_ORDER, LPC_FRAME, LPC_HOP = 18, 480, 240
SILENT_ENERGY = 1e-7
# A whisper is about 20 dB below a voice at -20 dBFS; the microphone's gain compensates half of it.
WHISPER_RMS = 0.03


def at_level(samples: np.ndarray, rms: float) -> np.ndarray:
    """Return the sound scaled to this root mean square."""
    return (samples * (rms / max(float(np.sqrt(np.mean(samples**2))), 1e-9))).astype(np.float32)


def whispered(samples: np.ndarray, seed: int = 1) -> np.ndarray:
    """Return the words without a voice: the vocal tract of each frame, filled with noise.

    Linear prediction separates the two, and white noise of the residual's energy replaces the residual.
    """
    rng = np.random.default_rng(seed)
    window = np.hanning(LPC_FRAME)
    out = np.zeros(len(samples) + LPC_FRAME)
    order = np.arange(LPC_ORDER)
    for start in range(0, len(samples) - LPC_FRAME, LPC_HOP):
        frame = samples[start : start + LPC_FRAME].astype(np.float64) * window
        lags = np.correlate(frame, frame, "full")[LPC_FRAME - 1 : LPC_FRAME + LPC_ORDER]
        if lags[0] < SILENT_ENERGY:
            continue
        lags[0] *= 1.0001
        tract = np.linalg.solve(lags[np.abs(order[:, None] - order)], lags[1:])
        whitening = np.fft.rfft(np.concatenate([[1.0], -tract]), 2 * LPC_FRAME)
        residual = max(lags[0] - float(tract @ lags[1:]), 0.0)
        noise = rng.standard_normal(LPC_FRAME) * np.sqrt(residual / LPC_FRAME)
        shaped = np.fft.irfft(np.fft.rfft(noise, 2 * LPC_FRAME) / whitening)[:LPC_FRAME]
        out[start : start + LPC_FRAME] += shaped * window
    return at_level(out[: len(samples)], WHISPER_RMS)


def shouted(samples: np.ndarray) -> np.ndarray:
    """Return the sound 20 dB louder, cut off at full scale."""
    return np.clip(10.0 * at_level(samples, 0.1), -1.0, 1.0).astype(np.float32)


def by_telephone(samples: np.ndarray) -> np.ndarray:
    """Return the sound over G.711 at 8 kHz."""
    return by_phone(samples, 0.0, np.random.default_rng(2))


def stuttered(samples: np.ndarray, *, at_ms: int, copies: int = 3, gap_ms: int = 120) -> np.ndarray:
    """Return the words with the sound that begins at ``at_ms`` repeated several times: "w- w- w- what"."""
    start, length = at_ms * 16, 130 * 16
    onset = samples[start : start + length] * np.concatenate([np.ones(length - 320), np.linspace(1, 0, 320)])
    gap = np.zeros(gap_ms * 16, np.float32)
    return np.concatenate([samples[:start], *[onset, gap] * copies, samples[start:]]).astype(np.float32)


def fluent(samples: np.ndarray, longest_ms: int = 150) -> np.ndarray:
    """Return the speech with no pause longer than this."""
    kept: list[np.ndarray] = []
    at, longest = 0, longest_ms * 16
    for pause in pauses_of(samples, RATE_HZ):
        if pause.end - pause.first > longest:
            kept.append(samples[at : pause.first + longest // 2])
            at = pause.end - longest // 2
    return np.concatenate([*kept, samples[at:]])


def music(duration_s: int, rms: float = 0.1) -> np.ndarray:
    """Return four chords in turn with a melody, a bass and a drum on each beat."""
    rng = np.random.default_rng(5)
    times = np.arange(duration_s * RATE_HZ) / RATE_HZ
    out = np.zeros_like(times)
    beat_s = 0.5
    chords = ((220.0, 261.6, 329.6), (174.6, 220.0, 261.6), (196.0, 246.9, 293.7), (164.8, 207.7, 246.9))
    for beat in range(int(duration_s / beat_s)):
        start = int(beat * beat_s * RATE_HZ)
        span = slice(start, start + int(beat_s * RATE_HZ))
        t = times[span] - times[start]
        chord = chords[beat // 4 % 4]
        notes = [(tone, 0.4) for tone in chord] + [
            (chord[0] / 2, 0.8),
            (2 * chord[int(rng.integers(3))], 1.0),
        ]
        for tone, weight in notes:
            overtones = sum(np.sin(2 * np.pi * tone * k * t) / k**1.5 for k in range(1, 7))
            out[span] += weight * overtones * np.exp(-3 * t)
        out[span] += rng.standard_normal(len(t)) * np.exp(-40 * t) * (2.0 if beat % 2 else 1.0)
    return at_level(out, rms)


def fan_noise(duration_s: int, rms: float) -> np.ndarray:
    """Return the rush and hum of a fan."""
    return at_level(fan(duration_s * RATE_HZ, np.random.default_rng(4)), rms)


def together(*voices: np.ndarray) -> np.ndarray:
    """Return several sounds at one microphone."""
    out = np.zeros(max(map(len, voices)), np.float32)
    for voice in voices:
        out[: len(voice)] += voice
    return out
