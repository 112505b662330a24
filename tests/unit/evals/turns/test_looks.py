"""Bounds of the early looks stay within the shares for which they were chosen."""

from pathlib import Path

import numpy as np
import pytest

from parley.evals.turns.looks import VoiceWindow, bounds, folds, load, save
from parley.evals.turns.overlap_calls import Sound


def row(sound: Sound, speaker: str = "a", *, is_over_bot: bool = True) -> VoiceWindow:
    return VoiceWindow(sound, speaker, True, "", 40, 800, np.zeros(4, np.int16), is_over_bot)


def drawn(count: int, seed: int) -> tuple[list[VoiceWindow], np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = (Sound.SENTENCE, Sound.BACKCHANNEL, Sound.COUGH)
    rows = [row(kinds[place % 3]) for place in range(count)]
    meant = np.array([each.sound.is_meant for each in rows])
    return rows, rng.normal(np.where(meant, 1.5, -1.5), 1.0, (3, count))


@pytest.mark.parametrize(("false_share", "missed_share"), [(0.0, 0.0), (0.05, 0.02), (0.3, 0.1)])
def test_no_more_is_taken_or_left_than_allowed(false_share: float, missed_share: float):
    rows, odds = drawn(900, 1)
    chosen = bounds(rows, odds, false_share=false_share, missed_share=missed_share)
    assert chosen.false <= false_share and chosen.missed <= missed_share
    assert all(take > leave for take, leave in zip(chosen.take, chosen.leave, strict=True))
    assert chosen.taken[-1] > 0.2 and list(chosen.taken) == sorted(chosen.taken)


def test_a_voice_without_a_bot_decides_no_bound():
    rows, odds = drawn(300, 2)
    alone = [row(Sound.COUGH, is_over_bot=False) for _ in range(300)]
    with_them = bounds(
        [*rows, *alone], np.hstack((odds, np.full((3, 300), 9.0))), false_share=0.05, missed_share=0.02
    )
    assert with_them == bounds(rows, odds, false_share=0.05, missed_share=0.02)


def test_a_speaker_is_left_out_as_a_whole_and_once():
    rows = [row(Sound.SENTENCE, f"speaker {place % 7}") for place in range(70)]
    masks = list(folds(rows))
    assert np.sum(masks, axis=0).tolist() == [1] * 70
    for mask in masks:
        out = {each.speaker for each, is_out in zip(rows, mask, strict=True) if is_out}
        assert not out & {each.speaker for each, is_out in zip(rows, mask, strict=True) if not is_out}


def test_what_was_heard_is_read_as_it_was_kept(tmp_path: Path):
    kept = [row(Sound.HUM), row(Sound.STOP, "b", is_over_bot=False)]
    save(tmp_path / "voices.npz", kept)
    found = load(tmp_path / "voices.npz")
    assert [(each.sound, each.speaker, each.is_over_bot) for each in found] == [
        (Sound.HUM, "a", True),
        (Sound.STOP, "b", False),
    ]
