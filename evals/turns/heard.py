"""Measured callers of both sides of the split, for fits and for reports.

Each set is a list of scripted calls with the output of the engines that ship for every pause. The output is
smart-turn's at each look, the words of the default recogniser, and the end of the voice. The tuning side has
the committed synthetic scripts with their marks (``tuning``), and recorded people with their own pauses,
nearly all Italian and Russian. The report side has recorded English and its voice generators, with inserted
hesitations (``evals.human``). Measuring takes minutes, so a folder caches the measurements.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from parley.evals.human.callers import CallerSpeech, SpeechKind, open_callers, open_generated, open_tuning
from parley.evals.human.split import Split
from parley.evals.turns import audio, recorded, tuning
from parley.evals.turns.calibration import SEED as TUNING_SEED
from parley.evals.turns.callers import CallSpec, ScriptedCall, Silence, generate, with_new_pauses
from parley.evals.turns.texts import FILLERS

RECOGNISER = "moonshine_tiny"
REPORT_SEED = 1
# Voice activity detection has reported the silence by the first; the other is that of ``policies.LOOKS_MS``.
LOOKS_MS = tuning.SPEC.looks_ms
# Share of the spoken fillers that the recogniser writes.
FILLERS_WRITTEN = 0.5
SCRIPTED, PEOPLE, VOICES = "scripted", "people", "voices"
SETS = {Split.TUNING: (SCRIPTED, PEOPLE), Split.REPORT: (PEOPLE, VOICES)}
# Callers and turns of each set.
SIZES = {
    (Split.TUNING, SCRIPTED): (tuning.SPEC.callers, tuning.SPEC.turns),
    (Split.TUNING, PEOPLE): (8, 12),
    (Split.REPORT, PEOPLE): (14, 12),
    (Split.REPORT, VOICES): (6, 12),
}


def spec_of(split: Split, name: str) -> CallSpec:
    """Return the parameters of a set: its size and the times of its looks."""
    callers, turns = SIZES[split, name]
    return CallSpec(callers=callers, turns=turns, looks_ms=LOOKS_MS, held_out=split is Split.REPORT)


def measure(split: Split, name: str, *, processes: int, kept: Path | None) -> list[ScriptedCall]:
    """Measure one set, or read it from the cache folder; the scripts are read as committed.

    Raises:
        ConfigError: recordings were not fetched, an engine or a voice is not installed, or the cache belongs
            to another script.
        EngineError: an engine failed.
        MediaError: a recording cannot be decoded.
    """
    spec = spec_of(split, name)
    if name == SCRIPTED:
        measured, _ = audio.load(audio.TUNING, list(generate(spec, TUNING_SEED)))
        rng = np.random.default_rng(TUNING_SEED)
        return [as_written(call, rng) for call in measured]
    seed = TUNING_SEED if split is Split.TUNING else REPORT_SEED
    script = recorded.script(_callers(split, name), spec, seed)
    # A neural voice speaks a text a little differently each time, so cached measurements fit no new script.
    path = None
    if kept is not None and name != VOICES:
        path = kept / f"{split.value}-{name}-{spec.callers}x{spec.turns}.json"
    if path is not None and path.exists():
        measured, _ = audio.load(path, [call for call, _ in script])
    else:
        measured, lags = audio.measure_recorded(
            script, spec, seed=seed, processes=processes, recogniser=RECOGNISER
        )
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            audio.save(path, measured, lags)
    if (split, name) == (Split.TUNING, PEOPLE):
        return [without_words(call) for call in measured]
    return measured


def _callers(split: Split, name: str) -> CallerSpeech:
    if name == VOICES:
        return open_generated(split)
    return open_tuning() if split is Split.TUNING else open_callers(SpeechKind.HUMAN)


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


def replayed(calls: Sequence[ScriptedCall], spec: CallSpec, *, seed: int, times: int) -> list[ScriptedCall]:
    """Return the calls ``times`` times, each time with pauses of new lengths."""
    rng = np.random.default_rng(seed)
    return [with_new_pauses(call, spec, rng) for _ in range(times) for call in calls]
