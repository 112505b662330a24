"""Real scores and words for scripted callers: synthetic voices processed by the engines that ship.

Each sentence is spoken by flite or espeak as a whole, with the punctuation that a synthesiser reads. A comma
stands before a continuation and around a filler, a full stop or a question mark at the end of the turn. The
sound is cut at the words where the script pauses and marked there as people mark it (``prosody``). A pause is
faint noise. The completeness model gets the turn up to each look, the recogniser each piece (one stream per
caller), and voice activity detection the whole turn. No step waits for a clock: an hour of speech takes as
long as the engines compute. The result is the same script with measured log odds and words, for the same
policies and the same search.

Scores and words do not depend on the length of a later pause. ``with_new_pauses`` therefore draws the lengths
of one measured script repeatedly, and a few hundred measured pauses give steady rates. The remaining error is
that of those few hundred scores.

The random draws of a caller depend on the seed and the caller alone, not on the number of processes. The
voices of flite draw their noise from the C library's generator, which is seeded for each sentence. ``save``
stores the measurements of a script, without the script: a few numbers and the words of each pause. ``TUNING``
holds the data on which the evidence of an audio run is fitted.
"""

import asyncio
import ctypes
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from pipecat.audio.vad.vad_analyzer import VADState
from pydantic import BaseModel

from parley.audio.audible import audible_spans
from parley.core.errors import ConfigError, MediaError
from parley.core.media import WordTime, float_to_pcm16, pcm16_to_float
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.evals.turns.contours import CONTOUR_MS, Contour, final_contour
from parley.evals.turns.prosody import Ending, marked
from parley.evals.turns.simulator import Hearing
from parley.evals.turns.texts import FILLERS, questions
from parley.models.stt import STT, SpeechStream, SpeechToText
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.models.tts import TTS, SpeechPiece, TextToSpeech
from parley.models.tts.espeak import EspeakSettings
from parley.models.tts.flite import FliteSettings
from parley.models.turn import TURN, TurnCompleteness
from parley.models.vad import VAD, VoiceActivityDetector
from parley.processors.front_end.vad import SharedVadAnalyzer, VadSettings
from parley.runtime.atomic_file import replace_file
from parley.turn_taking.endpointing.evidence_tempo import Tempo
from parley.turn_taking.endpointing.evidence_voice import VOICE_END_MS, VoiceEnd, voice_end

RATE_HZ = 16_000
RECOGNISER = "pocketsphinx"
VOICES: tuple[tuple[str, str], ...] = (
    ("flite", "rms"),
    ("flite", "awb"),
    ("flite", "slt"),
    ("flite", "kal16"),
    ("espeak", "en-us"),
)
# Factor by which a word before a comma or a full stop is longer than the same word elsewhere in the tuning
# sentences. The voices do this by themselves (geometric means over 8 to 20 words of each).
LENGTHENED = {"rms": 1.25, "awb": 1.40, "slt": 1.42, "kal16": 1.0, "en-us": 1.33}
VOICE_SETTINGS: dict[str, Callable[..., BaseModel]] = {"flite": FliteSettings, "espeak": EspeakSettings}
# Documents that the product's recogniser has read when a caller asks about the examples.
KNOWLEDGE = Path(__file__).parents[2] / "knowledge"
# The measured calls of the tuning seed; written by ``python -m evals.turns.tuning``.
TUNING = Path(__file__).parent / "tuning.json"
# The level of a headset microphone, and of a quiet room around it.
PEAK, NOISE_RMS = 0.5, 10 ** (-70 / 20)
FADE_MS = 8
# About 40 MB: the lines of the bot and the sentences of its callers.
KEPT_SENTENCES = 256
# Closer to 0 or 1 a probability shows only the model's saturation.
SUREST = 1e-4
WINDOW_MS = 32
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


@dataclass(frozen=True, slots=True)
class Lags:
    """Times at which voice activity detection reported pauses, in milliseconds of audio without computing.

    Attributes:
        stop_ms: from the last audible sample to the report, of each reported pause.
        missed: number of pauses of at least 300 ms that were not reported.
        pauses: number of all pauses of at least 300 ms.
        false_stops: number of ends of voice that were reported inside a piece.
        pieces: number of all pieces.
    """

    stop_ms: tuple[int, ...]
    missed: int
    pauses: int
    false_stops: int
    pieces: int


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


