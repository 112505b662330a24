"""Room, noise and telephone line between a caller's mouth and the recogniser.

First the room adds reverberation. Then noise is added at a given ratio to the speech. Last the line narrows
the band, codes it as mu-law at 8 kHz and loses packets, which are concealed as Parley conceals them. No step
changes times: a sample of the result corresponds to the same sample of the source. Everything is drawn from a
random generator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import soxr

from parley.audio import g711
from parley.core.errors import ConfigError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.human.recordings import RecordedUtterance, edges_of
from parley.evals.human.rooms import FAR, ShoeboxRoom, in_room
from parley.evals.human.split import SpeechSet
from parley.protocols.twilio_media import PACKET_MS
from parley.transports.twilio.caller import CallerLine

RATE_HZ, LINE_HZ = 16_000, 8_000
# ITU-T G.712's telephone channel, without its tolerances.
LOW_HZ, HIGH_HZ = 300.0, 3_400.0
BABBLE_TALKERS = 6
# Losses come in bursts of this average number of packets (Gilbert's model).
BURST_PACKETS = 1.5
_FAN_HZ, _BLADE_HZ = 400.0, 118.0


class NoiseKind(Enum):
    """Kind of noise."""

    PINK = "pink"
    FAN = "fan"
    BABBLE = "babble"


@dataclass(frozen=True, slots=True)
class Condition:
    """Combination of room, noise and line of a caller.

    Attributes:
        name: for tables.
        room: None for a headset.
        noise: None for none.
        snr_db: active speech over noise.
        phone: true when the call comes by telephone.
        loss: share of the line's packets that are lost.
    """

    name: str
    room: ShoeboxRoom | None = None
    noise: NoiseKind | None = None
    snr_db: float = 0.0
    phone: bool = False
    loss: float = 0.0


CLEAN = Condition("clean")
_ALL = (
    CLEAN,
    Condition("pink-20", noise=NoiseKind.PINK, snr_db=20),
    Condition("pink-10", noise=NoiseKind.PINK, snr_db=10),
    Condition("fan-10", noise=NoiseKind.FAN, snr_db=10),
    Condition("babble-10", noise=NoiseKind.BABBLE, snr_db=10),
    Condition("babble-5", noise=NoiseKind.BABBLE, snr_db=5),
    Condition("far", room=FAR),
    Condition("far-fan-15", room=FAR, noise=NoiseKind.FAN, snr_db=15),
    Condition("phone", phone=True),
    Condition("phone-loss-3", phone=True, loss=0.03),
    Condition("phone-babble-10", phone=True, noise=NoiseKind.BABBLE, snr_db=10),
)
CONDITIONS: Mapping[str, Condition] = {condition.name: condition for condition in _ALL}


class Surroundings:
    """Apply conditions to the speech of one set; babble is made of other speakers of the same set.

    Args:
        material: origin of the other people's voices.

    Attributes:
        talkers: recordings for babble, by speaker.
    """

    def __init__(self, material: SpeechSet) -> None:
        self.talkers: dict[str, list[RecordedUtterance]] = {}
        for one in material:
            self.talkers.setdefault(one.speaker, []).append(one)

    def heard(
        self, samples: np.ndarray, condition: Condition, rng: np.random.Generator, *, speaker: str
    ) -> np.ndarray:
        """Return the audio that arrives: float32, (samples,), 16 kHz, as long as the input.

        Args:
            samples: float32, (samples,), 16 kHz.
            condition: to be applied.
            rng: of noise and losses.
            speaker: left out of the babble.

        Raises:
            ConfigError: the condition has babble, and the set has no other speaker.
        """
        heard = samples
        if condition.room is not None:
            heard = in_room(heard, condition.room, RATE_HZ)[: len(samples)]
        if condition.noise is not None:
            heard = heard + self._noise(heard, condition.noise, condition.snr_db, rng, speaker)
        if condition.phone:
            heard = by_phone(heard, condition.loss, rng)
        peak = float(np.abs(heard).max(initial=0.0))
        return (heard / peak if peak > 1.0 else heard).astype(np.float32)

    def _noise(
        self, speech: np.ndarray, kind: NoiseKind, snr_db: float, rng: np.random.Generator, speaker: str
    ) -> np.ndarray:
        if kind is NoiseKind.BABBLE:
            noise = self._babble(len(speech), rng, speaker)
        else:
            noise = (pink if kind is NoiseKind.PINK else fan)(len(speech), rng)
        wanted = active_power(speech) * 10 ** (-snr_db / 10)
        return noise * np.sqrt(wanted / max(float(np.mean(noise**2)), 1e-12))

    def _babble(self, samples: int, rng: np.random.Generator, speaker: str) -> np.ndarray:
        others = sorted(name for name in self.talkers if name != speaker)
        if not others:
            raise ConfigError("babble needs another speaker in the set: load more sources")
        total = np.zeros(samples)
        order = [str(name) for name in rng.permutation(others)]
        for talker in range(BABBLE_TALKERS):
            said = self._talk(self.talkers[order[talker % len(order)]], samples, rng)
            total += said / np.sqrt(max(active_power(said), 1e-12))
        return total

    def _talk(
        self, recordings: Sequence[RecordedUtterance], samples: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Return one person's recordings without silence between them, from a random place."""
        parts: list[np.ndarray] = []
        length = 0
        while length < 2 * samples:
            one = recordings[int(rng.integers(len(recordings)))]
            begin, finish = edges_of(one.samples, one.rate_hz)
            part = soxr.resample(one.samples[begin:finish], one.rate_hz, RATE_HZ)
            parts.append(part)
            length += len(part)
        start = int(rng.integers(length - samples + 1))
        return np.concatenate(parts)[start : start + samples].astype(np.float64)


