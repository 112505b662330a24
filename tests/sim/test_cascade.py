"""Whole cascade calls on virtual time."""

import subprocess
import sys
from pathlib import Path

from tests.sim.call import silence, simulate, voice

ROOT = Path(__file__).parents[2]
# Measured 1,776,417, the same in each run.
MOST_CALLS_A_MINUTE = 2_000_000


def test_a_question_is_answered_after_the_shortest_wait(tmp_path: Path):
    call = simulate([silence(500), voice(1_200), silence(1_000)], tmp_path)
    assert [turn.user_text for turn in call.turns] == ["what is it what is it"]
    assert call.turns[0].bot_text == "The answer is yes. That is all."
    (start_ms, _) = call.bot_spans_ms()[0]
    assert 150 <= start_ms - 1_700 <= 400


def test_a_turn_that_sounds_incomplete_is_waited_for(tmp_path: Path):
    call = simulate([silence(500), voice(1_200), silence(1_000)], tmp_path, completeness=[0.0])
    (start_ms, _) = call.bot_spans_ms()[0]
    assert 600 <= start_ms - 1_700 <= 850


def test_the_deployment_chooses_the_policy_that_ends_a_turn(tmp_path: Path):
    # Complete by its sound: only the silence timer waits that long.
    caller = [silence(500), voice(1_200), silence(3_000)]
    call = simulate(caller, tmp_path, endpoint={"kind": "timer", "timer_ms": 1_500})
    (start_ms, _) = call.bot_spans_ms()[0]
    assert 1_500 <= start_ms - 1_700 <= 1_750
    predictive = simulate(caller, tmp_path, endpoint={"kind": "predictive"})
    assert len(predictive.turns) == 1
    (start_ms, _) = predictive.bot_spans_ms()[0]
    assert 150 <= start_ms - 1_700 < 1_500


def test_a_pause_in_an_unfinished_sentence_is_not_cut_into(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(500), voice(1_000), silence(1_000)]
    call = simulate(caller, tmp_path, completeness=[0.0, 0.0, 0.95])
    assert len(call.turns) == 1
    assert call.bot_spans_ms()[0][0] > 3_000


def test_the_greeting_is_heard_first_and_stands_in_the_record(tmp_path: Path):
    call = simulate([silence(3_000)], tmp_path, greeting="Hello there.")
    assert [(turn.turn, turn.bot_text) for turn in call.turns] == [(0, "Hello there.")]


def test_left_to_pipecat_any_voice_silences_the_bot_and_only_heard_words_are_remembered(tmp_path: Path):
    long_answer = ("One two three four five six seven eight nine ten. " * 4,)
    caller = [silence(500), voice(1_000), silence(1_500), voice(1_000), silence(1_000)]
    call = simulate(caller, tmp_path, scripts=[long_answer, ("Sure.",)], barge_in=None)
    first, second = call.turns
    assert first.interrupted
    spoken = first.bot_text.split()
    assert 5 < len(spoken) < 20
    assert second.bot_text == "Sure."
    # The voice that interrupts begins at 3.0 s and is confirmed by voice activity; the bot is silent soon
    # after.
    _, end_ms = call.bot_spans_ms()[0]
    assert end_ms - 3_000 <= 300
    # A word lasts 100 ms: the record holds the heard words exactly.
    heard_ms = end_ms - call.bot_spans_ms()[0][0]
    assert abs(len(spoken) - heard_ms / 100) <= 1
    remembered = [message.text for message in call.model.asked[1] if message.role == "assistant"]
    heard, remark = remembered[0].split(" [interrupted by the person here, who did not hear: ")
    assert (len(remembered), heard) == (1, first.bot_text)
    assert remark == f'"{" ".join(long_answer[0].split()[len(spoken) :])}"]'


LONG_ANSWER = ("One two three four five six seven eight nine ten. " * 4,)
COUGH_MS = 160


def test_left_to_pipecat_a_cough_over_the_answer_is_asked_about_and_the_model_is_not(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(1_500), voice(COUGH_MS), silence(5_000)]
    call = simulate(caller, tmp_path, scripts=[LONG_ANSWER], barge_in=None)
    assert len(call.model.asked) == 1
    assert call.turns[0].interrupted
    assert call.turns[-1].bot_text == "Sorry, I did not catch that."


def test_left_to_pipecat_it_is_asked_only_once_in_a_noisy_room(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(1_500), voice(COUGH_MS), silence(2_100)]
    caller += [voice(COUGH_MS), silence(2_500)] * 3
    call = simulate(caller, tmp_path, scripts=[LONG_ANSWER], barge_in=None)
    assert len(call.model.asked) == 1
    assert sum("did not catch" in turn.bot_text for turn in call.turns) <= 1


def test_a_cough_into_the_silence_is_nothing(tmp_path: Path):
    call = simulate([silence(1_000), voice(COUGH_MS), silence(4_000)], tmp_path)
    assert call.turns == ()
    assert call.bot_spans_ms() == []


def test_the_dialogue_reaches_the_model_in_order(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(4_000), voice(1_000), silence(1_000)]
    call = simulate(caller, tmp_path)
    roles = [message.role for message in call.model.asked[1]]
    assert roles == ["system", "user", "assistant", "user"]


def test_a_caller_who_says_nothing_gets_no_answer_and_the_call_ends(tmp_path: Path):
    call = simulate([silence(20_000)], tmp_path)
    assert call.turns == ()
    assert call.model.asked == []


def test_a_minute_of_talk_calls_few_functions():
    run = subprocess.run(
        [sys.executable, "-m", "tests.sim.minute"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    calls, _seconds = run.stdout.split()
    # With a task for each piece at each step it took more than twice the time
    # (docs/explanation/architecture.md).
    assert int(calls) < MOST_CALLS_A_MINUTE


def test_a_call_in_which_no_one_makes_a_sound_ends_by_itself(tmp_path: Path):
    call = simulate([silence(400_000)], tmp_path, frame_ms=100)
    assert 300_000 <= len(call.stereo) * 1000 // 16_000 <= 301_000


def test_the_idle_end_can_be_set(tmp_path: Path):
    call = simulate([silence(40_000)], tmp_path, bot={"idle_timeout_ms": 20_000})
    assert 20_000 <= len(call.stereo) * 1000 // 16_000 <= 21_000


def test_the_same_call_runs_the_same_way_twice(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(1_500), voice(1_000), silence(1_000)]
    first, second = (simulate(caller, tmp_path) for _ in range(2))
    assert (first.stereo == second.stereo).all()
    assert [turn.marks_us for turn in first.turns] == [turn.marks_us for turn in second.turns]
