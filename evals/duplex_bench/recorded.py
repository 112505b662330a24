"""Clips of recorded people, in the layout of the shipped ones: pauses, ends of turns, interruptions.

Turns come from the report set (``evals.human.callers``). Backchannels, talk to others and coughs are missing
in the packages' recordings, so they are tested on the shipped clips alone.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from parley.core.media import ms_to_samples
from parley.evals.duplex_bench.clips import Kind, Part
from parley.evals.human.callers import CallerSpeech, CallerTurn
from parley.evals.human.conditions import RATE_HZ

PARTS = (Part.PAUSE, Part.TURN, Part.INTERRUPTION)
# As the shipped clips: silence before the caller, after the end of a turn, and after one with pauses.
LEAD_MS, ANSWER_MS, PAUSED_TAIL_MS = 500, 3_500, 200
# The bot has begun to answer by then.
INTERRUPTS_AFTER_MS = 3_500
SHORTEST_PAUSE_MS = 200
# Number of draws for each clip with a pause.
DRAWS = 4


def write(folder: Path, callers: CallerSpeech, each: int, seed: int) -> None:
    """Write ``each`` clips of every part below a folder.

    Raises:
        MediaError: a recording is silent.
    """
    paused = [turn for turn in callers.turns(DRAWS * each, seed) if _pauses(turn)][:each]
    for number, turn in enumerate(paused, start=1):
        _write_paused(folder / "human_pause_handling" / f"{number:02d}", turn)
    turns = callers.turns(3 * each, seed + 1)
    for number, turn in enumerate(turns[:each], start=1):
        _write_turn(folder / "human_turn_taking" / f"{number:02d}", turn)
    pairs = zip(turns[each : 2 * each], turns[2 * each :], strict=True)
    for number, (before, after) in enumerate(pairs, start=1):
        _write_interruption(folder / "human_user_interruption" / f"{number:02d}", before, after)


def _pauses(caller: CallerTurn) -> list[tuple[int, int]]:
    shortest = ms_to_samples(SHORTEST_PAUSE_MS, RATE_HZ)
    return [(one.first, one.end) for one in caller.turn.pauses if one.end - one.first >= shortest]


def _write_paused(folder: Path, caller: CallerTurn) -> None:
    lead = ms_to_samples(LEAD_MS, RATE_HZ)
    spans = [_seconds(lead + first, lead + end) for first, end in _pauses(caller)]
    events = [{"kind": Kind.PAUSE.value, "timestamp": span, "text": ""} for span in spans]
    annotation = [{"text": "[PAUSE]", "timestamp": span} for span in spans]
    audio = [_silence(LEAD_MS), caller.turn.samples, _silence(PAUSED_TAIL_MS)]
    _write(folder, audio, "pause.json", annotation, events)


def _write_turn(folder: Path, caller: CallerTurn) -> None:
    begin = ms_to_samples(LEAD_MS, RATE_HZ)
    end = begin + len(caller.turn.samples)
    audio = [_silence(LEAD_MS), caller.turn.samples, _silence(ANSWER_MS)]
    text = caller.turn.utterance.text
    events = [{"kind": Kind.TURN.value, "timestamp": _seconds(begin, end), "text": text}]
    annotation = [{"text": text, "timestamp": _seconds(end, end + ms_to_samples(ANSWER_MS, RATE_HZ))}]
    _write(folder, audio, "turn_taking.json", annotation, events)


def _write_interruption(folder: Path, before: CallerTurn, after: CallerTurn) -> None:
    begin = ms_to_samples(LEAD_MS, RATE_HZ)
    end = begin + len(before.turn.samples)
    again = end + ms_to_samples(INTERRUPTS_AFTER_MS, RATE_HZ)
    last = again + len(after.turn.samples)
    audio = [
        _silence(LEAD_MS),
        before.turn.samples,
        _silence(INTERRUPTS_AFTER_MS),
        after.turn.samples,
        _silence(ANSWER_MS),
    ]
    context, interrupt = before.turn.utterance.text, after.turn.utterance.text
    events = [
        {"kind": Kind.TURN.value, "timestamp": _seconds(begin, end), "text": context},
        {"kind": Kind.INTERRUPTION.value, "timestamp": _seconds(again, last), "text": interrupt},
    ]
    annotation = [{"context": context, "interrupt": interrupt, "timestamp": _seconds(again, last)}]
    _write(folder, audio, "interrupt.json", annotation, events)


def _write(
    folder: Path, audio: Sequence[np.ndarray], name: str, annotation: Any, events: Sequence[Any]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / "input.wav", np.concatenate(audio), RATE_HZ, subtype="PCM_16")
    (folder / name).write_text(json.dumps(annotation))
    (folder / "events.json").write_text(json.dumps({"voice": "recorded", "events": list(events)}))


def _silence(ms: int) -> np.ndarray:
    return np.zeros(ms_to_samples(ms, RATE_HZ), np.float32)


def _seconds(first: int, end: int) -> list[float]:
    return [round(first / RATE_HZ, 3), round(end / RATE_HZ, 3)]
