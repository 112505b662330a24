"""Measure what a second recogniser gains for turns of which the first one is not sure.

    python -m research.turn_taking.second_opinion
    python -m research.turn_taking.second_opinion --set report

The turns are those of ``research.turn_taking.confidence --speech human``: recorded people in every condition,
and prompts in other languages. A turn is doubtful when ``turn_taking.clarification`` would ask about it. The
second recogniser hears the doubtful turns, and its words replace the first ones where their mean confidence
reaches a threshold. The remaining doubtful turns are asked back as before.

Output: for each threshold the turns that are asked back, the misunderstood turns that are answered, word
errors of the doubtful turns, and the turns in other languages whose replaced words are answered. The default
is the tuning set: ``models.stt.whisper`` has its threshold from it.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from parley.core.errors import AgentError
from parley.evals.human.split import load_report, load_tuning
from parley.evals.stt.rows import create
from parley.models.stt import SpeechToText
from research.turn_taking.confidence import Heard, Spoken, hear, others, people

# Values of ``AskBackSettings`` for the default recogniser, and of ``AskBackTuning``.
DOUBTFUL_BELOW = 0.6
LEAST_WORDS = 3
THRESHOLDS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn, heard once or twice.

    Attributes:
        first: the first recogniser's words.
        second: the second recogniser's; None where the first words are not doubtful.
        took_s: time of the second recogniser.
    """

    first: Heard
    second: Heard | None = None
    took_s: float = 0.0

    @property
    def is_doubtful(self) -> bool:
        """True when the bot would ask back."""
        return self.second is not None

    def settled(self, threshold: float) -> Heard | None:
        """Return the words that are answered; None when the bot asks back."""
        if self.second is None:
            return self.first
        is_sure = len(self.second.words) >= LEAST_WORDS and self.second.confidence >= threshold
        return self.second if is_sure else None


def heard_twice(first: SpeechToText, second: SpeechToText, spoken: Iterable[Spoken]) -> Iterator[Turn]:
    """Yield turns heard as a call hears them, the doubtful ones twice."""
    streams = first.open_stream(), second.open_stream()
    for one in spoken:
        heard = hear(streams[0], one)
        if len(heard.words) < LEAST_WORDS or heard.confidence >= DOUBTFUL_BELOW:
            yield Turn(heard)
            continue
        began_s = perf_counter()
        again = hear(streams[1], one)
        yield Turn(heard, again, perf_counter() - began_s)


def report(turns: Sequence[Turn], foreign: Sequence[Turn]) -> str:
    """Return the figures as lines."""
    doubtful = [turn for turn in turns if turn.is_doubtful]
    times_s = sorted(turn.took_s for turn in (*turns, *foreign) if turn.is_doubtful)
    wrong = sum(turn.first.is_wrong for turn in turns)
    answered = sum(turn.first.is_wrong for turn in turns if not turn.is_doubtful)
    errors = sum(turn.first.errors for turn in doubtful) / max(len(doubtful), 1)
    foreign_doubtful = sum(turn.is_doubtful for turn in foreign)
    lines = [
        f"{len(turns)} turns, {wrong} misunderstood; asked back {len(doubtful)}, "
        f"{sum(turn.first.is_wrong for turn in doubtful)} of them misunderstood; misunderstood and answered "
        f"{answered}; word errors of the doubtful turns {errors:.1%}",
        f"other languages: {len(foreign)} turns, {foreign_doubtful} doubtful",
    ]
    if times_s:
        lines.append(
            f"second hearing: {times_s[len(times_s) // 2]:.2f} s median, {times_s[-1]:.2f} s longest"
        )
    for threshold in THRESHOLDS:
        settled = [(turn, turn.settled(threshold)) for turn in doubtful]
        replaced = [(turn, words) for turn, words in settled if words is not None]
        helped = sum(turn.first.is_wrong and not words.is_wrong for turn, words in replaced)
        worse = sum(words.is_wrong for _, words in replaced)
        left = sum((turn.first if words is None else words).errors for turn, words in settled)
        taken = sum(turn.settled(threshold) is not None for turn in foreign if turn.is_doubtful)
        lines.append(
            f"  from {threshold:.2f}: asked back {len(doubtful) - len(replaced)}; replaced {len(replaced)}, "
            f"{helped} misunderstood before and right now, {worse} wrong now; word errors of the doubtful "
            f"turns {left / max(len(doubtful), 1):.1%}; other languages answered {taken}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m research.turn_taking.second_opinion", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--set", choices=("tuning", "report"), default="tuning")
    parser.add_argument("--first", default="moonshine_tiny", help="NAME or NAME:field=value,field=value")
    parser.add_argument("--second", default="whisper:model=tiny.en", help="as --first")
    arguments = parser.parse_args(argv)
    try:
        material = load_tuning() if arguments.set == "tuning" else load_report()
        first, second = create(arguments.first), create(arguments.second)
        turns = list(heard_twice(first, second, people(material)))
        foreign = list(heard_twice(first, second, others(material)))
    except AgentError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(report(turns, foreign))
    return 0


if __name__ == "__main__":
    sys.exit(main())
