"""Echo control and voice activity of many calls, for a process of their own: see ``runtime.engine_process``.

Both take tenths of a millisecond at a time, a hundred times a second for each caller, and give the
interpreter's lock away and take it back in each of those. In threads of the process that paces audio that is
what its loop waits for (docs/adr/0011).

One question is one piece of a caller: the microphone's audio, and what was played since the last piece. Its
answer holds the caller's voice, the levels that tell it from the bot's, and the voice activity of every
window that it completes. A caller without echo control asks for the voice activity of whole windows alone.

Here are both sides' messages (``asked_*`` and ``answered_*``) and the child's side; the parent's is
``processors.front_end.hosted``, which puts the same questions to engines in this process while there is no
child.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from audio.echo_alignment import Knowledge
from audio.framing import Framer
from core.errors import EngineError
from core.media import float_to_pcm16
from core.strict_model import StrictModel
from models.echo import ECHO, EchoCanceller
from models.echo.control import EchoControl, EchoControlSettings
from models.vad import VAD, VoiceActivityDetector
from models.vad.meter import VoiceMeter, Window
from runtime.engine_host import Answer
from runtime.engine_hosting.messages import EngineMessage, EngineSpec, MessageType

Played = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """What echo control makes of a piece of a caller's audio.

    Attributes:
        pcm: the caller's voice, 16-bit, of the frames that the piece completed.
        levels: of each frame, dB: what is not echo, and what was played and is heard now.
        windows: voice activity: probability and mean power of each window that it completed; empty where echo
            control is in this process and nobody has asked yet.
        knowledge: what is known about the echo.
        delay_ms: of the echo; None while it is not known.
        cancelled: what the canceller alone made of it, 16-bit PCM; empty where it was not wanted.
    """

    pcm: bytes
    levels: Sequence[tuple[float, float]]
    windows: Sequence[Window] = ()
    knowledge: Knowledge | None = None
    delay_ms: float | None = None
    cancelled: bytes = b""


def controlled(control: EchoControl, pcm: bytes, at_us: int, *, wants_cancelled: bool) -> Piece:
    """A piece through echo control; see ``EchoControl.process``.

    Raises:
        EngineError: the canceller failed.
    """
    voice, frames = control.process(pcm, at_us)
    echo = control.alignment.echo
    cancelled = b""
    if wants_cancelled and frames:
        cancelled = float_to_pcm16(np.concatenate([frame.cancelled for frame in frames]))
    return Piece(
        voice,
        [(frame.left_db, frame.far_db) for frame in frames],
        knowledge=frames[-1].knowledge if frames else None,
        delay_ms=echo.delay_ms if echo else None,
        cancelled=cancelled,
    )


def asked_open(settings: EchoControlSettings, *, begun_bytes: int = 0) -> EngineMessage:
    """Return the question that gives a caller echo control.

    Args:
        settings: of this caller.
        begun_bytes: of a window of voice activity that came before the first piece, for a caller who had
            another stream: windows then end where they would have ended.
    """
    facts = {"begun_bytes": begun_bytes, "settings": settings.model_dump_json()}
    return EngineMessage(MessageType.PREPARE, facts=facts)


def asked_piece(pcm: bytes, at_us: int, played: Sequence[Played], *, wants_cancelled: bool) -> EngineMessage:
    """The caller's voice of a piece of the microphone.

    Args:
        pcm: 16-bit.
        at_us: when its last sample came.
        played: since the last piece: 16-bit PCM, its rate, when it left.
        wants_cancelled: the canceller's own signal too.
    """
    facts = {
        "at_us": at_us,
        "wants_cancelled": wants_cancelled,
        "played": [(len(far), rate_hz, left_us) for far, rate_hz, left_us in played],
    }
    payload = b"".join((*(far for far, _, _ in played), pcm))
    return EngineMessage(MessageType.PROCESS, facts=facts, payload=payload)


def asked_windows(pcm: bytes) -> EngineMessage:
    """Voice activity of whole windows of 16-bit PCM."""
    return EngineMessage(MessageType.MEASURE, payload=pcm)


def answered_piece(answer: EngineMessage) -> Piece:
    """See ``asked_piece``."""
    facts, data = answer.facts, answer.payload
    frames, windows = facts["frames"], facts["windows"]
    voice_at = 8 * (frames + windows)
    cancelled_at = voice_at + facts["voice_bytes"]
    return Piece(
        data[voice_at:cancelled_at],
        _pairs(data, 0, frames),
        _pairs(data, 8 * frames, windows),
        None if facts["knowledge"] is None else Knowledge(facts["knowledge"]),
        facts["delay_ms"],
        data[cancelled_at:],
    )


def answered_windows(answer: EngineMessage) -> list[Window]:
    """See ``asked_windows``."""
    return _pairs(answer.payload, 0, len(answer.payload) // 8)


def _pairs(data: bytes, at: int, count: int) -> list[tuple[float, float]]:
    numbers = struct.unpack_from(f"<{2 * count}f", data, at)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _packed(pairs: Sequence[tuple[float, float]]) -> bytes:
    return struct.pack(f"<{2 * len(pairs)}f", *chain.from_iterable(pairs))


class FrontEndSettings(StrictModel):
    """What a process of its own loads.

    Attributes:
        vad: voice activity.
        least_db: see ``VoiceMeter``.
        echo: echo control; None for none.
    """

    vad: EngineSpec
    least_db: float | None = None
    echo: EngineSpec | None = None


def load_front_end(settings: FrontEndSettings) -> "FrontEnd":
    """Load the engines of a process of their own.

    Raises:
        AgentError: an engine does not load.
    """
    vad: VoiceActivityDetector = VAD.create(settings.vad.factory, settings.vad.read_settings())
    echo: EchoCanceller | None = None
    if settings.echo is not None:
        echo = ECHO.create(settings.echo.factory, settings.echo.read_settings())
        # The first stream of a process loads the native library: not while a question waits.
        echo.open_stream().close()
    return FrontEnd(vad, echo, least_db=settings.least_db)


class FrontEnd:
    """The engines, shared by all calls; see ``runtime.engine_host.AskedEngine``.

    Args:
        vad: voice activity.
        echo: echo control; None for none.
        least_db: see ``VoiceMeter``.
    """

    def __init__(
        self, vad: VoiceActivityDetector, echo: EchoCanceller | None, *, least_db: float | None
    ) -> None:
        self._least_db = least_db
        self._vad = vad
        self._echo = echo

    @property
    def frame_samples(self) -> int:
        """Samples of a frame of echo control; 1 without one."""
        return self._echo.frame_samples if self._echo is not None else 1

    @property
    def window_samples(self) -> int:
        """Samples of a window of voice activity."""
        return self._vad.window_samples

    @property
    def rate_hz(self) -> int:
        return self._vad.rate_hz

    def open_stream(self) -> "FrontEndStream":
        """A new caller."""
        meter = VoiceMeter(
            self._vad.open_stream(),
            self._vad.window_samples,
            rate_hz=self._vad.rate_hz,
            least_db=self._least_db,
        )
        return FrontEndStream(meter, Framer(self._vad.window_samples), self._echo)


class FrontEndStream:
    """One caller."""

    def __init__(self, meter: VoiceMeter, windows: Framer, echo: EchoCanceller | None) -> None:
        self._meter, self._windows, self._echo = meter, windows, echo
        self._control: EchoControl | None = None

    def ask(self, question: EngineMessage) -> Answer:
        """See the module.

        Raises:
            EngineError: an engine failed, or the question is none.
        """
        match question.type:
            case MessageType.PREPARE if self._echo is not None:
                settings = EchoControlSettings.model_validate_json(question.facts["settings"])
                self._control = EchoControl(self._echo, settings)
                # Completes no window: it is less than one.
                list(self._windows.feed(bytes(question.facts["begun_bytes"])))
                return {}, b""
            case MessageType.MEASURE:
                return {}, _packed(self._meter.measure(question.payload))
            case MessageType.PROCESS if self._control is not None:
                return self._piece(self._control, question.facts, question.payload)
        raise EngineError("the question is none", engine="front_end", retryable=False)

    def close(self) -> None:
        """The caller is gone."""
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
