"""Echo control of one call: takes pieces of the microphone, returns the caller's voice.

    played pieces -> far rate to near rate -> what was played ---------------+
                                                                             v
    microphone    -> frames of 10 ms -> place on the clock -> alignment -> canceller -> guard ----> pieces
                                                                     +-> noise suppression alone --+

Two signals are computed from every frame: one without echo, and one with noise suppression only. The guard
(``audio.echo_guard``) chooses between them, because the canceller suppresses a caller who talks over the bot.
A caller who is much louder than the echo does not need it.

While there is known to be no echo, as in most calls by telephone or headset, only the second signal is
computed. Canceller and guard take four fifths of the processing time of a call here, and have nothing to
adapt to. The search for an echo continues. When one is found, the reference mostly jumps to it, and both
would start anew in any case. When it does not jump, the canceller has been idle and finds the echo as at the
start of a call.

The start guard covers the first tenths of a second. Until the place of the echo is known, the microphone is
attenuated by ``guard_db`` while something plays, because its voice cannot be attributed. It ends when the
echo is found, or when there is known to be none. On a headset that takes some tenths of a second after the
first loud sound.

``played`` may be called from another thread than ``process``; neither waits for the other. Played pieces that
were not fetched are bounded: the oldest is dropped. ``close`` waits for a piece that is being processed;
later pieces are ignored.
"""

import math
import threading
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from parley.audio.echo_alignment import EchoAlignment, Knowledge
from parley.audio.echo_guard import NOTHING_PLAYED_DB, EchoGuard, Judged
from parley.audio.framing import Framer
from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.core.strict_model import StrictModel
from parley.models.echo import EchoCanceller

# Greatest number of played pieces that wait for the next microphone frame: 10 s of 20 ms.
MAX_WAITING = 500
POWER_FLOOR = 1e-10
# Verdict on a frame without an echo.
NOT_JUDGED = Judged(NOTHING_PLAYED_DB, is_open=True, top_up_db=0.0)


class EchoControlSettings(StrictModel):
    """Bounds of the echo path, and attenuation before it is known."""

    longest_ms: int = Field(default=700, ge=100, le=760, description="longest delay of an echo")
    expected_ms: float = Field(
        default=0.0, ge=0, le=700, description="delay reported by the transport; 0: none"
    )
    guard_db: float = Field(
        default=40.0, ge=0, le=100, description="attenuation of the microphone until the echo is found"
    )


@dataclass(frozen=True, slots=True)
class EchoFrame:
    """Levels of one frame, in dB of a full-scale square wave.

    Attributes:
        heard_db: level of the microphone.
        left_db: level of the output.
        far_db: level of the aligned reference.
        knowledge: state of the knowledge about the echo.
        judged: verdict of the guard.
        guarded: the start guard is closed.
        cancelled: float32, (frame_samples,), output of the canceller alone. It is softer where the caller
            talks over the bot, and has none of the guard's switches between two signals. Without an echo it
            is the output of the noise suppression.
    """

    heard_db: float
    left_db: float
    far_db: float
    knowledge: Knowledge
    judged: Judged
    guarded: bool
    cancelled: np.ndarray = field(compare=False, repr=False)


