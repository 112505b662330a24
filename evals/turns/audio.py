"""Engines that ship, on the sound of callers: scores and words of every pause, and synthetic voices.

The completeness model gets the turn up to each look, and the recogniser each piece (one stream per caller). A
pause is faint noise. No step waits for a clock: an hour of speech takes as long as the engines compute. The
random draws of a caller depend on the seed and the caller alone, not on the number of processes. The voices
of flite draw their noise from the C library's generator, which is seeded for each sentence.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import soxr
from pydantic import BaseModel

from parley.audio.audible import audible_spans
from parley.core.errors import MediaError
from parley.core.media import WordTime, float_to_pcm16, pcm16_to_float
from parley.evals.harness.progress import Progress
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn
from parley.models.stt import STT, SpeechStream, SpeechToText
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.models.tts import TTS, SpeechPiece, TextToSpeech
from parley.models.tts.espeak import EspeakSettings
from parley.models.tts.flite import FliteSettings
from parley.models.turn import TURN, TurnCompleteness
from parley.models.vad import VAD, VoiceActivityDetector
from parley.turn_taking.endpointing.evidence_voice import VOICE_END_MS, VoiceEnd, voice_end

RATE_HZ = 16_000
RECOGNISER = "pocketsphinx"
VOICE_SETTINGS: dict[str, Callable[..., BaseModel]] = {"flite": FliteSettings, "espeak": EspeakSettings}
# Documents that the product's recogniser has read when a caller asks about the examples.
KNOWLEDGE = Path(__file__).parents[2] / "knowledge"
# The level of a headset microphone, and of a quiet room around it.
PEAK, NOISE_RMS = 0.5, 10 ** (-70 / 20)
FADE_MS = 8
# About 40 MB: the lines of the bot and the sentences of its callers.
KEPT_SENTENCES = 256
# Closer to 0 or 1 a probability shows only the model's saturation.
SUREST = 1e-4
# flite excites its voices with the C library's rand(), whose state belongs to the whole process.
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Voice activity detector and recogniser, as they ship."""

    vad: VoiceActivityDetector
    stt: SpeechToText


@dataclass(frozen=True, slots=True)
class Engines(Listeners):
    """``Listeners`` and the completeness model."""

    turn: TurnCompleteness


def listeners(recogniser: str = RECOGNISER) -> Listeners:
    """Load both.

    Raises:
        ConfigError: one of them is not installed.
        EngineError: one of them does not load.
    """
    chosen = PocketsphinxSettings(documents=KNOWLEDGE, warm_decoders=1) if recogniser == RECOGNISER else None
    return Listeners(VAD.create("silero"), STT.create(recogniser, chosen))


def engines(recogniser: str = RECOGNISER) -> Engines:
    """Load all three; raise as ``listeners``."""
    heard = listeners(recogniser)
    return Engines(heard.vad, heard.stt, TURN.create("smart_turn"))


