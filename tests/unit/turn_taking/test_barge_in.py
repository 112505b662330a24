from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import (
    IGNORED,
    TRANSITIONS,
    BargeInAct,
    BargeInEvent,
    BargeInState,
    Cut,
    CutReason,
    Duck,
    Restore,
    ResumeReply,
)
from parley.turn_taking.utterances import UtteranceKind
from scripts.draw_turn_taking import DOCUMENT, drawn
from tests.unit.turn_taking.floor import STOP_LAG_MS, Floor, check_invariants

CHOSEN = BargeInTuning()
QUESTION = ((300, "what", 0.9), (520, "what about", 0.9), (760, "what about the fees", 0.9))
BACKCHANNELS = ("mhm", "yeah", "okay", "uh huh", "right", "yeah okay", "i see", "them")


def speaking(length_ms: int = 60_000, settings: BargeInTuning | None = None) -> Floor:
    """Return a call in which the bot has been speaking since 0 ms."""
    floor = Floor(settings)
    floor.reply("r1", 0, length_ms)
    return floor


# The table.


def test_every_pair_of_state_and_event_has_one_meaning():
    for state in BargeInState:
        for event in BargeInEvent:
            assert ((state, event) in TRANSITIONS) != (event in IGNORED[state]), (state, event)


def test_every_state_can_be_reached_and_left():
    assert {to for to, _ in TRANSITIONS.values()} == set(BargeInState)
    assert {state for state, _ in TRANSITIONS} == set(BargeInState)


def test_volume_and_state_agree_in_the_table():
    ducked = {BargeInState.ARMED, BargeInState.WEIGHED}
    for (state, _), (to, act) in TRANSITIONS.items():
        assert (act is BargeInAct.DUCK) == (state not in ducked and to in ducked)
        if state in ducked and to not in ducked:
            assert act in (BargeInAct.RESTORE, BargeInAct.CUT)
        if act is BargeInAct.RESTORE:
            assert state in ducked
        if act is BargeInAct.RESUME:
            assert state is BargeInState.CUT


def test_the_document_shows_the_tables():
    document = Path(DOCUMENT).read_text(encoding="utf-8")
    assert "ARMED --> CUT: meant / cut" in document
    assert drawn(document) == document


# Ducking.


def test_a_voice_ducks_before_it_is_sure_to_be_one():
    floor = speaking()
    floor.voice(5_000, 2_000)
    floor.run(5_100)
    assert floor.decisions == [Duck(5_032, CHOSEN.duck_db)]
    assert floor.machine.is_ducked


def test_what_was_no_voice_is_restored_and_does_not_duck_again_at_once():
    floor = speaking()
    for at_ms in (5_000, 5_400, 5_800):
        floor.voice(at_ms, 50)
    floor.run(8_000)
    assert floor.decisions == [Duck(5_032, CHOSEN.duck_db), Restore(5_032 + CHOSEN.maybe_ms)]


def test_a_maybe_that_no_one_follows_is_forgotten():
    floor = speaking()
    floor.at(5_000, floor.machine.on_maybe_voice)
    floor.at(5_050, lambda now: floor.machine.on_protected(now, True))
    floor.at(6_000, lambda now: floor.machine.on_protected(now, False))
    floor.at(7_000, floor.machine.on_maybe_voice)
    floor.run(7_050)
    assert [decision.at_ms for decision in floor.of(Duck)] == [5_000, 7_000]


def test_ducking_on_a_maybe_can_be_switched_off():
    floor = speaking(settings=BargeInTuning(maybe_ms=0))
    floor.voice(5_000, 2_000)
    floor.run(5_200)
    assert floor.decisions == [Duck(5_128, CHOSEN.duck_db)]


def test_a_voice_while_the_bot_is_silent_is_a_turn_and_no_interruption():
    floor = Floor()
    floor.voice(1_000, 2_000, partials=QUESTION)
    floor.run(2_000)
    assert floor.decisions == []
    assert floor.machine.caller_has_floor


# Confirmation.


def test_a_voice_without_words_confirms_by_its_length():
    floor = speaking()
    floor.voice(5_000, 2_000)
    floor.run(6_500)
    (cut,) = floor.cuts
    assert (cut.reply_id, cut.reason) == ("r1", CutReason.DURATION)
    assert cut.at_ms == 5_000 + CHOSEN.confirm_ms + CHOSEN.end_lag_ms
    assert floor.machine.caller_has_floor


def test_the_second_word_of_weight_confirms_before_that():
    floor = speaking()
    floor.voice(5_000, 2_000, partials=QUESTION)
    floor.run(6_500)
    (cut,) = floor.cuts
    assert (cut.at_ms, cut.reason) == (5_520, CutReason.WORDS)


def test_words_that_were_hardly_understood_confirm_nothing():
    floor = speaking()
    floor.voice(5_000, 600, partials=((300, "what about the fees", 0.2),))
    floor.run(8_000)
    assert floor.cuts == []


@pytest.mark.parametrize("text", ["stop", "okay stop", "wait", "no wait", "hold on please"])
def test_a_stop_word_cuts_at_once(text: str):
    floor = speaking()
    floor.voice(5_000, 400, partials=((350, text, 0.9),), final=(text, 0.9))
    floor.run(20_000)
    (cut,) = floor.cuts
    assert (cut.at_ms, cut.reason) == (5_350, CutReason.STOP_WORD)
    assert floor.of(ResumeReply) == []


def test_a_stop_word_of_the_final_words_cuts_a_voice_that_had_ended():
    floor = speaking()
    floor.voice(5_000, 350, final=("stop", 0.9))
    floor.run(20_000)
    (cut,) = floor.cuts
    assert cut.reason is CutReason.STOP_WORD
    assert cut.at_ms == 5_630


def test_a_spotted_stop_word_needs_no_recogniser():
    floor = speaking()
    floor.voice(5_000, 350)
    floor.at(5_300, lambda now: floor.machine.on_spotted(now, "stop"))
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_300, CutReason.STOP_WORD)]


def short_voice(
    words: str,
    confidence: float,
    spotted: str | None,
    *,
    final_ms: int = 5_600,
    odds: float | None = None,
) -> Floor:
    """Run 400 ms of voice over the bot.

    A recogniser returns these words, and a spotter that listens as well returns ``spotted`` 40 ms later,
    None: never; ``odds`` are those of the floor.
    """
    floor = speaking()
    floor.voice(5_000, 400)
    floor.at(5_561, lambda _now: floor.machine.on_spotting())
    confidences = (confidence,) * len(words.split())
    floor.at(final_ms, lambda now: floor.machine.on_final(now, words, confidences=confidences))
    if spotted is not None:
        floor.at(5_640, lambda now: floor.machine.on_spotted(now, spotted, floor_log_odds=odds))
    return floor


