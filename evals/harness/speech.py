"""Voices of the callers: utterances as 48 kHz PCM and as Opus packets, made once and cached in a folder.

The module decides the level and the edges. Every part is cut at its audible edges, so that the pause between
two parts is exactly the planned one and the last audible sample of the utterance is known. The peak is set to
-6 dBFS, the level of a headset microphone (a quieter caller would measure the voice detector's volume gate).
Synthesis blocks for tens of milliseconds per utterance and happens before the first call.

Packets come from the same Opus encoder that an aiortc client uses (96 kb/s, 20 ms, voip). They are encoded in
advance, so that the measuring client loads the measured machine as little as possible. The codec delays the
sound by its look-ahead of 6.5 ms, as for every caller. It gets two channels: aiortc's resampler would spread
one over two, 3 dB softer, and a last "k" at the edge of audibility would be lost. ``Spoken.pcm`` is the
decoded content of the packets.
"""

import fractions
import hashlib
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from aiortc.codecs.opus import OpusDecoder, OpusEncoder
from aiortc.jitterbuffer import JitterFrame
from av import AudioFrame
from pydantic import BaseModel

from parley.audio.audible import audible_spans
from parley.core.errors import MediaError
from parley.core.media import pcm16_to_float
from parley.evals.harness.questions import Utterance
from parley.evals.harness.voices import synthesised
from parley.evals.human.callers import CallerTurn, SpeechKind
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.espeak import EspeakSettings
from parley.models.tts.flite import FliteSettings

RATE_HZ = 48_000
FRAME_SAMPLES = 960
# RFC 7845, 4.2: of libopus at 48 kHz.
LOOK_AHEAD_SAMPLES = 312
PEAK = 0.5
VOICE_SETTINGS: Mapping[str, Callable[..., BaseModel]] = {"flite": FliteSettings, "espeak": EspeakSettings}
# Room for the codec to settle before the voice and to ring out after it.
LEAD_FRAMES = 2
TAIL_FRAMES = 2


@dataclass(frozen=True, slots=True)
class Spoken:
    """An utterance ready to be sent.

    Attributes:
        text: the words.
        pcm: int16, (frames * FRAME_SAMPLES,), 48 kHz. Content of the packets, silence at both ends.
        packets: Opus, one per frame.
        pause_ms: the silence inside, 0 for none.
        gap_ms: wait of the caller before the utterance.
        pauses_ms: beginning and end of each silence inside, from the first sound.
        speech: human or synthetic.
    """

    text: str
    pcm: np.ndarray
    packets: tuple[bytes, ...]
    pause_ms: int
    gap_ms: int
    pauses_ms: tuple[tuple[int, int], ...] = ()
    speech: str = SpeechKind.SYNTHETIC.value


