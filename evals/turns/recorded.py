"""Scripted calls of recorded people: the same policies on the pauses and ends of real voices.

A turn of ``evals.human.callers`` becomes a ``ScriptedTurn``. Its silences of at least 200 ms, recorded or
inserted, are the holds, and the sound between them gives the pieces for the engines. The words of a piece are
those that the alignment places there; when a recording could not be aligned they are distributed by time.
Nothing is fitted on these calls: evidence and prices come from the tuning calls.
"""

from collections.abc import Sequence

import numpy as np

from parley.evals.human.callers import CallerSpeech, CallerTurn
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.turn_taking.endpointing.pauses import HOLD_SHARE, LONGEST_MS, SHORTEST_MS

# The prompt of every turn, as no recording answers a question.
PROMPT = "What can I do for you?"


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
