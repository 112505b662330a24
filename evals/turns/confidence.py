"""How well an embedded recogniser's confidence tells what it understood from what it did not.

    python -m evals.turns.confidence

The sentences of ``evals.latency.questions`` in its callers' voices, each as it is and in white noise, are
heard by PocketSphinx as a deployment without settings has it. Words are aligned with what was said (fewest
substitutions, insertions and deletions); a turn counts as misunderstood when the errors are at least
``WRONG_SHARE`` of the words said. Out: confidences of right and wrong words, and for each threshold of
``turn_taking.asking_back`` the share of misunderstood and of understood turns that would be asked back.
Every other sentence is for choosing, the rest is reported beside it.
"""

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.media import float_to_pcm16
from evals.latency.questions import PAUSED, VOICES, WHOLE
from evals.turns.audio import Speakers
from models.stt.pocketsphinx import PocketsphinxSettings, PocketsphinxStt
from turn_taking.utterances import plain

# With a third of its words wrong a question is another one, or none.
WRONG_SHARE = 1 / 3
NOISES_DB: tuple[float | None, ...] = (None, 15.0)
THRESHOLDS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
SEED = 1001


@dataclass(frozen=True, slots=True)
class Heard:
    """One sentence and what was made of it.

    Attributes:
        number: of the sentence.
        errors: substitutions, insertions and deletions, as a share of the words said.
        words: for each word understood, its confidence and whether it was said.
    """

    number: int
    errors: float
    words: tuple[tuple[float, bool], ...]

    @property
    def confidence(self) -> float:
        """Mean of the words."""
        return statistics.fmean(confidence for confidence, _ in self.words) if self.words else 0.0

    @property
    def is_wrong(self) -> bool:
        """Whether it was misunderstood."""
        return self.errors >= WRONG_SHARE


def aligned(said: Sequence[str], heard: Sequence[str]) -> tuple[int, tuple[bool, ...]]:
    """The fewest errors between two texts, and which words of ``heard`` were said."""
    costs = np.zeros((len(said) + 1, len(heard) + 1), np.int64)
    costs[:, 0] = np.arange(len(said) + 1)
    costs[0] = np.arange(len(heard) + 1)
    for i, spoken in enumerate(said, 1):
        for j, understood in enumerate(heard, 1):
            same = costs[i - 1, j - 1] + (spoken != understood)
            costs[i, j] = min(same, costs[i - 1, j] + 1, costs[i, j - 1] + 1)
    right = [False] * len(heard)
    i, j = len(said), len(heard)
    while i and j:
        if costs[i, j] == costs[i - 1, j - 1] + (said[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            right[j] = said[i] == heard[j]
        elif costs[i, j] == costs[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return int(costs[-1, -1]), tuple(right)


def separation(wrong: Sequence[float], right: Sequence[float]) -> float:
    """The chance that one of ``right`` is above one of ``wrong`` (area under the ROC curve); ties half."""
    pairs = [(r > w) + (r == w) / 2 for w in wrong for r in right]
    return statistics.fmean(pairs) if pairs else 0.5


def listen() -> Iterator[Heard]:
    """Every sentence in every voice and noise."""
    stt = PocketsphinxStt(PocketsphinxSettings(documents=Path("knowledge")))
    speakers, dice = Speakers(), np.random.default_rng(SEED)
    sentences = [*WHOLE, *(" ".join(parts).replace(",", "") for parts in PAUSED)]
    for engine, voice in dict.fromkeys(VOICES):
        for noise_db in NOISES_DB:
            # One call: the recogniser learns the channel with the first sentence.
            stream = stt.open_stream()
            for number, sentence in enumerate(sentences):
                sound, _ = speakers.speak(engine, voice, sentence)
                if noise_db is not None:
                    level = float(np.sqrt(np.mean(np.square(sound)))) * 10 ** (-noise_db / 20)
                    sound = sound + dice.normal(0, level, sound.shape).astype(np.float32)
                stream.start()
                stream.feed(float_to_pcm16(np.clip(sound, -1, 1)))
                result = stream.finish()
                said = plain(sentence)
                errors, right = aligned(said, [word.text for word in result.words])
                confidences = [word.confidence for word in result.words]
                yield Heard(number, errors / len(said), tuple(zip(confidences, right, strict=True)))


def report(title: str, turns: Sequence[Heard]) -> str:
    """The figures of some turns, as lines."""
    words = [word for turn in turns for word in turn.words]
    right = [confidence for confidence, said in words if said]
    wrong = [confidence for confidence, said in words if not said]
    lines = [
        f"{title}: {len(turns)} turns, {sum(turn.is_wrong for turn in turns)} misunderstood; "
        f"{len(words)} words, {len(wrong)} wrong",
        f"words: median {statistics.median(right):.2f} right, {statistics.median(wrong):.2f} wrong, "
        f"separation {separation(wrong, right):.3f}",
    ]
    bad = [turn.confidence for turn in turns if turn.is_wrong and turn.words]
    good = [turn.confidence for turn in turns if not turn.is_wrong]
    lines.append(
        f"turns: median {statistics.median(good):.2f} understood, {statistics.median(bad):.2f} not, "
        f"separation {separation(bad, good):.3f}"
    )
    for threshold in THRESHOLDS:
        caught = sum(confidence < threshold for confidence in bad) / len(bad)
        asked = sum(confidence < threshold for confidence in good) / len(good)
        lines.append(f"  below {threshold:.2f}: {caught:.1%} of misunderstood, {asked:.1%} of understood")
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    turns = list(listen())
    for title, part in (("choosing", 0), ("reported", 1)):
        print(report(title, [turn for turn in turns if turn.number % 2 == part]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