@dataclass(frozen=True, slots=True)
class Sound:
    """A piece of a turn as sound.

    Attributes:
        samples: float32, (samples,), 16 kHz, edges audible, not marked.
        ending: the way in which it ends.
    """

    samples: np.ndarray
    ending: Ending


def measure(
    calls: Sequence[ScriptedCall], spec: CallSpec, chosen: Engines, *, seed: int, marks: float = 1.0
) -> tuple[list[ScriptedCall], Lags]:
    """Return the calls with the engines' measurements, one voice for each caller.

    Raises:
        MediaError: a voice gave silence.
        EngineError: an engine failed.
    """
    speakers = Speakers()
    return _joined(
        [_measured_call(call, place, spec, chosen, speakers, seed, marks) for place, call in enumerate(calls)]
    )


def measure_in_processes(
    calls: Sequence[ScriptedCall],
    spec: CallSpec,
    *,
    seed: int,
    marks: float,
    processes: int,
    recogniser: str = RECOGNISER,
) -> tuple[list[ScriptedCall], Lags]:
    """Return the same as ``measure`` with the engines that ship, computed in several processes.

    Raises:
        ConfigError: an engine is not installed.
        MediaError: a voice gave silence.
        EngineError: an engine does not load, or failed.
    """
    # A forked process would inherit locks of native libraries that no thread there releases.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(_measured_there, call, place, spec, seed, marks, recogniser)
            for place, call in enumerate(calls)
        ]
        return _joined([each.result() for each in waiting])


def _measured_there(
    call: ScriptedCall, place: int, spec: CallSpec, seed: int, marks: float, recogniser: str
) -> tuple[ScriptedCall, Lags]:
    chosen, speakers = _own_engines(recogniser)
    return _measured_call(call, place, spec, chosen, speakers, seed, marks)


@cache
def _own_engines(recogniser: str = RECOGNISER) -> tuple[Engines, "Speakers"]:
    """Return the engines of this process of the pool; they cannot be sent between processes."""
    return engines(recogniser), Speakers()


def _measured_call(
    call: ScriptedCall,
    place: int,
    spec: CallSpec,
    chosen: Engines,
    speakers: Speakers,
    seed: int,
    marks: float,
) -> tuple[ScriptedCall, Lags]:
    rng = np.random.default_rng([seed, place])
    engine, voice = VOICES[place % len(VOICES)]
    stream = chosen.stt.open_stream()
    turns, lags = [], []
    try:
        for turn in call.turns:
            spoken = pieces(turn, engine, voice, speakers)
            sounds = [marked(each.samples, RATE_HZ, each.ending, marks, rng) for each in spoken]
            turns.append(_measured(turn, sounds, spec, chosen, stream, rng))
            lags.append(lags_of(turn, sounds, chosen.vad, rng))
    finally:
        stream.close()
    return replace(call, turns=tuple(turns)), _all(lags)


def measure_recorded(
    calls: Sequence[tuple[ScriptedCall, Sequence[Sequence[np.ndarray]]]],
    spec: CallSpec,
    *,
    seed: int,
    processes: int,
    recogniser: str = RECOGNISER,
) -> tuple[list[ScriptedCall], Lags]:
    """Measure calls with given sounds: float32, (samples,), 16 kHz, one for each piece of each turn.

    Raises:
        ConfigError: an engine is not installed.
        EngineError: an engine does not load, or failed.
    """
    # Spawned for the reason given in ``measure_in_processes``.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(_measured_sounds, call, sounds, spec, seed, place, recogniser)
            for place, (call, sounds) in enumerate(calls)
        ]
        return _joined([each.result() for each in waiting])


def _measured_sounds(
    call: ScriptedCall,
    sounds: Sequence[Sequence[np.ndarray]],
    spec: CallSpec,
    seed: int,
    place: int,
    recogniser: str,
) -> tuple[ScriptedCall, Lags]:
    (chosen, _), rng = _own_engines(recogniser), np.random.default_rng([seed, place])
    stream = chosen.stt.open_stream()
    turns, lags = [], []
    try:
        for turn, spoken in zip(call.turns, sounds, strict=True):
            turns.append(_measured(turn, spoken, spec, chosen, stream, rng))
            lags.append(lags_of(turn, spoken, chosen.vad, rng))
    finally:
        stream.close()
    return replace(call, turns=tuple(turns)), _all(lags)


