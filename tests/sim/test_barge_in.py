"""Voices over the bot in whole calls, on virtual time: ducking, cuts, and the speech after them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.models.stt.looks import LOOKS_MS
from parley.session_store.events import Event, Kind
from tests.fakes.scripted_llm import HANG
from tests.sim.call import OFF, RATE_HZ, SimulatedCall, silence, simulate, voice

# Words of the simulated voice, 100 ms each.
NUMBERS = "One two three four five six seven eight nine ten."
LONG = " ".join([NUMBERS] * 6)
ANSWER = (f"{LONG} ",)
QUESTION = [silence(500), voice(1_000), silence(1_500)]
# The answer is playing, and the caller's next sound begins here.
OVER_MS = 3_000
# Too short for words, so a backchannel; long enough for an interruption.
HUM_MS, SHOUT_MS = 400, 900
WORDLESS = 5_000
# Log odds beyond the bounds of every look.
SURE = 50.0


def bot_turns(call: SimulatedCall) -> list[dict[str, Any]]:
    return [dict(event.payload) for event in call.events if event.kind is Kind.BOT_TURN]


def user_texts(call: SimulatedCall) -> list[str]:
    return [event.payload["text"] for event in call.events if event.kind is Kind.USER_TURN]


def tokens(call: SimulatedCall) -> str:
    kept: list[Event] = [event for event in call.events if event.kind is Kind.USER_TURN]
    return " ".join(token["text"] for event in kept for token in event.payload["tokens"])


def level(call: SimulatedCall, from_ms: int, to_ms: int) -> float:
    """Return the peak of the bot's audio."""
    return float(np.abs(call.stereo[from_ms * 16 : to_ms * 16, 1]).max())


# Backchannels and noise.


def test_mhm_during_an_answer_ducks_the_bot_and_is_nobodys_turn(tmp_path: Path):
    caller = [*QUESTION, voice(HUM_MS), silence(6_000), voice(1_000), silence(1_000)]
    words = ("mhm", "mhm", "what", "is", "it")
    call = simulate(caller, tmp_path, scripts=[ANSWER, ("Sure.",)], words=words)
    first, second = call.turns
    assert (first.bot_text, first.interrupted) == (LONG, False)
    assert (second.user_text, second.bot_text) == (" ".join(words), "Sure.")
    assert len(call.model.asked) == 2
    assert user_texts(call) == [" ".join(words)] * 2
    assert tokens(call).count("mhm") == 4
    # One stretch of speech from the answer to its end, quieter during the caller's backchannel and until its
    # words.
    [(start_ms, end_ms), _] = call.bot_spans_ms()
    assert end_ms - start_ms == pytest.approx(6_000, abs=60)
    full = level(call, OVER_MS - 500, OVER_MS)
    assert level(call, OVER_MS + 150, OVER_MS + HUM_MS) == pytest.approx(full * 10 ** (-12 / 20), rel=0.02)
    assert level(call, OVER_MS + HUM_MS + 700, OVER_MS + HUM_MS + 1_200) == pytest.approx(full, rel=0.02)


def test_the_volume_changes_without_a_click(tmp_path: Path):
    call = simulate([*QUESTION, voice(HUM_MS), silence(4_000)], tmp_path, scripts=[ANSWER], words=("mhm",))
    bot = call.stereo[(OVER_MS - 500) * 16 : (OVER_MS + 1_500) * 16, 1]
    # The largest step of a sine of 440 Hz at the amplitude of the voice between two samples.
    steepest = 0.5 * 2 * np.pi * 440 / RATE_HZ
    assert np.abs(np.diff(bot)).max() <= steepest * 1.05


