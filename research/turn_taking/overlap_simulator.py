"""``python -m research.turn_taking.overlap_simulator``: scripted sounds while the bot speaks.

Callers interrupt (with a sentence or a stop word), hum along, cough, or talk to another person; and the bot's
own voice leaks back at the beginning of its replies. Voice activity detection reports a voice late
(``simulator.Hearing``). A recogniser gives words later still and mistakes some. The check for the bot's own
voice is right with a stated share. Policies run through their event interface. Lengths follow benchmarks:
backchannels 0.25 to 0.7 s, interruptions 1.5 to 4 s. The kinds of sounds are equally frequent, since no
trustworthy rate is published.

Rows: ``barge-in`` is ``turn_taking.barge_in.barge_in`` with its defaults; ``voice-N`` yields to any N ms of
voice, which is the most that voice activity alone can do; the bot of ``always-talk`` never yields.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from parley.evals.harness.command import positive
from parley.evals.harness.report import percentile
from parley.evals.turns.barge_in_policies import BargeInPolicy, Decided, VoiceTimer, cut_before, is_cut
from parley.evals.turns.simulator import Hearing
from parley.evals.turns.texts import sentences
from parley.turn_taking.barge_in.barge_in import BargeIn

REPLY_MS = 12_000
BACKCHANNELS = ("mhm", "yeah", "uh huh", "okay", "right", "i see")
STOPS = ("stop", "wait", "hold on", "stop please")
# Words that a recogniser writes for a hum or a cough.
JUNK = ("the", "and", "him", "hum", "a", "oh")
WORD_MS = 300


class Sound(Enum):
    """Kinds of sounds over the bot."""

    INTERRUPTION = "interruption"
    STOP = "stop"
    BACKCHANNEL = "backchannel"
    COUGH = "cough"
    SIDE_TALK = "side_talk"
    ECHO = "echo"

    @property
    def is_meant(self) -> bool:
        """True when the caller wants the floor."""
        return self in (Sound.INTERRUPTION, Sound.STOP)


@dataclass(frozen=True, slots=True)
class OverlapSpec:
    """Parameters of the generated sounds.

    Attributes:
        of_each: number of sounds of each kind.
        partial_ms: from the end of a word to the partial that has it. None gives no partials.
        final_ms: from the end of the voice to its last words, shortest and longest.
        word_wrong: share of words that the recogniser mistakes.
        backchannel_heard: share of backchannels that it writes correctly. A third of the rest is junk.
        own_voice_ms: length of voice before the first look of the check for the bot's own voice, and interval
            of the looks.
        own_voice_right: share of its looks at which it is right. Each is drawn anew.
    """

    of_each: int = 300
    partial_ms: int | None = 250
    final_ms: tuple[int, int] = (250, 450)
    word_wrong: float = 0.1
    backchannel_heard: float = 0.6
    own_voice_ms: int = 320
    own_voice_right: float = 0.98


@dataclass(frozen=True, slots=True)
class Overlap:
    """A sound over a reply. Times are from the first sound of the reply.

    Attributes:
        sound: kind of the sound.
        onset_ms: its beginning.
        length_ms: of its voice.
        words: as the recogniser writes them, each with its confidence.
        level_db: relative to the caller's usual voice. None when it is not measured.
        final_ms: from the end of the voice to the last words.
        own: result of each look of the check. True for the bot's own voice.
    """

    sound: Sound
    onset_ms: int
    length_ms: int
    words: tuple[tuple[str, float], ...]
    level_db: float | None
    final_ms: int
    own: tuple[bool, ...] = ()


def generate(spec: OverlapSpec, seed: int) -> list[Overlap]:
    """Return ``of_each`` sounds of each kind, kind by kind; the same for the same seed."""
    rng = np.random.default_rng(seed)
    corpus = sentences(held_out=True)
    return [_overlap(sound, spec, corpus, rng) for sound in Sound for _ in range(spec.of_each)]


def _overlap(sound: Sound, spec: OverlapSpec, corpus: Sequence[str], rng: np.random.Generator) -> Overlap:
    lengths = {
        Sound.INTERRUPTION: (1_500, 4_000),
        Sound.STOP: (350, 900),
        Sound.BACKCHANNEL: (250, 700),
        Sound.COUGH: (150, 500),
        Sound.SIDE_TALK: (1_000, 3_000),
        Sound.ECHO: (300, 3_000),
    }
    length_ms = int(rng.integers(*lengths[sound]))
    level_db = {
        Sound.COUGH: float(rng.normal(6, 5)),
        Sound.SIDE_TALK: float(rng.normal(-18, 5)),
    }.get(sound, float(rng.normal(0, 3)))
    onset_ms = int(rng.integers(0, 500) if sound is Sound.ECHO else rng.integers(1_000, REPLY_MS - 6_000))
    looks = rng.random(length_ms // spec.own_voice_ms) < spec.own_voice_right
    return Overlap(
        sound,
        onset_ms,
        length_ms,
        _words(sound, length_ms, spec, corpus, rng),
        level_db,
        int(rng.integers(*spec.final_ms)),
        tuple(bool((sound is Sound.ECHO) == right) for right in looks),
    )


def _words(
    sound: Sound, length_ms: int, spec: OverlapSpec, corpus: Sequence[str], rng: np.random.Generator
) -> tuple[tuple[str, float], ...]:
    def pick(rows: Sequence[str]) -> str:
        return rows[int(rng.integers(len(rows)))]

    def heard(text: str) -> tuple[tuple[str, float], ...]:
        wrong = [rng.random() < spec.word_wrong for _ in text.split()]
        return tuple(
            (pick(JUNK), float(rng.uniform(0.1, 0.5))) if lost else (word, float(rng.uniform(0.6, 1.0)))
            for word, lost in zip(text.split(), wrong, strict=True)
        )

    if sound is Sound.STOP:
        return heard(pick(STOPS))
    if sound is Sound.COUGH:
        return ((pick(JUNK), float(rng.uniform(0.05, 0.4))),) if rng.random() < 0.3 else ()
    if sound is Sound.BACKCHANNEL:
        if rng.random() < spec.backchannel_heard:
            return heard(pick(BACKCHANNELS))
        return ((pick(JUNK), float(rng.uniform(0.1, 0.6))),) if rng.random() < 1 / 3 else ()
    count = max(1, length_ms // WORD_MS)
    return heard(" ".join(" ".join(pick(corpus) for _ in range(4)).split()[:count]))


def cut_after_ms(
    policy: BargeInPolicy, overlap: Overlap, spec: OverlapSpec, *, hearing: Hearing | None = None
) -> int | None:
    """Return the length of voice before the policy cut the reply; None when it did not."""
    chosen = hearing or Hearing()
    policy.on_bot_started(0, "reply")
    for at_ms, tell in sorted(_events(policy, overlap, spec, chosen), key=lambda row: row[0]):
        cut_ms = cut_before(policy, at_ms)
        if cut_ms is None and is_cut(tell()):
            cut_ms = at_ms
        if cut_ms is not None:
            return cut_ms - overlap.onset_ms
    cut_ms = cut_before(policy, overlap.onset_ms + overlap.length_ms + 5_000)
    return None if cut_ms is None else cut_ms - overlap.onset_ms


def _events(
    policy: BargeInPolicy, overlap: Overlap, spec: OverlapSpec, hearing: Hearing
) -> list[tuple[int, Callable[[], Decided]]]:
    onset_ms, end_ms = overlap.onset_ms, overlap.onset_ms + overlap.length_ms
    rows: list[tuple[int, Callable[[], Decided]]] = []

    def at(ms: int, tell: Callable[[int], Decided]) -> None:
        rows.append((ms, lambda: tell(ms)))

    at(onset_ms + hearing.onset_ms, policy.on_maybe_voice)
    # Shorter sounds never become a voice.
    if overlap.length_ms < hearing.start_ms:
        return rows
    at(onset_ms + hearing.start_ms, lambda ms: policy.on_voice_started(ms, voiced_ms=hearing.start_ms))
    level_db = overlap.level_db
    if level_db is not None:
        at(onset_ms + hearing.start_ms + 1, lambda ms: policy.on_level(ms, level_db))
    for look, own in enumerate(overlap.own, start=1):
        at(onset_ms + look * spec.own_voice_ms, partial(_look, policy, own=own))
    if spec.partial_ms is not None:
        for count in range(1, len(overlap.words) + 1):
            ms = onset_ms + min(overlap.length_ms, WORD_MS * count) + spec.partial_ms
            if ms < end_ms + hearing.stop_ms:
                at(ms, partial(_say, policy.on_partial, said=overlap.words[:count]))
    at(end_ms + hearing.stop_ms - 64, policy.on_maybe_quiet)
    at(end_ms + hearing.stop_ms, lambda ms: policy.on_voice_stopped(ms, silence_ms=hearing.stop_ms))
    at(
        end_ms + max(hearing.stop_ms, overlap.final_ms),
        lambda ms: _say(policy.on_final, ms, said=overlap.words),
    )
    return rows


def _look(policy: BargeInPolicy, at_ms: int, *, own: bool) -> Decided:
    return policy.on_self_voice(at_ms, own=own)


def _say(tell: Callable[..., Decided], at_ms: int, *, said: Sequence[tuple[str, float]]) -> Decided:
    text = " ".join(word for word, _ in said)
    return tell(at_ms, text, confidences=tuple(confidence for _, confidence in said))


@dataclass(frozen=True, slots=True)
class BargeInRow:
    """Results of a policy.

    Attributes:
        name: see the module.
        stops_ms: voice before the cut, of interruptions and stop words that were yielded to.
        yields: share of each kind of sound that was yielded to.
        self_interruptions: number of replies that the bot cut because of its own echo.
    """

    name: str
    stops_ms: tuple[int, ...]
    yields: dict[str, float] = field(default_factory=dict)
    self_interruptions: int = 0

    @property
    def recall(self) -> float:
        """Mean share of yields over interruptions and stop words."""
        return float(np.mean([self.yields[sound.value] for sound in Sound if sound.is_meant]))

    def figures(self) -> dict[str, Any]:
        """Return the figures of the JSON."""
        stops = list(self.stops_ms)
        return {
            "barge_in_recall": round(self.recall, 4),
            "barge_in_stop_ms": {
                "p50": percentile(stops, 50) if stops else None,
                "p95": percentile(stops, 95) if stops else None,
            },
            "false_yield_rate": round(self.yields[Sound.BACKCHANNEL.value], 4),
            "self_interruptions": self.self_interruptions,
            "yields": {sound: round(rate, 4) for sound, rate in self.yields.items()},
        }


POLICIES: dict[str, Callable[[], BargeInPolicy]] = {
    "never": lambda: VoiceTimer(None),
    "voice-0": lambda: VoiceTimer(0),
    "voice-300": lambda: VoiceTimer(300),
    "voice-700": lambda: VoiceTimer(700),
    "barge-in": BargeIn,
}


def judge(name: str, overlaps: Sequence[Overlap], spec: OverlapSpec) -> BargeInRow:
    """Judge the policy, with a fresh object for each sound."""
    cuts = [(overlap, cut_after_ms(POLICIES[name](), overlap, spec)) for overlap in overlaps]
    yields = {
        sound.value: float(np.mean([cut is not None for overlap, cut in cuts if overlap.sound is sound]))
        for sound in Sound
    }
    stops = tuple(cut for overlap, cut in cuts if cut is not None and overlap.sound.is_meant)
    own = sum(cut is not None for overlap, cut in cuts if overlap.sound is Sound.ECHO)
    return BargeInRow(name, stops, yields, own)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.overlap_simulator")
    root.add_argument("--sounds", type=positive, default=300, help="sounds of each kind over the bot")
    root.add_argument("--seed", type=int, default=1)
    arguments = root.parse_args(argv)
    spec = OverlapSpec(of_each=arguments.sounds)
    overlaps = generate(spec, arguments.seed)
    print(json.dumps({name: judge(name, overlaps, spec).figures() for name in POLICIES}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
