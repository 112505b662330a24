"""Words of a recogniser in the cloud, with their times and speakers.

Deepgram sends a message with words, Soniox a list of tokens, which are parts of words. The recognisers of
Kyutai, Groq and Mistral are services of ours that give words of this kind. All count time from the beginning
of the sound that they were sent. Deepgram and Soniox number the speakers when they are asked to (``speakers``
of their rows). A recogniser of another kind gives no words here. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from parley.processors.playout.word_times import estimate_word_times

# A longer result is no utterance.
_MOST_WORDS = 2_000
_US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class HostedWord:
    """A word.

    Attributes:
        text: as it was written.
        start_ms, end_ms: from the beginning of the recogniser's time.
        speaker: "speaker 1" and so on; None when the recogniser does not say.
    """

    text: str
    start_ms: int
    end_ms: int
    speaker: str | None


@dataclass(frozen=True, slots=True)
class SpeakerStretch:
    """Stretch of one speaker, in the recogniser's time."""

    start_ms: int
    end_ms: int
    speaker: str


def estimated_words(text: str, start_ms: int, end_ms: int) -> tuple[HostedWord, ...]:
    """Return the words of a text that was said between two times, each with a share of it by its spelling."""
    times = estimate_word_times(text, start_ms * _US_PER_MS, end_ms * _US_PER_MS)
    return tuple(
        HostedWord(word.text, word.start_us // _US_PER_MS, word.end_us // _US_PER_MS, None) for word in times
    )


def hosted_words(result: object) -> tuple[HostedWord, ...]:
    """Return the words of a result; none when it has none with times."""
    if isinstance(result, tuple):
        return tuple(each for each in result[:_MOST_WORDS] if isinstance(each, HostedWord))
    if isinstance(result, list):
        return tuple(_of_tokens(result[:_MOST_WORDS]))
    alternatives = getattr(getattr(result, "channel", None), "alternatives", None)
    words = (
        getattr(alternatives[0], "words", None) if isinstance(alternatives, list) and alternatives else None
    )
    return tuple(_of_words(words[:_MOST_WORDS])) if isinstance(words, list) else ()


def speaker_stretches(words: Iterable[HostedWord]) -> list[SpeakerStretch]:
    """Return the stretches of one speaker each; words of no known speaker are left out."""
    found: list[SpeakerStretch] = []
    for speaker, group in groupby(words, key=lambda word: word.speaker):
        said = list(group)
        if speaker is not None:
            found.append(SpeakerStretch(said[0].start_ms, said[-1].end_ms, speaker))
    return found


def _of_words(words: Iterable[object]) -> Iterable[HostedWord]:
    """Return words of Deepgram, whose times are seconds and whose speakers count from 0."""
    for word in words:
        text = getattr(word, "punctuated_word", None) or getattr(word, "word", None)
        start_s, end_s = getattr(word, "start", None), getattr(word, "end", None)
        if isinstance(text, str) and isinstance(start_s, int | float) and isinstance(end_s, int | float):
            number = getattr(word, "speaker", None)
            speaker = f"speaker {round(number) + 1}" if isinstance(number, int | float) else None
            yield HostedWord(text, round(start_s * 1000), round(end_s * 1000), speaker)


def _of_tokens(tokens: Iterable[object]) -> Iterable[HostedWord]:
    """Return words of Soniox, whose tokens begin with a space where a word begins."""
    word: HostedWord | None = None
    for token in tokens:
        if not isinstance(token, Mapping):
            continue
        text, start_ms, end_ms = token.get("text"), token.get("start_ms"), token.get("end_ms")
        if not (isinstance(text, str) and isinstance(start_ms, int) and isinstance(end_ms, int)):
            continue
        number = token.get("speaker")
        speaker = f"speaker {number}" if isinstance(number, str) and number else None
        if word is not None and not text.startswith(" ") and speaker == word.speaker:
            word = HostedWord(word.text + text, word.start_ms, end_ms, speaker)
            continue
        if word is not None:
            yield word
        word = HostedWord(text.strip(), start_ms, end_ms, speaker)
    if word is not None:
        yield word