def test_a_voice_that_sounds_like_an_interruption_cuts_at_the_first_look(tmp_path: Path):
    caller = [*QUESTION, voice(1_400), silence(2_000)]
    call = simulate(
        caller, tmp_path, scripts=[ANSWER, ("Sure.",)], barge_in={"looks": True}, looks=[SURE] * len(LOOKS_MS)
    )
    _, end_ms = call.bot_spans_ms()[0]
    assert LOOKS_MS[0] <= end_ms - OVER_MS <= LOOKS_MS[0] + 120
    first, second = call.turns
    assert first.interrupted
    # Words from before the cut are in the turn.
    assert second.user_text == "what is it what is it what"
    assert second.bot_text == "Sure."


def test_a_voice_that_sounds_like_a_listener_brings_the_volume_back_without_a_seam(tmp_path: Path):
    caller = [*QUESTION, voice(600), silence(4_000)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[ANSWER],
        words=("mhm",) * 3,
        barge_in={"looks": True},
        looks=[-SURE] * len(LOOKS_MS),
    )
    assert [(turn.bot_text, turn.interrupted) for turn in call.turns] == [(LONG, False)]
    full = level(call, OVER_MS - 500, OVER_MS)
    # During the caller's backchannel.
    back_ms = OVER_MS + LOOKS_MS[0] + 150
    assert level(call, back_ms, OVER_MS + 600) == pytest.approx(full, rel=0.02)
    bot = call.stereo[(OVER_MS - 500) * 16 : (OVER_MS + 1_500) * 16, 1]
    steepest = 0.5 * 2 * np.pi * 440 / RATE_HZ
    assert np.abs(np.diff(bot)).max() <= steepest * 1.05


def test_looks_that_are_never_sure_leave_everything_to_words_and_length(tmp_path: Path):
    caller = [*QUESTION, voice(1_400), silence(2_000)]
    call = simulate(
        caller, tmp_path, scripts=[ANSWER, ("Sure.",)], barge_in={"looks": True}, looks=[0.0] * len(LOOKS_MS)
    )
    _, end_ms = call.bot_spans_ms()[0]
    assert 790 <= end_ms - OVER_MS <= 900


def test_without_a_duck_the_answer_stays_as_loud(tmp_path: Path):
    caller = [*QUESTION, voice(HUM_MS), silence(4_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER], words=("mhm",), barge_in={"duck_db": 0})
    assert level(call, OVER_MS + 150, OVER_MS + HUM_MS) == pytest.approx(level(call, 2_000, 3_000), rel=0.02)


@pytest.mark.parametrize("word", ["okay", "yeah", "uh-huh"])
def test_a_caller_who_agrees_is_not_answered(tmp_path: Path, word: str):
    call = simulate([*QUESTION, voice(300), silence(5_000)], tmp_path, scripts=[ANSWER], words=(word,) * 5)
    assert [turn.bot_text for turn in call.turns] == [LONG]
    assert len(call.model.asked) == 1


def test_yeah_to_a_question_of_the_bot_is_a_turn(tmp_path: Path):
    caller = [*QUESTION, silence(500), voice(300), silence(4_000)]
    scripts = [("Shall I tell you all of it now? ", LONG), ("Sure.",)]
    call = simulate(caller, tmp_path, scripts=scripts, words=("yeah", "what", "is"))
    assert user_texts(call)[-1] == "yeah"
    assert call.turns[-1].bot_text == "Sure."


def test_a_caller_who_only_coughs_costs_the_answer_nothing(tmp_path: Path):
    caller = [*QUESTION, *[voice(160), silence(600)] * 7, silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER])
    assert [(turn.bot_text, turn.interrupted) for turn in call.turns] == [(LONG, False)]
    assert len(call.model.asked) == 1


@pytest.mark.parametrize(("words", "into_ms"), [(13, 10), (15, 210), (17, 410)])
def test_a_hum_that_goes_on_when_the_answer_is_over_is_not_answered(tmp_path: Path, words: int, into_ms: int):
    caller = [*QUESTION, voice(HUM_MS), silence(4_000)]
    # The answer ends that long after the backchannel has begun.
    script = (" ".join(["ten"] * words),)
    call = simulate(caller, tmp_path, scripts=[script], words=("mhm",) * 5, speculation=OFF)
    [(_, end_ms)] = call.bot_spans_ms()
    assert end_ms == OVER_MS + into_ms
    assert len(call.model.asked) == 1
    assert user_texts(call) == ["mhm mhm mhm mhm mhm"]


