"""Silences in whole calls, on virtual time: prompts to silent callers, and the end of the call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pipecat.frames.frames import LLMMessagesAppendFrame

from parley.session_store.events import Kind
from parley.turn_taking.idle import IdleTuning
from tests.fakes.scripted_llm import TOOL, ScriptedRow
from tests.fakes.tools import FakeTool
from tests.sim.call import OFF, RATE_HZ, RunningCall, SimulatedCall, silence, simulate, voice

CHOSEN = IdleTuning()
# A person is at the other end: a file gets no prompts.
PERSON: dict[str, Any] = {"transport": "webrtc", "tail_ms": 120_000, "speculation": OFF}
QUESTION = [silence(500), voice(1_000)]
# The sentences of the fake voice follow each other at once, and two of the bot's turns do not.
GAP_MS = 300
TOLERANCE_MS = 120


def said(call: SimulatedCall) -> list[tuple[str, bool]]:
    """Return the bot's texts, and whether each was cut."""
    turns = [event.payload for event in call.events if event.kind is Kind.BOT_TURN]
    return [(turn["text"], turn["truncated"]) for turn in turns]


def texts(call: SimulatedCall) -> list[str]:
    return [text for text, _ in said(call)]


def length_ms(call: SimulatedCall) -> int:
    return len(call.stereo) * 1000 // RATE_HZ


def silences_ms(call: SimulatedCall) -> list[int]:
    spans = call.bot_spans_ms(gap_ms=GAP_MS)
    return [later - earlier for (_, earlier), (later, _) in zip(spans, spans[1:], strict=False)]


def test_a_caller_who_says_nothing_is_asked_three_times_and_let_go(tmp_path: Path):
    call = simulate([silence(120_000)], tmp_path, greeting="Hello.", **PERSON)
    assert said(call) == [(text, False) for text in ("Hello.", *CHOSEN.prompts, CHOSEN.goodbye)]
    assert silences_ms(call) == pytest.approx([7_000, 10_500, 15_750, 20_000], abs=TOLERANCE_MS)
    # The goodbye is heard to its end, and then there is time to speak.
    heard_ms = call.bot_spans_ms(gap_ms=GAP_MS)[-1][1]
    assert length_ms(call) - heard_ms == pytest.approx(CHOSEN.hang_up_ms, abs=2 * TOLERANCE_MS)
    assert call.model.asked == []


def test_without_prompts_only_the_long_silence_ends_the_call(tmp_path: Path):
    call = simulate(
        [silence(60_000)],
        tmp_path,
        bot={"idle": None, "idle_timeout_ms": 30_000},
        greeting="Hello.",
        **PERSON,
    )
    assert texts(call) == ["Hello."]
    assert length_ms(call) - call.bot_spans_ms()[-1][1] == pytest.approx(30_000, abs=TOLERANCE_MS)


def test_a_file_is_not_asked_whether_it_is_there(tmp_path: Path):
    call = simulate([silence(60_000)], tmp_path, greeting="Hello.")
    assert texts(call) == ["Hello."]


def test_a_caller_who_answers_a_prompt_is_answered_and_the_count_begins_anew(tmp_path: Path):
    caller = [*QUESTION, silence(22_000), voice(1_000), silence(9_500)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",), ("It is two.",)], **PERSON | {"tail_ms": 500})
    first, second, _ = CHOSEN.prompts
    assert texts(call) == ["It is ten.", first, second, "It is two.", first]
    # The model has the prompt that "yes" would answer in its context.
    answers = [each.text for each in call.model.asked[-1] if each.role == "assistant"]
    received = " ".join(" ".join(answers).split())
    assert received.endswith(f"{first} {second}")


def test_a_caller_who_asks_for_a_moment_gets_it(tmp_path: Path):
    caller = [silence(500), voice(600), silence(60_000)]
    call = simulate(
        caller, tmp_path, words=("one", "moment", "please"), scripts=[("Sure.",)], **PERSON | {"tail_ms": 500}
    )
    assert texts(call)[:2] == ["Sure.", CHOSEN.prompts[0]]
    assert silences_ms(call)[0] == pytest.approx(CHOSEN.patience_ms, abs=TOLERANCE_MS)


def test_no_one_is_asked_while_a_tool_runs(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters={"type": "object", "properties": {}}, takes_s=40)
    row = ScriptedRow((TOOL,), ("It is sunny.",))
    call = simulate(
        [*QUESTION, silence(55_000)], tmp_path, row=row, tools=[tool], **PERSON | {"tail_ms": 500}
    )
    assert texts(call)[0] == "It is sunny."
    # The announcements of the wait have other words, which are not part of the conversation.
    [(answered_ms, _)] = [span for span in call.bot_spans_ms(gap_ms=GAP_MS) if span[0] > 40_000][:1]
    assert 41_000 < answered_ms < 43_500
    assert set(texts(call)[1:]) <= set(CHOSEN.prompts)


@pytest.mark.parametrize("at_ms", [6_500, 6_800, 6_900, 6_940])
def test_no_prompt_comes_into_a_voice_that_has_just_begun(tmp_path: Path, at_ms: int):
    caller = [silence(at_ms), voice(1_000), silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], **PERSON | {"tail_ms": 500})
    assert texts(call) == ["It is ten."]
    assert call.bot_spans_ms()[0][0] > at_ms + 1_000