class EchoControl:
    """Echo control of one call.

    Args:
        canceller: engine that all calls share.
        settings: bounds of the echo path; None for the defaults.

    Attributes:
        rate_hz: rate of the microphone.
        is_closed: the engines were released.

    Raises:
        EngineError: the canceller does not start.
    """

    def __init__(
        self,
        canceller: EchoCanceller,
        settings: EchoControlSettings | None = None,
    ) -> None:
        chosen = settings or EchoControlSettings()
        self.rate_hz = canceller.rate_hz
        self.is_closed = False
        self._settings = chosen
        self._lock = threading.Lock()
        self._stream = canceller.open_stream()
        self._open = canceller.suppressor().open_stream()
        self._guard = EchoGuard(self.rate_hz, canceller.frame_samples)
        self._gain, self._share = 1.0, 0.0
        self._ramp = (np.arange(canceller.frame_samples) + 1) / canceller.frame_samples
        self._framer = Framer(canceller.frame_samples)
        self._frame_samples = canceller.frame_samples
        self._waiting: deque[tuple[bytes, int, int]] = deque(maxlen=MAX_WAITING)
        self._to_near: Resampler | None = None
        self._far_rate_hz = 0
        self.alignment = EchoAlignment(
            self.rate_hz, longest_ms=chosen.longest_ms, expected_ms=chosen.expected_ms
        )

    def played(self, pcm: bytes, rate_hz: int, at_us: int) -> None:
        """Record a piece of 16-bit PCM that leaves for the loudspeaker at ``at_us``. Callable from any
        thread.
        """
        self._waiting.append((pcm, rate_hz, at_us))

    def process(self, pcm: bytes, at_us: int) -> tuple[bytes, list[EchoFrame]]:
        """Return the frames that ``pcm`` completes without echo, 16-bit PCM, and the levels of each.

        at_us: time at which the last sample of ``pcm`` arrived.

        Raises:
            EngineError: the canceller failed.
        """
        with self._lock:
            return (b"", []) if self.is_closed else self._process(pcm, at_us)

    def close(self) -> None:
        """Release the engines, once. Callable from any thread; nothing is processed afterwards."""
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                self._stream.close()
                self._open.close()

    def _process(self, pcm: bytes, at_us: int) -> tuple[bytes, list[EchoFrame]]:
        self._take_played()
        before = self._framer.pending_samples
        frames = list(self._framer.feed(pcm))
        place = self.alignment.arrived(len(pcm) // 2, at_us) - before
        made: list[bytes] = []
        levels: list[EchoFrame] = []
        for frame in frames:
            left, level = self._one(pcm16_to_float(frame), place)
            made.append(left)
            levels.append(level)
            place += self._frame_samples
        return b"".join(made), levels

    def _take_played(self) -> None:
        while self._waiting:
            pcm, rate_hz, at_us = self._waiting.popleft()
            if self._to_near is None or rate_hz != self._far_rate_hz:
                self._to_near = Resampler(rate_hz, self.rate_hz)
                self._far_rate_hz = rate_hz
            samples = self._to_near.feed(pcm16_to_float(pcm))
            self.alignment.played(samples, at_us)

    def _one(self, near: np.ndarray, place: int) -> tuple[bytes, EchoFrame]:
        aligned = self.alignment.frame(near, place)
        if aligned.moved:
            self._guard.forget()
        passed = self._open.process(near, aligned.far)
        knowledge = self.alignment.knowledge
        if knowledge is Knowledge.NO_ECHO and self._share == 1.0:
            levels = _db(near), _db(passed), _db(aligned.far)
            return float_to_pcm16(passed), EchoFrame(*levels, knowledge, NOT_JUDGED, False, passed)
        left = self._stream.process(near, aligned.far)
        judged = self._guard.judge(near, aligned.far, left)
        unknown = knowledge is Knowledge.UNKNOWN and aligned.played_lately
        known = knowledge is Knowledge.ECHO
        down_db = self._settings.guard_db if unknown else judged.top_up_db if known else 0.0
        share = 1.0 if (judged.is_open and known) or knowledge is Knowledge.NO_ECHO else 0.0
        made = self._fade(left, passed, 10 ** (-down_db / 20), share)
        level = EchoFrame(_db(near), _db(made), _db(aligned.far), knowledge, judged, unknown, left)
        return float_to_pcm16(made), level

    def _fade(self, left: np.ndarray, passed: np.ndarray, gain: float, share: float) -> np.ndarray:
        """Mix both signals at their shares, which change over the frame: a step would be a click."""
        gains = self._gain + (gain - self._gain) * self._ramp
        shares = self._share + (share - self._share) * self._ramp
        self._gain, self._share = gain, share
        result: np.ndarray = (gains * left * (1 - shares) + passed * shares).astype(np.float32)
        return result


def _db(samples: np.ndarray) -> float:
    power = float(np.vdot(samples, samples)) / max(1, samples.size)
    return 10 * math.log10(max(power, POWER_FLOOR))