def test_a_cough_while_the_answer_is_on_its_way_costs_nothing(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(600), voice(160), silence(4_000)]
    call = simulate(caller, tmp_path, scripts=[(1.5, "The answer is yes.")])
    assert len(call.model.asked) == 1
    assert call.turns[-1].bot_text == "The answer is yes."


# Interruptions.


def test_a_voice_that_lasts_cuts_the_answer_and_its_first_words_are_in_the_turn(tmp_path: Path):
    caller = [*QUESTION, voice(1_400), silence(2_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER, ("Sure.",)])
    first, second = call.turns
    assert first.interrupted
    # 700 ms of voice, and the 96 ms in which its end would have been detected.
    _, end_ms = call.bot_spans_ms()[0]
    assert 790 <= end_ms - OVER_MS <= 900
    # Seven words in 1.4 s, those from before the cut included.
    assert second.user_text == "what is it what is it what"
    assert second.bot_text == "Sure."
    # Answered as quickly as any other turn.
    (start_ms, _) = call.bot_spans_ms()[1]
    assert start_ms - (OVER_MS + 1_400) <= 400
    [cut, _] = bot_turns(call)
    assert cut["truncated"] and f"{cut['text']} {cut['unheard']}" == LONG


@pytest.mark.parametrize("word", ["stop", "wait"])
def test_a_stop_word_cuts_as_soon_as_it_is_understood(tmp_path: Path, word: str):
    caller = [*QUESTION, voice(250), silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER, (1.0, "Sure.")], words=(word,) * 5)
    assert call.turns[0].interrupted
    # Voice activity is sure of the end after 128 ms, in windows of 32 ms.
    assert call.bot_spans_ms(gap_ms=50)[0][1] - (OVER_MS + 250) <= 218
    assert call.turns[1].user_text == word


def test_a_stop_word_that_the_recogniser_mistakes_cuts_when_it_is_spotted(tmp_path: Path):
    caller = [*QUESTION, voice(250), silence(3_000)]

    def bot_end_ms(folder: str, commands: Sequence[str]) -> tuple[bool, int]:
        (tmp_path / folder).mkdir()
        scripts = [ANSWER, (1.0, "Sure.")]
        call = simulate(caller, tmp_path / folder, scripts=scripts, words=("the",) * 5, commands=commands)
        return call.turns[0].interrupted, call.bot_spans_ms(gap_ms=50)[0][1]

    interrupted, end_ms = bot_end_ms("spotted", ("stop",))
    assert interrupted and end_ms - (OVER_MS + 250) <= 250
    assert not bot_end_ms("deaf", ())[0]


@pytest.mark.parametrize("late_ms", [0, 100, 300], ids="spotted {} ms behind the voice".format)
@pytest.mark.parametrize("written", ["the", "shut"])
def test_who_only_says_stop_is_not_asked_what_was_said(tmp_path: Path, written: str, late_ms: int):
    caller = [*QUESTION, voice(250), silence(8_000)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        words=(written,) * 5,
        confidence=0.3,
        commands=("stop",),
        commands_late_ms=late_ms,
        speculation=OFF,
    )
    assert call.turns[0].interrupted
    assert [turn.bot_text for turn in call.turns[1:]] == ["All right."]
    # The recogniser's text belongs to neither this turn nor the next.
    assert user_texts(call)[1:] == ["stop"]
    [*_, stopped] = [event for event in call.events if event.kind is Kind.USER_TURN]
    assert "tokens" not in stopped.payload


