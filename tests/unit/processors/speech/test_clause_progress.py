"""Account of a clause that breaks off, with words and audio that the tests choose."""

import numpy as np
import pytest

from parley.core.media import WordTime
from parley.models.tts import SpeechPiece
from parley.processors.speech.clause_progress import ClauseProgress

RATE_HZ = 16_000


def sound(ms: int) -> bytes:
    return np.full(ms * 16, 3_000, dtype="<i2").tobytes()


def words(*timed: tuple[str, int]) -> SpeechPiece:
    return SpeechPiece(b"", tuple(WordTime(text, start_ms, start_ms) for text, start_ms in timed))


def broken_after(text: str, ms: int, *timed: tuple[str, int]) -> tuple[list[str], str]:
    """Return the words that count as said when a voice breaks off after so much audio, and the rest."""
    progress = ClauseProgress(text, RATE_HZ)
    pieces = [progress.add(words(*timed)), progress.add(SpeechPiece(sound(ms)))]
    said = [word.text for piece in pieces if piece is not None for word in piece.words]
    broken = progress.break_off()
    return said + [word.text for word in broken.words], broken.rest


TEXT = "We open at nine."
TIMED = (("We", 0), ("open", 300), ("at", 600), ("nine.", 900))


@pytest.mark.parametrize(
    ("ms", "said", "rest"),
    [
        (140, [], TEXT),
        (160, ["We"], "open at nine."),
        (440, ["We"], "open at nine."),
        (460, ["We", "open"], "at nine."),
        (1_400, ["We", "open", "at", "nine."], ""),
    ],
)
def test_a_word_counts_as_said_once_half_of_it_was_passed_on(ms: int, said: list[str], rest: str):
    assert broken_after(TEXT, ms, *TIMED) == (said, rest)


def test_words_that_come_late_are_estimated_and_not_said_again():
    said, rest = broken_after(TEXT, 1_000, ("We", 0), ("open", 300))
    assert said[:2] == ["We", "open"] and len(said) > 2
    assert " ".join([*said, rest]).strip() == TEXT


def test_a_voice_that_has_passed_on_nothing_leaves_the_whole_text():
    progress = ClauseProgress(TEXT, RATE_HZ)
    assert progress.add(words(*TIMED)) is None
    assert progress.add(SpeechPiece(bytes(32_000))) is None
    assert (progress.silence_ms, progress.has_sound) == (1_000, False)
    assert progress.break_off().rest == TEXT


def test_leading_silence_is_passed_on_with_the_first_sound():
    progress = ClauseProgress(TEXT, RATE_HZ)
    assert progress.add(SpeechPiece(bytes(3_200))) is None
    piece = progress.add(SpeechPiece(sound(50)))
    assert piece is not None and len(piece.pcm) == 3_200 + 1_600
    assert progress.passed_ms == 150


@pytest.mark.parametrize(
    ("text", "spelled", "rest"),
    [
        ("It costs $5 a day.", "5", "a day."),
        ("It costs $5 a day.", "five", "a day."),
        ("It costs - well - a lot.", "well", "- a lot."),
    ],
)
def test_a_word_that_is_spelled_in_another_way_is_not_said_again(text: str, spelled: str, rest: str):
    said, left = broken_after(text, 1_000, ("It", 0), ("costs", 200), (spelled, 500), ("next", 900))
    assert said == ["It", "costs", spelled]
    assert left == rest


def test_words_after_another_voice_are_placed_after_its_audio():
    progress = ClauseProgress("at nine.", RATE_HZ, offset_ms=600)
    progress.add(words(("at", 0), ("nine.", 300)))
    first = progress.add(SpeechPiece(sound(900)))
    last = progress.finish()
    assert first is not None and last is not None
    assert [(word.start_ms, word.end_ms) for word in (*first.words, *last.words)] == [
        (600, 900),
        (900, 1_500),
    ]
