"""Simulated speakerphones: what a microphone hears of a loudspeaker in the same room.

    played -> loudspeaker (small, slightly non-linear) -> room -> delay -> the microphone's own clock

The loudspeaker cuts below 200 Hz and above 7 kHz and bends its waveform: harmonics so many dB below the
sound (``distortion_db``). The room is a direct sound, a few early reflections and an exponentially decaying
Gaussian tail (Polack's model), new for every seed. The delay is that of buffers and air together. A clock
that is ``drift_ppm`` fast takes so many more samples in the same time. Everything is drawn from the seed.

It is a simulation: no real loudspeaker, no codec, no people who move.
"""

from dataclasses import dataclass

import numpy as np
import soxr

RATE_HZ = 16_000
REVERB_MS = 400
LOW_HZ, HIGH_HZ = 200.0, 7_000.0


@dataclass(frozen=True, slots=True)
class Speakerphone:
    """One room with its devices.

    Attributes:
        seed: of the room.
        delay_ms: from the moment at which a sample is played to that at which it is recorded.
        drift_ppm: how much faster the microphone's clock is.
        reverb_ms: T60.
        direct_db: direct sound over the tail.
        distortion_db: what the loudspeaker adds, over what it plays; None for a linear one.
    """

    seed: int
    delay_ms: float
    drift_ppm: float = 0.0
    reverb_ms: float = 250.0
    direct_db: float = 3.0
    distortion_db: float | None = -35.0


def echo_of(played: np.ndarray, phone: Speakerphone) -> np.ndarray:
    """The microphone's share of what is played: float32, (samples,), about as long, at a level of its own.

    played: float32, (samples,), 16 kHz, in [-1, 1].
    """
    sound = played.astype(np.float64)
    if phone.distortion_db is not None:
        sound = distorted(sound, phone.distortion_db)
    path = impulse_response(phone)
    size = 1 << int(np.ceil(np.log2(len(sound) + len(path) + RATE_HZ)))
    spectrum = np.fft.rfft(sound, size) * np.fft.rfft(path, size)
    spectrum *= _band(size) * np.exp(-2j * np.pi * np.fft.rfftfreq(size, 1 / RATE_HZ) * phone.delay_ms / 1000)
    heard = np.fft.irfft(spectrum, size)[: len(sound)]
    if phone.drift_ppm:
        heard = soxr.resample(heard, RATE_HZ, RATE_HZ * (1 + phone.drift_ppm * 1e-6), quality="VHQ")
        heard = np.pad(heard, (0, max(0, len(sound) - len(heard))))[: len(sound)]
    return heard.astype(np.float32)


def impulse_response(phone: Speakerphone) -> np.ndarray:
    """float64, (samples,), of unit energy: direct sound at 0, early reflections, tail."""
    rng = np.random.default_rng([phone.seed, 1])
    length = RATE_HZ * REVERB_MS // 1000
    decay = 10 ** (-3 * np.arange(length) / RATE_HZ / (phone.reverb_ms / 1000))
    tail = rng.standard_normal(length) * decay
    # The diffuse field needs a few milliseconds to build up; before it there are single reflections.
    tail[: RATE_HZ * 5 // 1000] *= 0.1
    for _ in range(6):
        place = int(rng.integers(RATE_HZ * 1 // 1000, RATE_HZ * 15 // 1000))
        tail[place] += rng.choice((-1.0, 1.0)) * rng.uniform(1.0, 3.0) * decay[place]
    path = tail / np.sqrt(np.vdot(tail, tail)) * 10 ** (-phone.direct_db / 20)
    path[0] += 1.0
    return path / np.sqrt(np.vdot(path, path))


def distorted(sound: np.ndarray, distortion_db: float) -> np.ndarray:
    """Second and third harmonics, ``distortion_db`` over the sound as a whole."""
    scale = float(np.sqrt(np.mean(sound[np.abs(sound) > 1e-3] ** 2))) if np.any(np.abs(sound) > 1e-3) else 1.0
    unit = sound / scale
    bent = 0.5 * (unit**2 - np.mean(unit**2)) + unit**3 / (1 + np.abs(unit) ** 2)
    # What a linear system could do as well is no distortion.
    bent -= unit * np.vdot(bent, unit) / max(np.vdot(unit, unit), 1e-12)
    level = np.sqrt(np.vdot(unit, unit) / max(np.vdot(bent, bent), 1e-12)) * 10 ** (distortion_db / 20)
    return scale * (unit + level * bent)


def _band(size: int) -> np.ndarray:
    hz = np.fft.rfftfreq(size, 1 / RATE_HZ)
    low = 1 / np.sqrt(1 + (LOW_HZ / np.maximum(hz, 1e-3)) ** 4)
    return low / np.sqrt(1 + (hz / HIGH_HZ) ** 16)


def noise(samples: int, level_dbfs: float, seed: int) -> np.ndarray:
    """A room's noise: pink to 1 kHz, then falling less, float32, (samples,)."""
    rng = np.random.default_rng([seed, 2])
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    hz = np.fft.rfftfreq(samples, 1 / RATE_HZ)
    sound = np.fft.irfft(spectrum / np.sqrt(np.maximum(hz, 50.0)), samples)
    return (sound / np.sqrt(np.mean(sound**2)) * 10 ** (level_dbfs / 20)).astype(np.float32)


def at_level(samples: np.ndarray, level_dbfs: float) -> np.ndarray:
    """Scaled so that its sounding parts have this RMS (those within 30 dB of the loudest 20 ms)."""
    frame = RATE_HZ // 50
    powers = np.mean(samples[: len(samples) // frame * frame].reshape(-1, frame) ** 2, axis=1)
    loud = powers[powers > powers.max(initial=0.0) * 1e-3]
    if not loud.size:
        return samples
    return (samples * (10 ** (level_dbfs / 20) / np.sqrt(loud.mean()))).astype(np.float32)