def test_a_command_of_which_the_recogniser_understood_nothing_is_a_turn(tmp_path: Path):
    caller = [*QUESTION, voice(250), silence(8_000)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        word_ms=1_000,
        words=("what",),
        commands=("stop",),
        commands_word_ms=200,
        commands_late_ms=100,
        speculation=OFF,
    )
    assert user_texts(call) == ["what", "stop"]
    assert call.turns[-1].bot_text == "All right."


def test_who_is_well_understood_keeps_the_words_whatever_was_spotted(tmp_path: Path):
    caller = [*QUESTION, voice(600), silence(5_000)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[ANSWER, ("Sure.",)],
        words=("what", "is", "it"),
        commands=("one", "second"),
        commands_word_ms=300,
        speculation=OFF,
    )
    assert user_texts(call)[-1] == "what is it"


def weighed(caller: Sequence[np.ndarray], tmp_path: Path, **how: Any) -> SimulatedCall:
    """Run a call in which the recogniser is not sure of a short voice: "about fees" until changed."""
    unsure = {"words": ("about", "fees"), "word_ms": 125, "confidence": 0.5, "speculation": OFF}
    return simulate(caller, tmp_path, **{**unsure, **how})


@pytest.mark.parametrize(
    ("spotted", "words", "turn"),
    [
        pytest.param("what", ("about", "fees"), "about fees", id="a word: the recogniser decides"),
        pytest.param("stop", ("shut", "it"), "stop", id="a command: not what the recogniser wrote"),
        pytest.param("", ("about", "fees"), None, id="nothing: a guess at a hum"),
    ],
)
def test_words_that_wait_when_the_answer_ends_under_them_are_not_forgotten(
    tmp_path: Path, spotted: str, words: Sequence[str], turn: str | None
):
    # 250 ms of voice, detected 128 ms after its end; its words wait for the spotter 300 ms longer. The answer
    # ends meanwhile, 610 ms after the voice's beginning.
    call = weighed(
        [*QUESTION, voice(250), silence(8_000)],
        tmp_path,
        scripts=[(" ".join(["ten"] * 19),), ("All right.",)],
        words=words,
        commands=(spotted,),
        commands_word_ms=200,
        commands_late_ms=300,
        ask_back=None,
    )
    assert call.bot_spans_ms(gap_ms=50)[0][1] == OVER_MS + 610
    assert not call.turns[0].interrupted
    assert user_texts(call)[1:] == ([turn] if turn is not None else [])
    assert [each.bot_text for each in call.turns[1:]] == (["All right."] if turn is not None else [])


@pytest.mark.parametrize("spotted", ["what", ""])
def test_words_that_wait_over_a_greeting_that_may_not_be_interrupted_are_answered_after_it(
    tmp_path: Path, spotted: str
):
    call = weighed(
        [silence(1_500), voice(250), silence(8_000)],
        tmp_path,
        greeting=LONG,
        talks_over=True,
        bot={"greeting_interruptible": False},
        scripts=[("All right.",)],
        commands=(spotted,),
        commands_late_ms=100,
    )
    spoken = [turn["text"] for turn in bot_turns(call)]
    assert spoken == ([LONG, "All right."] if spotted else [LONG])
    assert user_texts(call) == (["about fees"] if spotted else [])


@pytest.mark.parametrize("late_ms", [0, 100, 300], ids="judged {} ms behind the voice".format)
@pytest.mark.parametrize("words", [("about", "fees"), ("oh", "really")])
def test_a_short_voice_that_wants_the_floor_is_answered_with_what_was_written_of_it(
    tmp_path: Path, words: tuple[str, str], late_ms: int
):
    def turns(folder: str, floor: float) -> list[str]:
        (tmp_path / folder).mkdir()
        call = weighed(
            [*QUESTION, voice(250), silence(8_000)],
            tmp_path / folder,
            scripts=[ANSWER, ("All right.",)],
            words=words,
            commands=("",),
            commands_late_ms=late_ms,
            commands_floor=floor,
            ask_back=None,
        )
        assert call.turns[0].interrupted == (floor > 0)
        return user_texts(call)[1:]

    assert turns("wants", 1.0) == [" ".join(words)]
    assert turns("listens", -2.0) == []