def _joined(measured: Sequence[tuple[ScriptedCall, Lags]]) -> tuple[list[ScriptedCall], Lags]:
    return [call for call, _ in measured], _all([lags for _, lags in measured])


def _all(lags: Sequence[Lags]) -> Lags:
    return Lags(
        tuple(ms for lag in lags for ms in lag.stop_ms),
        sum(lag.missed for lag in lags),
        sum(lag.pauses for lag in lags),
        sum(lag.false_stops for lag in lags),
        sum(lag.pieces for lag in lags),
    )


def pieces(turn: ScriptedTurn, engine: str, voice: str, speakers: Speakers) -> Iterator[Sound]:
    """Yield the sound of each piece, cut from its sentence.

    Raises:
        MediaError: the voice gave silence.
    """
    sentence: list[Silence] = []
    for silence in turn.silences:
        sentence.append(silence)
        if silence.inside and silence.length_ms is not None:
            continue
        sound, words = speakers.speak(engine, voice, written(sentence))
        first = taken = 0
        for place, piece in enumerate(sentence):
            taken += len(piece.said.split())
            final = place + 1 == len(sentence)
            last = len(sound) if final else words[taken - 1].end_ms * RATE_HZ // 1000
            word = words[taken - 1]
            end = piece.length_ms is None
            filler = piece.said.split()[-1] in FILLERS
            ending = Ending(
                end=end,
                inside=piece.inside and not end,
                filler=filler,
                last_word_ms=max(1, word.end_ms - word.start_ms),
                # A comma follows a filler, and a mark follows the last word of a sentence.
                lengthened=LENGTHENED[voice] if final or filler else 1.0,
            )
            yield Sound(trimmed(sound[first:last]), ending)
            first = last
        sentence = []


def written(sentence: Sequence[Silence]) -> str:
    """Return the sentence of these pauses as a synthesiser should read it: its words, with punctuation."""
    words: list[str] = []
    for word in (word for piece in sentence for word in piece.said.split()):
        if word in FILLERS and words:
            words[-1] = words[-1].rstrip(",") + ","
        words.append(f"{word}," if word in FILLERS else word)
    mark = ","
    if sentence[-1].length_ms is None:
        said = (word.rstrip(",") for word in words)
        mark = "?" if " ".join(word for word in said if word not in FILLERS) in questions() else "."
    return " ".join(words).rstrip(",") + mark


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


