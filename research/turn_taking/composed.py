"""``python -m research.turn_taking.composed``: measure the composed tuning calls, on which words are weighed.

The voice generators of the tuning side speak ``composed_texts``. Pauses are inserted where people make them,
by the composer of ``evals.human``: between sentences and clauses, and inside clauses after a function word.
The committed ``composed.json`` has, for each pause, the words before it as they are written, and what the
engines that ship make of it.

The voice before such a cut is that of fluent synthetic speech, whose sound hardly tells a pause from an end.
So ``predictor`` weighs the sound of these calls apart, and takes words and grammar alone from them.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import ConfigError
from parley.evals.harness.command import exit_code, positive
from parley.evals.human.callers import SetCallers, SpeechKind
from parley.evals.human.generators import installed
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import Split, TuningSet
from parley.evals.turns import audio
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.evals.turns.recorded import PROMPT, RECOGNISER, script
from parley.runtime.atomic_file import replace_file
from parley.turn_taking.endpointing.evidence_tempo import Tempo
from parley.turn_taking.endpointing.evidence_voice import VoiceEnd
from parley.turn_taking.endpointing.pauses import HOLD_SHARE
from research.turn_taking import tuning_callers
from research.turn_taking.composed_texts import COMPOSED_TEXTS

COMPOSED = Path(__file__).with_name("composed.json")
SPEC = CallSpec(callers=20, turns=12)
SEED = 11
# Voices that speak each text.
VOICES_EACH = 2


def composed(path: Path = COMPOSED) -> list[ScriptedCall]:
    """Read the committed calls, with words as a recogniser with few errors writes them.

    Raises:
        ConfigError: the file is absent, or has no calls.
    """
    try:
        calls = [_call(turns) for turns in json.loads(path.read_text(encoding="utf-8"))["calls"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path} has no calls: measure them again") from error
    rng = np.random.default_rng(SEED)
    return [tuning_callers.as_written(call, rng) for call in calls]


def measure(*, processes: int) -> list[ScriptedCall]:
    """Measure the calls.

    Raises:
        ConfigError: a voice generator or an engine is not installed.
        EngineError: one of them failed.
        MediaError: a voice gave silence.
    """
    callers = SetCallers(TuningSet(_spoken()), SpeechKind.SYNTHETIC)
    return audio.measure_recorded(
        script(callers, SPEC, SEED), SPEC, seed=SEED, processes=processes, recogniser=RECOGNISER
    )


def save(path: Path, calls: Sequence[ScriptedCall]) -> None:
    """Write measured calls as JSON, a line for each turn."""
    written = ",\n".join(
        "[" + ",\n".join(json.dumps([_row(each) for each in turn.silences]) for turn in call.turns) + "]"
        for call in calls
    )
    replace_file(path, f'{{"calls": [\n{written}\n]}}\n'.encode())


def _spoken() -> list[RecordedUtterance]:
    voices = [(generator, voice) for generator in installed(Split.TUNING) for voice in generator.voices]
    if not voices:
        raise ConfigError("no voice generator of the tuning set is installed")
    spoken = []
    for place, text in enumerate(COMPOSED_TEXTS):
        for again in range(VOICES_EACH):
            # A step of three goes through all voices, whose number it does not divide.
            generator, voice = voices[(place * VOICES_EACH + again * 3 + place // len(voices)) % len(voices)]
            spoken.append(generator.say(voice, text))
    return spoken


def _row(silence: Silence) -> list[Any]:
    end = silence.voice_end
    tempo = end.tempo if end is not None else None
    return [
        silence.length_ms,
        silence.said,
        [round(odds, 2) for odds in silence.log_odds],
        None
        if end is None
        else [
            None if number is None else round(number, 3)
            for number in (
                tempo and tempo.final,
                tempo and tempo.whole,
                end.movement_semitones,
                end.loudness_db_s,
            )
        ],
        None if silence.filler_log_odds is None else round(silence.filler_log_odds, 2),
    ]


def _silence(row: Sequence[Any]) -> Silence:
    length_ms, said, log_odds, numbers, filler = row
    end = None
    if numbers is not None:
        final, whole, movement, loudness = numbers
        tempo = None if final is None or whole is None else Tempo(final, whole)
        end = VoiceEnd(tempo, movement, loudness)
    return replace(
        Silence(length_ms, tuple(log_odds), said, said, inside=length_ms is not None),
        voice_end=end,
        filler_log_odds=filler,
    )


def _call(turns: Sequence[Any]) -> ScriptedCall:
    said = tuple(ScriptedTurn(PROMPT, tuple(_silence(row) for row in turn)) for turn in turns)
    return ScriptedCall(1.0, HOLD_SHARE, said)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.composed")
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    root.add_argument("--out", type=Path, default=COMPOSED)
    arguments = root.parse_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    calls = measure(processes=arguments.processes)
    save(arguments.out, calls)
    pauses = sum(len(turn.silences) for call in calls for turn in call.turns)
    print(f"{pauses} pauses of {len(calls)} calls in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