def test_words_that_wait_are_not_lost_to_a_sound_after_them(tmp_path: Path):
    call = weighed(
        [*QUESTION, voice(250), silence(350), voice(60), silence(8_000)],
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        commands=("what",),
        commands_late_ms=400,
    )
    assert call.turns[0].interrupted
    assert user_texts(call)[1:] == ["about fees"]


def test_a_command_over_a_protected_reply_does_not_erase_what_was_said_before_it(tmp_path: Path):
    call = simulate(
        [silence(700), voice(2_000), silence(800), voice(250), silence(8_000)],
        tmp_path,
        greeting=LONG,
        talks_over=True,
        bot={"greeting_interruptible": False},
        scripts=[("All right.",)],
        words=("what", "is", "it", "now", "then"),
        commands=("stop",),
        commands_late_ms=50,
        speculation=OFF,
    )
    # Two seconds are too long for a command; a lone "what" may be a wrong guess at one.
    assert call.turns[0].interrupted
    [text] = user_texts(call)
    assert text.startswith("what is it now then") and text.endswith("stop")


def test_a_word_that_the_spotter_lets_pass_is_answered_without_delay(tmp_path: Path):
    call = weighed(
        [*QUESTION, voice(250), silence(8_000)],
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        commands=("what",),
        commands_late_ms=200,
    )
    assert user_texts(call)[1:] == ["about fees"]
    # Noticed after 128 ms, released 200 ms later; the turn has lasted long enough by then.
    answer_ms = call.bot_spans_ms(gap_ms=50)[-1][0]
    assert answer_ms - (OVER_MS + 250) <= 128 + 200 + 300


@pytest.mark.parametrize("late_ms", [0, 265, 700, 1_200])
def test_a_stop_that_both_understand_is_one_turn(tmp_path: Path, late_ms: int):
    call = simulate(
        [*QUESTION, voice(250), silence(9_000)],
        tmp_path,
        scripts=[ANSWER, (f"All right. {NUMBERS}",), ("Never.",)],
        words=("stop",) * 5,
        commands=("stop",),
        commands_late_ms=late_ms,
        speculation=OFF,
    )
    assert [turn.interrupted for turn in call.turns] == [True, False]
    assert call.turns[1].bot_text == f"All right. {NUMBERS}"
    assert len(user_texts(call)) == 2


@pytest.mark.parametrize("answer", [ANSWER, (" ".join(["ten"] * 19),)], ids=["cut", "over meanwhile"])
@pytest.mark.parametrize("hums", [False, True])
def test_a_hum_after_words_that_waited_does_not_drop_them(tmp_path: Path, answer: Any, hums: bool):
    behind = (silence(500), voice(200)) if hums else ()
    call = weighed(
        [*QUESTION, voice(250), *behind, silence(8_000)],
        tmp_path,
        scripts=[answer, ("All right.",)],
        commands=("what",),
        commands_late_ms=250,
        completeness=(0.9, 0.1),
    )
    assert call.turns[-1].bot_text == "All right."
    assert user_texts(call)[1].startswith("about fees")


@pytest.mark.parametrize("late_ms", range(280, 400, 10))
def test_words_that_waited_are_answered_whenever_a_hum_ends_after_them(tmp_path: Path, late_ms: int):
    # The last words of the backchannel come 740 ms after the first voice's beginning, the verdict 400 ms and
    # these.
    call = weighed(
        [*QUESTION, voice(250), silence(200), voice(150), silence(8_000)],
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        commands=("what",),
        commands_word_ms=240,
        commands_late_ms=late_ms,
        completeness=(0.9, 0.1),
    )
    assert call.turns[-1].bot_text == "All right."
    assert user_texts(call)[1].startswith("about fees")


