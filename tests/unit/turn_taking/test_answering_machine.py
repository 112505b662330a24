"""Detection of who answered an outbound call, and the time of the message to a machine."""

from itertools import product

import pytest

from parley.core.errors import IllegalTransition
from parley.turn_taking.answering_machine import (
    BEEP,
    TRANSITIONS,
    AnswerScreen,
    VoicemailEvent,
    VoicemailState,
    VoicemailTuning,
    judge,
)

MACHINES = (
    "Hi, you've reached Dana. I can't come to the phone right now. Please leave a message after the beep.",
    "The person you are calling is not available. At the tone, please record your message.",
    "The number you have dialed is not in service.",
    "Thank you for calling Northwind. Our office is currently closed. For more options press one.",
    "your call has been forwarded to an automatic voice messaging system",
    # The transcript of a poor recogniser.
    "please leave a massage after the town",
    "please leave your named number and i'll get back to you as soon as possible",
    f"uh the of and {BEEP}",
    BEEP,
    "we are a family business on the corner of main street and we have been here since nineteen twenty and "
    "we are very happy that you have chosen us today",
)
PEOPLE = (
    "hello",
    "Hello?",
    "yes",
    "hi this is sam",
    "john speaking",
    "hello who is this",
    "Northwind Bank, how can I help you?",
    "sorry you have the wrong number",
    "hold on a moment please i am just leaving the house",
    "i can't talk right now",
    "can you hear me hello",
    f"hello {BEEP}",
    "",
)


@pytest.mark.parametrize("heard", MACHINES)
def test_a_machine_is_known_by_its_words(heard: str):
    assert judge(heard).is_machine


@pytest.mark.parametrize("heard", PEOPLE)
def test_a_person_is_not_taken_for_one(heard: str):
    assert not judge(heard).is_machine


@pytest.mark.parametrize(("state", "event"), list(product(VoicemailState, VoicemailEvent)))
def test_every_pair_is_a_change_or_a_bug(state: VoicemailState, event: VoicemailEvent):
    screen = AnswerScreen(VoicemailTuning())
    screen.state = state
    if (state, event) in TRANSITIONS:
        screen.on_event(event, 0)
        assert screen.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition):
            screen.on_event(event, 0)


def screen(**more: object) -> AnswerScreen:
    made = AnswerScreen(VoicemailTuning.model_validate({"message": "Please call back.", **more}))
    made.on_event(VoicemailEvent.CONNECTED, 1_000)
    return made


def test_who_says_nothing_is_waited_for_and_who_talks_for_longer():
    one = screen(hello_ms=3_000, undecided_ms=40_000)
    assert one.next_deadline_ms() == 4_000
    one.on_voice(True, 2_000)
    assert one.next_deadline_ms() == 41_000


def machine() -> AnswerScreen:
    one = screen(quiet_ms=2_500, undecided_ms=40_000)
    one.on_voice(True, 2_000)
    one.on_voice(False, 6_000)
    one.on_event(VoicemailEvent.MACHINE, 7_000)
    return one


def test_the_message_waits_for_silence_and_comes_sooner_after_a_beep():
    one = machine()
    assert one.next_deadline_ms() == 8_500
    one.on_beep(7_900)
    assert one.next_deadline_ms() == 8_200
    # The beep was taken for a voice.
    one.on_voice(True, 8_000)
    assert one.next_deadline_ms() == 8_200


def test_a_tone_before_more_greeting_is_no_beep():
    one = machine()
    one.on_beep(7_000)
    one.on_voice(True, 7_280)
    one.on_voice(False, 12_000)
    assert one.next_deadline_ms() == 14_500


def test_a_greeting_that_never_ends_is_talked_over_at_last():
    one = machine()
    one.on_voice(True, 7_500)
    assert one.next_deadline_ms() == 47_000


def test_without_a_message_nothing_is_waited_for():
    one = screen(message=None)
    one.on_voice(True, 2_000)
    one.on_event(VoicemailEvent.MACHINE, 7_000)
    assert one.next_deadline_ms() == 7_000