@pytest.mark.parametrize("final_ms", [5_600, 5_680], ids=["words before", "words behind"])
@pytest.mark.parametrize("words", ["oh really", "as far apart", "many are"])
def test_a_short_voice_that_wants_the_floor_by_how_it_sounds_gets_it(words: str, final_ms: int):
    floor = short_voice(words, 0.3, "", final_ms=final_ms, odds=0.5)
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_640, CutReason.WORDS)]
    assert not any(isinstance(decision, ResumeReply) for decision in floor.decisions)


def test_a_voice_that_wants_the_floor_and_has_no_words_was_nothing_after_all():
    floor = short_voice("", 0.3, "", odds=0.5)
    floor.run(20_000)
    assert [cut.at_ms for cut in floor.cuts] == [5_640]
    [resume] = [decision for decision in floor.decisions if isinstance(decision, ResumeReply)]
    assert resume.at_ms - 5_640 <= floor.machine.settings.words_wait_ms


@pytest.mark.parametrize("final_ms", [5_600, 5_680], ids=["words before", "words behind"])
def test_who_is_surely_understood_to_listen_does_however_it_sounds(final_ms: int):
    floor = short_voice("oh really", 0.95, "", final_ms=final_ms, odds=0.5)
    floor.run(20_000)
    if final_ms < 5_640:
        assert floor.cuts == []
    else:
        # The first result decides; the words are in the turn.
        assert [cut.at_ms for cut in floor.cuts] == [5_640]


def test_before_the_canceller_knows_the_room_no_sound_wants_the_floor():
    floor = speaking(settings=BargeInTuning(warm_up_ms=8_000))
    floor.machine.on_echo_path_changed(0)
    floor.voice(5_000, 400)
    floor.at(5_640, lambda now: floor.machine.on_spotted(now, "", floor_log_odds=3.0))
    floor.run(20_000)
    assert floor.cuts == []


def test_a_voice_that_was_the_bot_s_own_wants_nothing_when_its_odds_come_late():
    floor = speaking()
    floor.voice(5_000, 400)
    floor.at(5_500, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.voice(5_640, 170)
    floor.at(5_830, lambda now: floor.machine.on_spotted(now, "", voice=1, floor_log_odds=3.0))
    floor.run(20_000)
    assert floor.cuts == []


def test_a_guess_that_was_none_is_not_believed_because_of_the_next():
    floor = short_voice("as far apart", 0.7, None)
    floor.voice(5_610, 200)
    floor.at(5_971, lambda _now: floor.machine.on_spotting())
    floor.at(5_975, lambda now: floor.machine.on_final(now, "the", confidences=(0.3,)))
    floor.at(5_980, lambda now: floor.machine.on_spotted(now, "", voice=1, floor_log_odds=-3.0))
    floor.run(20_000)
    assert floor.cuts == []


@pytest.mark.parametrize("words", ["to learn", "oh god", "oh really", "um"])
def test_whatever_is_written_of_a_sound_answers_an_open_question(words: str):
    # PocketSphinx wrote the first two for "sure" and "nope" over an echo.
    def cuts(asked_ms: int | None, *, answered: bool = False) -> int:
        floor = speaking()
        if asked_ms is not None:
            floor.at(asked_ms, floor.machine.on_question)
        if answered:
            floor.at(4_900, lambda _now: floor.machine.on_turn_ended())
        floor.voice(5_000, 400)
        floor.at(
            5_600, lambda now: floor.machine.on_final(now, words, confidences=(0.1,) * len(words.split()))
        )
        floor.run(20_000)
        return len(floor.cuts)

    assert (cuts(4_500), cuts(None)) == (1, 0)
    # It was answered, and another reply is on.
    assert cuts(4_500, answered=True) == 0


@pytest.mark.parametrize("spotted", ["hang on", "stop", "no no", "what"])
def test_a_command_in_a_voice_that_only_listens_by_how_it_sounds_is_none(spotted: str):
    floor = short_voice("as far apart", 0.7, spotted, odds=-1.5)
    floor.run(20_000)
    assert floor.cuts == []
    assert not floor.machine.spotted_command
    for odds, is_command in ((0.5, True), (None, spotted != "what")):
        floor = short_voice("as far apart", 0.7, spotted, odds=odds)
        floor.run(20_000)
        assert floor.machine.spotted_command is is_command


def test_a_stop_word_over_sure_listener_s_words_is_a_command_whatever_it_sounds_like():
    floor = short_voice("right okay", 0.9, "stop", odds=-3.0)
    floor.run(20_000)
    assert floor.machine.last_kind is UtteranceKind.BACKCHANNEL
    # A command that cuts is in the turn, too.
    assert floor.machine.spotted_command and [cut.at_ms for cut in floor.cuts] == [5_640]


def test_odds_that_say_little_leave_it_to_the_words():
    for spotted, words, cuts in (("hang on", "", 1), ("what", "about fees", 1), ("", "about fees", 0)):
        floor = short_voice(words, 0.7, spotted, odds=-0.5)
        floor.run(20_000)
        assert len(floor.cuts) == cuts, spotted


def test_unsure_words_of_a_listener_wait_for_what_the_voice_sounds_like():
    floor = short_voice("oh really", 0.4, "", odds=-3.0)
    floor.run(5_620)
    assert floor.machine.holds_words
    floor.run(20_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]
    assert floor.decisions[-1].at_ms == 5_640


def test_sure_words_of_a_listener_wait_for_nothing():
    floor = short_voice("oh really", 0.95, "", odds=-3.0)
    floor.run(20_000)
    assert floor.decisions[-1].at_ms == 5_600


def test_a_hum_after_words_that_wait_does_not_make_a_hum_of_them():
    floor = short_voice("about fees", 0.7, None)
    floor.voice(5_610, 200)
    floor.at(5_971, lambda _now: floor.machine.on_spotting())
    floor.at(5_975, lambda now: floor.machine.on_final(now, "oh", confidences=(0.3,)))
    floor.at(6_000, lambda now: floor.machine.on_spotted(now, "what", voice=1))
    floor.run(5_990)
    assert floor.machine.voice_number == 2
    assert floor.machine.last_kind is UtteranceKind.BACKCHANNEL and floor.machine.holds_words
    floor.run(20_000)
    assert [cut.at_ms for cut in floor.cuts] == [6_000]


@pytest.mark.parametrize("final_ms", [5_600, 5_680], ids=["before", "behind"])
def test_unsure_words_of_a_short_voice_that_is_no_command_do_not_cut(final_ms: int):
    floor = short_voice("as far apart", 0.7, "", final_ms=final_ms)
    floor.run(20_000)
    assert floor.cuts == []
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]


def test_the_same_words_cut_where_no_one_listens_once_more():
    floor = speaking()
    floor.voice(5_000, 400)
    floor.at(5_600, lambda now: floor.machine.on_final(now, "as far apart", confidences=(0.7, 0.7, 0.7)))
    floor.run(20_000)
    assert [cut.at_ms for cut in floor.cuts] == [5_600]