def _measured(
    turn: ScriptedTurn,
    sounds: Sequence[np.ndarray],
    spec: CallSpec,
    chosen: Engines,
    stream: SpeechStream,
    rng: np.random.Generator,
) -> ScriptedTurn:
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
                contour=final_contour(heard[-CONTOUR_MS * RATE_HZ // 1000 :], RATE_HZ),
                voice_end=voice_end(looked[0][-VOICE_END_MS * RATE_HZ // 1000 :], RATE_HZ),
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


def lags_of(
    turn: ScriptedTurn,
    sounds: Sequence[np.ndarray],
    vad: VoiceActivityDetector,
    rng: np.random.Generator,
) -> Lags:
    """Run voice activity detection on the whole turn; return when it reported the ends of voice.

    Args:
        turn: its silences set the pauses after the sounds.
        sounds: one per silence, float32, (samples,), 16 kHz.
        vad: gets the sounds with pauses of noise between them.
        rng: of the noise.
    """
    parts, ends, starts, at = [noise(500, rng)], [], [], 500 * RATE_HZ // 1000
    for silence, sound in zip(turn.silences, sounds, strict=True):
        pause = noise(silence.length_ms or 1_000, rng)
        parts += [sound, pause]
        starts.append(at)
        ends.append(at + len(sound))
        at += len(sound) + len(pause)
    stops = asyncio.run(_stops(np.concatenate(parts), vad))
    lags, missed, pauses = [], 0, 0
    for silence, end, following in zip(turn.silences, ends, [*starts[1:], at], strict=True):
        pauses += (silence.length_ms or 1_000) >= 300
        reported = [stop for stop in stops if end <= stop < following]
        if reported:
            lags.append(round((reported[0] - end) * 1000 / RATE_HZ))
        else:
            missed += (silence.length_ms or 1_000) >= 300
    inside = sum(any(start < stop < end for start, end in zip(starts, ends, strict=True)) for stop in stops)
    return Lags(tuple(lags), missed, pauses, inside, len(sounds))


async def _stops(sound: np.ndarray, vad: VoiceActivityDetector) -> list[int]:
    """Return the sample positions at which the end of a voice was reported."""
    analyzer = SharedVadAnalyzer(vad, executor=None, params=VadSettings(stop_ms=Hearing().stop_ms).params())
    analyzer.set_sample_rate(RATE_HZ)
    step, stops, before = WINDOW_MS * RATE_HZ // 1000, [], VADState.QUIET
    for first in range(0, len(sound) - step + 1, step):
        state = await analyzer.analyze_audio(float_to_pcm16(sound[first : first + step]))
        if before is VADState.STOPPING and state is VADState.QUIET:
            stops.append(first + step)
        before = state
    return stops


def noise(ms: int, rng: np.random.Generator) -> np.ndarray:
    """Return the noise of a quiet room: float32, (samples,), 16 kHz."""
    return (NOISE_RMS * rng.standard_normal(ms * RATE_HZ // 1000)).astype(np.float32)


def _log_odds(probability: float) -> float:
    inside = min(max(probability, SUREST), 1 - SUREST)
    return math.log(inside / (1 - inside))


def save(path: Path, calls: Sequence[ScriptedCall], lags: Lags) -> None:
    """Write the measurements as JSON, because measuring takes minutes.

    The script itself is not written: it is drawn again from its seed.
    """
    rows = [
        [
            *(round(odds, 2) for odds in silence.log_odds),
            silence.heard,
            round(silence.confidence, 3),
            silence.contour and silence.contour.value,
            silence.voice_end and _numbers(silence.voice_end),
            None if silence.filler_log_odds is None else round(silence.filler_log_odds, 2),
        ]
        for silence in _silences(calls)
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    head = json.dumps({"script": _digest(calls), "lags": asdict(lags)})[:-1]
    replace_file(path, f'{head}, "silences": [\n{lines}\n]}}\n'.encode())


def load(path: Path, script: Sequence[ScriptedCall]) -> tuple[list[ScriptedCall], Lags]:
    """Read a file of ``save`` and put its measurements into the script that they belong to.

    Raises:
        ConfigError: it was measured on another script, or is no such file.
    """
    try:
        return _loaded(path, script)
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        raise ConfigError(f"{path} contains no measurements: measure it again") from error


def _loaded(path: Path, script: Sequence[ScriptedCall]) -> tuple[list[ScriptedCall], Lags]:
    written = json.loads(path.read_text())
    if written["script"] != _digest(script):
        raise ConfigError(f"{path} was measured with another script: measure it again")
    rows = iter(written["silences"])
    calls = [
        replace(
            call,
            turns=tuple(
                replace(turn, silences=tuple(_with(silence, next(rows)) for silence in turn.silences))
                for turn in call.turns
            ),
        )
        for call in script
    ]
    return calls, Lags(**written["lags"] | {"stop_ms": tuple(written["lags"]["stop_ms"])})


def _with(silence: Silence, row: Sequence[Any]) -> Silence:
    *log_odds, heard, confidence, contour, ended, filler = row
    return replace(
        silence,
        log_odds=tuple(log_odds),
        heard=heard,
        confidence=confidence,
        contour=None if contour is None else Contour(contour),
        voice_end=None if ended is None else _voice_end(ended),
        filler_log_odds=filler,
    )


def _numbers(end: VoiceEnd) -> list[float | None]:
    tempo = end.tempo
    tempos = (None, None) if tempo is None else (tempo.final, tempo.whole)
    numbers = (*tempos, end.movement_semitones, end.loudness_db_s)
    return [None if number is None else round(number, 3) for number in numbers]


def _voice_end(numbers: Sequence[float | None]) -> VoiceEnd:
    final, whole, movement, loudness = numbers
    tempo = None if final is None or whole is None else Tempo(final, whole)
    return VoiceEnd(tempo, movement, loudness)


def _silences(calls: Sequence[ScriptedCall]) -> Iterator[Silence]:
    return (silence for call in calls for turn in call.turns for silence in turn.silences)


def _digest(calls: Sequence[ScriptedCall]) -> str:
    """Return a digest of the words, the lengths of the pauses and the names of the measured fields."""
    said: list[object] = [[silence.said, silence.length_ms] for silence in _silences(calls)]
    said.append([field.name for field in fields(Silence)])
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:20]
