"""Callers' speech for the instruments: turns of people, or of voice generators, from the report set.

One interface for every instrument: ``CallerSpeech.turns`` gives turns at 16 kHz with the places of their
pauses. An instrument only frames and sends them. ``mixed`` alternates people with the synthetic voices of the
report side that are installed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import numpy as np

from core.errors import ConfigError
from evals.human.conversations import Composer
from evals.human.generators import installed
from evals.human.hesitations import ComposedTurn, HesitationLaw
from evals.human.own_folder import load_own
from evals.human.recordings import plain_words
from evals.human.split import GENERATORS, ReportSet, Split, load_report
from evals.turns.texts import sentences

# Longer recordings are announcements; callers say less in one go.
LONGEST_S = 8.0
# In shorter ones there is hardly a place to pause.
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


class ReportCallers:
    """Turns of one kind from a report set.

    Args:
        material: what callers say.
        kind: what they are.
        law: how they pause.
    """

    def __init__(self, material: ReportSet, kind: SpeechKind, law: HesitationLaw | None = None) -> None:
        self._utterances = [
            one
            for one in material
            if one.duration_s <= LONGEST_S and len(plain_words(one.text)) >= FEWEST_WORDS
        ]
        if not self._utterances:
            raise ConfigError(f"the set has no recording of {FEWEST_WORDS} words and {LONGEST_S:g} s at most")
        self._composer = Composer(material, law)
        self._kind = kind

    def turns(self, count: int, seed: int) -> list[CallerTurn]:
        """See ``CallerSpeech``."""
        rng = np.random.default_rng(seed)
        return [CallerTurn(turn, self._kind) for turn in self._composer.turns(self._utterances, count, rng)]


class MixedCallers:
    """Turns of several sources, one after the other."""

    def __init__(self, sources: Sequence[CallerSpeech]) -> None:
        self._sources = tuple(sources)

    def turns(self, count: int, seed: int) -> list[CallerTurn]:
        """See ``CallerSpeech``."""
        each = [source.turns(-(-count // len(self._sources)), seed) for source in self._sources]
        return [turn for round_ in zip(*each, strict=True) for turn in round_][:count]


def open_callers(
    kind: SpeechKind, *, law: HesitationLaw | None = None, own: Path | None = None, folder: Path | None = None
) -> CallerSpeech:
    """Open the callers of the report set.

    Args:
        kind: human or mixed.
        law: how they pause.
        own: a folder of the user's recordings in place of the packages'.
        folder: of the fetched archives.

    Raises:
        ConfigError: recordings were not fetched, no generator of the report side is installed, or the kind
            is that of the instruments' own synthetic callers.
        MediaError: a recording cannot be decoded.
    """
    if kind is SpeechKind.SYNTHETIC:
        raise ConfigError("synthetic callers are the instrument's own")
    if own is not None:
        people = load_own(own)[1]
    else:
        people = load_report(SOURCES, folder).where(language="en", with_text=True)
    human = ReportCallers(people, SpeechKind.HUMAN, law)
    if kind is SpeechKind.HUMAN:
        return human
    return MixedCallers((human, ReportCallers(_generated(), SpeechKind.SYNTHETIC, law)))


def _generated() -> ReportSet:
    """Return held-out sentences, each by the next voice of the installed generators."""
    voices = [(one, voice) for one in installed(Split.REPORT) for voice in one.voices]
    if not voices:
        known = tuple(name for name, split in GENERATORS.items() if split is Split.REPORT)
        raise ConfigError("mixed speech needs a voice generator of the report set", known=known)
    # Made anew in each run: a neural voice takes a third of a second for each.
    texts = sentences(held_out=True)[:SYNTHETIC_TEXTS]
    said = zip(texts, (voices[place % len(voices)] for place in range(len(texts))), strict=True)
    return ReportSet(generator.say(voice, text) for text, (generator, voice) in said)


def add_speech_option(root: argparse.ArgumentParser) -> None:
    """Add ``--speech`` and ``--own-speech`` to the command line of an instrument."""
    root.add_argument(
        "--speech",
        type=SpeechKind,
        choices=tuple(SpeechKind),
        default=SpeechKind.SYNTHETIC,
        metavar="synthetic|human|mixed",
        help="who calls: the instrument's synthetic voices, recorded people, or people and other voices",
    )
    root.add_argument("--own-speech", type=Path, help="folder of your own recordings for --speech")