def test_words_that_are_sure_do_not_wait_for_the_spotter():
    floor = short_voice("tell me more", 0.9, "")
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_600, CutReason.WORDS)]


@pytest.mark.parametrize("command", ["no", "no no", "how much"])
def test_a_spotted_word_that_claims_the_floor_cuts_and_is_meant(command: str):
    floor = short_voice("now", 0.2, command)
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_640, CutReason.WORDS)]
    # There is no wait, and the reply does not go on.
    assert not any(isinstance(decision, ResumeReply) for decision in floor.decisions)


def test_a_single_spotted_word_leaves_it_to_the_recogniser():
    outcomes = []
    for words in ("now", "what about"):
        floor = short_voice(words, 0.7, "what")
        floor.run(20_000)
        outcomes.append([cut.at_ms for cut in floor.cuts])
    assert outcomes == [[5_640], [5_640]]
    unsure = short_voice("now", 0.2, "what")
    unsure.run(20_000)
    assert unsure.cuts == []


def test_what_answers_a_question_does_not_wait_for_the_spotter():
    floor = short_voice("five hundred", 0.6, "")
    floor.at(4_500, floor.machine.on_question)
    floor.run(20_000)
    assert [cut.at_ms for cut in floor.cuts] == [5_600]


def test_words_do_not_wait_for_a_spotter_that_says_nothing_for_longer_than_for_words():
    floor = short_voice("what about", 0.7, None)
    floor.run(20_000)
    [cut] = floor.cuts
    assert cut.at_ms == 5_560 + CHOSEN.words_wait_ms


def test_words_of_which_the_spotter_says_nothing_in_time_are_believed():
    floor = short_voice("what about", 0.7, None)
    floor.run(5_605)
    assert floor.machine.holds_words
    floor.voice(5_700, 1_500)
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [
        (5_400 + STOP_LAG_MS + CHOSEN.words_wait_ms, CutReason.WORDS)
    ]
    assert not floor.machine.holds_words


def test_a_click_after_words_that_wait_decides_nothing_about_them():
    floor = short_voice("shut", 0.3, "stop")
    floor.at(5_610, lambda now: floor.machine.on_maybe_voice(now))
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_640, CutReason.STOP_WORD)]


def test_a_voice_that_begins_while_words_wait_leaves_them_to_the_spotter():
    floor = short_voice("what about", 0.7, None)
    floor.voice(5_620, 300)
    floor.at(5_800, lambda now: floor.machine.on_spotted(now, "", voice=1))
    floor.run(5_810)
    assert floor.machine.take_verdict() is False
    assert not floor.machine.holds_words
    # The second voice is weighed by itself.
    assert floor.machine.state is BargeInState.ARMED and floor.cuts == []
    floor.run(20_000)
    assert floor.cuts == [] and floor.machine.state is BargeInState.REPLYING


def test_a_late_command_of_an_earlier_voice_cuts_and_a_late_nothing_vetoes_no_other():
    floor = short_voice("the", 0.2, None)
    floor.voice(5_900, 400)
    floor.at(5_950, lambda now: floor.machine.on_spotted(now, "stop", voice=1))
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_950, CutReason.STOP_WORD)]

    floor = short_voice("the", 0.2, None)
    floor.voice(5_900, 400)
    floor.at(6_470, lambda now: floor.machine.on_spotted(now, "", voice=1))
    # The second voice was not spotted again: its words are trusted, as they would be alone.
    floor.at(6_500, lambda now: floor.machine.on_final(now, "as far apart", confidences=(0.7, 0.7, 0.7)))
    floor.run(20_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(6_500, CutReason.WORDS)]


@pytest.mark.parametrize(("spotted", "meant"), [("", False), ("what", True), ("stop", True), (None, True)])
def test_words_that_wait_when_the_reply_is_over_are_decided_all_the_same(spotted: str | None, meant: bool):
    floor = short_voice("what about", 0.7, None)
    floor.at(5_610, lambda now: floor.machine.on_bot_stopped(now, "r1"))
    if spotted is not None:
        floor.at(5_640, lambda now: floor.machine.on_spotted(now, spotted, voice=1))
    floor.run(5_620)
    assert floor.machine.state is BargeInState.LISTENING and floor.machine.holds_words
    assert floor.machine.take_verdict() is None
    floor.run(20_000)
    assert floor.machine.take_verdict() is meant
    assert floor.machine.take_verdict() is None
    assert floor.cuts == []


def test_words_that_wait_are_answered_when_their_turn_has_ended():
    floor = short_voice("what about", 0.7, "")
    floor.at(5_620, lambda _now: floor.machine.on_turn_ended())
    floor.run(20_000)
    assert floor.machine.take_verdict() is None


def test_a_verdict_holds_for_its_voice_whatever_happens_to_the_reply():
    def guess_at(ms: int, *, before: Callable[[Floor], None]) -> Floor:
        """Run 400 ms of voice that the spotter rejects at 5,600; its words come later."""
        floor = speaking()
        floor.voice(5_000, 400)
        floor.at(5_561, lambda _now: floor.machine.on_spotting())
        floor.at(5_600, lambda now: floor.machine.on_spotted(now, "", voice=1))
        before(floor)
        floor.at(ms, lambda now: floor.machine.on_final(now, "as far apart", confidences=(0.7, 0.7, 0.7)))
        floor.run(20_000)
        return floor

    def click(floor: Floor) -> None:
        floor.at(5_640, lambda now: floor.machine.on_maybe_voice(now))

    def over(floor: Floor) -> None:
        floor.at(5_620, lambda now: floor.machine.on_bot_stopped(now, "r1"))

    for ms, before in ((5_700, click), (5_640, over), (6_100, lambda _floor: None)):
        floor = guess_at(ms, before=before)
        assert floor.cuts == []
        assert floor.machine.last_kind is UtteranceKind.BACKCHANNEL


@pytest.mark.parametrize("spotted_ms", [5_600, 5_900], ids=["verdict first", "words first"])
def test_a_guess_that_comes_when_the_next_voice_is_on_is_still_judged(spotted_ms: int):
    floor = speaking()
    floor.voice(5_000, 400)
    floor.voice(5_650, 300)
    floor.at(5_561, lambda _now: floor.machine.on_spotting())
    floor.at(spotted_ms, lambda now: floor.machine.on_spotted(now, "", voice=1))
    floor.at(5_850, lambda now: floor.machine.on_final(now, "as far apart", confidences=(0.7, 0.7, 0.7)))
    floor.run(20_000)
    assert floor.cuts == []


def test_final_words_are_as_long_as_the_voice_that_they_are_about():
    floor = Floor()
    floor.reply("r1", 0, 60_000, protected=True)
    floor.voice(5_000, 1_100)
    floor.at(6_261, lambda _now: floor.machine.on_spotting())
    floor.at(6_300, lambda now: floor.machine.on_spotted(now, "", voice=1))
    floor.voice(6_350, 1_000)
    # A second of voice is not a backchannel, even when the caller has gone on before its words come.
    floor.at(6_500, lambda now: floor.machine.on_final(now, "i want to know", confidences=(0.7,) * 4))
    floor.run(6_600)
    assert floor.machine.last_kind is UtteranceKind.SUBSTANTIVE
    assert not floor.machine.last_is_guess and not floor.machine.holds_words


