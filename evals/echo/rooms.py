"""Simulated speakerphones: the microphone signal of a loudspeaker in the same room.

    played -> loudspeaker (small, slightly non-linear) -> room -> delay -> the microphone's own clock

The loudspeaker cuts below 200 Hz and above 7 kHz and distorts its waveform: harmonics at a level relative to
the sound (``distortion_db``). The room is a direct sound, a few early reflections and an exponentially
decaying Gaussian tail (Polack's model), new for every seed. The delay is that of buffers and air together. A
clock that is ``drift_ppm`` fast takes that many more samples in the same time. Everything is drawn from the
seed.

``echo_of`` takes the played signal as a whole. ``EchoPath`` takes it piece by piece, for a bot that lowers
its voice or stops in reaction to the microphone signal.

It is a simulation: no real loudspeaker, no codec, no people who move.
"""

from dataclasses import dataclass

import numpy as np
import soxr

RATE_HZ = 16_000
REVERB_MS = 400
LOW_HZ, HIGH_HZ = 200.0, 7_000.0
# The loudspeaker's filters are zero-phase: they ring this long before and after a sound.
RING_MS = 40


@dataclass(frozen=True, slots=True)
class Speakerphone:
    """A room with its devices.

    Attributes:
        seed: of the room.
        delay_ms: from the moment at which a sample is played to that at which it is recorded.
        drift_ppm: by which the microphone's clock is faster.
        reverb_ms: T60.
        direct_db: direct sound over the tail.
        distortion_db: of the loudspeaker, relative to the played sound. None for a linear one.
    """

    seed: int
    delay_ms: float
    drift_ppm: float = 0.0
    reverb_ms: float = 250.0
    direct_db: float = 3.0
    distortion_db: float | None = -35.0


def echo_of(played: np.ndarray, phone: Speakerphone) -> np.ndarray:
    """Return the echo of the played signal at the microphone: float32, (samples,), about as long, unscaled.

    Args:
        played: float32, (samples,), 16 kHz, in [-1, 1].
        phone: the room with its devices.
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
    """Return the impulse response: float64, (samples,), of unit energy.

    It has the direct sound at 0, early reflections, and a tail.
    """
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
    """Add second and third harmonics, ``distortion_db`` over the sound as a whole."""
    return Loudspeaker(sound, distortion_db).play(sound)


class Loudspeaker:
    """Loudspeaker that distorts a waveform: harmonics relative to all of ``sound``; quieter parts get fewer.

    Args:
        sound: float, (samples,), all that is to be played, at full volume.
        distortion_db: see ``Speakerphone``.
    """

    def __init__(self, sound: np.ndarray, distortion_db: float) -> None:
        audible = sound[np.abs(sound) > 1e-3]
        self._scale = float(np.sqrt(np.mean(audible**2))) if audible.size else 1.0
        unit = sound / self._scale
        self._offset = float(np.mean(unit**2))
        bent = self._harmonics(unit)
        # The linear part is no distortion.
        self._linear = float(np.vdot(bent, unit) / max(np.vdot(unit, unit), 1e-12))
        bent -= unit * self._linear
        level = np.sqrt(np.vdot(unit, unit) / max(np.vdot(bent, bent), 1e-12))
        self._level = float(level) * 10 ** (distortion_db / 20)

    def play(self, sound: np.ndarray) -> np.ndarray:
        """Return the distorted sound: float64, (samples,)."""
        unit = sound / self._scale
        return self._scale * (unit + self._level * (self._harmonics(unit) - unit * self._linear))

    def _harmonics(self, unit: np.ndarray) -> np.ndarray:
        return 0.5 * (unit**2 - self._offset) + unit**3 / (1 + np.abs(unit) ** 2)


class EchoPath:
    """``echo_of``, piece by piece: the played pieces may be quieter than ``whole``, or silent.

    Args:
        phone: the room. Its clocks agree.
        whole: float32, (samples,), all that is to be played, at full volume.
        level_dbfs: of the echo of all of it. See ``at_level``.

    Raises:
        ValueError: the clocks drift, or the delay is shorter than the filters of the loudspeaker ring.
    """

    def __init__(self, phone: Speakerphone, whole: np.ndarray, level_dbfs: float) -> None:
        if phone.drift_ppm or phone.delay_ms < RING_MS:
            raise ValueError(f"expected no drift and {RING_MS} ms of delay at least: {phone}")
        full = echo_of(whole, phone)
        sounding = np.abs(full) > 0
        loudest = int(np.argmax(np.abs(full)))
        self._factor = float(at_level(full, level_dbfs)[loudest] / full[loudest]) if sounding.any() else 1.0
        self._loudspeaker = None
        if phone.distortion_db is not None:
            self._loudspeaker = Loudspeaker(whole.astype(np.float64), phone.distortion_db)
        length = RATE_HZ * (REVERB_MS + RING_MS) // 1000 + round(RATE_HZ * phone.delay_ms / 1000)
        size = 1 << int(np.ceil(np.log2(2 * length)))
        delay = np.exp(-2j * np.pi * np.fft.rfftfreq(size, 1 / RATE_HZ) * phone.delay_ms / 1000)
        spectrum = np.fft.rfft(impulse_response(phone), size) * _band(size) * delay
        self._taps = np.fft.irfft(spectrum, size)[:length]
        # Remaining echo of the pieces before.
        self._ringing = np.zeros(0)
        self._spectra: dict[int, np.ndarray] = {}

    def hear(self, piece: np.ndarray) -> np.ndarray:
        """Return the echo while a piece is played: float32, (samples,), as long."""
        sound = piece.astype(np.float64)
        if self._loudspeaker is not None:
            sound = self._loudspeaker.play(sound)
        size = 1 << int(np.ceil(np.log2(len(sound) + len(self._taps))))
        if size not in self._spectra:
            self._spectra[size] = np.fft.rfft(self._taps, size)
        heard = np.fft.irfft(np.fft.rfft(sound, size) * self._spectra[size], size)
        heard[: len(self._ringing)] += self._ringing
        self._ringing = heard[len(sound) : len(sound) + len(self._taps)]
        return (self._factor * heard[: len(sound)]).astype(np.float32)


def _band(size: int) -> np.ndarray:
    hz = np.fft.rfftfreq(size, 1 / RATE_HZ)
    low = 1 / np.sqrt(1 + (LOW_HZ / np.maximum(hz, 1e-3)) ** 4)
    return low / np.sqrt(1 + (hz / HIGH_HZ) ** 16)


def noise(samples: int, level_dbfs: float, seed: int) -> np.ndarray:
    """Return a room's noise: pink to 1 kHz, then falling less, float32, (samples,)."""
    rng = np.random.default_rng([seed, 2])
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    hz = np.fft.rfftfreq(samples, 1 / RATE_HZ)
    sound = np.fft.irfft(spectrum / np.sqrt(np.maximum(hz, 50.0)), samples)
    return (sound / np.sqrt(np.mean(sound**2)) * 10 ** (level_dbfs / 20)).astype(np.float32)


def at_level(samples: np.ndarray, level_dbfs: float) -> np.ndarray:
    """Scale a signal so that its sounding parts have this RMS (those within 30 dB of the loudest 20 ms)."""
    frame = RATE_HZ // 50
    powers = np.mean(samples[: len(samples) // frame * frame].reshape(-1, frame) ** 2, axis=1)
    loud = powers[powers > powers.max(initial=0.0) * 1e-3]
    if not loud.size:
        return samples
    return (samples * (10 ** (level_dbfs / 20) / np.sqrt(loud.mean()))).astype(np.float32)
