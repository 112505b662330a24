"""``python -m research.turn_taking.filler``: fit the line of fillers (``models.turn.smart_turn``).

Synthetic callers (the voices of ``floor``) stop on "um", "uh" or "er", at the end of a sentence
or inside it. Others stop on a conjunction, an article, or a word that sounds like a filler ("some", "a").
Half of those who stop inside continue afterwards, and the sound is cut there. The sound is resampled and goes
through a drawn channel. A little silence follows, as when the completeness model gets a pause. The line is a
logistic regression with ridge penalty on the features that it weighs. Sentences are those for tuning.

Reported is the area under the curve on each caller of ``overlap_calls``, with a line that was fitted without
their voice. So is the share of fillers above the odds that only a given share of other pauses reaches.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from parley.core.errors import AgentError
from parley.evals.harness.command import machine, positive
from parley.evals.turns.texts import sentences
from parley.models.turn.network import SECOND_LAYER, LinearScore, Network
from parley.models.turn.smart_turn import ENGINE, MAX_SAMPLES, LogMel, filler_features
from research.turn_taking.floor import (
    CALLERS,
    RATE_HZ,
    area,
    drawn_stretch,
    drawn_voice,
    fitted,
    on_a_line,
    speakers,
)

FILLERS = ("um", "uh", "er", "um", "uh", "erm")
HANGING = ("and", "but", "so", "because", "for", "the", "to", "with", "or", "if", "when", "that", "of")
ALIKE = ("some", "from", "them", "come", "a", "her", "were", "thumb", "sofa", "drum", "fur", "data", "i'm")
# Share of each kind of last sound before a pause.
SHARES = {"filler": 0.35, "end": 0.3, "inside": 0.12, "hanging": 0.13, "alike": 0.1}
EDGE_DB, SILENCE_MS, SILENCE_LEVEL = -32.0, (80, 220), 1e-3
RIDGE = 1_000.0
MISTAKES = (0.02, 0.05)
AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a caller.

    Attributes:
        kind: of ``SHARES``.
        voice: engine and name of the voice.
        features: float32, (``FILLER_FEATURES``,).
    """

    kind: str
    voice: str
    features: np.ndarray

    @property
    def is_filler(self) -> bool:
        """True for the pauses that the line should find."""
        return self.kind == "filler"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.filler")
    root.add_argument("--pauses", type=positive, default=6_000)
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--processes", type=positive, default=2)
    root.add_argument(
        "--write", type=Path, help="write the decision line to this file, as models/turn/filler_line.npz"
    )
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    arguments = root.parse_args(argv)
    try:
        pauses = made(arguments.pauses, arguments.seed, processes=arguments.processes)
    except AgentError as error:
        print(error, file=sys.stderr)
        return 2
    result = {
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "pauses": {kind: sum(pause.kind == kind for pause in pauses) for kind in SHARES},
        "left_out": judged(pauses),
        "machine": machine(),
    }
    if arguments.write:
        LinearScore(*line_of(pauses), _network().sha256).save(arguments.write)
    text = json.dumps(result, indent=1)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    print(text)
    return 0


def made(count: int, seed: int, *, processes: int) -> list[Pause]:
    """Return the given number of pauses, made in several processes.

    Raises:
        ConfigError: an engine is not installed.
        EngineError: an engine does not load, or failed.
    """
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(made_there, min(AT_ONCE, count - at), seed, at) for at in range(0, count, AT_ONCE)
        ]
        return [pause for each in waiting for pause in each.result()]


@cache
def _network() -> Network:
    return Network([SECOND_LAYER], engine=ENGINE)


@cache
def _mel() -> LogMel:
    return LogMel()


