"""Real scores and words for simulated callers: synthetic voices processed by the engines that ship.

Each sentence is spoken by flite or espeak as a whole, with the punctuation that a synthesiser reads. A comma
stands before a continuation and around a filler, a full stop or a question mark at the end of the turn. The
sound is cut at the words where the script pauses and marked there as people mark it (``prosody``). The
engines get it as they get recorded callers (``evals.turns.audio``), and voice activity detection the whole
turn. The result is the same script with measured log odds and words, for the same policies and the same
search.

``save`` stores the measurements of a script, without the script: a few numbers and the words of each pause.
``TUNING`` holds the data on which the evidence of an audio run is fitted.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADState

from parley.core.errors import ConfigError
from parley.core.media import float_to_pcm16
from parley.evals.turns.audio import (
    RATE_HZ,
    RECOGNISER,
    Engines,
    Speakers,
    end_of_voice,
    measured_turn,
    noise,
    own_engines,
    trimmed,
)
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.evals.turns.simulator import Hearing
from parley.models.vad import VoiceActivityDetector
from parley.processors.front_end.vad import SharedVadAnalyzer, VadSettings
from parley.runtime.atomic_file import replace_file
from parley.turn_taking.endpointing.evidence_tempo import Tempo
from parley.turn_taking.endpointing.evidence_voice import VoiceEnd
from research.turn_taking.contours import CONTOUR_MS, Contour, ContouredEnd, contour_of, final_contour
from research.turn_taking.prosody import Ending, marked
from research.turn_taking.simulated_texts import FILLERS, questions

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
# The measured calls of the tuning seed; written by ``python -m research.turn_taking.tuning``.
TUNING = Path(__file__).parent / "tuning.json"
WINDOW_MS = 32
# The measured fields of a silence: a file belongs to these.
FIELDS = (
    *("length_ms", "log_odds", "said", "heard", "inside", "confidence", "contour", "voice_end"),
    "filler_log_odds",
)


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


@dataclass(frozen=True, slots=True)
class Sound:
    """A piece of a turn as sound.

    Attributes:
        samples: float32, (samples,), 16 kHz, edges audible, not marked.
        ending: the way in which it ends.
    """

    samples: np.ndarray
    ending: Ending


def measure_in_processes(
    calls: Sequence[ScriptedCall], spec: CallSpec, *, seed: int, marks: float, processes: int
) -> tuple[list[ScriptedCall], Lags]:
    """Return the calls with the measurements of the engines that ship, one voice for each caller.

    Raises:
        ConfigError: an engine is not installed.
        MediaError: a voice gave silence.
        EngineError: an engine does not load, or failed.
    """
    # A forked process would inherit locks of native libraries that no thread there releases.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(_measured_there, call, place, spec, seed, marks) for place, call in enumerate(calls)
        ]
        measured = [each.result() for each in waiting]
        return [call for call, _ in measured], _all([lags for _, lags in measured])


@cache
def _own_speakers() -> Speakers:
    """Return the voices of this process of the pool; they cannot be sent between processes."""
    return Speakers()


def _measured_there(
    call: ScriptedCall, place: int, spec: CallSpec, seed: int, marks: float
) -> tuple[ScriptedCall, Lags]:
    chosen, speakers = own_engines(RECOGNISER), _own_speakers()
    return measured_call(call, place, spec, chosen, speakers, seed, marks)


def measured_call(
    call: ScriptedCall,
    place: int,
    spec: CallSpec,
    chosen: Engines,
    speakers: Speakers,
    seed: int,
    marks: float,
) -> tuple[ScriptedCall, Lags]:
    """Return one call with the engines' measurements; its place selects the voice."""
    rng = np.random.default_rng([seed, place])
    engine, voice = VOICES[place % len(VOICES)]
    stream = chosen.stt.open_stream()
    measure_end = partial(_contoured_end, look_ms=spec.looks_ms[0])
    turns, lags = [], []
    try:
        for turn in call.turns:
            spoken = pieces(turn, engine, voice, speakers)
            sounds = [marked(each.samples, RATE_HZ, each.ending, marks, rng) for each in spoken]
            turns.append(measured_turn(turn, sounds, spec, chosen, stream, rng, measure_end))
            lags.append(lags_of(turn, sounds, chosen.vad, rng))
    finally:
        stream.close()
    return replace(call, turns=tuple(turns)), _all(lags)


def _contoured_end(heard: np.ndarray, *, look_ms: int) -> VoiceEnd:
    """Measure the end of the voice and its contour on a turn with ``look_ms`` of silence."""
    end = end_of_voice(heard)
    spoken = heard[: -look_ms * RATE_HZ // 1000]
    contour = final_contour(spoken[-CONTOUR_MS * RATE_HZ // 1000 :], RATE_HZ)
    return ContouredEnd(end.tempo, end.movement_semitones, end.loudness_db_s, contour)


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


NO_LAGS = Lags((), 0, 0, 0, 0)


def save(path: Path, calls: Sequence[ScriptedCall], lags: Lags = NO_LAGS) -> None:
    """Write the measurements as JSON, because measuring takes minutes.

    The script itself is not written: it is drawn again from its seed.
    """
    rows = [
        [
            *(round(odds, 2) for odds in silence.log_odds),
            silence.heard,
            round(silence.confidence, 3),
            None if (contour := contour_of(silence.voice_end)) is None else contour.value,
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
        voice_end=None if ended is None else _voice_end(ended, None if contour is None else Contour(contour)),
        filler_log_odds=filler,
    )


def _numbers(end: VoiceEnd) -> list[float | None]:
    tempo = end.tempo
    tempos = (None, None) if tempo is None else (tempo.final, tempo.whole)
    numbers = (*tempos, end.movement_semitones, end.loudness_db_s)
    return [None if number is None else round(number, 3) for number in numbers]


def _voice_end(numbers: Sequence[float | None], contour: Contour | None) -> VoiceEnd:
    final, whole, movement, loudness = numbers
    tempo = None if final is None or whole is None else Tempo(final, whole)
    return ContouredEnd(tempo, movement, loudness, contour)


def _silences(calls: Sequence[ScriptedCall]) -> Iterator[Silence]:
    return (silence for call in calls for turn in call.turns for silence in turn.silences)


def _digest(calls: Sequence[ScriptedCall]) -> str:
    """Return a digest of the words, the lengths of the pauses and the names of the measured fields."""
    said: list[object] = [[silence.said, silence.length_ms] for silence in _silences(calls)]
    said.append(list(FIELDS))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:20]