def test_a_command_in_what_the_recogniser_took_for_a_listener_cuts_all_the_same(tmp_path: Path):
    call = simulate(
        [*QUESTION, voice(SHOUT_MS), silence(8_000)],
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        words=("okay", "right"),
        word_ms=450,
        commands=("hold", "on"),
        commands_word_ms=450,
        commands_late_ms=50,
        speculation=OFF,
    )
    assert user_texts(call)[1:] == ["hold on"]
    assert call.turns[-1].bot_text == "All right."


# The words of the second voice begin anew.
SECOND = "about fees what is it now about fees what is"


@pytest.mark.parametrize(
    ("floor_log_odds", "pause_ms", "late_ms", "turn"),
    [
        pytest.param(None, 400, 100, f"about fees {SECOND}", id="the sound is not judged"),
        pytest.param(-0.5, 900, 0, f"about fees {SECOND}", id="nearly a second later"),
        pytest.param(-0.5, 350, 350, f"about fees {SECOND}", id="spotted in the next voice"),
        pytest.param(-2.0, 350, 350, SECOND, id="it sounds like a listener's"),
        pytest.param(-0.5, 1_400, 100, SECOND, id="long before"),
    ],
)
def test_words_too_unsure_to_cut_are_in_the_turn_of_a_voice_that_follows_at_once(
    tmp_path: Path, floor_log_odds: float | None, pause_ms: int, late_ms: int, turn: str
):
    call = weighed(
        [*QUESTION, voice(250), silence(pause_ms), voice(1_200), silence(5_000)],
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        words=("about", "fees", "what", "is", "it", "now"),
        commands=("",),
        commands_late_ms=late_ms,
        commands_floor=floor_log_odds,
        ask_back=None,
    )
    assert user_texts(call)[1:] == [turn]
    # The length of the second voice cuts, as it would alone.
    first, *_ = call.turns
    _, end_ms = call.bot_spans_ms()[0]
    assert first.interrupted and 790 <= end_ms - (OVER_MS + 250 + pause_ms) <= 900
    # Perception has the words of the turn, no more and no less.
    assert tokens(call).split()[-len(turn.split()) :] == turn.split()


def test_a_hum_that_was_heard_as_one_before_the_answer_ended_is_no_turn_after_it(tmp_path: Path):
    # The spotter is quicker than the recogniser: it reports no command, the answer ends, and then the guess
    # comes.
    call = weighed(
        [*QUESTION, voice(250), silence(8_000)],
        tmp_path,
        scripts=[(" ".join(["ten"] * 17),)],
        commands=("",),
    )
    assert len(call.model.asked) == 1
    assert user_texts(call) == ["about fees about fees about fees about fees"]


def test_a_command_that_is_spotted_seconds_late_stops_nothing(tmp_path: Path):
    call = simulate(
        [*QUESTION, voice(250), silence(8_000)],
        tmp_path,
        scripts=[ANSWER],
        words=("the",) * 5,
        confidence=0.2,
        commands=("stop",),
        commands_late_ms=1_600,
    )
    assert [turn.interrupted for turn in call.turns] == [False]


def test_the_answer_after_an_interruption_is_at_full_volume(tmp_path: Path):
    caller = [*QUESTION, voice(1_400), silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER, (NUMBERS,)])
    start_ms, end_ms = call.bot_spans_ms()[1]
    assert level(call, start_ms, start_ms + 100) == pytest.approx(0.5, rel=0.02)
    assert level(call, end_ms - 100, end_ms) == pytest.approx(0.5, rel=0.02)


def test_a_caller_who_never_stops_has_the_floor_and_is_answered_at_the_end(tmp_path: Path):
    caller = [*QUESTION, voice(30_000), silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER, ("Sure.",)])
    assert [turn.interrupted for turn in call.turns] == [True, False]
    spans = call.bot_spans_ms()
    assert len(spans) == 2
    assert spans[0][1] - OVER_MS <= 900
    assert spans[1][0] > OVER_MS + 30_000
    assert len(call.model.asked) == 2