def made_there(count: int, seed: int, first: int) -> list[Pause]:
    """Make the given number of pauses in this process, each with a voice drawn anew."""
    rng = np.random.default_rng([seed, first, 3])
    corpus = sentences(held_out=False)
    pauses = []
    for _ in range(count):
        kind = list(SHARES)[int(rng.choice(len(SHARES), p=list(SHARES.values())))]
        voice = drawn_voice(rng)
        sound = _stopped(kind, corpus[int(rng.integers(len(corpus)))], voice, rng)
        [states] = _network().run([SECOND_LAYER], _mel()(sound[-MAX_SAMPLES:]))
        pauses.append(Pause(kind, " ".join(voice), filler_features(states)))
    return pauses


def _stopped(kind: str, sentence: str, voice: tuple[str, str], rng: np.random.Generator) -> np.ndarray:
    """Return a caller up to the stop, and some silence: float32, (samples,), 16 kHz."""
    words = sentence.strip(" .?!").split()
    count = int(rng.integers(1, len(words) + 1))
    goes_on = count < len(words) and rng.random() < 0.5
    if kind in ("end", "inside"):
        text = " ".join(words) + (rng.choice((".", "?")) if kind == "end" else "")
        kept = len(words) if kind == "end" else count
    else:
        endings = {"filler": FILLERS, "hanging": HANGING, "alike": ALIKE}[kind]
        ending = endings[int(rng.integers(len(endings)))]
        before, behind = (", ", ",") if kind == "filler" else (" ", "," if kind == "hanging" else ".")
        text = f"{' '.join(words[:count])}{before}{ending}{behind}"
        if goes_on:
            text += " " + " ".join(words[count:])
        kept = count + 1
    sound, times = speakers().speak(*voice, text)
    if kept < len(times):
        sound = sound[: times[kept - 1].end_ms * RATE_HZ // 1000]
    sound = _trimmed(sound)
    if rng.random() < 0.6:
        sound = soxr.resample(sound, RATE_HZ, RATE_HZ * drawn_stretch(rng)).astype(np.float32)
    if rng.random() < 0.5:
        sound = _trimmed(on_a_line(sound, rng))
    silence = SILENCE_LEVEL * rng.standard_normal(int(rng.uniform(*SILENCE_MS)) * RATE_HZ // 1000)
    return np.concatenate((sound, silence)).astype(np.float32)


def _trimmed(sound: np.ndarray) -> np.ndarray:
    """Return the sound without its soft end."""
    frame = RATE_HZ // 100
    frames = len(sound) // frame
    power = np.mean(sound[: frames * frame].reshape(frames, frame) ** 2, axis=1)
    return sound[: (int(np.flatnonzero(power > power.max() * 10 ** (EDGE_DB / 10))[-1]) + 1) * frame]


def line_of(pauses: Sequence[Pause]) -> tuple[np.ndarray, float]:
    """Return (weights, bias) of the log odds of a filler."""
    return fitted([pause.features for pause in pauses], [pause.is_filler for pause in pauses], ridge=RIDGE)


def judged(pauses: Sequence[Pause]) -> dict[str, Any]:
    """Measure how well fillers are separated from other pauses in voices that a line was fitted without."""
    areas: dict[str, float | None] = {}
    fillers: list[float] = []
    others: list[float] = []
    for voice in (" ".join(caller) for caller in CALLERS):
        weights, bias = line_of([pause for pause in pauses if pause.voice != voice])
        own = [pause for pause in pauses if pause.voice == voice]
        odds = [float(pause.features @ weights + bias) for pause in own]
        areas[voice] = area(odds, [pause.is_filler for pause in own])
        for pause, each in zip(own, odds, strict=True):
            (fillers if pause.is_filler else others).append(each)
    found = {}
    for mistakes in MISTAKES:
        if fillers and others:
            least = float(np.quantile(others, 1 - mistakes))
            found[str(mistakes)] = {
                "log_odds": round(least, 2),
                "found": round(float(np.mean(np.array(fillers) >= least)), 3),
            }
    return {"area_under_curve": areas, "of_fillers_at_mistakes": found}


if __name__ == "__main__":
    sys.exit(main())
