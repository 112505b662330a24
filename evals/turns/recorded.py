"""Callers of the report side: recorded people and voice generators, as the engines that ship hear them.

A turn of ``evals.human.callers`` becomes a ``ScriptedTurn``. Its silences of at least 200 ms, recorded or
inserted, are the holds, and the sound between them gives the pieces for the engines. The words of a piece are
those that the alignment places there; when a recording could not be aligned they are distributed by time.
Nothing is fitted on these calls.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parley.evals.human.callers import CallerSpeech, CallerTurn, SpeechKind, open_callers, open_generated
from parley.evals.turns import audio
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.turn_taking.endpointing.pauses import HOLD_SHARE, LONGEST_MS, SHORTEST_MS

RECOGNISER = "moonshine_tiny"
SEED = 1
PEOPLE, VOICES = "people", "voices"
# Parameters of each set.
SPECS = {PEOPLE: CallSpec(callers=14, turns=12), VOICES: CallSpec(callers=6, turns=12)}
# The prompt of every turn, as no recording answers a question.
PROMPT = "What can I do for you?"


def measure(name: str, *, processes: int, own: Path | None = None) -> list[ScriptedCall]:
    """Measure one set, which takes minutes.

    Args:
        name: of the set.
        processes: number at a time, each with engines of its own.
        own: a folder of the user's recordings in place of the fetched people.

    Raises:
        ConfigError: recordings were not fetched, or an engine or a voice is not installed.
        EngineError: an engine failed.
        MediaError: a recording cannot be decoded.
    """
    callers = open_generated() if name == VOICES else open_callers(SpeechKind.HUMAN, own=own)
    calls = script(callers, SPECS[name], SEED)
    return audio.measure_recorded(calls, SPECS[name], seed=SEED, processes=processes, recogniser=RECOGNISER)


def script(
    callers: CallerSpeech, spec: CallSpec, seed: int
) -> list[tuple[ScriptedCall, list[list[np.ndarray]]]]:
    """Return the calls and the sounds of the pieces of each turn.

    Raises:
        MediaError: a recording is silent.
    """
    spoken = callers.turns(spec.callers * spec.turns, seed)
    calls = []
    for place in range(spec.callers):
        turns = [_turn(each) for each in spoken[place * spec.turns : (place + 1) * spec.turns]]
        holds = sum(len(turn.silences) - 1 for turn, _ in turns)
        share = holds / (holds + len(turns)) if holds else HOLD_SHARE
        call = ScriptedCall(1.0, share, tuple(turn for turn, _ in turns))
        calls.append((call, [sounds for _, sounds in turns]))
    return calls


def _turn(caller: CallerTurn) -> tuple[ScriptedTurn, list[np.ndarray]]:
    turn = caller.turn
    words = turn.utterance.text.lower().split()
    holds = [
        pause for pause in turn.pauses if (pause.end - pause.first) * 1000 // turn.rate_hz >= SHORTEST_MS
    ]
    silences, sounds = [], []
    begin = said = 0
    for pause in holds:
        share = round(len(words) * pause.first / len(turn.samples))
        until = max(said, min(len(words), share if pause.words is None else pause.words))
        length_ms = min((pause.end - pause.first) * 1000 // turn.rate_hz, LONGEST_MS)
        silences.append(_silence(words[said:until], length_ms))
        sounds.append(turn.samples[begin : pause.first])
        begin, said = pause.end, until
    silences.append(_silence(words[said:], None))
    sounds.append(turn.samples[begin:])
    return ScriptedTurn(PROMPT, tuple(silences)), sounds


def _silence(words: Sequence[str], length_ms: int | None) -> Silence:
    text = " ".join(words)
    return Silence(length_ms, (), text, "", inside=length_ms is not None)
