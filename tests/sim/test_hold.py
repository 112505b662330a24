"""A caller who puts the call on hold, on virtual time: nothing is said or asked until they go on."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from parley.core.call_events import HoldRequested
from parley.core.tiers import TierEvent
from parley.session_store.events import Kind
from parley.turn_taking.hold import HOLD_MOST_S
from parley.turn_taking.idle import IdleTuning
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.fakes.scripted_llm import TOOL, ScriptedRow
from tests.fakes.tools import FakeTool
from tests.fakes.tts import ToneTts
from tests.sim.call import OFF, RATE_HZ, RunningCall, SimulatedCall, silence, simulate, voice

# The call of a browser, whose client can hold it; no prompt comes within the time of these calls.
BROWSER: dict[str, Any] = {"transport": "webrtc", "speculation": OFF, "bot": {"idle": None}}
# The words of a reply take six seconds.
SLOW: dict[str, Any] = {**BROWSER, "speaks": ToneTts(word_ms=300)}
QUESTION = [silence(500), voice(1_000)]
WORDS = "one two three four five six seven eight nine ten"
ANSWER = f"{WORDS}. {WORDS}."
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}

Requests = Callable[[RunningCall], Coroutine[Any, Any, None]]


def holds(*at_s: float) -> Requests:
    """Request a hold at the first time, its end at the second, and so on."""

    async def request(running: RunningCall) -> None:
        events, began_s = running.call.events, asyncio.get_running_loop().time()
        for number, each_s in enumerate(at_s):
            await asyncio.sleep(began_s + each_s - asyncio.get_running_loop().time())
            events.publish(HoldRequested(events.now_ms(), is_on=number % 2 == 0))

    return request


def ends_at(at_s: float) -> Requests:
    """Request the end of a hold."""

    async def request(running: RunningCall) -> None:
        await asyncio.sleep(at_s)
        running.call.events.publish(HoldRequested(running.call.events.now_ms(), is_on=False))

    return request


def replies(call: SimulatedCall) -> list[tuple[str, bool]]:
    """Return the bot's texts as they were heard, and whether each was cut."""
    turns = [event.payload for event in call.events if event.kind is Kind.BOT_TURN]
    return [(turn["text"], turn["truncated"]) for turn in turns]


def states(call: SimulatedCall) -> list[str]:
    """Return the holds as the session has them."""
    held = [event.payload for event in call.events if event.kind is Kind.HOLD]
    return [f"{each['state']} {each.get('by', '')}".strip() for each in held]


def quiet(call: SimulatedCall, from_s: float, to_s: float) -> bool:
    """Return whether the bot makes no sound between two times."""
    return all(
        end_ms <= from_s * 1_000 or begin_ms >= to_s * 1_000 for begin_ms, end_ms in call.bot_spans_ms()
    )


@pytest.mark.parametrize("omni", [None, []], ids=["cascade", "two tiers"])
def test_a_reply_on_hold_goes_on_from_the_next_word(tmp_path: Path, omni: list[Any] | None):
    call = simulate(
        [*QUESTION, silence(20_000)],
        tmp_path,
        scripts=[(ANSWER,)],
        concurrently=holds(4, 12),
        omni=omni,
        **SLOW,
    )
    (first, is_cut), (rest, is_rest_cut) = replies(call)
    assert (is_cut, is_rest_cut) == (True, False)
    assert 0 < len(first.split()) < 20
    assert f"{first} {rest}".replace(".", "").split() == ANSWER.replace(".", "").split()
    # 0.3 s: what is on its way to the caller when the button is pressed.
    assert quiet(call, 4.3, 12)
    assert states(call) == ["began", "ended caller"]
    assert len(call.model.asked) == 1


@pytest.mark.parametrize("omni", [None, []], ids=["cascade", "two tiers"])
def test_a_question_that_is_being_asked_is_answered_after_the_hold(tmp_path: Path, omni: list[Any] | None):
    call = simulate(
        [silence(500), voice(3_000), silence(16_000)],
        tmp_path,
        scripts=[("The answer is yes.",)],
        concurrently=holds(2, 12),
        omni=omni,
        **BROWSER,
    )
    # What is said on hold is not heard.
    [turn] = [event.payload["text"] for event in call.events if event.kind is Kind.USER_TURN]
    assert 5 <= len(turn.split()) <= 8
    assert replies(call) == [("The answer is yes.", False)]
    assert quiet(call, 0, 12)


def test_a_caller_on_hold_is_not_heard(tmp_path: Path):
    call = simulate(
        [silence(3_000), voice(2_000), silence(10_000)],
        tmp_path,
        greeting="Hello.",
        concurrently=holds(2, 8),
        **BROWSER,
    )
    assert call.model.asked == []
    assert replies(call) == [("Hello.", False)]


def held_and_taken(hold_s: float, taken_s: float, on_s: float) -> Requests:
    """Request a hold during which a human takes the session, and its end."""

    async def request(running: RunningCall) -> None:
        await asyncio.gather(holds(hold_s, on_s)(running), taken(running))

    async def taken(running: RunningCall) -> None:
        await asyncio.sleep(taken_s)
        assert running.call.conversation.change_tier(TierEvent.TAKEN)

    return request


