import numpy as np
import pytest

from parley.turn_taking.barge_in.self_voice import OwnWords, SelfVoice


def rhythm(seed: int, frames: int, level_db: float) -> list[float]:
    """Return levels that rise and fall like syllables."""
    rng = np.random.default_rng(seed)
    steps = np.repeat(rng.uniform(-25, 0, frames // 8 + 1), 8)[:frames]
    return [level_db + float(step) for step in np.convolve(steps, np.ones(5) / 5, mode="same")]


def listen(left: list[float], far: list[float], voice: SelfVoice | None = None) -> SelfVoice:
    voice = voice or SelfVoice()
    for left_db, far_db in zip(left, far, strict=True):
        voice.on_frame(left_db=left_db, far_db=far_db)
    return voice


def test_what_the_canceller_leaves_is_the_bot() -> None:
    far = rhythm(1, 300, -20)
    assert listen([level - 30 for level in far], far).is_own()


def test_an_echo_that_is_louder_than_expected_is_known_by_its_rhythm() -> None:
    voice = listen([-70.0] * 300, rhythm(2, 300, -20))
    burst = rhythm(3, 40, -20)
    listen([level + voice.return_db + 12 for level in burst], burst, voice)
    assert voice.likeness() > 0.9
    assert voice.is_own()


@pytest.mark.parametrize("seed", range(5))
def test_a_caller_louder_than_what_is_left_is_not_the_bot(seed: int) -> None:
    far = rhythm(4, 300, -20)
    voice = listen([level - 35 for level in far], far)
    listen(rhythm(100 + seed, 40, -25), rhythm(5, 40, -20), voice)
    assert not voice.is_own()


def test_nothing_is_the_bot_while_nothing_is_played() -> None:
    assert not listen(rhythm(6, 100, -50), [-100.0] * 100).is_own()


def test_before_anything_is_heard_nothing_is_the_bot() -> None:
    assert not SelfVoice().is_own()


def test_a_callers_sentence_hardly_changes_what_was_learnt() -> None:
    far = rhythm(7, 600, -20)
    voice = listen([level - 40 for level in far], far)
    before_db = voice.return_db
    listen(rhythm(8, 200, -22), rhythm(9, 200, -20), voice)
    assert abs(voice.return_db - before_db) < 6


def said(*texts: str) -> OwnWords:
    words = OwnWords(keep_ms=6_000)
    for number, text in enumerate(texts):
        words.said(text, 1_000 * number)
    return words


@pytest.mark.parametrize(
    ("heard", "own"),
    [
        ("you can block a lost card", True),
        ("block a LAST card, in the app", True),
        ("wait I wanted something else", False),
        ("no the other card please", False),
        ("card", False),
        ("", False),
    ],
)
def test_the_bots_words_are_told_from_the_callers(heard: str, own: bool) -> None:
    words = said("You can block a lost card", "in the app, or at any branch.")
    assert words.explains(heard, 2_000) is own


def test_the_order_of_the_words_counts() -> None:
    assert not said("one two three four five six").explains("six five four three two one", 500)


def test_words_are_forgotten() -> None:
    words = said("you can block a lost card")
    assert words.explains("block a lost card", 5_000)
    assert not words.explains("block a lost card", 7_000)


def test_what_is_forgotten_is_nobodys_voice() -> None:
    far = rhythm(1, 300, -20)
    voice = listen([level - 30 for level in far], far)
    assert voice.is_own()
    voice.forget()
    assert not voice.is_own()
