"""Callers' speech for the evaluations: turns of people, or of voice generators, from one side of the split.

There is one interface for every evaluation: ``CallerSpeech.turns`` gives turns at 16 kHz with the places of
their pauses. The evaluation only frames and sends them. ``mixed`` alternates people with the installed
synthetic voices of the report side.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle
from pathlib import Path
from typing import Protocol

import numpy as np

from parley.core.errors import ConfigError
from parley.evals.human.conversations import Composer
from parley.evals.human.generators import installed
from parley.evals.human.hesitations import ComposedTurn, HesitationLaw
from parley.evals.human.own_folder import load_own
from parley.evals.human.recordings import plain_words
from parley.evals.human.split import (
    GENERATORS,
    ReportSet,
    SpeechSet,
    Split,
    load_report,
)
from parley.evals.turns.texts import sentences

# Longer recordings are announcements; callers say less in one turn.
LONGEST_S = 8.0
# Shorter ones hardly have a place for a pause.
FEWEST_WORDS = 5
SYNTHETIC_TEXTS = 30
# Transcribed English of the report set.
SOURCES = ("prompts-en", "commands")


class SpeechKind(Enum):
    """Origin of the callers' speech."""

    SYNTHETIC = "synthetic"
    HUMAN = "human"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, eq=False)
class CallerTurn:
    """Turn of a caller and the origin of its voice.

    Attributes:
        turn: its sound and pauses, at 16 kHz.
        kind: human or synthetic.
    """

    turn: ComposedTurn
    kind: SpeechKind


class CallerSpeech(Protocol):
    """Source of turns."""

    def turns(self, count: int, seed: int) -> list[CallerTurn]:
        """Return ``count`` turns, the same for the same seed.

        Raises:
            MediaError: a recording is silent.
        """
        ...


class SetCallers:
    """Turns of one kind from a set of one side.

    Args:
        material: recordings of the callers.
        kind: human or synthetic.
        law: of their pauses.
        longest_s: length of the longest recording.
    """

    def __init__(
        self,
        material: SpeechSet,
        kind: SpeechKind,
        law: HesitationLaw | None = None,
        *,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._utterances = [
            one
            for one in material
            if one.duration_s <= longest_s and len(plain_words(one.text)) >= FEWEST_WORDS
        ]
        if not self._utterances:
            raise ConfigError(f"the set has no recording of {FEWEST_WORDS} words and {longest_s:g} s at most")
        self._composer = Composer(material, law)
        self._kind = kind

    def turns(self, count: int, seed: int) -> list[CallerTurn]:
        """Return ``count`` turns of the set, composed with the law of pauses."""
        rng = np.random.default_rng(seed)
        return [CallerTurn(turn, self._kind) for turn in self._composer.turns(self._utterances, count, rng)]


class MixedCallers:
    """Turns of several sources, one after the other."""

    def __init__(self, sources: Sequence[CallerSpeech]) -> None:
        self._sources = tuple(sources)

    def turns(self, count: int, seed: int) -> list[CallerTurn]:
        """Return ``count`` turns, alternating between the sources."""
        each = [source.turns(-(-count // len(self._sources)), seed) for source in self._sources]
        return [turn for round_ in zip(*each, strict=True) for turn in round_][:count]


def open_callers(
    kind: SpeechKind, *, law: HesitationLaw | None = None, own: Path | None = None, folder: Path | None = None
) -> CallerSpeech:
    """Open the callers of the report set.

    Args:
        kind: human or mixed.
        law: of their pauses.
        own: a folder of the user's recordings in place of the packages'.
        folder: of the fetched archives.

    Raises:
        ConfigError: recordings were not fetched, no generator of the report side is installed, or the kind is
            that of the evaluations' own synthetic callers.
        MediaError: a recording cannot be decoded.
    """
    if kind is SpeechKind.SYNTHETIC:
        raise ConfigError("synthetic callers come from the evaluation itself")
    if own is not None:
        people = load_own(own)[1]
    else:
        people = load_report(SOURCES, folder).where(language="en", with_text=True)
    human = SetCallers(people, SpeechKind.HUMAN, law)
    if kind is SpeechKind.HUMAN:
        return human
    return MixedCallers((human, open_generated(law=law)))


def open_generated(*, law: HesitationLaw | None = None) -> CallerSpeech:
    """Open the installed voice generators of the report side, which speak the sentences of that side.

    Raises:
        ConfigError: none is installed.
        EngineError: one failed.
        MediaError: one gave silence.
    """
    voices = [(one, voice) for one in installed(Split.REPORT) for voice in one.voices]
    if not voices:
        known = tuple(name for name, side in GENERATORS.items() if side is Split.REPORT)
        raise ConfigError("no voice generator of the report set is installed", known=known)
    # Made anew in each run: a neural voice takes a third of a second for each.
    said = zip(sentences(held_out=True)[:SYNTHETIC_TEXTS], cycle(voices), strict=False)
    spoken = (generator.say(voice, text) for text, (generator, voice) in said)
    return SetCallers(ReportSet(spoken), SpeechKind.SYNTHETIC, law)


def add_speech_option(root: argparse.ArgumentParser) -> None:
    """Add ``--speech`` and ``--own-speech`` to the command line of an evaluation."""
    add_speech_kind(root)
    root.add_argument("--own-speech", type=Path, help="folder of your own recordings for --speech")


def add_speech_kind(root: argparse.ArgumentParser) -> None:
    """Add ``--speech`` alone, for an evaluation that takes no recordings of a user."""
    root.add_argument(
        "--speech",
        type=SpeechKind,
        choices=tuple(SpeechKind),
        default=SpeechKind.SYNTHETIC,
        metavar="synthetic|human|mixed",
        help="source of the callers' speech: the synthetic voices of the evaluation, recorded people, "
        "or people and other voices",
    )
