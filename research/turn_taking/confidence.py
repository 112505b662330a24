"""Measure how well an embedded recogniser's confidence separates right words from wrong ones.

    python -m research.turn_taking.confidence
    python -m research.turn_taking.confidence --engine pocketsphinx
    python -m research.turn_taking.confidence --speech human

A recogniser gets either the sentences of ``evals.harness.questions`` in its callers' voices, clean and in
white noise, or recorded people in every condition of ``evals.human``. Its words are aligned with the spoken
ones (fewest substitutions, insertions and deletions). A turn counts as misunderstood when the errors are at
least ``WRONG_SHARE`` of the spoken words.

Output: confidences of right and wrong words, and for each threshold of ``turn_taking.clarification`` the
share of misunderstood and of understood turns that would be queried. Every other sentence is for choosing,
the rest is reported; of people, the tuning set is for choosing.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from parley.core.errors import AgentError
from parley.core.media import float_to_pcm16
from parley.evals.harness.questions import PAUSED, VOICES, WHOLE
from parley.evals.human.conditions import CONDITIONS, Surroundings
from parley.evals.human.recordings import plain_words
from parley.evals.human.split import SpeechSet, load_report, load_tuning
from parley.evals.stt.measure import padded
from parley.evals.stt.normalise import normalised
from parley.evals.stt.rows import create
from parley.evals.turns.audio import RATE_HZ, Speakers
from parley.language.words import plain
from parley.models.stt import SpeechStream, SpeechToText

# With a third of its words wrong a question is another one, or none.
WRONG_SHARE = 1 / 3
NOISES_DB: tuple[float | None, ...] = (None, 15.0)
THRESHOLDS = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
SEED = 1001
# Longer recordings are no turns of a call.
LONGEST_S = 20.0
LONGEST_OTHER_S, EVERY_OTHER = 6.0, 6
# Largest number of recordings of one set, spread over it.
MOST_RECORDINGS = 40


@dataclass(frozen=True, slots=True)
class Heard:
    """A sentence and its recognised words.

    Attributes:
        number: of the sentence.
        errors: substitutions, insertions and deletions, as a share of the spoken words.
        words: confidence of each recognised word, and true when it was spoken.
    """

    number: int
    errors: float
    words: tuple[tuple[float, bool], ...]

    @property
    def confidence(self) -> float:
        """Mean of the words; 0 without any."""
        return statistics.fmean(confidence for confidence, _ in self.words) if self.words else 0.0

    @property
    def is_wrong(self) -> bool:
        """True when the sentence was misunderstood."""
        return self.errors >= WRONG_SHARE


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """A turn, before it is recognised.

    Attributes:
        number: of the sentence.
        condition: in which it is heard.
        sound: samples, in [-1, 1], at ``RATE_HZ``.
        words: that were said.
    """

    number: int
    condition: str
    sound: np.ndarray
    words: tuple[str, ...]


def aligned(said: Sequence[str], heard: Sequence[str]) -> tuple[int, tuple[bool, ...]]:
    """Return the fewest errors between two texts, and for each word of ``heard`` whether it was spoken."""
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
    """Return the chance that one of ``right`` is above one of ``wrong`` (area under the ROC curve); ties
    half.
    """
    pairs = [(r > w) + (r == w) / 2 for w in wrong for r in right]
    return statistics.fmean(pairs) if pairs else 0.5


def listen(stt: SpeechToText) -> Iterator[Heard]:
    """Yield every sentence in every synthetic voice and noise."""
    speakers, dice = Speakers(), np.random.default_rng(SEED)
    sentences = [*WHOLE, *(" ".join(parts).replace(",", "") for parts in PAUSED)]
    for engine, voice in dict.fromkeys(VOICES):
        for noise_db in NOISES_DB:
            # One stream is one call: the recogniser adapts to the channel with the first sentence.
            stream = stt.open_stream()
            for number, sentence in enumerate(sentences):
                sound, _ = speakers.speak(engine, voice, sentence)
                if noise_db is not None:
                    level = float(np.sqrt(np.mean(np.square(sound)))) * 10 ** (-noise_db / 20)
                    sound = sound + dice.normal(0, level, sound.shape).astype(np.float32)
                yield hear(stream, Spoken(number, str(noise_db), sound, tuple(plain(sentence))))


def people(material: SpeechSet) -> Iterator[Spoken]:
    """Yield up to ``MOST_RECORDINGS`` English recordings with a text in every condition."""
    surroundings = Surroundings(material)
    fitting = [one for one in material.where(language="en", with_text=True) if one.duration_s <= LONGEST_S]
    utterances = fitting[:: -(-len(fitting) // MOST_RECORDINGS)]
    for name, condition in CONDITIONS.items():
        for number, one in enumerate(utterances):
            said, _ = padded(one.at_rate(RATE_HZ))
            rng = np.random.default_rng([SEED, number])
            sound = surroundings.heard(said, condition, rng, speaker=one.speaker)
            yield Spoken(number, name, sound, tuple(normalised(one.text)))


def others(material: SpeechSet) -> Iterator[Spoken]:
    """Yield every sixth short recording that is not in English."""
    found = [
        one for one in material if one.language != "en" and one.text and one.duration_s <= LONGEST_OTHER_S
    ]
    for number, one in enumerate(found[::EVERY_OTHER]):
        yield Spoken(number, "clean", padded(one.at_rate(RATE_HZ))[0], tuple(plain_words(one.text)))


def listen_to_people(stt: SpeechToText, material: SpeechSet) -> Iterator[Heard]:
    """Yield what a recogniser hears of people, with a stream for each condition."""
    for _, spoken in groupby(people(material), key=attrgetter("condition")):
        stream = stt.open_stream()
        for one in spoken:
            yield hear(stream, one)


def listen_to_others(stt: SpeechToText, material: SpeechSet) -> Iterator[float]:
    """Yield the confidence of the words recognised in recordings that are not in English."""
    stream = stt.open_stream()
    for one in others(material):
        heard = hear(stream, one)
        if heard.words:
            yield heard.confidence


def hear(stream: SpeechStream, spoken: Spoken) -> Heard:
    """Return what a recogniser hears of a turn."""
    stream.start()
    stream.feed(float_to_pcm16(np.clip(spoken.sound, -1, 1)))
    result = stream.finish()
    # A number or a contraction is several words: each has its confidence.
    words = [(each, word.confidence) for word in result.words for each in normalised(word.text)]
    errors, right = aligned(normalised(" ".join(spoken.words)), [text for text, _ in words])
    scored = zip((confidence for _, confidence in words), right, strict=True)
    return Heard(spoken.number, errors / max(len(spoken.words), 1), tuple(scored))


def below(confidences: Sequence[float], threshold: float) -> float:
    """Return the share of confidences below a threshold."""
    return sum(confidence < threshold for confidence in confidences) / max(len(confidences), 1)


def report(title: str, turns: Sequence[Heard]) -> str:
    """Return the figures of some turns, as lines."""
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
        caught, asked = below(bad, threshold), below(good, threshold)
        lines.append(f"  below {threshold:.2f}: {caught:.1%} of misunderstood, {asked:.1%} of understood")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m research.turn_taking.confidence", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--engine", default="moonshine_tiny", help="NAME or NAME:field=value,field=value")
    parser.add_argument("--speech", choices=("synthetic", "human"), default="synthetic")
    arguments = parser.parse_args(argv)
    try:
        stt = create(arguments.engine)
        if arguments.speech == "human":
            for title, material in (("choosing", load_tuning()), ("reported", load_report())):
                print(report(title, list(listen_to_people(stt, material))))
                others = list(listen_to_others(stt, material))
                shares = ", ".join(f"{below(others, each):.1%} below {each:.2f}" for each in THRESHOLDS)
                print(f"{title}, other languages: {len(others)} turns, {shares}")
            return 0
        turns = list(listen(stt))
    except AgentError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for title, part in (("choosing", 0), ("reported", 1)):
        print(report(title, [turn for turn in turns if turn.number % 2 == part]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