def test_words_that_come_when_the_reply_is_over_wait_all_the_same():
    floor = speaking()
    floor.voice(5_000, 400)
    floor.at(5_561, lambda _now: floor.machine.on_spotting())
    floor.at(5_570, lambda now: floor.machine.on_bot_stopped(now, "r1"))
    floor.at(5_600, lambda now: floor.machine.on_final(now, "shut it", confidences=(0.5, 0.5)))
    floor.run(5_610)
    assert floor.machine.state is BargeInState.LISTENING and floor.machine.holds_words
    floor.at(5_640, lambda now: floor.machine.on_spotted(now, "stop", voice=1))
    floor.run(20_000)
    assert floor.machine.take_verdict() is True


def test_words_that_wait_and_turn_out_to_be_the_bots_own_are_dropped():
    floor = short_voice("about fees", 0.5, "")
    floor.at(5_620, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.run(20_000)
    assert floor.cuts == []
    assert floor.machine.take_verdict() is False


def test_of_two_voices_that_wait_one_word_is_enough():
    def two(first: str, second: str) -> Floor:
        floor = short_voice("about fees", 0.5, None)
        floor.voice(5_610, 150)
        floor.at(5_925, lambda _now: floor.machine.on_spotting())
        floor.at(5_930, lambda now: floor.machine.on_final(now, "the loans", confidences=(0.5, 0.5)))
        floor.at(5_940, lambda now: floor.machine.on_spotted(now, first, voice=1))
        floor.at(5_950, lambda now: floor.machine.on_spotted(now, second, voice=2))
        floor.run(20_000)
        return floor

    assert two("", "").cuts == []
    assert [cut.at_ms for cut in two("what", "").cuts] == [5_940]
    assert [cut.at_ms for cut in two("", "what").cuts] == [5_950]


def test_only_what_was_well_understood_is_no_guess():
    floor = short_voice("tell me more", 0.9, None)
    floor.run(20_000)
    assert not floor.machine.last_is_guess
    for words, confidence in (("shut", 0.3), ("mhm", 0.9), ("", 1.0)):
        floor = short_voice(words, confidence, None)
        floor.run(20_000)
        assert floor.machine.last_is_guess, words


def test_final_words_that_come_when_the_volume_is_up_again_still_cut():
    floor = speaking()
    floor.voice(5_000, 500)
    floor.at(8_000, lambda now: floor.machine.on_final(now, "what about the fees"))
    floor.run(12_000)
    kinds = [type(decision) for decision in floor.decisions]
    assert kinds == [Duck, Restore, Cut]
    assert floor.machine.state is BargeInState.LISTENING


def test_words_that_were_understood_at_last_leave_nothing_to_resume():
    floor = speaking()
    floor.voice(5_000, 500, final=("the account number", 0.9))
    floor.run(30_000)
    assert len(floor.cuts) == 1
    assert floor.of(ResumeReply) == []


# Backchannels and noise.


@pytest.mark.parametrize("text", BACKCHANNELS)
def test_a_backchannel_ducks_and_restores(text: str):
    floor = speaking()
    floor.voice(5_000, 450, partials=((350, text, 0.9),), final=(text, 0.9))
    floor.run(9_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]
    assert floor.decisions[1].at_ms == 5_730


def test_a_hum_that_was_taken_for_a_word_does_not_cut():
    floor = speaking()
    floor.voice(5_000, 600, partials=((400, "them", 0.95),), final=("them", 0.95))
    floor.run(9_000)
    assert floor.cuts == []


UNSURE_OKAY = ((430, "okay i", 0.0), (700, "okay in her", 0.0))


def test_an_okay_that_is_not_sure_yet_is_listened_to_a_little_longer():
    floor = speaking()
    floor.voice(5_000, 780, partials=UNSURE_OKAY, final=("okay then", 0.3))
    floor.run(9_000)
    assert not floor.of(Cut)
    assert len(floor.of(Restore)) == 1


def test_who_goes_on_after_an_okay_cuts_a_little_later():
    floor = speaking()
    floor.voice(5_000, 2_000, partials=UNSURE_OKAY)
    floor.run(6_900)
    (cut,) = floor.of(Cut)
    assert cut.at_ms == 5_000 + CHOSEN.listener_confirm_ms + CHOSEN.end_lag_ms


def test_after_a_question_an_unsure_yes_is_waited_for_no_longer():
    floor = speaking()
    floor.at(4_000, floor.machine.on_question)
    floor.voice(5_000, 2_000, partials=((430, "yes i", 0.0),))
    floor.run(6_900)
    (cut,) = floor.of(Cut)
    assert cut.at_ms == 5_000 + CHOSEN.confirm_ms + CHOSEN.end_lag_ms


def test_a_backchannel_of_several_words_may_last_longer():
    floor = speaking()
    floor.voice(5_000, 1_150, partials=((500, "yeah", 0.9), (900, "yeah okay right", 0.9)))
    floor.run(9_000)
    assert floor.cuts == []


def test_a_backchannel_that_does_not_end_is_an_interruption():
    floor = speaking()
    floor.voice(5_000, 4_000, partials=((500, "yeah", 0.9),))
    floor.run(9_000)
    assert [cut.at_ms for cut in floor.cuts] == [5_000 + 1_200 + CHOSEN.end_lag_ms]


def test_yeah_after_a_question_is_an_answer():
    floor = speaking()
    floor.at(4_000, floor.machine.on_question)
    floor.voice(5_000, 350, partials=((300, "yeah", 0.9),), final=("yeah", 0.9))
    floor.run(20_000)
    assert [cut.reason for cut in floor.cuts] == [CutReason.WORDS]
    assert floor.of(ResumeReply) == []


def test_a_question_is_open_for_a_while_only():
    floor = speaking()
    floor.at(1_000, floor.machine.on_question)
    floor.voice(1_000 + CHOSEN.answer_window_ms, 350, final=("yeah", 0.9))
    floor.run(20_000)
    assert floor.cuts == []


def test_a_voice_far_away_cuts_by_a_stop_word_only():
    floor = speaking()
    floor.voice(5_000, 20_000, partials=(*QUESTION, (9_000, "stop", 0.9)))
    floor.at(5_200, lambda now: floor.machine.on_level(now, -20.0))
    floor.run(13_900)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]
    floor.run(14_100)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(14_000, CutReason.STOP_WORD)]


def test_a_caller_who_comes_back_to_the_microphone_cuts_before_their_next_words():
    floor = speaking()
    floor.voice(5_000, 20_000, partials=((9_000, "what about the fees", 0.9),))
    floor.at(5_200, lambda now: floor.machine.on_level(now, -20.0))
    floor.at(13_000, lambda now: floor.machine.on_level(now, -3.0))
    floor.run(14_100)
    assert [cut.at_ms for cut in floor.cuts] == [13_796]
    assert floor.machine.caller_has_floor


