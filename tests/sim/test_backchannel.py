"""The bot's backchannels while the caller talks, in whole calls on virtual time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.session_store.events import Kind
from tests.sim.call import OFF, RATE_HZ, SimulatedCall, silence, simulate, voice

# Talks for five seconds, pauses unfinished, goes on, and ends.
TALK = [silence(500), voice(5_000), silence(700), voice(1_500), silence(2_500)]
PAUSE_MS = 5_500
UNFINISHED = (0.1, 0.1, 0.1, 0.95)
HUMS: dict[str, Any] = {"backchannel": {}, "completeness": UNFINISHED, "speculation": OFF}


def backchannels_ms(call: SimulatedCall) -> list[tuple[int, int]]:
    """Return the spans of the bot's audio before the end of the caller's turn."""
    return [span for span in call.bot_spans_ms(gap_ms=100) if span[0] < PAUSE_MS + 700]


def test_the_bot_hums_in_a_pause_and_the_turn_goes_on(tmp_path: Path):
    call = simulate(TALK, tmp_path, scripts=[("It is ten.",)], **HUMS)
    [(start_ms, end_ms)] = backchannels_ms(call)
    assert PAUSE_MS + 300 <= start_ms <= PAUSE_MS + 450
    assert 80 <= end_ms - start_ms <= 120
    [turn] = call.turns
    assert (turn.bot_text, turn.interrupted) == ("It is ten.", False)
    # It is neither in the record nor in the model's context.
    assert [event.payload["text"] for event in call.events if event.kind is Kind.BOT_TURN] == ["It is ten."]
    assert len([event for event in call.events if event.kind is Kind.USER_TURN]) == 1
    [asked] = call.model.asked
    assert not any(message.role == "assistant" for message in asked)


def test_without_the_setting_nothing_is_hummed(tmp_path: Path):
    call = simulate(TALK, tmp_path, scripts=[("It is ten.",)], **(HUMS | {"backchannel": None}))
    assert backchannels_ms(call) == []


def test_what_sounds_complete_is_answered_and_not_hummed_at(tmp_path: Path):
    caller = [silence(500), voice(5_000), silence(4_000)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], **(HUMS | {"completeness": (0.95,)}))
    assert len(call.bot_spans_ms(gap_ms=100)) == 1
    assert call.turns[0].bot_text == "It is ten."


@pytest.mark.parametrize("pause_ms", [300, 340, 380, 420, 460])
def test_a_caller_who_goes_on_is_not_hummed_over(tmp_path: Path, pause_ms: int):
    caller = [silence(500), voice(5_000), silence(pause_ms), voice(2_000), silence(2_500)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[("It is ten.",)],
        **(HUMS | {"backchannel": {"tokens": ["Mhm mhm mhm mhm mhm."]}}),
    )
    goes_on_ms = PAUSE_MS + pause_ms
    # The whole phrase takes 500 ms; a voice is noticed after some 100 ms, and pieces are sent ahead.
    [(start_ms, end_ms)] = backchannels_ms(call)
    assert start_ms <= goes_on_ms + 100
    assert end_ms <= goes_on_ms + 250 and end_ms - start_ms < 400
    assert [turn.bot_text for turn in call.turns] == ["It is ten."]


def test_there_is_no_second_hum_before_its_time(tmp_path: Path):
    caller = [silence(500)] + [voice(4_500), silence(700)] * 4 + [silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], **(HUMS | {"completeness": (0.1,)}))
    [first, second, _answer] = call.bot_spans_ms(gap_ms=100)
    # The second pause comes too soon after the first one.
    assert second[0] - first[0] >= 10_000
    # Another phrase, of two words; each extends into one more of the 10 ms in which spans are counted.
    assert (first[1] - first[0], second[1] - second[0]) == (110, 210)


def test_a_hum_leaves_nothing_after_before_the_answer(tmp_path: Path):
    with_hum = simulate(TALK, tmp_path, scripts=[("It is ten.",)], **HUMS)
    without = simulate(TALK, tmp_path, scripts=[("It is ten.",)], **(HUMS | {"backchannel": None}))
    answers = [call.stereo[(PAUSE_MS + 1_500) * RATE_HZ // 1000 :, 1] for call in (with_hum, without)]
    shortest = min(map(len, answers))
    np.testing.assert_array_equal(answers[0][:shortest], answers[1][:shortest])
