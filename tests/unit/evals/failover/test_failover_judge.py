"""Words that a program recognises in a call, and the judgement of what a caller has heard."""

import numpy as np

from parley.evals.failover.judge import Turn, judge, repeated
from parley.evals.failover.replies import GREETING, REPLIES, reply_of, words_of
from parley.evals.failover.sounds import WORD_MS, WORDS, recognised, sound_of
from parley.evals.harness.speech import RATE_HZ, decode, encode, framed


def recording(*parts: str | int) -> np.ndarray:
    """Return a recording of words and of silences in milliseconds, as a call carries it."""
    pieces = [
        np.zeros(part * RATE_HZ // 1000, np.int16)
        if isinstance(part, int)
        else np.frombuffer(sound_of(part, RATE_HZ), "<i2")
        for part in parts
    ]
    # The two frames of silence with which a framed sound begins.
    return decode(encode(framed(np.concatenate(pieces))))[2 * RATE_HZ // 50 :]


def test_every_word_is_recognised_after_the_codec():
    heard = recognised(recording(*WORDS), RATE_HZ)
    assert [each.word for each in heard if each.word and each.length_ms > WORD_MS // 2] == WORDS


def test_another_word_and_silence_are_no_words():
    heard = recognised(recording(400, "sorry", 400, "amber"), RATE_HZ)
    assert [each.word for each in heard if each.length_ms >= 100] == ["", "amber"]
    assert abs(heard[0].start_ms - 400) <= 20


def test_no_word_is_in_two_replies():
    words = [word for number in range(REPLIES) for word in words_of(number)]
    assert len({*words}) == len(words)


def test_the_reply_is_the_first_of_which_nothing_was_said():
    caller, greeting = {"role": "user", "content": "hello"}, {"role": "assistant", "content": GREETING}
    begun = {"role": "assistant", "content": words_of(0)[0].capitalize()}
    for number, messages in enumerate([[greeting, caller, caller], [greeting, caller, begun, caller]]):
        said = reply_of([{"role": "system", "content": ""}, *messages])
        assert said.lower().replace(".", "").split() == list(words_of(number))


def test_a_whole_answer_has_its_first_sound_and_no_silence():
    heard = recognised(recording(1_000, *words_of(0)), RATE_HZ)
    turn = judge(heard, Turn(400, 9_000))
    assert turn.first_ms is not None and abs(turn.first_ms - 600) <= 40
    assert abs(turn.silence_ms - 600) <= 40
    assert (turn.replies, turn.missing, turn.says_other) == ((0,), (), False)


def test_an_answer_that_pauses_and_loses_its_end_is_silent_until_the_next_question():
    words = words_of(0)
    heard = recognised(recording(500, *words[:2], 2_000, *words[2:4]), RATE_HZ)
    turn = judge(heard, Turn(0, 9_000))
    assert turn.missing == tuple(words[4:])
    assert abs(turn.silence_ms - (9_000 - 500 - 2_000 - 4 * WORD_MS)) <= 60


def test_an_answer_that_is_replaced_by_another_one_explains_its_end():
    words = words_of(0)
    heard = recognised(recording(500, *words[:3], 1_200, *["sorry"] * 5), RATE_HZ)
    turn = judge(heard, Turn(0, 9_000))
    assert turn.says_other and abs(turn.silence_ms - 1_200) <= 60


def test_no_answer_is_silence_to_the_next_question():
    turn = judge([], Turn(1_000, 6_000))
    assert (turn.first_ms, turn.silence_ms, len(turn.missing)) == (None, 5_000, len(words_of(0)))


def test_a_fragment_and_the_whole_word_are_no_repetition_and_two_words_are_one():
    broken_off = np.frombuffer(sound_of("basil", RATE_HZ), "<i2")[: WORD_MS // 3 * RATE_HZ // 1000]
    fragment = np.concatenate((recording("amber"), broken_off, recording(600, "basil", "cedar")))
    assert repeated(recognised(fragment, RATE_HZ)) == []
    assert repeated(recognised(recording("amber", "basil", 600, "basil", "cedar"), RATE_HZ)) == ["basil"]