def test_a_far_voice_that_was_dismissed_is_not_ducked_for_again_and_has_no_floor():
    floor = speaking(7_000)
    floor.voice(5_000, 20_000)
    floor.at(5_200, lambda now: floor.machine.on_level(now, -20.0))
    floor.reply("r2", 8_000, 9_000)
    floor.run(10_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]
    assert not floor.machine.caller_has_floor


def test_a_far_voice_that_is_surely_not_the_bots_own_is_still_far():
    floor = speaking()
    floor.voice(5_000, 20_000)
    floor.at(5_200, lambda now: floor.machine.on_level(now, -20.0))
    for at_ms in range(5_300, 20_000, 300):
        floor.at(at_ms, lambda now: floor.machine.on_self_voice(now, own=False))
    floor.run(20_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]


def test_how_loud_a_voice_was_says_nothing_about_the_next_one():
    floor = speaking()
    floor.voice(5_000, 1_500)
    floor.at(5_200, lambda now: floor.machine.on_level(now, -20.0))
    floor.voice(8_000, 1_500)
    floor.run(9_000)
    assert [cut.at_ms for cut in floor.cuts] == [8_000 + CHOSEN.confirm_ms + CHOSEN.end_lag_ms]


def test_a_loud_burst_is_restored_as_soon_as_it_is_over():
    floor = speaking()
    floor.voice(5_000, 300)
    floor.at(5_200, lambda now: floor.machine.on_level(now, 12.0))
    floor.run(7_000)
    assert floor.decisions == [Duck(5_032, CHOSEN.duck_db), Restore(5_460)]


def test_a_caller_who_only_coughs_never_cuts_and_is_never_ducked_for_long():
    floor = speaking(120_000)
    for number in range(100):
        floor.voice(2_000 + number * 700 + number % 7 * 40, 150 + number % 5 * 60)
    floor.run(90_000)
    check_invariants(floor.decisions)
    assert floor.cuts == []
    ducks, restores = floor.of(Duck), floor.of(Restore)
    assert len(ducks) == len(restores) > 5
    longest_ms = max(up.at_ms - down.at_ms for down, up in zip(ducks, restores, strict=True))
    assert longest_ms <= CHOSEN.duck_longest_ms + 1_000


def test_a_caller_who_never_stops_is_given_the_floor_once():
    floor = speaking()
    floor.voice(5_000, 600_000)
    floor.run(300_000)
    assert len(floor.cuts) == 1
    assert floor.of(ResumeReply) == []
    assert floor.states[-1] == (floor.cuts[0].at_ms + CHOSEN.taken_ms, BargeInState.LISTENING)
    assert floor.machine.caller_has_floor


# False interruptions.


def heard(floor: Floor, at_ms: int, last_word: int, *, is_rest_heard: bool = False) -> None:
    floor.at(at_ms, lambda _: floor.machine.on_heard("r1", last_word, is_rest_heard=is_rest_heard))


def test_a_cut_for_nothing_goes_on_with_the_first_word_that_was_not_heard():
    floor = speaking()
    floor.voice(5_000, 900)
    heard(floor, 5_900, 11)
    floor.run(9_000)
    (resume,) = floor.of(ResumeReply)
    assert resume == ResumeReply(5_900 + CHOSEN.resume_ms, "r1", 12)
    assert floor.machine.state is BargeInState.REPLYING


def test_a_cut_backchannel_is_resumed_as_soon_as_its_words_are_known():
    floor = speaking()
    floor.voice(5_000, 900, final=("yeah yeah", 0.9))
    heard(floor, 5_900, 11)
    floor.run(9_000)
    assert floor.of(ResumeReply) == [ResumeReply(6_180, "r1", 12)]


def test_nothing_is_resumed_when_all_of_it_was_heard():
    floor = speaking()
    floor.voice(5_000, 900)
    heard(floor, 5_900, 40, is_rest_heard=True)
    floor.run(20_000)
    assert floor.of(ResumeReply) == []
    assert floor.machine.state is BargeInState.LISTENING


def test_words_after_the_cut_make_it_a_true_one():
    floor = speaking()
    floor.voice(5_000, 900)
    floor.voice(6_500, 900, final=("what about the fees", 0.9))
    floor.run(30_000)
    assert len(floor.cuts) == 1
    assert floor.of(ResumeReply) == []


def test_after_false_interruptions_a_voice_needs_longer_until_one_is_meant():
    floor = speaking()
    floor.voice(5_000, 900)
    floor.voice(15_000, 900)
    floor.voice(25_000, 1_300)
    floor.voice(35_000, 5_000)
    floor.run(60_000)
    first, second, third = floor.cuts
    patience_ms = CHOSEN.confirm_ms + CHOSEN.end_lag_ms
    assert first.at_ms == 5_000 + patience_ms
    assert second.at_ms == 25_000 + patience_ms + CHOSEN.confirm_growth_ms
    assert third.at_ms == 35_000 + patience_ms + 2 * CHOSEN.confirm_growth_ms
    floor.reply("r9", 61_000, 99_000)
    floor.voice(70_000, 5_000)
    floor.run(75_000)
    assert floor.cuts[-1].at_ms == 70_000 + patience_ms


def test_an_interruption_that_is_coughed_through_is_decided_by_a_deadline():
    floor = speaking()
    floor.voice(5_000, 900)
    for number in range(30):
        floor.voice(6_200 + number * 1_000, 300)
    floor.run(5_000 + 796 + CHOSEN.undecided_ms + 1_000)
    assert len(floor.of(ResumeReply)) == 1


# Early voices.


def test_a_voice_that_goes_on_when_the_reply_begins_continues_the_turn():
    floor = Floor()
    floor.at(1_000, lambda now: floor.machine.on_reply(now, "r1"))
    floor.voice(1_050, 2_000)
    floor.reply("r1", 1_200, 20_000)
    floor.run(3_000)
    assert [cut.at_ms for cut in floor.cuts] == [1_050 + CHOSEN.early_confirm_ms + CHOSEN.end_lag_ms]


def test_a_cough_before_the_answer_costs_nothing():
    floor = Floor()
    floor.at(1_000, lambda now: floor.machine.on_reply(now, "r1"))
    floor.voice(1_050, 200)
    floor.reply("r1", 1_200, 20_000)
    floor.run(10_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]


def test_a_reply_that_was_cut_before_it_was_heard_is_said_from_its_beginning():
    floor = Floor()
    floor.at(1_000, lambda now: floor.machine.on_reply(now, "r1"))
    floor.voice(1_050, 450)
    floor.run(10_000)
    assert floor.of(ResumeReply) == [ResumeReply(1_660 + CHOSEN.words_wait_ms, "r1", 0)]


