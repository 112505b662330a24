"""A microphone far from the talker: room impulse responses by the image method.

Allen and Berkley, "Image method for efficiently simulating small-room acoustics", J. Acoust. Soc. Am. 65(4),
1979: a shoebox with equal walls, each image of the talker a delayed pulse. The walls' reflection starts from
Eyring's formula and is corrected until the response decays in the requested time, because sound between
parallel, equally damped walls lasts longer than by the formula. Pulses of one sign leave a rumble, which a
high pass removes, as in the paper. The response begins with the direct sound, so that the room adds no delay.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

SPEED_M_S = 343.0
# Eyring: T60 = 0.161 V / (-S ln(1 - a)), for SI units.
_EYRING = 0.161
CORRECTIONS = 4
HIGH_PASS_HZ = 80.0


@dataclass(frozen=True, slots=True)
class ShoeboxRoom:
    """A shoebox room with a talker and a microphone, in metres.

    Attributes:
        size: length, width, height.
        talker: place of the mouth.
        microphone: place of the microphone.
        reverb_ms: T60.
    """

    size: tuple[float, float, float]
    talker: tuple[float, float, float]
    microphone: tuple[float, float, float]
    reverb_ms: float

    @property
    def distance_m(self) -> float:
        """Distance from the talker to the microphone."""
        return math.dist(self.talker, self.microphone)


# A telephone on a table in an office, 2.6 m away; the walls are a little damped.
FAR = ShoeboxRoom((5.2, 4.1, 2.7), (1.1, 1.3, 1.5), (3.4, 2.4, 0.9), 450.0)


@cache
def impulse_response(room: ShoeboxRoom, rate_hz: int) -> np.ndarray:
    """Return the response from the direct sound on, which has the height 1: float64, (samples,)."""
    x, y, z = room.size
    volume, surface = x * y * z, 2 * (x * y + y * z + x * z)
    wanted_s = room.reverb_ms / 1000
    # Nepers at each reflection.
    damping = _EYRING * volume / (surface * wanted_s) / 2
    for _ in range(CORRECTIONS):
        response = _response(room, rate_hz, math.exp(-damping))
        damping *= reverb_s(response, rate_hz) / wanted_s
    return _response(room, rate_hz, math.exp(-damping))


def reverb_s(response: np.ndarray, rate_hz: int) -> float:
    """Return T60 from the decay between -5 and -25 dB (Schroeder 1965; ISO 3382-2)."""
    energy = np.cumsum((response**2)[::-1])[::-1]
    decay_db = 10 * np.log10(energy / energy[0] + 1e-12)
    start, stop = (int(np.argmax(decay_db < level)) for level in (-5, -25))
    return 3 * (stop - start) / rate_hz


def _response(room: ShoeboxRoom, rate_hz: int, reflection: float) -> np.ndarray:
    length = int(rate_hz * room.reverb_ms / 1000)
    direct = room.distance_m
    reach = direct + SPEED_M_S * room.reverb_ms / 1000
    # Along each axis: distance of every image from the microphone, and number of its reflections.
    axes = [
        _images(size, talker, microphone, reach)
        for size, talker, microphone in zip(room.size, room.talker, room.microphone, strict=True)
    ]
    (x, by_x), (y, by_y), (z, by_z) = axes
    response = np.zeros(length)
    for x_m, x_times in zip(x, by_x, strict=True):
        distance = np.sqrt(x_m**2 + y[:, None] ** 2 + z[None] ** 2)
        times = x_times + by_y[:, None] + by_z[None]
        at = np.rint((distance - direct) / SPEED_M_S * rate_hz).astype(int)
        inside = at < length
        pulses = reflection ** times[inside] * direct / distance[inside]
        response += np.bincount(at[inside], weights=pulses, minlength=length)[:length]
    return _high_passed(response, rate_hz)


def _high_passed(response: np.ndarray, rate_hz: int) -> np.ndarray:
    pole = math.exp(-2 * math.pi * HIGH_PASS_HZ / rate_hz)
    passed, before, last = np.empty_like(response), 0.0, 0.0
    for at, value in enumerate(response):
        last = value - before + pole * last
        before, passed[at] = value, last
    return passed


def in_room(samples: np.ndarray, room: ShoeboxRoom, rate_hz: int) -> np.ndarray:
    """Return the microphone's recording, as loud as the input: float32, (samples + reverb,).

    Args:
        samples: float32, (samples,).
        room: with talker and microphone.
        rate_hz: of the samples.
    """
    response = impulse_response(room, rate_hz)
    length = len(samples) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)[:length]
    before, after = _power(samples), _power(heard)
    return (heard * (math.sqrt(before / after) if after else 1.0)).astype(np.float32)


def _power(samples: np.ndarray) -> float:
    return float(np.sum(samples.astype(np.float64) ** 2))


def _images(size: float, talker: float, microphone: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Return distances along one axis and numbers of reflections of the images within reach."""
    order = math.ceil(reach / (2 * size)) + 1
    cells = np.arange(-order, order + 1)
    even, odd = 2 * cells * size + talker - microphone, 2 * cells * size - talker - microphone
    distances = np.concatenate((even, odd))
    times = np.concatenate((np.abs(2 * cells), np.abs(2 * cells - 1)))
    near = np.abs(distances) <= reach
    return distances[near], times[near]
