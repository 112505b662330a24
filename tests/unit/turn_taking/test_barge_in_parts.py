"""The parts of the barge-in machine: its table, the caller's voice, the bot's replies, the words."""

from collections.abc import Callable
from itertools import product
from types import NoneType

import pytest

from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.replies import ReplyTracker
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import (
    TRANSITIONS,
    BargeInAct,
    BargeInEvent,
    BargeInState,
    Cut,
    Decision,
    Duck,
    Restore,
    ResumeReply,
)
from parley.turn_taking.barge_in.voice import (
    VOICE_TRANSITIONS,
    EndedVoice,
    VoiceEvent,
    VoiceFinding,
    VoiceFindings,
    VoiceState,
    VoiceTracker,
)
from parley.turn_taking.barge_in.words import SpotVerdict, WordArbiter
from parley.turn_taking.utterances import Utterance, UtteranceKind

CHOSEN = BargeInTuning()
FAR_DB = CHOSEN.sounds.quiet_db
# Events that lead a voice into each state.
WAYS: dict[VoiceState, tuple[VoiceEvent, ...]] = {
    VoiceState.SILENT: (),
    VoiceState.ECHO_ENDED: (VoiceEvent.OWN,),
    VoiceState.MAYBE: (VoiceEvent.SUSPECTED,),
    VoiceState.ON: (VoiceEvent.BEGAN,),
    VoiceState.DISMISSED: (VoiceEvent.BEGAN, VoiceEvent.DISMISSED),
    VoiceState.FAR: (VoiceEvent.BEGAN, VoiceEvent.TOO_FAR),
    VoiceState.LEFT: (VoiceEvent.BEGAN, VoiceEvent.LEFT),
    VoiceState.ECHO: (VoiceEvent.BEGAN, VoiceEvent.OWN),
}
# A voice that ends, or turns out to be the bot's own, does so in any state; the rest is in the table.
GOES_ON = (VoiceState.ON, VoiceState.DISMISSED, VoiceState.FAR, VoiceState.LEFT, VoiceState.ECHO)
AFTER: dict[VoiceEvent, dict[VoiceState, VoiceState]] = {
    VoiceEvent.SUSPECTED: {
        VoiceState.SILENT: VoiceState.MAYBE,
        VoiceState.ECHO_ENDED: VoiceState.MAYBE,
    },
    VoiceEvent.BEGAN: dict.fromkeys(
        (VoiceState.SILENT, VoiceState.ECHO_ENDED, VoiceState.MAYBE), VoiceState.ON
    ),
    VoiceEvent.ENDED: {
        **dict.fromkeys((VoiceState.MAYBE, *GOES_ON), VoiceState.SILENT),
        VoiceState.ECHO: VoiceState.ECHO_ENDED,
    },
    VoiceEvent.FORGOTTEN: {VoiceState.MAYBE: VoiceState.SILENT},
    VoiceEvent.DISMISSED: {VoiceState.MAYBE: VoiceState.SILENT, VoiceState.ON: VoiceState.DISMISSED},
    VoiceEvent.TOO_FAR: {VoiceState.ON: VoiceState.FAR},
    VoiceEvent.LEFT: {VoiceState.ON: VoiceState.LEFT},
    VoiceEvent.OUTLASTED: {VoiceState.LEFT: VoiceState.DISMISSED},
    VoiceEvent.MEANT: dict.fromkeys((VoiceState.DISMISSED, VoiceState.FAR, VoiceState.LEFT), VoiceState.ON),
    VoiceEvent.CAME_NEAR: {VoiceState.FAR: VoiceState.ON},
    VoiceEvent.OWN: {
        **dict.fromkeys((VoiceState.SILENT, VoiceState.MAYBE), VoiceState.ECHO_ENDED),
        **dict.fromkeys(GOES_ON[:-1], VoiceState.ECHO),
    },
    VoiceEvent.NOT_OWN: {VoiceState.ECHO: VoiceState.ON, VoiceState.ECHO_ENDED: VoiceState.SILENT},
}


def tracker(*events: VoiceEvent) -> VoiceTracker:
    voice = VoiceTracker(CHOSEN)
    for event in events:
        assert voice.take(event)
    return voice


# The table.

NOW_MS = 10_000
MEANT = "what about the fees"


def standing(state: BargeInState) -> BargeIn:
    """Return a machine in a state that it reached as in a call."""
    machine = BargeIn()
    if state is BargeInState.LISTENING:
        return machine
    machine.on_bot_started(0, "r1", protected=state is BargeInState.PROTECTED)
    if state in (BargeInState.ARMED, BargeInState.WEIGHED, BargeInState.CUT):
        machine.on_voice_started(NOW_MS - 400)
    if state is BargeInState.WEIGHED:
        machine.on_voice_stopped(NOW_MS, silence_ms=0)
    elif state is BargeInState.CUT:
        machine.on_partial(NOW_MS, MEANT)
        # Otherwise the next reply would be ducked for a caller who still spoke.
        machine.on_voice_stopped(NOW_MS, silence_ms=0)
    return machine