def test_a_voice_into_a_prompt_takes_the_floor(tmp_path: Path):
    caller = [silence(7_400), voice(1_500), silence(3_000)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], **PERSON | {"tail_ms": 500})
    (prompt, cut), (answer, whole) = said(call)
    assert CHOSEN.prompts[0].startswith(prompt) and answer == "It is ten."
    assert not whole and (cut or prompt == CHOSEN.prompts[0])


def test_a_caller_who_coughs_now_and_then_is_asked_all_the_same(tmp_path: Path):
    caller = [silence(2_000)] + [voice(160), silence(2_840)] * 30
    call = simulate(caller, tmp_path, words=(), **PERSON)
    assert texts(call) == [*CHOSEN.prompts, CHOSEN.goodbye]


def test_a_caller_who_writes_is_not_idle(tmp_path: Path):
    async def write(running: RunningCall) -> None:
        await asyncio.sleep(6)
        message = {"role": "user", "content": "when do you open"}
        await running.call.live.input.queue(LLMMessagesAppendFrame([message], run_llm=True))  # type: ignore[arg-type]

    call = simulate(
        [silence(60_000)], tmp_path, concurrently=write, scripts=[("At ten.",)], **PERSON | {"tail_ms": 500}
    )
    assert texts(call)[:2] == ["At ten.", CHOSEN.prompts[0]]
    # A person who reads and writes takes longer than one who listens and speaks.
    assert silences_ms(call)[0] == pytest.approx(CHOSEN.patience_ms, abs=TOLERANCE_MS)
    [turn] = [event.payload for event in call.events if event.kind is Kind.USER_TURN]
    assert turn["typed"] is True


def test_a_call_in_which_the_caller_said_goodbye_ends_after_the_answer(tmp_path: Path):
    caller = [silence(500), voice(600), silence(60_000)]
    call = simulate(caller, tmp_path, words=("thank", "you", "bye"), scripts=[("Goodbye!",)], **PERSON)
    assert said(call) == [("Goodbye!", False)]
    heard_ms = call.bot_spans_ms()[-1][1]
    assert length_ms(call) - heard_ms == pytest.approx(CHOSEN.hang_up_ms, abs=2 * TOLERANCE_MS)


def test_a_caller_who_speaks_after_the_goodbye_stays(tmp_path: Path):
    caller = [silence(500), voice(600), silence(1_800), voice(1_000), silence(6_000)]
    words = ("thank", "you", "bye", "what", "is")
    call = simulate(
        caller, tmp_path, words=words, scripts=[("Goodbye!",), ("It is ten.",)], **PERSON | {"tail_ms": 500}
    )
    assert texts(call) == ["Goodbye!", "It is ten."]
    # The second turn ends with other words, so only the caller's silence ends the call.
    assert length_ms(call) >= 500 + 600 + 1_800 + 1_000 + 6_000


def test_a_sound_after_the_goodbye_puts_the_end_off_and_not_away(tmp_path: Path):
    caller = [silence(500), voice(600), silence(3_000), voice(160), silence(60_000)]
    call = simulate(
        caller, tmp_path, words=("thank", "you", "bye"), word_ms=200, scripts=[("Bye!",)], **PERSON
    )
    assert texts(call) == ["Bye!"]
    assert length_ms(call) < 9_000


FAREWELL = "This server is being restarted. Please call again. Goodbye."
LONG_ANSWER = "The museum is open from ten until two, and on other days it is closed to all. " * 3


def closing_at(seconds: float):
    async def close(running: RunningCall) -> None:
        await asyncio.sleep(seconds)
        running.engines.shutdown.closing.set()

    return close


