import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.turn_taking.backchannel import Backchannel, BackchannelPolicy, BackchannelTuning

CHOSEN = BackchannelTuning()


def telling(
    settings: BackchannelTuning | None = None,
    *,
    talk_ms: int = 5_000,
    completeness: float | None = 0.1,
    text: str = "so i went to the bank on monday",
) -> BackchannelPolicy:
    """Return the policy for a caller who has talked from 0 ms on and has just paused."""
    policy = BackchannelPolicy(settings)
    policy.on_voice_started(128, voiced_ms=128)
    policy.on_text(text)
    policy.on_voice_stopped(talk_ms + 160, silence_ms=160)
    if completeness is not None:
        policy.on_completeness(completeness)
    return policy


def test_a_listener_hums_in_a_pause_of_a_story():
    policy = telling()
    assert policy.next_deadline_ms() == 5_000 + CHOSEN.pause_ms
    assert policy.on_deadline(5_300) == Backchannel(5_300, "Mhm.")


def test_one_pause_has_one_backchannel():
    policy = telling()
    assert policy.on_deadline(5_300) is not None
    assert policy.next_deadline_ms() is None
    assert policy.on_deadline(5_600) is None


@pytest.mark.parametrize(
    "policy",
    [
        telling(talk_ms=3_000),
        telling(completeness=0.9),
        telling(completeness=None),
        telling(text="so i went to the"),
        telling(text="so i went to um"),
    ],
    ids=["short", "complete", "not known", "inside a phrase", "searching"],
)
def test_where_it_does_not_fit_there_is_none(policy: BackchannelPolicy):
    assert policy.next_deadline_ms() is None
    assert policy.on_deadline(9_000) is None


def test_a_caller_who_goes_on_is_not_hummed_at():
    policy = telling()
    policy.on_voice_started(5_250, voiced_ms=64)
    assert policy.next_deadline_ms() is None
    assert policy.on_deadline(5_300) is None


def test_there_is_none_while_the_bot_has_something_to_say():
    policy = telling()
    policy.on_bot_busy(True)
    assert policy.next_deadline_ms() is None
    policy.on_bot_busy(False)
    assert policy.next_deadline_ms() == 5_300


def test_there_is_none_when_the_turn_is_about_to_end():
    policy = telling()
    policy.on_endpoint_due(5_000 + 380)
    assert policy.on_deadline(5_300) is None
    later = telling()
    later.on_endpoint_due(5_000 + 640)
    assert later.on_deadline(5_300) is not None


def test_a_late_loop_says_nothing_rather_than_something_late():
    assert telling().on_deadline(5_000 + CHOSEN.latest_ms + 1) is None


def test_words_that_end_the_phrase_late_still_count():
    policy = telling(text="so i went to the")
    policy.on_text("so i went to the bank")
    assert policy.next_deadline_ms() == 5_300


def test_a_new_turn_begins_with_no_talk():
    policy = telling()
    policy.on_turn_ended()
    policy.on_voice_started(9_000, voiced_ms=128)
    policy.on_voice_stopped(10_000, silence_ms=160)
    policy.on_completeness(0.1)
    assert policy.next_deadline_ms() is None


def story(spans: list[tuple[int, int]], chosen: BackchannelTuning = CHOSEN) -> list[Backchannel]:
    """Run one turn of talk and pauses, in ms; return the bot's backchannels."""
    policy, at_ms, hums = BackchannelPolicy(chosen), 0, []
    for talk_ms, pause_ms in spans:
        policy.on_voice_started(at_ms + 128, voiced_ms=128)
        at_ms += talk_ms
        policy.on_voice_stopped(at_ms + 160, silence_ms=160)
        policy.on_completeness(0.1)
        due_ms = policy.next_deadline_ms()
        if due_ms is not None and due_ms < at_ms + pause_ms:
            hum = policy.on_deadline(due_ms)
            if hum is not None:
                hums.append(hum)
        at_ms += pause_ms
    return hums


def test_tokens_come_in_turn_and_their_number_is_limited():
    hums = story([(9_000, 600)] * 10)
    assert [hum.text for hum in hums] == ["Mhm.", "Uh huh.", "I see."]
    assert len(hums) == CHOSEN.most_in_turn


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(200, 12_000), st.integers(200, 3_000)), max_size=30))
def test_there_is_always_enough_time_and_talk_between_two(spans: list[tuple[int, int]]):
    hums = story(spans, BackchannelTuning(most_in_turn=20))
    for one, next_one in zip(hums, hums[1:], strict=False):
        assert next_one.at_ms - one.at_ms >= CHOSEN.gap_ms
    chatty = story(spans, BackchannelTuning(most_in_turn=20, gap_ms=1_000))
    talked_ms = sum(talk_ms for talk_ms, _ in spans)
    assert len(chatty) * CHOSEN.talk_ms <= talked_ms


def test_settings_out_of_order_are_refused():
    with pytest.raises(ValidationError, match="pause_ms"):
        BackchannelTuning(pause_ms=1_000, latest_ms=500)