def over(machine: BargeIn) -> Decision | None:
    if machine.state is not BargeInState.CUT:
        return machine.on_bot_stopped(NOW_MS, "r1")
    # The end of a reply that was cut is no news; that its rest was heard is.
    machine.on_heard("r1", 9, is_rest_heard=True)
    return machine.on_self_voice(NOW_MS, own=True)


EVENTS: dict[BargeInEvent, Callable[[BargeIn], Decision | None]] = {
    BargeInEvent.REPLY: lambda machine: machine.on_bot_started(
        NOW_MS, "r2", protected=machine.state is BargeInState.PROTECTED
    ),
    BargeInEvent.OVER: over,
    BargeInEvent.PROTECT: lambda machine: machine.on_protected(NOW_MS, True),
    BargeInEvent.RELEASE: lambda machine: machine.on_protected(NOW_MS, False),
    BargeInEvent.VOICE: lambda machine: machine.on_voice_started(NOW_MS),
    BargeInEvent.QUIET: lambda machine: machine.on_voice_stopped(NOW_MS, silence_ms=0),
    BargeInEvent.DISMISSED: lambda machine: machine.on_self_voice(NOW_MS, own=True),
    BargeInEvent.MEANT: lambda machine: machine.on_partial(NOW_MS, MEANT),
    BargeInEvent.STOP: lambda machine: machine.on_final(NOW_MS, "stop"),
}
DECISIONS = {
    BargeInAct.DUCK: Duck,
    BargeInAct.RESTORE: Restore,
    BargeInAct.CUT: Cut,
    BargeInAct.RESUME: ResumeReply,
    BargeInAct.NOTHING: NoneType,
}


@pytest.mark.parametrize(("state", "event"), list(product(BargeInState, BargeInEvent)))
def test_a_call_brings_about_what_the_table_says_of_every_state_and_event(
    state: BargeInState, event: BargeInEvent
):
    machine = standing(state)
    assert machine.state is state
    decision = EVENTS[event](machine)
    after, act = TRANSITIONS.get((state, event), (state, BargeInAct.NOTHING))
    assert (machine.state, type(decision)) == (after, DECISIONS[act])


# The voice.


@pytest.mark.parametrize(("state", "event"), list(product(VoiceState, VoiceEvent)))
def test_every_event_does_what_it_should_to_a_voice_in_every_state(state: VoiceState, event: VoiceEvent):
    voice = tracker(*WAYS[state])
    assert voice.state is state
    expected = AFTER[event].get(state)
    assert voice.take(event) == (expected is not None)
    assert voice.state is (expected or state)


def test_every_state_of_a_voice_can_be_left():
    assert {state for state, _ in VOICE_TRANSITIONS} == set(VoiceState)
    assert all(state is not after for (state, _), after in VOICE_TRANSITIONS.items())


@pytest.mark.parametrize("state", VoiceState)
def test_a_voice_is_silent_may_be_one_or_goes_on(state: VoiceState):
    voice = tracker(*WAYS[state])
    assert voice.is_silent + (state is VoiceState.MAYBE) + voice.goes_on == 1


@pytest.mark.parametrize("state", VoiceState)
def test_only_a_voice_of_the_callers_has_a_length(state: VoiceState):
    counts = state in GOES_ON and state is not VoiceState.ECHO
    voice = tracker(*WAYS[state])
    voice.arm(1_000, is_early=False, joins=False, keeps_level=False, keeps_looks=False)
    assert voice.voiced_ms(1_400) == ((400,) if counts else ())
    voice.end(1_500, silence_ms=160)
    # A possible voice that ends is a sound, too.
    counts = counts or state is VoiceState.MAYBE
    assert voice.ended.stretches_ms == ((340,) if counts else ())


def test_a_voice_keeps_what_was_known_of_it_when_the_next_one_begins():
    voice = VoiceTracker(CHOSEN)
    voice.begin()
    voice.arm(0, is_early=False, joins=False, keeps_level=False, keeps_looks=False)
    voice.level_db = FAR_DB
    assert voice.end(460, silence_ms=160)
    voice.begin()
    voice.arm(900, is_early=False, joins=False, keeps_level=False, keeps_looks=False)
    assert (voice.number, voice.last_ended) == (2, 1)
    assert voice.ended == EndedVoice((300,), FAR_DB)
    assert voice.level_db is None and not voice.is_far
    assert voice.findings.holds(VoiceFinding.FAR, 1) and not voice.findings.holds(VoiceFinding.FAR, 2)


def test_what_was_no_voice_counts_again_after_a_while():
    voice = VoiceTracker(CHOSEN)
    assert voice.suspect(1_000)
    voice.dismiss(1_200)
    assert not voice.suspect(1_200 + CHOSEN.maybe_rest_ms - 1)
    assert voice.suspect(1_200 + CHOSEN.maybe_rest_ms)