@pytest.mark.parametrize("omni", [None, ()], ids=["cascade", "duplex"])
@pytest.mark.parametrize("transport", ["webrtc", "file"])
def test_a_call_of_a_server_that_stops_ends_after_its_goodbye(tmp_path: Path, omni, transport):
    more = PERSON | {"transport": transport}
    call = simulate(
        [silence(60_000)], tmp_path, greeting="Hello.", concurrently=closing_at(4), omni=omni, **more
    )
    assert said(call) == [("Hello.", False), (FAREWELL, False)]
    assert call.bot_spans_ms(gap_ms=GAP_MS)[-1][0] < 5_000
    # At the end of the sentence, not later.
    assert length_ms(call) - call.bot_spans_ms(gap_ms=GAP_MS)[-1][1] < 2_000
    assert call.end[0] == "server_shutdown"


def test_an_answer_is_cut_for_the_goodbye_when_it_takes_too_long(tmp_path: Path):
    caller = [*QUESTION, silence(60_000)]
    call = simulate(caller, tmp_path, scripts=[(LONG_ANSWER,)], concurrently=closing_at(4), **PERSON)
    (_, cut), (farewell, whole) = said(call)
    assert cut and (farewell, whole) == (FAREWELL, False)


def test_nothing_interrupts_the_goodbye_of_a_server_that_stops(tmp_path: Path):
    caller = [silence(4_800), voice(4_000), silence(60_000)]
    call = simulate(caller, tmp_path, greeting="Hello.", concurrently=closing_at(4), **PERSON)
    assert said(call)[:2] == [("Hello.", False), (FAREWELL, False)]
    assert length_ms(call) < 20_000


@pytest.mark.parametrize("omni", [None, ()], ids=["cascade", "duplex"])
def test_a_question_that_is_open_at_the_goodbye_is_kept_and_not_answered(tmp_path: Path, omni):
    caller = [silence(2_500), voice(1_600), silence(60_000)]
    call = simulate(caller, tmp_path, greeting="Hello.", concurrently=closing_at(4), omni=omni, **PERSON)
    assert said(call) == [("Hello.", False), (FAREWELL, False)]
    assert call.bot_spans_ms(gap_ms=GAP_MS)[-1][0] > 4_100
    assert length_ms(call) - call.bot_spans_ms(gap_ms=GAP_MS)[-1][1] < 500
    assert [event.payload["text"] for event in call.events if event.kind is Kind.USER_TURN]


@pytest.mark.parametrize("omni", [None, ()], ids=["cascade", "duplex"])
def test_a_caller_who_speaks_on_does_not_keep_a_server_that_stops_from_its_goodbye(tmp_path: Path, omni):
    caller = [silence(3_000), voice(6_000), silence(60_000)]
    call = simulate(caller, tmp_path, greeting="Hello.", concurrently=closing_at(4), omni=omni, **PERSON)
    assert said(call) == [("Hello.", False), (FAREWELL, False)]
    assert length_ms(call) < 11_000


def test_without_words_a_call_of_a_server_that_stops_ends_at_once(tmp_path: Path):
    more = PERSON | {"bot": {"shutdown_phrase": ""}}
    call = simulate([silence(60_000)], tmp_path, greeting="Hello.", concurrently=closing_at(4), **more)
    assert texts(call) == ["Hello."]
    assert length_ms(call) < 6_000


@pytest.mark.parametrize("late_ms", [1_000, 3_000, 9_000])
def test_a_turn_waits_for_the_words_that_its_recogniser_owes(tmp_path: Path, late_ms: int):
    """A busy recogniser is late: the caller is not asked whether they are there, and is answered once."""
    call = simulate(
        QUESTION,
        tmp_path,
        words_late_ms=late_ms,
        scripts=[["The answer is yes."]],
        **{**PERSON, "tail_ms": 14_000},
    )
    heard = [event.payload["text"] for event in call.events if event.kind is Kind.USER_TURN]
    assert heard == ["what is it what is"]
    assert said(call)[0] == ("The answer is yes.", False)
    assert len(call.model.asked) == 1


def test_a_recogniser_that_never_answers_does_not_hold_the_call_for_ever(tmp_path: Path):
    call = simulate(QUESTION, tmp_path, words_late_ms=600_000, **{**PERSON, "tail_ms": 20_000})
    # Words are owed for ten seconds; after that the caller is prompted like a silent one, up to the end.
    said = texts(call)
    assert CHOSEN.prompts[0] in said and said[-1] == CHOSEN.goodbye
    assert call.model.asked == []