def test_the_rest_of_a_reply_is_left_to_a_human_who_takes_the_session_on_hold(tmp_path: Path):
    call = simulate(
        [*QUESTION, silence(20_000)],
        tmp_path,
        scripts=[(ANSWER,)],
        concurrently=held_and_taken(4, 8, 12),
        **SLOW,
    )
    [(_, is_cut)] = replies(call)
    assert is_cut
    assert quiet(call, 4.3, 20)
    assert states(call) == ["began", "ended caller"]


def test_the_question_of_a_hold_is_left_to_a_human_who_takes_the_session(tmp_path: Path):
    call = simulate(
        [silence(500), voice(3_000), silence(16_000)],
        tmp_path,
        scripts=[("The answer is yes.",)],
        concurrently=held_and_taken(2, 8, 12),
        **BROWSER,
    )
    assert [event.kind for event in call.events if event.kind in {Kind.USER_TURN, Kind.BOT_TURN}] == [
        Kind.USER_TURN
    ]
    assert call.model.asked == []


def test_a_tool_that_runs_is_answered_after_the_hold_and_runs_once(tmp_path: Path):
    tool = FakeTool(name="look_up", parameters=NOTHING, takes_s=4)
    row = ScriptedRow((TOOL,), (TOOL,), ("It is sunny.",))
    call = simulate(
        [*QUESTION, silence(20_000)],
        tmp_path,
        row=row,
        tools=[tool],
        concurrently=holds(4, 14),
        **BROWSER,
    )
    assert replies(call) == [("It is sunny.", False)]
    # A filler comes before it.
    assert quiet(call, 4.3, 14)
    assert len(tool.effects) == 1


def test_two_holds_in_one_reply_and_a_repeated_request_lose_no_word(tmp_path: Path):
    async def request(running: RunningCall) -> None:
        events = running.call.events
        for pause_s, is_on in ((3.5, True), (1, True), (2, False), (1, True), (2, False), (1, False)):
            await asyncio.sleep(pause_s)
            events.publish(HoldRequested(events.now_ms(), is_on=is_on))

    call = simulate([*QUESTION, silence(20_000)], tmp_path, scripts=[(ANSWER,)], concurrently=request, **SLOW)
    said = " ".join(text for text, _ in replies(call))
    assert said.replace(".", "").split() == ANSWER.replace(".", "").split()
    assert states(call) == ["began", "ended caller"] * 2


def test_a_speech_model_with_words_of_its_own_takes_no_units_on_hold(tmp_path: Path):
    host = ScriptedOmniHost(OmniScript())
    units: list[int] = []

    async def request(running: RunningCall) -> None:
        events = running.call.events
        for pause_s, is_on in ((3, True), (1, None), (4, None), (0, False), (2, None)):
            await asyncio.sleep(pause_s)
            if is_on is None:
                units.append(host.engines[0].units)
            else:
                events.publish(HoldRequested(events.now_ms(), is_on=is_on))

    call = simulate([silence(12_000)], tmp_path, omni=[host], concurrently=request, **BROWSER)
    soon, later, after = units
    assert soon == later > 20 and after > later + 20
    assert quiet(call, 3.5, 8)
    assert call.bot_spans_ms()[-1][1] > 9_000
    assert states(call) == ["began", "ended caller"]


def test_no_prompt_comes_on_hold_and_one_comes_after_it(tmp_path: Path):
    call = simulate(
        [silence(60_000)],
        tmp_path,
        greeting="Hello.",
        concurrently=holds(2, 50),
        **BROWSER | {"bot": {}, "tail_ms": 500},
    )
    assert [text for text, _ in replies(call)] == ["Hello.", IdleTuning().prompts[0]]
    assert quiet(call, 2, 56)


def test_a_hold_that_is_too_long_ends_the_call_with_a_goodbye(tmp_path: Path):
    call = simulate(
        [silence(1_000)],
        tmp_path,
        greeting="Hello.",
        concurrently=holds(2),
        **BROWSER | {"bot": {}, "tail_ms": 1_000 * (HOLD_MOST_S + 60), "limit_s": HOLD_MOST_S + 120},
    )
    assert [text for text, _ in replies(call)] == ["Hello.", IdleTuning().goodbye]
    assert quiet(call, 3, 2 + HOLD_MOST_S)
    assert call.end[0] == "silence"
    assert states(call) == ["began", "ended time"]
    assert len(call.stereo) / RATE_HZ < HOLD_MOST_S + 30


def test_a_call_that_reconnects_on_hold_says_its_first_words_after_it(tmp_path: Path):
    call = simulate(
        [silence(1_000), voice(1_000), silence(12_000)],
        tmp_path,
        greeting="Hello.",
        begins_held=True,
        concurrently=ends_at(6),
        **BROWSER,
    )
    assert replies(call) == [("Hello.", False)]
    assert quiet(call, 0, 6)
    assert states(call) == ["began", "ended caller"]
    assert call.model.asked == []


def test_a_caller_who_hangs_up_on_hold_leaves_the_truth_of_what_was_heard(tmp_path: Path):
    call = simulate(
        [*QUESTION, silence(4_000)],
        tmp_path,
        scripts=[(ANSWER,)],
        concurrently=holds(4),
        **SLOW | {"tail_ms": 500},
    )
    [(heard, is_cut)] = replies(call)
    assert is_cut and 0 < len(heard.split()) < 20
    assert states(call) == ["began"]