def test_a_reply_that_does_not_come_is_not_waited_for_for_ever():
    machine = BargeIn()
    machine.on_reply(1_000, "r1")
    due_ms = machine.next_deadline_ms()
    assert due_ms == 1_000 + CHOSEN.reply_wait_ms
    assert machine.on_deadline(due_ms) is None
    assert machine.state is BargeInState.LISTENING


# Replies.


def test_what_comes_late_for_a_cut_reply_is_ignored():
    floor = speaking()
    floor.voice(5_000, 3_000, partials=QUESTION, final=("what about the fees", 0.9))
    floor.run(9_000)
    assert floor.machine.on_bot_started(9_100, "r1") is None
    assert floor.machine.state is BargeInState.LISTENING
    assert floor.machine.on_reply(9_200, "r1") is None
    assert floor.machine.state is BargeInState.LISTENING


def test_the_end_of_the_cut_reply_does_not_decide_whether_it_was_meant():
    floor = speaking(5_900)
    floor.voice(5_000, 900)
    floor.run(20_000)
    assert len(floor.of(ResumeReply)) == 1


def test_a_reply_that_ends_while_the_caller_speaks_leaves_them_the_floor():
    floor = speaking(5_400)
    floor.voice(5_000, 3_000)
    floor.run(6_500)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]
    assert floor.machine.caller_has_floor


def test_a_reply_after_a_filler_is_armed_for_as_soon_as_the_filler_ends():
    floor = Floor()
    floor.reply("filler", 0, 1_000)
    floor.at(500, lambda now: floor.machine.on_reply(now, "r1"))
    floor.voice(1_200, 2_000, partials=QUESTION)
    floor.reply("r1", 1_500, 9_000)
    floor.run(4_000)
    assert [cut.reply_id for cut in floor.cuts] == ["r1"]


def test_one_cut_takes_the_reply_that_waits_with_it():
    floor = Floor()
    floor.reply("filler", 0, 9_000)
    floor.at(500, lambda now: floor.machine.on_reply(now, "r1"))
    floor.voice(2_000, 2_000, partials=QUESTION, final=("what about the fees", 0.9))
    floor.reply("r1", 9_000, 15_000)
    floor.run(12_000)
    assert [cut.reply_id for cut in floor.cuts] == ["filler"]
    assert floor.machine.state is BargeInState.LISTENING


def test_fifty_interruptions_in_a_row_cut_fifty_replies_once_each():
    floor = Floor()
    for number in range(50):
        at_ms = number * 4_000
        floor.reply(f"r{number}", at_ms, at_ms + 3_900)
        floor.voice(at_ms + 1_000, 1_500, partials=QUESTION, final=("what about the fees", 0.9))
    floor.run(210_000)
    check_invariants(floor.decisions)
    assert [cut.reply_id for cut in floor.cuts] == [f"r{number}" for number in range(50)]
    assert all(cut.reason is CutReason.WORDS for cut in floor.cuts)
    assert len(floor.of(Duck)) == 50
    assert floor.machine.state is BargeInState.LISTENING


def test_fifty_voices_without_words_in_a_row_never_leave_the_bot_stuck():
    floor = speaking(600_000)
    for number in range(50):
        floor.voice(2_000 + number * 6_000, 2_000)
    floor.run(330_000)
    check_invariants(floor.decisions)
    # Longer than any backchannel: each is an interruption, and each was a false one.
    assert len(floor.cuts) == len(floor.of(ResumeReply)) == 50


# Protection.


def test_a_protected_reply_is_not_ducked_and_not_cut():
    floor = Floor()
    floor.reply("r1", 0, 20_000, protected=True)
    floor.voice(5_000, 3_000, partials=QUESTION, final=("what about the fees", 0.9))
    floor.run(15_000)
    assert floor.decisions == []


def test_a_stop_word_ends_a_protected_reply():
    floor = Floor()
    floor.reply("r1", 0, 20_000, protected=True)
    floor.voice(5_000, 500, partials=((400, "stop", 0.9),))
    floor.run(15_000)
    assert [cut.reason for cut in floor.cuts] == [CutReason.STOP_WORD]


def test_protection_can_be_absolute():
    floor = Floor(BargeInTuning(protected_yields_to_stop=False))
    floor.reply("r1", 0, 20_000, protected=True)
    floor.voice(5_000, 500, partials=((400, "stop", 0.9),))
    floor.run(15_000)
    assert floor.decisions == []


def test_who_speaks_when_the_protection_ends_is_ducked_for_then():
    floor = Floor()
    floor.reply("r1", 0, 60_000, protected=True)
    floor.voice(5_000, 5_000)
    floor.at(6_000, lambda now: floor.machine.on_protected(now, False))
    floor.run(9_000)
    assert isinstance(floor.decisions[0], Duck) and floor.decisions[0].at_ms == 6_000
    assert [cut.at_ms for cut in floor.cuts] == [6_000 + CHOSEN.confirm_ms + CHOSEN.end_lag_ms]


def test_protection_that_begins_over_a_voice_restores():
    floor = speaking()
    floor.voice(5_000, 5_000)
    floor.at(5_300, lambda now: floor.machine.on_protected(now, True))
    floor.run(9_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]


def test_protection_ends_by_itself():
    floor = Floor()
    floor.reply("r1", 0, 300_000, protected=True)
    floor.voice(40_000, 5_000)
    floor.run(60_000)
    assert len(floor.cuts) == 1


# The bot's own voice.


