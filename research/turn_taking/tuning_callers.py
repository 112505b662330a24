"""Measured callers of the tuning side of the split, for fits and for the choice of defaults.

Each set is a list of calls with the output of the engines that ship for every pause: smart-turn's at each
look, the words of the default recogniser, and the end of the voice. ``scripted`` is the committed synthetic
scripts with their marks (``tuning``), with the words as spoken. ``people`` are recorded people with their own
pauses, nearly all Italian and Russian. Measuring takes minutes, so a folder caches the measurements.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from parley.core.media import ms_to_samples
from parley.evals.human.callers import SetCallers, SpeechKind
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import TuningSet, load_tuning
from parley.evals.turns import audio
from parley.evals.turns.callers import CallSpec, ScriptedCall, Silence
from parley.evals.turns.recorded import RECOGNISER, script
from parley.turn_taking.endpointing.pauses import SHORTEST_MS
from research.turn_taking import synthetic_speech, tuning
from research.turn_taking.simulated_callers import TUNING_SEED, generate
from research.turn_taking.simulated_texts import FILLERS

# Share of the spoken fillers that the recogniser writes.
FILLERS_WRITTEN = 0.5
PEOPLE = CallSpec(callers=8, turns=12)
# Transcribed speech: nearly all of it Italian and Russian.
SOURCES = ("prompts-it", "prompts-ru", "librivox", "readings")
# Longer recordings count too: most of them get no inserted pauses, and short ones hardly have a pause.
LONGEST_S = 12.0


def scripted() -> list[ScriptedCall]:
    """Read the committed scripts."""
    measured, _ = synthetic_speech.load(synthetic_speech.TUNING, list(generate(tuning.SPEC, TUNING_SEED)))
    rng = np.random.default_rng(TUNING_SEED)
    return [as_written(call, rng) for call in measured]


def people(*, processes: int, kept: Path | None) -> list[ScriptedCall]:
    """Measure the recorded people, or read them from the cache folder.

    Raises:
        ConfigError: recordings were not fetched, an engine is not installed, or the cache belongs to another
            script.
        EngineError: an engine failed.
        MediaError: a recording cannot be decoded.
    """
    material = load_tuning(SOURCES).where(with_text=True)
    paused = TuningSet(one for one in material if one.language == "en" or _pauses(one))
    callers = SetCallers(paused, SpeechKind.HUMAN, longest_s=LONGEST_S)
    said = script(callers, PEOPLE, TUNING_SEED)
    path = kept / f"tuning-people-{PEOPLE.callers}x{PEOPLE.turns}.json" if kept else None
    if path is not None and path.exists():
        measured, _ = synthetic_speech.load(path, [call for call, _ in said])
    else:
        measured = audio.measure_recorded(
            said, PEOPLE, seed=TUNING_SEED, processes=processes, recogniser=RECOGNISER
        )
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            synthetic_speech.save(path, measured)
    return [without_words(call) for call in measured]


def _pauses(one: RecordedUtterance) -> bool:
    return any(pause.end - pause.first >= ms_to_samples(SHORTEST_MS, one.rate_hz) for pause in one.pauses)


def as_written(call: ScriptedCall, rng: np.random.Generator) -> ScriptedCall:
    """Return the call with its words as spoken, without the fillers that the recogniser leaves out.

    The committed words are PocketSphinx's, of which a quarter to a half are wrong; the default recogniser has
    about one in 30 wrong.
    """

    def written(said: str) -> str:
        words = (word for word in said.split() if word not in FILLERS or rng.random() < FILLERS_WRITTEN)
        return " ".join(words)

    return _with_words(call, lambda silence: written(silence.said), 1.0)


def without_words(call: ScriptedCall) -> ScriptedCall:
    """Return the call as for a speaker of another language: an English recogniser's words carry no
    information.

    A placeholder word remains, because a policy ends no turn without words.
    """
    return _with_words(call, lambda _: "la", 0.0)


def _with_words(call: ScriptedCall, words: Callable[[Silence], str], confidence: float) -> ScriptedCall:
    turns = tuple(
        replace(
            turn,
            silences=tuple(replace(each, heard=words(each), confidence=confidence) for each in turn.silences),
        )
        for turn in call.turns
    )
    return replace(call, turns=turns)