def test_fifty_interruptions_in_a_row_cut_fifty_answers_and_lose_no_turn(tmp_path: Path):
    caller = [*QUESTION, *[voice(1_000), silence(1_500)] * 50, silence(6_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER], tail_ms=7_000)
    assert sum(turn.interrupted for turn in call.turns) == 50
    assert len(call.model.asked) == len(user_texts(call)) == 51
    cut, whole = bot_turns(call)[:-1], bot_turns(call)[-1]
    assert len(cut) == 50
    assert all(f"{each['text']} {each['unheard']}" == LONG for each in cut)
    assert len({each["reply_id"] for each in cut}) == 50
    assert (whole["text"], whole["truncated"]) == (LONG, False)


def test_a_model_that_falls_silent_is_interrupted_and_asked_anew(tmp_path: Path):
    caller = [*QUESTION, silence(1_000), voice(1_000), silence(4_000)]
    call = simulate(caller, tmp_path, scripts=[("One moment, ", HANG), ("Sure.",)])
    assert len(call.model.asked) == 2
    assert call.turns[-1].bot_text == "Sure."
    # The answer has not said a word yet.
    call = simulate(caller, tmp_path, scripts=[(HANG,), ("Sure.",)])
    assert len(call.model.asked) == 2
    assert call.turns[-1].bot_text == "Sure."


def test_a_caller_who_says_nothing_hears_all_of_the_answer_and_nothing_more(tmp_path: Path):
    call = simulate([*QUESTION, silence(20_000)], tmp_path, scripts=[ANSWER])
    assert [(turn.bot_text, turn.interrupted) for turn in call.turns] == [(LONG, False)]
    assert len(call.bot_spans_ms()) == 1


# False interruptions.


def greeted(caller: Sequence[np.ndarray], tmp_path: Path, **how: Any) -> SimulatedCall:
    """Run a call that begins with a long greeting, and a caller who does not wait for its end."""
    return simulate(caller, tmp_path, greeting=LONG, talks_over=True, **how)


def test_after_an_interruption_for_nothing_the_bot_goes_on_with_the_exact_word(tmp_path: Path):
    caller = [silence(2_000), voice(SHOUT_MS), silence(10_000)]
    call = greeted(caller, tmp_path, word_ms=WORDLESS)
    first, rest = bot_turns(call)
    assert first["truncated"] and not rest["truncated"]
    assert 20 <= len(first["text"].split()) <= 30
    assert f"{first['text']} {rest['text']}" == LONG == f"{first['text']} {first['unheard']}"
    [(_, cut_ms), (again_ms, _)] = call.bot_spans_ms()
    assert cut_ms - 2_000 <= 900
    # Two seconds of silence, and no clarifying question.
    assert again_ms - (2_000 + SHOUT_MS) == pytest.approx(2_000, abs=250)
    assert call.model.asked == []
    assert [turn.resumed for turn in call.turns] == [False, True]


def test_the_rest_of_an_answer_of_the_model_is_not_asked_for_again(tmp_path: Path):
    caller = [*QUESTION, voice(SHOUT_MS), silence(10_000)]
    # Words are recognised in the first second of a voice only: the shout has none.
    call = simulate(caller, tmp_path, scripts=[ANSWER], word_ms=1_000, words=("what",))
    first, rest = bot_turns(call)
    assert f"{first['text']} {rest['text']}" == LONG
    assert len(call.model.asked) == 1
    assert user_texts(call) == ["what"]


def test_mhm_that_was_long_enough_to_cut_is_resumed_as_soon_as_it_is_understood(tmp_path: Path):
    caller = [*QUESTION, voice(1_020), silence(10_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER], words=("mhm",) * 5, speculation=OFF)
    first, rest = bot_turns(call)
    assert f"{first['text']} {rest['text']}" == LONG
    [_, (again_ms, _)] = call.bot_spans_ms(gap_ms=50)
    assert again_ms - (OVER_MS + 1_020) <= 300
    assert len(call.model.asked) == 1
    assert user_texts(call) == ["mhm mhm mhm mhm mhm"]