class Speakers:
    """Sentences in synthetic voices, with a cache of recent flite sentences: a bot repeats its few lines."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, str], TextToSpeech] = {}
        self._kept = lru_cache(KEPT_SENTENCES)(self._make)

    def speak(self, engine: str, voice: str, text: str) -> tuple[np.ndarray, list[WordTime]]:
        """Return a sentence as sound, with the times of the written words.

        The sound is float32, (samples,), 16 kHz, and must not be written to.

        Raises:
            ConfigError: the engine is unknown or not installed.
            MediaError: the engine gave silence.
        """
        # espeak's sound depends on its earlier sentences, so it is not cached.
        sound, words = (self._kept if engine == "flite" else self._make)(engine, voice, text)
        return sound, list(words)

    def _make(self, engine: str, voice: str, text: str) -> tuple[np.ndarray, tuple[WordTime, ...]]:
        tts = self._engines.get((engine, voice))
        if tts is None:
            settings = VOICE_SETTINGS[engine](voice=voice)
            tts = self._engines[engine, voice] = TTS.create(engine, settings)
        pieces: list[SpeechPiece] = []

        def take(piece: SpeechPiece) -> bool:
            pieces.append(piece)
            return True

        _LIBC.srand(1)
        tts.synthesize(text, take)
        sound = pcm16_to_float(b"".join(piece.pcm for piece in pieces))
        peak = float(np.abs(sound).max(initial=0.0))
        if not peak:
            raise MediaError("the caller's voice is silent")
        words = tuple(word for piece in pieces for word in piece.words)
        resampled = soxr.resample(sound * (PEAK / peak), tts.rate_hz, RATE_HZ).astype(np.float32)
        resampled.flags.writeable = False
        return resampled, words


def measure_recorded(
    calls: Sequence[tuple[ScriptedCall, Sequence[Sequence[np.ndarray]]]],
    spec: CallSpec,
    *,
    seed: int,
    processes: int,
    recogniser: str = RECOGNISER,
) -> list[ScriptedCall]:
    """Measure calls with given sounds: float32, (samples,), 16 kHz, one for each piece of each turn.

    Raises:
        ConfigError: an engine is not installed.
        EngineError: an engine does not load, or failed.
    """
    # A forked process would inherit locks of native libraries that no thread there releases.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(_measured_sounds, call, sounds, spec, seed, place, recogniser)
            for place, (call, sounds) in enumerate(calls)
        ]
        progress = Progress("callers", len(waiting))
        measured = []
        for each in waiting:
            measured.append(each.result())
            progress.step()
        return measured


@cache
def own_engines(recogniser: str) -> Engines:
    """Return the engines of this process of the pool; they cannot be sent between processes."""
    return engines(recogniser)


def _measured_sounds(
    call: ScriptedCall,
    sounds: Sequence[Sequence[np.ndarray]],
    spec: CallSpec,
    seed: int,
    place: int,
    recogniser: str,
) -> ScriptedCall:
    chosen, rng = own_engines(recogniser), np.random.default_rng([seed, place])
    stream = chosen.stt.open_stream()
    try:
        turns = [
            measured_turn(turn, spoken, spec, chosen, stream, rng)
            for turn, spoken in zip(call.turns, sounds, strict=True)
        ]
    finally:
        stream.close()
    return replace(call, turns=tuple(turns))


def trimmed(sound: np.ndarray) -> np.ndarray:
    """Return a sound from its first audible sample to its last, faded out: float32, (samples,).

    Raises:
        MediaError: nothing is audible.
    """
    spans = audible_spans(sound, RATE_HZ)
    if not spans:
        raise MediaError("a piece of the caller's voice is silent")
    cut = sound[spans[0].first : spans[-1].last + 1].copy()
    fade = min(len(cut), FADE_MS * RATE_HZ // 1000)
    # A voice that is cut in the middle of a vowel would click.
    cut[-fade:] *= np.linspace(1.0, 0.0, fade, dtype=np.float32)
    return cut


def end_of_voice(heard: np.ndarray) -> VoiceEnd:
    """Measure the end of the voice on a turn and the silence after it."""
    return voice_end(heard[-VOICE_END_MS * RATE_HZ // 1000 :], RATE_HZ)


def measured_turn(
    turn: ScriptedTurn,
    sounds: Sequence[np.ndarray],
    spec: CallSpec,
    chosen: Engines,
    stream: SpeechStream,
    rng: np.random.Generator,
    measure_end: Callable[[np.ndarray], VoiceEnd] = end_of_voice,
) -> ScriptedTurn:
    """Return a turn with the engines' results; ``measure_end`` gets the sound up to the first look."""
    heard = noise(300, rng)
    silences = []
    for silence, sound in zip(turn.silences, sounds, strict=True):
        heard = np.concatenate((heard, sound))
        looked = [np.concatenate((heard, noise(look_ms, rng))) for look_ms in spec.looks_ms]
        estimates = [chosen.turn.estimate(look) for look in looked]
        text, confidence = _understood(sound, stream, rng)
        silences.append(
            replace(
                silence,
                log_odds=tuple(_log_odds(estimate.complete) for estimate in estimates),
                heard=text,
                confidence=confidence,
                voice_end=measure_end(looked[0]),
                filler_log_odds=estimates[0].filler_log_odds,
            )
        )
        heard = np.concatenate((heard, noise(silence.length_ms or 0, rng)))
    return replace(turn, silences=tuple(silences))


def _understood(sound: np.ndarray, stream: SpeechStream, rng: np.random.Generator) -> tuple[str, float]:
    stream.start()
    stream.feed(float_to_pcm16(np.concatenate((noise(200, rng), sound, noise(200, rng)))))
    transcript = stream.finish()
    confidence = transcript.words[-1].confidence if transcript.words else 1.0
    return transcript.text, confidence


def noise(ms: int, rng: np.random.Generator) -> np.ndarray:
    """Return the noise of a quiet room: float32, (samples,), 16 kHz."""
    return (NOISE_RMS * rng.standard_normal(ms * RATE_HZ // 1000)).astype(np.float32)


def _log_odds(probability: float) -> float:
    inside = min(max(probability, SUREST), 1 - SUREST)
    return math.log(inside / (1 - inside))
