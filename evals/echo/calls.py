"""A simulated call: the microphone signal, and the output of echo control.

Three rows process the same call: ``none`` is the microphone, ``webrtc`` is the audio processing module alone
with the reference as it was played, ``parley`` is the product's echo control. Pieces are 20 ms, as transports
deliver them, and their times are late at random, up to ``JITTER_US``.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.echo.rooms import RATE_HZ, Speakerphone, at_level, echo_of, noise
from parley.models.echo import EchoCanceller
from parley.models.echo.control import EchoControl, EchoFrame
from parley.models.echo.webrtc import WebRtcEcho

PIECE_SAMPLES = RATE_HZ // 50
US_PER_SAMPLE = 1_000_000 / RATE_HZ
JITTER_US = 3_000
# The session's clock does not begin at zero.
BEGAN_US = 40_000_000
ROWS = ("none", "webrtc", "parley")


@dataclass(frozen=True, slots=True)
class Scene:
    """Levels and devices of a call.

    Attributes:
        phone: room, delay, clocks.
        echo_dbfs: of the bot's sounding parts at the microphone.
        noise_dbfs: of the room.
        near_over_echo_db: level of the caller over the echo.
    """

    phone: Speakerphone
    echo_dbfs: float = -36.0
    noise_dbfs: float = -65.0
    near_over_echo_db: float = 12.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Microphone signal and its components. All float32, (samples,), 16 kHz."""

    played: np.ndarray
    echo: np.ndarray
    near: np.ndarray
    heard: np.ndarray


@dataclass(slots=True)
class Controlled:
    """Output of a row.

    Attributes:
        left: float32, (samples,).
        frames: levels, of ``parley`` alone.
        cpu_us: processor time per 10 ms.
        pieces_ms: wall time of each piece of 20 ms.
    """

    left: np.ndarray
    frames: list[EchoFrame] = field(default_factory=list)
    cpu_us: float = 0.0
    pieces_ms: list[float] = field(default_factory=list)


def record(scene: Scene, played: np.ndarray, near: np.ndarray) -> Recorded:
    """Put the caller's voice and the echo of ``played`` into the room; ``near`` is scaled to its level."""
    echo = at_level(echo_of(played, scene.phone), scene.echo_dbfs)
    voice = at_level(near, scene.echo_dbfs + scene.near_over_echo_db) if near.any() else near
    heard = echo + voice + noise(len(echo), scene.noise_dbfs, scene.phone.seed)
    return Recorded(played, echo, voice, np.clip(heard, -1, 1).astype(np.float32))


def run(
    row: str, call: Recorded, *, seed: int, on_piece: Callable[[bytes], None] | None = None
) -> Controlled:
    """Run one row on one call.

    Args:
        row: one of ``ROWS``.
        call: its signals.
        seed: of the lateness of the pieces.
        on_piece: called with the output, piece by piece.
    """
    heard, played = float_to_pcm16(call.heard), float_to_pcm16(call.played)
    if row == "none":
        out = heard[: len(heard) // (2 * PIECE_SAMPLES) * 2 * PIECE_SAMPLES]
        if on_piece is not None:
            for at in range(0, len(out), 2 * PIECE_SAMPLES):
                on_piece(out[at : at + 2 * PIECE_SAMPLES])
        return Controlled(pcm16_to_float(out))
    return _webrtc_alone(call, on_piece) if row == "webrtc" else _parley(heard, played, seed, on_piece)


def _parley(heard: bytes, played: bytes, seed: int, on_piece: Callable[[bytes], None] | None) -> Controlled:
    rng = np.random.default_rng([seed, 3])
    made = Controlled(np.zeros(0, np.float32))
    control = EchoControl(WebRtcEcho())
    pieces: list[bytes] = []
    size = 2 * PIECE_SAMPLES
    cpu_s = 0.0
    for at in range(0, len(heard) - size + 1, size):
        began_us = BEGAN_US + round(at // 2 * US_PER_SAMPLE)
        late_us = rng.integers(0, JITTER_US, 2)
        control.played(played[at : at + size], RATE_HZ, began_us + int(late_us[0]))
        ended_us = began_us + round(PIECE_SAMPLES * US_PER_SAMPLE) + int(late_us[1])
        wall_s, thread_s = time.perf_counter(), time.thread_time()
        piece, levels = control.process(heard[at : at + size], ended_us)
        cpu_s += time.thread_time() - thread_s
        made.pieces_ms.append((time.perf_counter() - wall_s) * 1000)
        pieces.append(piece)
        made.frames += levels
        if on_piece is not None:
            on_piece(pieces[-1])
    control.close()
    made.left = pcm16_to_float(b"".join(pieces))
    made.cpu_us = 1e6 * cpu_s / max(1, len(made.frames))
    return made


def _webrtc_alone(call: Recorded, on_piece: Callable[[bytes], None] | None) -> Controlled:
    engine: EchoCanceller = WebRtcEcho()
    stream = engine.open_stream()
    frame = engine.frame_samples
    made: list[np.ndarray] = []
    for at in range(0, len(call.heard) - frame + 1, frame):
        made.append(stream.process(call.heard[at : at + frame], call.played[at : at + frame]))
        if on_piece is not None:
            on_piece(float_to_pcm16(made[-1]))
    stream.close()
    return Controlled(np.concatenate(made))


def erle_db(heard: np.ndarray, left: np.ndarray) -> float:
    """Return the echo return loss enhancement (ITU-T G.168 (04/2015), 3.9): levels before and after, in dB.

    Args:
        heard: float32, a span in which the bot alone speaks. The room's noise is included.
        left: float32, the same span after echo control.
    """
    return 10 * float(np.log10(np.vdot(heard, heard) / max(float(np.vdot(left, left)), 1e-12)))


def first_sound(samples: np.ndarray, threshold: float = 1e-3) -> int:
    """Return the position of the first sample that is a sound; 0 when there is none."""
    return int(np.argmax(np.abs(samples) > threshold))


def windows(samples: np.ndarray, size: int) -> np.ndarray:
    """Split into whole windows: float32, (windows, size)."""
    return samples[: len(samples) // size * size].reshape(-1, size)


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 without values."""
    return float(np.mean(values)) if len(values) else 0.0