def test_mhm_is_listened_to_for_longer_than_a_voice_without_words(tmp_path: Path):
    caller = [*QUESTION, voice(820), silence(10_000)]
    call = simulate(caller, tmp_path, scripts=[ANSWER], words=("mhm",) * 5, speculation=OFF)
    [answer] = bot_turns(call)
    assert answer["text"] == LONG
    assert user_texts(call) == ["mhm mhm mhm mhm mhm"]


def test_an_answer_that_was_cut_before_a_word_of_it_came_is_asked_for_again(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(600), voice(600), silence(10_000)]
    scripts = [(3.0, "The answer is yes.")]
    call = simulate(caller, tmp_path, scripts=scripts, word_ms=1_000, words=("what",))
    assert len(call.model.asked) == 2
    assert call.model.asked[0] == call.model.asked[1]
    assert bot_turns(call)[-1]["text"] == "The answer is yes."
    assert all("did not catch" not in turn.bot_text for turn in call.turns)


def test_a_rest_that_is_cut_again_goes_on_again(tmp_path: Path):
    caller = [silence(1_500), voice(SHOUT_MS), silence(3_500), voice(1_300), silence(10_000)]
    call = greeted(caller, tmp_path, word_ms=WORDLESS)
    turns = bot_turns(call)
    assert len(turns) == 3
    assert " ".join(turn["text"] for turn in turns) == LONG
    assert [turn["truncated"] for turn in turns] == [True, True, False]


def test_who_speaks_before_the_rest_is_said_is_answered_and_the_rest_is_not_said(tmp_path: Path):
    caller = [silence(2_000), voice(SHOUT_MS), silence(1_000), voice(1_600), silence(4_000)]
    call = simulate(
        caller, tmp_path, greeting=LONG, talks_over=True, word_ms=1_000, words=("what",), scripts=[("Sure.",)]
    )
    assert [turn["text"] for turn in bot_turns(call)][1:] == ["Sure."]
    assert user_texts(call) == ["what"]


# Replies that may not be interrupted.

PROTECTED = {"greeting_interruptible": False}
SLOWLY = (0.5, "Sure.")


def test_a_protected_greeting_is_neither_ducked_nor_cut_and_what_was_said_is_answered(tmp_path: Path):
    caller = [silence(1_000), voice(2_000), silence(8_000)]
    call = greeted(caller, tmp_path, bot=PROTECTED, scripts=[SLOWLY])
    assert bot_turns(call)[0]["text"] == LONG
    [(start_ms, end_ms), (answer_ms, _)] = call.bot_spans_ms()
    assert end_ms - start_ms == pytest.approx(6_000, abs=60)
    assert level(call, 1_500, 3_000) == pytest.approx(0.5, rel=0.02)
    assert answer_ms - end_ms <= 600
    assert user_texts(call) == ["what is it what is it what is it what"]


def test_a_stop_word_ends_a_protected_greeting(tmp_path: Path):
    caller = [silence(1_000), voice(250), silence(4_000)]
    call = greeted(caller, tmp_path, bot=PROTECTED, words=("stop",), scripts=[SLOWLY])
    greeting = bot_turns(call)[0]
    assert greeting["truncated"] and len(greeting["text"].split()) < 20
    assert call.bot_spans_ms(gap_ms=50)[0][1] - 1_250 <= 250


def test_protection_can_be_absolute(tmp_path: Path):
    caller = [silence(1_000), voice(250), silence(8_000)]
    settings = {"protected_yields_to_stop": False}
    call = simulate(
        caller, tmp_path, greeting=LONG, talks_over=True, bot=PROTECTED, words=("stop",), barge_in=settings
    )
    assert (bot_turns(call)[0]["text"], bot_turns(call)[0]["truncated"]) == (LONG, False)