def test_the_bots_own_voice_restores_and_its_words_are_not_believed():
    floor = speaking()
    words = ((300, "your balance", 0.9), (700, "your balance is fifty dollars", 0.9))
    floor.voice(5_000, 3_000, partials=words, final=("your balance is fifty dollars", 0.9))
    floor.at(5_200, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.run(20_000)
    assert [type(decision) for decision in floor.decisions] == [Duck, Restore]


def saying(text: str, at_ms: int = 0, **chosen: int) -> Floor:
    floor = speaking(settings=BargeInTuning(**chosen))
    floor.machine.on_echo_path_changed(0)
    floor.at(at_ms, lambda _: floor.machine.on_saying("r1", text))
    return floor


def test_a_stop_word_that_the_bot_does_not_say_is_no_echo():
    floor = saying("Your balance is fifty dollars.")
    floor.voice(5_000, 500, partials=((400, "stop", 0.9),))
    floor.at(5_200, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.run(9_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(5_400, CutReason.STOP_WORD)]


def test_a_stop_word_that_the_bot_says_is_its_echo():
    floor = saying("Please wait, I am looking.")
    floor.voice(5_000, 500, partials=((400, "wait", 0.9),), final=("wait", 0.9))
    floor.at(5_200, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.run(9_000)
    assert floor.cuts == []


def test_while_the_canceller_converges_what_the_bot_says_is_not_the_caller():
    floor = saying("Hello, what would you like to know?", warm_up_ms=3_000)
    floor.voice(300, 500, partials=((450, "what would", 0.9),), final=("what would you like", 0.9))
    floor.run(9_000)
    assert floor.cuts == []
    floor.voice(10_000, 500, final=("what would you like", 0.9))
    floor.run(19_000)
    assert len(floor.cuts) == 1


def test_other_words_cut_while_it_converges():
    floor = saying("Hello, what would you like to know?", warm_up_ms=3_000)
    floor.voice(300, 900, final=("what about the fees", 0.9))
    floor.run(9_000)
    assert [cut.reason for cut in floor.cuts] == [CutReason.WORDS]


def test_a_reply_that_its_own_echo_cut_goes_on_at_once():
    floor = speaking()
    floor.voice(5_000, 3_000)
    floor.at(6_000, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.run(7_000)
    assert [resume.at_ms for resume in floor.of(ResumeReply)] == [6_000]


def test_a_caller_who_joins_the_echo_is_heard_when_the_verdict_changes():
    floor = speaking()
    floor.voice(5_000, 8_000)
    floor.at(5_200, lambda now: floor.machine.on_self_voice(now, own=True))
    # One verdict may be wrong.
    for at_ms, own in ((5_500, False), (5_800, True), (6_700, False), (7_000, False)):
        floor.at(at_ms, lambda now, own=own: floor.machine.on_self_voice(now, own=own))
    floor.run(9_000)
    assert [cut.at_ms for cut in floor.cuts] == [7_000 + CHOSEN.confirm_ms + CHOSEN.end_lag_ms]


def test_what_was_understood_of_the_echo_does_not_count_for_the_caller_who_joins_it():
    floor = speaking()
    echo = "your balance is fifty dollars"
    said = ((900, echo, 0.9), (2_200, f"{echo} and", 0.9), (2_400, f"{echo} and what about", 0.9))
    floor.voice(5_000, 8_000, partials=said)
    for at_ms, own in ((5_200, True), (6_700, False), (7_000, False)):
        floor.at(at_ms, lambda now, own=own: floor.machine.on_self_voice(now, own=own))
    floor.run(9_000)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(7_400, CutReason.WORDS)]


def test_a_verdict_that_is_taken_back_after_the_voice_believes_its_words():
    floor = speaking()
    floor.voice(5_000, 600, final=("what about the fees", 0.9))
    floor.at(5_200, lambda now: floor.machine.on_self_voice(now, own=True))
    for at_ms in (5_700, 5_800):
        floor.at(at_ms, lambda now: floor.machine.on_self_voice(now, own=False))
    floor.run(8_000)
    assert [cut.at_ms for cut in floor.cuts] == [5_880]


def test_after_an_echo_the_next_voice_counts_again():
    floor = speaking()
    floor.voice(5_000, 1_000)
    floor.at(5_200, lambda now: floor.machine.on_self_voice(now, own=True))
    floor.voice(9_000, 2_000, partials=QUESTION)
    floor.run(12_000)
    assert len(floor.cuts) == 1


def test_no_voice_alone_cuts_while_the_canceller_converges():
    floor = speaking(settings=BargeInTuning(warm_up_ms=3_000))
    floor.machine.on_echo_path_changed(0)
    floor.voice(400, 2_000)
    floor.run(20_000)
    assert floor.cuts == []


def test_words_cut_while_the_canceller_converges_and_so_does_a_voice_that_is_surely_the_callers():
    by_words = speaking(settings=BargeInTuning(warm_up_ms=3_000))
    by_words.machine.on_echo_path_changed(0)
    by_words.voice(400, 2_000, partials=QUESTION)
    by_words.run(2_000)
    assert [cut.at_ms for cut in by_words.cuts] == [920]
    by_verdict = speaking(settings=BargeInTuning(warm_up_ms=3_000))
    by_verdict.machine.on_echo_path_changed(0)
    by_verdict.voice(400, 2_000)
    for at_ms in (650, 700):
        by_verdict.at(at_ms, lambda now: by_verdict.machine.on_self_voice(now, own=False))
    by_verdict.run(2_000)
    assert [cut.reason for cut in by_verdict.cuts] == [CutReason.DURATION]


# Settings.


def test_settings_out_of_order_are_refused():
    with pytest.raises(ValidationError, match="confirm_ms"):
        BargeInTuning(confirm_ms=200, early_confirm_ms=300)
    with pytest.raises(ValidationError, match="undecided_ms"):
        BargeInTuning(undecided_ms=1_000)


# Invariants.

SOUNDS = st.tuples(
    st.integers(250, 4_000),
    st.integers(130, 700),
    st.sampled_from((None, *BACKCHANNELS)),
    st.floats(0, 1),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(SOUNDS, min_size=1, max_size=12))
def test_no_pure_backchannel_ever_cuts(sounds: list[tuple[int, int, str | None, float]]):
    floor = speaking(120_000)
    at_ms = 1_000
    for gap_ms, length_ms, text, confidence in sounds:
        at_ms += gap_ms
        words = ((length_ms // 2, text, confidence),) if text is not None else ()
        final = (text, confidence) if text is not None else None
        floor.voice(at_ms, length_ms, partials=words, final=final)
        at_ms += length_ms
    floor.run(at_ms + 5_000)
    check_invariants(floor.decisions)
    assert floor.cuts == []
    assert len(floor.of(Duck)) == len(floor.of(Restore)) >= 1
    assert floor.machine.state is BargeInState.REPLYING


@settings(max_examples=200, deadline=None)
@given(
    st.integers(300, 20_000),
    st.integers(1_000, 8_000),
    st.lists(SOUNDS, max_size=4),
)
def test_every_voice_that_lasts_stops_the_bot(at_ms: int, length_ms: int, before: list):
    floor = speaking(200_000)
    for gap_ms, sound_ms, _, _ in before:
        floor.voice(at_ms + gap_ms, sound_ms)
        at_ms += gap_ms + sound_ms
    at_ms += 1_000
    floor.voice(at_ms, length_ms)
    floor.run(at_ms + CHOSEN.confirm_ms + CHOSEN.end_lag_ms)
    assert len(floor.cuts) == 1


WORDS = st.sampled_from(
    ("", "mhm", "stop", "them", "well", "yes", "no", "what about the fees", "account", "okay wait", "um")
)
STEPS = st.one_of(
    st.tuples(st.just("reply"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("started"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("stopped"), st.integers(0, 4), st.none()),
    st.tuples(st.just("protected"), st.none(), st.booleans()),
    st.tuples(st.just("question"), st.none(), st.none()),
    st.tuples(st.just("heard"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("maybe"), st.none(), st.none()),
    st.tuples(st.just("voice"), st.none(), st.none()),
    st.tuples(st.just("pause"), st.none(), st.none()),
    st.tuples(st.just("silence"), st.none(), st.none()),
    st.tuples(st.just("partial"), WORDS, st.floats(0, 1)),
    st.tuples(st.just("final"), WORDS, st.floats(0, 1)),
    st.tuples(st.just("spotting"), st.none(), st.none()),
    st.tuples(st.just("spotted"), WORDS, st.none() | st.integers(0, 5)),
    st.tuples(st.just("turn"), st.none(), st.none()),
    st.tuples(st.just("own"), st.none(), st.booleans()),
    st.tuples(st.just("level"), st.none(), st.floats(-40, 20)),
    st.tuples(st.just("path"), st.none(), st.none()),
    st.tuples(st.just("saying"), st.integers(0, 4), WORDS),
)


def take(machine: BargeIn, at_ms: int, step: tuple) -> object:
    name, what, how = step
    calls = {
        "reply": lambda: machine.on_reply(at_ms, f"r{what}", protected=bool(how)),
        "started": lambda: machine.on_bot_started(at_ms, f"r{what}", protected=bool(how)),
        "stopped": lambda: machine.on_bot_stopped(at_ms, f"r{what}"),
        "protected": lambda: machine.on_protected(at_ms, bool(how)),
        "question": lambda: machine.on_question(at_ms),
        "heard": lambda: machine.on_heard(f"r{what}", 3, is_rest_heard=bool(how)),
        "maybe": lambda: machine.on_maybe_voice(at_ms),
        "voice": lambda: machine.on_voice_started(at_ms, voiced_ms=128),
        "pause": lambda: machine.on_maybe_quiet(at_ms),
        "silence": lambda: machine.on_voice_stopped(at_ms, silence_ms=160),
        "partial": lambda: machine.on_partial(at_ms, what, confidences=(how,)),
        "final": lambda: machine.on_final(at_ms, what, confidences=(how,)),
        "spotting": lambda: machine.on_spotting(),
        "spotted": lambda: machine.on_spotted(at_ms, what, voice=how),
        "turn": lambda: machine.on_turn_ended(),
        "own": lambda: machine.on_self_voice(at_ms, own=bool(how)),
        "level": lambda: machine.on_level(at_ms, how),
        "path": lambda: machine.on_echo_path_changed(at_ms),
        "saying": lambda: machine.on_saying(f"r{what}", how),
    }
    return calls[name]()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1_500), STEPS), max_size=60), st.integers(0, 3_000))
def test_in_whatever_order_events_come_no_rule_is_broken_and_rest_is_found(steps: list, warm_up_ms: int):
    machine = BargeIn(BargeInTuning(warm_up_ms=warm_up_ms))
    decisions: list = []
    at_ms = now_ms = 0

    def keep_deadlines(until_ms: int) -> None:
        nonlocal now_ms
        for _ in range(1_000):
            due_ms = machine.next_deadline_ms()
            assert (due_ms is None) == (machine.state is BargeInState.LISTENING)
            if due_ms is None or due_ms > until_ms:
                return
            # A deadline may lie in the past when it is set: then it is due now.
            now_ms = max(due_ms, now_ms)
            decision = machine.on_deadline(now_ms)
            if decision is not None:
                decisions.append(decision)
        raise AssertionError("deadlines without end")

    for wait_ms, step in steps:
        keep_deadlines(at_ms + wait_ms)
        at_ms = now_ms = at_ms + wait_ms
        decision = take(machine, at_ms, step)
        if decision is not None:
            decisions.append(decision)
        assert machine.is_ducked == (machine.state in (BargeInState.ARMED, BargeInState.WEIGHED))
    check_invariants(decisions)
    keep_deadlines(at_ms + 10_000_000)
    check_invariants(decisions)
    assert machine.state is BargeInState.LISTENING


@pytest.mark.parametrize("final_ms", [5_600, 5_680], ids=["words before", "words behind"])
@pytest.mark.parametrize(("words", "spotted"), [("what", "what"), ("why", "what"), ("no", "no")])
def test_what_two_engines_hear_alike_was_said_however_unsure_each_is(words: str, spotted: str, final_ms: int):
    floor = short_voice(words, 0.3, spotted, final_ms=final_ms, odds=-2.0)
    floor.run(20_000)
    assert len(floor.cuts) == (final_ms < 5_640)


@pytest.mark.parametrize(("words", "cuts"), [("but", 1), ("the", 1), ("right okay", 0)])
def test_what_any_vowel_is_written_as_is_no_sure_sign_of_a_listener(words: str, cuts: int):
    floor = short_voice(words, 0.95, "what", odds=2.0)
    floor.run(20_000)
    assert len(floor.cuts) == cuts


def test_words_from_far_away_wait_for_nothing():
    floor = speaking()
    floor.voice(5_000, 400)
    floor.at(5_400, lambda now: floor.machine.on_level(now, -20.0))
    floor.at(5_561, lambda _now: floor.machine.on_spotting())
    floor.at(5_600, lambda now: floor.machine.on_final(now, "about fees", confidences=(0.7, 0.7)))
    floor.run(20_000)
    assert floor.decisions[-1].at_ms == 5_560 and floor.cuts == []


def test_who_begins_softly_and_speaks_up_cuts_from_there_on():
    floor = speaking()
    floor.voice(5_000, 4_000)
    floor.at(5_200, lambda now: floor.machine.on_level(now, -20.0))
    floor.at(7_000, lambda now: floor.machine.on_level(now, -4.0))
    floor.run(20_000)
    assert [type(decision) for decision in floor.decisions][:4] == [Duck, Restore, Duck, Cut]
    [cut] = floor.cuts
    chosen = floor.machine.settings
    assert cut.at_ms == 7_000 + chosen.confirm_ms + chosen.end_lag_ms


@pytest.mark.parametrize(("first_db", "second_db", "cuts"), [(0.0, -25.0, 1), (-25.0, 0.0, 0)])
def test_final_words_are_judged_by_the_level_of_their_own_voice(first_db: float, second_db: float, cuts: int):
    # A television goes on where the caller has ended, and the reverse.
    floor = speaking()
    floor.voice(5_000, 500)
    floor.at(5_300, lambda now: floor.machine.on_level(now, first_db))
    floor.voice(5_700, 300)
    floor.at(5_860, lambda now: floor.machine.on_level(now, second_db))
    floor.at(5_870, lambda now: floor.machine.on_final(now, "tell me the fee", confidences=(0.9,) * 4))
    floor.run(5_900)
    assert len(floor.cuts) == cuts


@pytest.mark.parametrize(("spotted", "cuts"), [("no", 0), ("how much", 0), ("", 0), ("stop", 1)])
def test_of_a_voice_from_far_away_only_a_stop_word_is_spotted(spotted: str, cuts: int):
    floor = speaking()
    floor.voice(5_000, 400)
    floor.at(5_300, lambda now: floor.machine.on_level(now, -20.0))
    floor.at(5_561, lambda _now: floor.machine.on_spotting())
    floor.at(5_640, lambda now: floor.machine.on_spotted(now, spotted, floor_log_odds=3.0))
    floor.run(20_000)
    assert len(floor.cuts) == cuts