def test_a_finding_is_of_the_last_voice_only():
    findings = VoiceFindings()
    findings.note(VoiceFinding.SPOTTING, 1)
    findings.note(VoiceFinding.SPOTTING, 2)
    assert not findings.holds(VoiceFinding.SPOTTING, 1)
    findings.drop(VoiceFinding.SPOTTING, of=1)
    assert findings.holds(VoiceFinding.SPOTTING, 2)
    findings.drop(VoiceFinding.SPOTTING)
    assert not findings.holds(VoiceFinding.SPOTTING, 2)


# The replies.


def test_a_reply_that_starts_has_what_was_announced_of_it():
    replies = ReplyTracker(CHOSEN)
    assert replies.begin("a", 0, is_heard=False)
    replies.note_saying("a", "The fee, please.")
    replies.note_saying("b", "North.")
    assert replies.is_early(500)
    assert replies.begin("a", 900, is_heard=True)
    assert not replies.begin("a", 950, is_heard=True)
    assert replies.says("the fee") and not replies.says("north")
    assert replies.due_ms() == 900 + CHOSEN.reply_longest_ms


def test_a_cut_takes_the_reply_that_follows_along():
    replies = ReplyTracker(CHOSEN)
    replies.begin("a", 0, is_heard=True)
    replies.follow("b", protected=False)
    assert replies.cut(700) == "a"
    assert replies.was_cut("a") and replies.was_cut("b") and replies.take_following() is None


def test_the_rest_of_a_cut_reply_begins_with_the_first_word_that_was_not_heard():
    replies = ReplyTracker(CHOSEN)
    replies.begin("a", 0, is_heard=True)
    replies.note_heard("a", 4, is_rest_heard=False)
    assert not replies.is_nothing_left
    assert replies.resume(2_000) == ("a", 5)
    assert (replies.current_id, replies.due_ms()) == (None, 2_000 + CHOSEN.reply_wait_ms)


# The words.


def arbiter(*findings: tuple[VoiceFinding, int]) -> WordArbiter:
    known = VoiceFindings()
    for finding, voice in findings:
        known.note(finding, voice)
    return WordArbiter(CHOSEN, known, vocabulary=None)


def final(
    words: WordArbiter, text: str, sure: float, voice: int = 1, state: BargeInState = BargeInState.WEIGHED
) -> UtteranceKind | None:
    heard = Utterance(text, (sure,), (400,), True, None)
    return words.take_final(heard, voice, asked=False, state=state, is_far=False, held_until_ms=900)


def test_a_guess_waits_for_the_spotter_and_the_spotter_decides():
    for odds, meant in ((None, False), (CHOSEN.floor_log_odds, True)):
        words = arbiter((VoiceFinding.SPOTTING, 1))
        assert final(words, "about fees", 0.5) is None
        assert words.held is not None and words.held.claims_floor
        spotted = words.take_spotted("", 1, odds)
        assert spotted is (SpotVerdict.WANTS_FLOOR if meant else SpotVerdict.DROP_HELD)


def test_the_same_guess_waits_for_nothing_after_a_cut_or_without_a_spotter():
    assert (
        final(arbiter((VoiceFinding.SPOTTING, 1)), "about fees", 0.5, state=BargeInState.CUT)
        is UtteranceKind.SUBSTANTIVE
    )
    assert final(arbiter(), "about fees", 0.5) is UtteranceKind.SUBSTANTIVE
    assert final(arbiter((VoiceFinding.NO_COMMAND, 1)), "about fees", 0.5) is UtteranceKind.BACKCHANNEL


def test_of_two_voices_that_wait_the_one_that_was_nothing_leaves_the_other():
    findings = VoiceFindings()
    words = WordArbiter(CHOSEN, findings, vocabulary=None)
    findings.note(VoiceFinding.SPOTTING, 1)
    assert final(words, "about fees", 0.5) is None
    findings.note(VoiceFinding.SPOTTING, 2)
    assert final(words, "the north", 0.5, voice=2) is None
    assert words.take_spotted("", 1, None) is SpotVerdict.NOTHING
    assert words.held is not None and set(words.held.kinds) == {2}
    assert words.take_spotted("", 2, None) is SpotVerdict.DROP_HELD


def test_a_verdict_about_words_that_waited_is_given_once():
    words = arbiter((VoiceFinding.SPOTTING, 1))
    final(words, "about fees", 0.5)
    assert words.settle_held(meant=True)
    assert (words.take_verdict(), words.take_verdict(), words.held) == (True, None, None)


def test_what_is_found_out_about_a_voice_is_over_with_the_turn():
    words = arbiter((VoiceFinding.SPOTTING, 1))
    final(words, "about fees", 0.5)
    words.end_turn()
    assert words.held is None and words.take_verdict() is None
    assert final(words, "about fees", 0.5) is UtteranceKind.SUBSTANTIVE