class Speakers:
    """Synthesiser of utterances.

    Args:
        cache: folder for the WAV files of the parts. Created when missing.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._cache.mkdir(parents=True, exist_ok=True)
        self._engines: dict[tuple[str, str], TextToSpeech] = {}

    def speak(self, utterance: Utterance) -> Spoken:
        """Make the sound of an utterance.

        Raises:
            ConfigError: the engine is unknown or not installed.
            MediaError: the engine gave silence.
        """
        parts = [self._part(utterance.engine, utterance.voice, text) for text in utterance.parts]
        pause = np.zeros(utterance.pause_ms * RATE_HZ // 1000, dtype=np.int16)
        voice = parts[0] if len(parts) == 1 else np.concatenate((parts[0], pause, parts[1]))
        packets = encode(framed(voice))
        first_ms = len(parts[0]) * 1000 // RATE_HZ
        pauses_ms = ((first_ms, first_ms + utterance.pause_ms),) if utterance.pause_ms else ()
        return Spoken(
            utterance.text, decode(packets), packets, utterance.pause_ms, utterance.gap_ms, pauses_ms
        )

    def _part(self, engine: str, voice: str, text: str) -> np.ndarray:
        key = hashlib.sha256(f"{engine}/{voice}/{text}".encode()).hexdigest()[:16]
        path = self._cache / f"{engine}-{voice}-{key}.wav"
        if not path.exists():
            _write_wav(path, trimmed(self._synthesise(engine, voice, text)))
        with wave.open(str(path), "rb") as file:
            return np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)

    def _synthesise(self, engine: str, voice: str, text: str) -> np.ndarray:
        """Synthesise a text: float32, (samples,), 48 kHz."""
        tts = self._engines.get((engine, voice))
        if tts is None:
            settings = VOICE_SETTINGS[engine](voice=voice)
            tts = self._engines[(engine, voice)] = TTS.create(engine, settings)
        return soxr.resample(pcm16_to_float(synthesised(tts, text)), tts.rate_hz, RATE_HZ)


def of_turn(caller: CallerTurn, gap_ms: int) -> Spoken:
    """Make a turn of a recorded caller ready to be sent.

    Raises:
        MediaError: nothing audible in it.
    """
    turn = caller.turn
    voice = trimmed(soxr.resample(turn.samples, turn.rate_hz, RATE_HZ).astype(np.float32))
    packets = encode(framed(voice))
    pauses_ms = tuple(
        (pause.first * 1000 // turn.rate_hz, pause.end * 1000 // turn.rate_hz) for pause in turn.pauses
    )
    longest_ms = turn.longest_pause_ms
    return Spoken(
        turn.utterance.text, decode(packets), packets, longest_ms, gap_ms, pauses_ms, caller.kind.value
    )


def trimmed(samples: np.ndarray) -> np.ndarray:
    """Set the peak and cut at the audible edges: int16, (samples,).

    Args:
        samples: float32, (samples,), 48 kHz.

    Raises:
        MediaError: nothing audible in it.
    """
    peak = float(np.abs(samples).max(initial=0.0))
    # The level comes first, because the audible edges depend on it.
    loud = samples * (PEAK / peak) if peak else samples
    spans = audible_spans(loud, RATE_HZ)
    if not spans:
        raise MediaError("the caller's voice is silent")
    return np.rint(loud[spans[0].first : spans[-1].last + 1] * 32767).astype(np.int16)


def framed(voice: np.ndarray) -> np.ndarray:
    """Pad to whole 20 ms frames with silence at both ends: int16, (frames * FRAME_SAMPLES,)."""
    tail = TAIL_FRAMES * FRAME_SAMPLES + -voice.size % FRAME_SAMPLES
    return np.pad(voice, (LEAD_FRAMES * FRAME_SAMPLES, tail))


def encode(pcm: np.ndarray) -> tuple[bytes, ...]:
    """Return the Opus packets of whole frames, one per frame.

    Args:
        pcm: int16, (frames * FRAME_SAMPLES,), 48 kHz.
    """
    encoder = OpusEncoder()
    packets: list[bytes] = []
    for position in range(0, pcm.size, FRAME_SAMPLES):
        piece = np.repeat(pcm[position : position + FRAME_SAMPLES], 2)
        frame = AudioFrame.from_ndarray(piece[None], layout="stereo")
        frame.sample_rate = RATE_HZ
        frame.pts = position
        frame.time_base = fractions.Fraction(1, RATE_HZ)
        packets.extend(encoder.encode(frame)[0])
    return tuple(packets)


def decode(packets: Sequence[bytes]) -> np.ndarray:
    """Decode to int16, (packets * FRAME_SAMPLES,), 48 kHz, without the codec's look-ahead."""
    decoder = OpusDecoder()
    frames = [
        frame.to_ndarray().reshape(-1, len(frame.layout.channels))[:, 0]
        for position, packet in enumerate(packets)
        for frame in decoder.decode(JitterFrame(data=packet, timestamp=position * FRAME_SAMPLES))
        if isinstance(frame, AudioFrame)
    ]
    return np.pad(np.concatenate(frames)[LOOK_AHEAD_SAMPLES:], (0, LOOK_AHEAD_SAMPLES))


def _write_wav(path: Path, pcm: np.ndarray) -> None:
    partial = path.with_suffix(".partial")
    with wave.open(str(partial), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm.tobytes())
    partial.replace(path)
