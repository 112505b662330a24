"""Echo control and voice activity of many calls in a child process (``runtime.engine_process``).

Each takes tenths of a millisecond at a time, a hundred times a second for each caller, and releases and
reacquires the interpreter lock each time. In threads of the process that paces audio, its loop would wait for
them (docs/adr/0011).

One question carries one piece of a caller: the microphone's audio, and what was played since the last piece.
Its answer holds the caller's voice, the levels that distinguish it from the bot's, and the voice activity of
every window that it completes. A caller without echo control requests only the voice activity of whole
windows.

This module has both sides' messages (``asked_*`` and ``answered_*``) and the child's side. The parent's side
is ``processors.front_end.hosted``, which puts the same questions to engines in its own process while there is
no child.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from parley.audio.echo_alignment import Knowledge
from parley.audio.framing import Framer
from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16
from parley.core.strict_model import StrictModel
from parley.models.echo import ECHO, EchoCanceller
from parley.models.echo.control import EchoControl, EchoControlSettings
from parley.models.vad import VAD, VoiceActivityDetector
from parley.models.vad.meter import VoiceMeter, Window
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage, EngineSpec, MessageType

Played = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True)
class EchoResult:
    """Result of echo control for a piece of a caller's audio.

    Attributes:
        pcm: the caller's voice, 16-bit, of the frames that the piece completed.
        levels: for each frame, in dB: the output, and the aligned reference.
        windows: voice activity: probability and mean power of each window that it completed. Empty where echo
            control is in this process and the voice activity has not been requested yet.
        knowledge: state of the knowledge about the echo; None without a complete frame.
        delay_ms: delay of the echo; None while unknown.
        cancelled: output of the canceller alone, 16-bit PCM; empty when not requested.
    """

    pcm: bytes
    levels: Sequence[tuple[float, float]]
    windows: Sequence[Window] = ()
    knowledge: Knowledge | None = None
    delay_ms: float | None = None
    cancelled: bytes = b""


def controlled(control: EchoControl, pcm: bytes, at_us: int, *, wants_cancelled: bool) -> EchoResult:
    """Process a piece by echo control, as ``EchoControl.process``.

    Raises:
        EngineError: the canceller failed.
    """
    voice, frames = control.process(pcm, at_us)
    echo = control.alignment.echo
    cancelled = b""
    if wants_cancelled and frames:
        cancelled = float_to_pcm16(np.concatenate([frame.cancelled for frame in frames]))
    return EchoResult(
        voice,
        [(frame.left_db, frame.far_db) for frame in frames],
        knowledge=frames[-1].knowledge if frames else None,
        delay_ms=echo.delay_ms if echo else None,
        cancelled=cancelled,
    )


def asked_open(settings: EchoControlSettings, *, begun_bytes: int = 0) -> EngineMessage:
    """Return the question that creates echo control for a caller.

    Args:
        settings: settings for this caller.
        begun_bytes: size of a window of voice activity that began before the first piece, for a caller who
            had another stream: windows then end where they would have ended.
    """
    facts = {"begun_bytes": begun_bytes, "settings": settings.model_dump_json()}
    return EngineMessage(MessageType.PREPARE, facts=facts)


def asked_piece(pcm: bytes, at_us: int, played: Sequence[Played], *, wants_cancelled: bool) -> EngineMessage:
    """Return the question for the caller's voice in a piece of the microphone.

    Args:
        pcm: 16-bit.
        at_us: time at which its last sample arrived.
        played: playback since the last piece: 16-bit PCM, its rate, time at which it left.
        wants_cancelled: request the canceller's own signal too.
    """
    facts = {
        "at_us": at_us,
        "wants_cancelled": wants_cancelled,
        "played": [(len(far), rate_hz, left_us) for far, rate_hz, left_us in played],
    }
    payload = b"".join((*(far for far, _, _ in played), pcm))
    return EngineMessage(MessageType.PROCESS, facts=facts, payload=payload)


def asked_windows(pcm: bytes) -> EngineMessage:
    """Return the question for the voice activity of whole windows of 16-bit PCM."""
    return EngineMessage(MessageType.MEASURE, payload=pcm)


def answered_piece(answer: EngineMessage) -> EchoResult:
    """Decode the answer to ``asked_piece``."""
    facts, data = answer.facts, answer.payload
    frames, windows = facts["frames"], facts["windows"]
    voice_at = 8 * (frames + windows)
    cancelled_at = voice_at + facts["voice_bytes"]
    return EchoResult(
        data[voice_at:cancelled_at],
        _pairs(data, 0, frames),
        _pairs(data, 8 * frames, windows),
        None if facts["knowledge"] is None else Knowledge(facts["knowledge"]),
        facts["delay_ms"],
        data[cancelled_at:],
    )


def answered_windows(answer: EngineMessage) -> list[Window]:
    """Decode the answer to ``asked_windows``."""
    return _pairs(answer.payload, 0, len(answer.payload) // 8)


def _pairs(data: bytes, at: int, count: int) -> list[tuple[float, float]]:
    numbers = struct.unpack_from(f"<{2 * count}f", data, at)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _packed(pairs: Sequence[tuple[float, float]]) -> bytes:
    return struct.pack(f"<{2 * len(pairs)}f", *chain.from_iterable(pairs))


class FrontEndSettings(StrictModel):
    """Engines that the child process loads.

    Attributes:
        vad: spec of the voice activity engine.
        least_db: level, dB full scale, below which no voice counts; see ``VoiceMeter``.
        echo: spec of echo control; None for none.
    """

    vad: EngineSpec
    least_db: float | None = None
    echo: EngineSpec | None = None


def load_front_end(settings: FrontEndSettings) -> "FrontEndEngines":
    """Load the engines of the child process.

    Raises:
        AgentError: an engine does not load.
    """
    vad: VoiceActivityDetector = VAD.create(settings.vad.factory, settings.vad.read_settings())
    echo: EchoCanceller | None = None
    if settings.echo is not None:
        echo = ECHO.create(settings.echo.factory, settings.echo.read_settings())
        # The first stream of a process loads the native library, which must not happen while a question
        # waits.
        echo.open_stream().close()
    return FrontEndEngines(vad, echo, least_db=settings.least_db)


class FrontEndEngines:
    """Engines of the child, shared by all calls; implements ``runtime.engine_host.RequestEngine``.

    Args:
        vad: voice activity.
        echo: echo control; None for none.
        least_db: level, dB full scale, below which no voice counts; see ``VoiceMeter``.
    """

    def __init__(
        self, vad: VoiceActivityDetector, echo: EchoCanceller | None, *, least_db: float | None
    ) -> None:
        self._least_db = least_db
        self._vad = vad
        self._echo = echo

    @property
    def frame_samples(self) -> int:
        """Samples of a frame of echo control; 1 without echo control."""
        return self._echo.frame_samples if self._echo is not None else 1

    @property
    def window_samples(self) -> int:
        """Samples of a window of voice activity."""
        return self._vad.window_samples

    @property
    def rate_hz(self) -> int:
        return self._vad.rate_hz

    def open_stream(self) -> "FrontEndStream":
        """Return a stream for a new caller."""
        meter = VoiceMeter(
            self._vad.open_stream(),
            self._vad.window_samples,
            rate_hz=self._vad.rate_hz,
            least_db=self._least_db,
        )
        return FrontEndStream(meter, Framer(self._vad.window_samples), self._echo)


class FrontEndStream:
    """Front end of one caller."""

    def __init__(self, meter: VoiceMeter, windows: Framer, echo: EchoCanceller | None) -> None:
        self._meter, self._windows, self._echo = meter, windows, echo
        self._control: EchoControl | None = None

    def ask(self, question: EngineMessage) -> Answer:
        """Answer a question of ``asked_open``, ``asked_piece`` or ``asked_windows``.

        Raises:
            EngineError: an engine failed, or the question is of another type.
        """
        match question.type:
            case MessageType.PREPARE if self._echo is not None:
                settings = EchoControlSettings.model_validate_json(question.facts["settings"])
                self._control = EchoControl(self._echo, settings)
                # Less than a window, so it completes none.
                list(self._windows.feed(bytes(question.facts["begun_bytes"])))
                return {}, b""
            case MessageType.MEASURE:
                return {}, _packed(self._meter.measure(question.payload))
            case MessageType.PROCESS if self._control is not None:
                return self._piece(self._control, question.facts, question.payload)
        raise EngineError("the request is not valid", engine="front_end", retryable=False)

    def close(self) -> None:
        """Release the echo control of the caller."""
        if self._control is not None:
            self._control.close()

    def _piece(self, control: EchoControl, facts: Mapping[str, Any], data: bytes) -> Answer:
        at = 0
        for length, rate_hz, left_us in facts["played"]:
            control.played(data[at : at + length], rate_hz, left_us)
            at += length
        made = controlled(control, data[at:], facts["at_us"], wants_cancelled=facts["wants_cancelled"])
        windows = self._meter.measure(b"".join(self._windows.feed(made.pcm)))
        answer = {
            "voice_bytes": len(made.pcm),
            "frames": len(made.levels),
            "windows": len(windows),
            "knowledge": None if made.knowledge is None else made.knowledge.value,
            "delay_ms": made.delay_ms,
        }
        return answer, b"".join((_packed(made.levels), _packed(windows), made.pcm, made.cancelled))