def pink(samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return noise that falls by 3 dB an octave above 50 Hz: float64, (samples,)."""
    return _shaped(samples, rng, lambda hertz: 1 / np.sqrt(np.maximum(hertz, 50.0)))


def fan(samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rush of a fan with the hum of its blades: float64, (samples,)."""
    rush = _shaped(samples, rng, lambda hertz: 1 / (1 + (np.maximum(hertz, 30.0) / _FAN_HZ) ** 1.5))
    rush /= np.sqrt(max(float(np.mean(rush**2)), 1e-12))
    seconds = np.arange(samples) / RATE_HZ
    hum = sum(
        np.sin(2 * np.pi * _BLADE_HZ * number * seconds + rng.uniform(0, 6)) / number for number in (1, 2, 3)
    )
    return rush + 0.5 * np.asarray(hum)


def by_phone(samples: np.ndarray, loss: float, rng: np.random.Generator) -> np.ndarray:
    """Return the output of a telephone line: float32, (samples,), 16 kHz, as long as the input.

    Args:
        samples: float32, (samples,), 16 kHz.
        loss: share of packets that are lost.
        rng: of the losses.
    """
    narrow = _band(samples)
    low = soxr.resample(narrow, RATE_HZ, LINE_HZ)
    packet = PACKET_MS * LINE_HZ // 1000
    low = np.pad(low, (0, -len(low) % packet))
    coded = g711.encode(np.frombuffer(float_to_pcm16(low), "<i2").astype(np.int16), g711.Law.MU)
    line, heard = CallerLine(), []
    count = len(coded) // packet
    lost = losses(count, loss, rng)
    # A hole is only concealed when a packet arrives after it; a loss at the very end would cut the call
    # short.
    lost[-1:] = False
    lost[:1] = False
    for number in range(count):
        if not lost[number]:
            heard.append(line.hear(coded[number * packet : (number + 1) * packet], number * PACKET_MS))
    back = soxr.resample(pcm16_to_float(b"".join(heard)), LINE_HZ, RATE_HZ)
    return np.pad(back, (0, max(0, len(samples) - len(back))))[: len(samples)].astype(np.float32)


def losses(packets: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Draw which packets are lost (Gilbert's model of two states): bool, (packets,)."""
    lost = np.zeros(packets, dtype=bool)
    if not share:
        return lost
    leave = 1 / BURST_PACKETS
    enter = leave * share / (1 - share)
    bad = False
    for number, drawn in enumerate(rng.random(packets)):
        bad = drawn >= leave if bad else drawn < enter
        lost[number] = bad
    return lost


def active_power(samples: np.ndarray) -> float:
    """Return the mean power of the frames within 30 dB of the loudest 20 ms; 0 in silence."""
    frame = RATE_HZ // 50
    if len(samples) < frame:
        return float(np.mean(samples.astype(np.float64) ** 2)) if len(samples) else 0.0
    whole = samples[: len(samples) // frame * frame].reshape(-1, frame).astype(np.float64)
    powers = np.mean(whole**2, axis=1)
    loud = powers[powers > powers.max() * 1e-3]
    return float(loud.mean()) if loud.size else 0.0


def _band(samples: np.ndarray) -> np.ndarray:
    """Limit to the telephone's band without any delay."""
    spectrum = np.fft.rfft(samples)
    hertz = np.fft.rfftfreq(len(samples), 1 / RATE_HZ)
    low = 1 / np.sqrt(1 + (LOW_HZ / np.maximum(hertz, 1e-3)) ** 8)
    high = 1 / np.sqrt(1 + (hertz / HIGH_HZ) ** 24)
    return np.fft.irfft(spectrum * low * high, len(samples)).astype(np.float32)


def _shaped(samples: int, rng: np.random.Generator, gain: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    size = max(samples, 2)
    spectrum = np.fft.rfft(rng.standard_normal(size))
    return np.fft.irfft(spectrum * gain(np.fft.rfftfreq(size, 1 / RATE_HZ)), size)[:samples]
