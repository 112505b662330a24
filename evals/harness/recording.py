"""Stereo recording of a call and its evaluation: the only source of voice-to-voice and cut-ins.

The left channel is the caller at the position of the microphone slots. The right channel is the bot as played
at the client. Both are on one time line that starts with the first slot. ``measure`` opens the WAV file and
needs only the beginning of each turn. Voice-to-voice lasts from the last audible sample of the caller to the
first audible sample of the bot after it. Bot sound that starts between the first and the last audible sample
of the caller is a false cut-in, pauses inside the utterance included; such a turn has no voice-to-voice. A
turn in which no bot sound starts before the next one is unanswered.
"""

import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr

from parley.audio.audible import AudibleSpan, audible_spans
from parley.core.errors import MediaError
from parley.core.media import pcm16_to_float
from parley.evals.harness.playout import Playout, place
from parley.evals.harness.speech import RATE_HZ
from parley.evals.harness.webrtc_caller import SLOT_US, Line, now_us

WAV_RATE_HZ = 16_000


@dataclass(frozen=True, slots=True)
class TurnEdges:
    """Edges of a turn, as sample positions of the recording.

    Attributes:
        user_first: first audible sample of the caller.
        user_last: last audible sample of the caller.
        bot_first: first audible sample of the bot after ``user_last``. None when nothing came.
        cut_in: first audible sample of the bot between the two. None when it waited.
        rate_hz: samples per second.
    """

    user_first: int
    user_last: int
    bot_first: int | None
    cut_in: int | None
    rate_hz: int

    @property
    def voice_to_voice_us(self) -> int | None:
        """Voice-to-voice of this turn; None for a cut-in or an unanswered turn."""
        if self.bot_first is None or self.cut_in is not None:
            return None
        return (self.bot_first - self.user_last) * 1_000_000 // self.rate_hz

    @property
    def cut_in_us(self) -> int | None:
        """Time from the start of the utterance to the cut-in; None when the bot waited."""
        if self.cut_in is None:
            return None
        return (self.cut_in - self.user_first) * 1_000_000 // self.rate_hz

    @property
    def unanswered(self) -> bool:
        """True when there is no bot sound in this turn."""
        return self.bot_first is None and self.cut_in is None


def played(line: Line, end_us: int | None = None) -> Playout:
    """Return the bot's side of a call at 48 kHz, from the first microphone slot on."""
    start_us = line.microphone.start_us
    if start_us is None:
        raise MediaError("the call sent no audio")
    return place(line.ears.frames, RATE_HZ, start_us, end_us or now_us())


def write(line: Line, path: Path) -> None:
    """Write the call so far as a stereo WAV.

    Raises:
        MediaError: the call has not begun.
    """
    bot = played(line).pcm
    caller = np.zeros_like(bot)
    for sent in line.microphone.sent:
        start = sent.slot * SLOT_US * RATE_HZ // 1_000_000
        piece = sent.spoken.pcm[: max(caller.size - start, 0)]
        caller[start : start + piece.size] = piece
    write_stereo(path, *(soxr.resample(side, RATE_HZ, WAV_RATE_HZ) for side in (caller, bot)))


def write_stereo(path: Path, left: np.ndarray, right: np.ndarray) -> None:
    """Write a 16 kHz stereo WAV.

    Args:
        path: of the file.
        left: int16, (samples,).
        right: int16, (samples,).
    """
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(WAV_RATE_HZ)
        file.writeframes(np.stack((left, right), axis=1).astype("<i2").tobytes())


def read_stereo(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Read left and right as float32, (samples,), and the rate.

    Raises:
        MediaError: not a 16-bit stereo WAV.
    """
    try:
        with wave.open(str(path), "rb") as file:
            if file.getnchannels() != 2 or file.getsampwidth() != 2:
                raise MediaError(f"{path.name} is not a 16-bit stereo WAV")
            both = pcm16_to_float(file.readframes(file.getnframes())).reshape(-1, 2)
            return both[:, 0], both[:, 1], file.getframerate()
    except wave.Error as error:
        raise MediaError(f"{path.name} is not a WAV: {error}") from error


def measure(path: Path, turn_starts: list[int]) -> list[TurnEdges]:
    """Read the turns of a recording.

    Args:
        path: of the recording.
        turn_starts: sample of the recording at which each turn's microphone opens. A turn ends where the next
            one starts.

    Raises:
        MediaError: not a stereo WAV, or a turn in which the caller is not audible.
    """
    caller, bot, rate_hz = read_stereo(path)
    caller_spans = audible_spans(caller, rate_hz)
    bot_spans = audible_spans(bot, rate_hz)
    ends = [*turn_starts[1:], caller.size]
    return [
        _turn(_between(caller_spans, start, end), _between(bot_spans, start, end), rate_hz)
        for start, end in zip(turn_starts, ends, strict=True)
    ]


def _between(spans: list[AudibleSpan], start: int, end: int) -> list[AudibleSpan]:
    return [span for span in spans if start <= span.first < end]


def _turn(caller: list[AudibleSpan], bot: list[AudibleSpan], rate_hz: int) -> TurnEdges:
    if not caller:
        raise MediaError("a turn of the recording has no audible caller")
    first, last = caller[0].first, caller[-1].last
    return TurnEdges(
        user_first=first,
        user_last=last,
        bot_first=next((span.first for span in bot if span.first > last), None),
        cut_in=next((span.first for span in bot if first <= span.first <= last), None),
        rate_hz=rate_hz,
    )
