"""Whole full-duplex calls on virtual time: the two-tier engine, others, and both sides' words."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipecat.frames.frames import CancelFrame, EndFrame, LLMMessagesAppendFrame

from parley.core.client_rules import ClientRules
from parley.core.errors import EngineError
from parley.core.grants import ClientIdentity, Grants
from parley.core.units import Vote
from parley.evals.bench.duplex_jitter.reading import read_ticks
from parley.models.omni.two_tier.engine import TwoTierHost, TwoTierTuning
from parley.models.tts import SpeechPiece
from parley.pipelines.lifecycle import LIMITED, OVER_LIMIT
from parley.session_store.events import Kind
from tests.fakes.executor import InlineExecutor
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.fakes.scripted_llm import HANG, TOOL, ScriptedRow
from tests.fakes.tools import FakeTool
from tests.fakes.tts import ToneTts
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad
from tests.sim.call import OFF, RunningCall, SimulatedCall, silence, simulate, voice
from tests.sim.test_barge_in import ANSWER, LONG, QUESTION, bot_turns, level, user_texts
from tests.sim.test_tools import NOTHING

HUM_MS, SHOUT_MS = 400, 1_400


def two_tier(caller: list[np.ndarray], tmp_path: Path, **options: Any) -> SimulatedCall:
    return simulate(caller, tmp_path, omni=(), **options)


def test_a_question_is_answered_and_both_sides_are_in_the_session(tmp_path: Path) -> None:
    call = two_tier([silence(500), voice(1_000), silence(4_000)], tmp_path)
    [turn] = call.turns
    assert (turn.user_text, turn.bot_text) == ("what is it what is", "The answer is yes. That is all.")
    [asked] = [event for event in call.events if event.kind is Kind.USER_TURN]
    [answered] = [event for event in call.events if event.kind is Kind.BOT_TURN]
    assert asked.payload["text"] == turn.user_text and answered.payload["text"] == turn.bot_text
    assert not answered.payload["truncated"]
    # Times at the edge: the words began 500 ms into the call, the answer after them.
    [joined] = [event for event in call.events if event.kind is Kind.JOINED]
    tokens = asked.payload["tokens"]
    assert tokens[0]["event_us"] - joined.event_us == pytest.approx(500_000, abs=150_000)
    [(start_ms, _)] = call.bot_spans_ms()
    assert 1_500 + 300 <= start_ms <= 1_500 + 900
    assert answered.event_us - joined.event_us == pytest.approx(start_ms * 1_000, abs=60_000)


def test_what_the_engine_decides_is_written_down_for_every_unit(tmp_path: Path) -> None:
    call = two_tier([silence(500), voice(1_000), silence(4_000)], tmp_path)
    head, units = read_ticks(tmp_path / "ticks" / f"{call.call.call_id}.ticks.jsonl")
    assert head["engine"] == "two_tier" and head["call_id"] == call.call.call_id
    ticks = list(units)
    assert [tick["slot"] for tick in ticks] == list(range(len(ticks))) and len(ticks) > 60
    assert {tick["late_us"] for tick in ticks} == {0}
    spoken_ms = sum(int(str(tick["said_ms"])) for tick in ticks if tick["vote"] == "speak")
    [(start_ms, end_ms)] = call.bot_spans_ms()
    assert spoken_ms == pytest.approx(end_ms - start_ms, abs=100)
    assert "answer" not in (tmp_path / "ticks" / f"{call.call.call_id}.ticks.jsonl").read_text()


def test_a_greeting_is_said_by_the_engine_and_may_be_interrupted(tmp_path: Path) -> None:
    caller = [silence(1_000), voice(SHOUT_MS), silence(4_000)]
    call = two_tier(caller, tmp_path, greeting=LONG, talks_over=True)
    greeting, answer = bot_turns(call)
    assert greeting["truncated"] and LONG.startswith(greeting["text"]) and greeting["text"]
    assert answer["text"] == "The answer is yes. That is all."


def test_mhm_during_an_answer_is_talked_over_more_softly_and_is_nobodys_turn(tmp_path: Path) -> None:
    call = two_tier(
        [*QUESTION, voice(HUM_MS), silence(6_000)], tmp_path, scripts=[ANSWER], words=("mhm",) * 9
    )
    assert [turn["text"] for turn in bot_turns(call)] == [LONG]
    assert user_texts(call) == ["mhm mhm mhm mhm mhm"]
    [_] = call.bot_spans_ms()
    assert level(call, 3_200, 3_400) < 0.5 * level(call, 2_400, 2_900)


def test_an_interruption_is_yielded_to_and_the_record_says_what_was_heard(
    tmp_path: Path,
) -> None:
    caller = [*QUESTION, voice(SHOUT_MS), silence(4_000)]
    call = two_tier(caller, tmp_path, scripts=[ANSWER, ("Sure.",)], speculation=OFF)
    cut, answer = bot_turns(call)
    assert cut["truncated"] and LONG.startswith(cut["text"]) and cut["unheard"]
    assert answer["text"] == "Sure."
    (start_ms, end_ms), _ = call.bot_spans_ms(gap_ms=200)
    assert end_ms - 3_000 <= 900
    # A word lasts 100 ms: the record holds the words that were heard, and no more.
    assert len(cut["text"].split()) == pytest.approx((end_ms - start_ms) / 100, abs=1.5)
    assert len(user_texts(call)) == 2 and len(call.model.asked) == 2


def test_a_cough_that_cut_has_the_rest_said_from_the_word_that_was_cut(tmp_path: Path) -> None:
    caller = [*QUESTION, voice(900), silence(9_000)]
    # The recogniser returns nothing when a word is longer than the voice.
    call = two_tier(caller, tmp_path, scripts=[ANSWER], words=("what",), word_ms=950, speculation=OFF)
    first, rest = bot_turns(call)
    heard = first["text"].split()
    assert first["truncated"] and LONG.startswith(first["text"])
    begins = len(LONG.split()) - len(rest["text"].split())
    # Nothing is omitted, and at most two words are heard again.
    assert LONG.endswith(rest["text"]) and 0 <= len(heard) - begins <= 2
    assert len(call.model.asked) == 1 and len(user_texts(call)) == 1


class BreaksOff(ToneTts):
    """Voice that fails after 200 ms of a clause with a certain word."""

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        self.fail_after_pieces = 10 if "lost" in text else None
        return super().synthesize(text, sink)


@pytest.mark.parametrize("last", ["", "Three is the last of them."])
def test_what_a_failing_voice_loses_of_an_answer_is_in_the_record(tmp_path: Path, last: str) -> None:
    answer = ("One is here with us. ", "Two is lost and gone. ", last)
    call = two_tier([*QUESTION, silence(6_000)], tmp_path, scripts=[answer], speaks=BreaksOff())
    [turn] = bot_turns(call)
    assert turn["text"].split() == [*"One is here with us. Two is".split(), *last.split()]
    assert turn["truncated"] and turn["unheard"] == "lost and gone."


def test_a_call_that_is_hung_up_in_the_middle_of_an_answer_keeps_what_was_heard(tmp_path: Path) -> None:
    async def hangs_up(running: RunningCall) -> None:
        await asyncio.sleep(4.0)
        await running.call.live.input.queue(CancelFrame())

    call = two_tier(
        [*QUESTION, silence(20_000)], tmp_path, scripts=[ANSWER], speculation=OFF, concurrently=hangs_up
    )
    [turn] = bot_turns(call)
    assert turn["truncated"] and LONG.startswith(turn["text"])
    (start_ms, end_ms), *_ = call.bot_spans_ms()
    # A word lasts 100 ms.
    assert len(turn["text"].split()) == pytest.approx((end_ms - start_ms) / 100, abs=2)
    assert f"{turn['text']} {turn['unheard']}".split() == LONG.split()


def test_a_tool_is_used_in_the_middle_and_its_call_is_in_the_session_first(tmp_path: Path) -> None:
    tool = FakeTool(name="look_up", parameters=NOTHING)
    row = ScriptedRow(("Let me look that up. ", TOOL), ("It is sunny.",))
    call = two_tier([*QUESTION, silence(8_000)], tmp_path, row=row, tools=[tool], speculation=OFF)
    assert [turn["text"] for turn in bot_turns(call)] == ["Let me look that up.", "It is sunny."]
    assert len(tool.effects) == 1
    received = (Kind.USER_TURN, Kind.TOOL_CALL, Kind.TOOL_RESULT)
    assert tuple(event.kind for event in call.events if event.kind in received) == received


@pytest.mark.parametrize("later_ms", [2_600, 3_600])
def test_who_interrupts_while_a_tool_runs_is_answered_and_it_runs_once(tmp_path: Path, later_ms: int) -> None:
    tool = FakeTool(name="look_up", parameters=NOTHING, takes_s=4)
    row = ScriptedRow(("Let me look that up. ", TOOL), ("On sunday we are closed.",), ("That is all.",))
    caller = [silence(500), voice(1_000), silence(later_ms - 1_500), voice(1_400), silence(12_000)]
    call = two_tier(caller, tmp_path, row=row, tools=[tool], speculation=OFF)
    assert len(tool.effects) == 1 and len(user_texts(call)) == 2
    assert "On sunday we are closed." in [turn["text"] for turn in bot_turns(call)]


def test_an_answer_that_is_late_is_covered_and_the_phrase_stands_in_no_record(tmp_path: Path) -> None:
    call = two_tier(
        [silence(500), voice(1_000), silence(8_000)],
        tmp_path,
        scripts=[(3.0, "Nine to five.")],
        speculation=OFF,
    )
    assert [turn["text"] for turn in bot_turns(call)] == ["Nine to five."]
    assert call.turns[0].masked
    filler, answer = call.bot_spans_ms(gap_ms=200)
    assert 1_500 + 500 <= filler[0] <= 1_500 + 1_800 and answer[0] > filler[1]


def test_a_model_that_never_answers_is_apologised_for(tmp_path: Path) -> None:
    call = two_tier(
        [silence(500), voice(1_000), silence(60_000)],
        tmp_path,
        scripts=[(HANG,)],
        speculation=OFF,
        limit_s=90,
    )
    assert bot_turns(call) == [] and len(call.bot_spans_ms()) >= 2


async def _types(running: RunningCall) -> None:
    await asyncio.sleep(3.0)
    message = {"role": "user", "content": "and on sunday"}
    await running.call.live.input.queue(LLMMessagesAppendFrame([message], run_llm=True))  # type: ignore[arg-type]


def test_who_types_ends_what_is_being_said_and_is_answered(tmp_path: Path) -> None:
    call = two_tier(
        [*QUESTION, silence(6_000)],
        tmp_path,
        scripts=[ANSWER, ("Closed.",)],
        speculation=OFF,
        concurrently=_types,
    )
    cut, answer = bot_turns(call)
    assert cut["truncated"] and answer["text"] == "Closed."
    assert user_texts(call)[1] == "and on sunday"


# Engines that transcribe their own audio.


def says(units: range) -> OmniScript:
    return OmniScript(
        votes=lambda unit: Vote.SPEAK if unit in units else Vote.LISTEN,
        text=lambda unit: f" w{unit}" if unit in units else "",
    )


def test_alongside_an_engine_of_its_own_words_the_callers_turns_are_in_the_session(tmp_path: Path) -> None:
    host = ScriptedOmniHost(says(range(30, 50)))
    call = simulate([silence(500), voice(1_000), silence(4_000)], tmp_path, omni=[host])
    assert user_texts(call) == ["what is it what is"]
    [turn] = bot_turns(call)
    assert turn["text"].split() == [f"w{unit}" for unit in range(30, 50)]
    assert call.model.asked == []


def test_turns_that_an_engine_of_its_own_words_answers_are_counted_and_the_first_too_many_ends_the_call(
    tmp_path: Path,
) -> None:
    rules = ClientRules(ClientIdentity(owner="shop:ann", grants=Grants(turns_per_minute=4)))
    host = ScriptedOmniHost(says(range(0)))
    turn = [voice(1_000), silence(4_000)]
    call = simulate([silence(500), *turn * 8], tmp_path, omni=[host], rules=rules)
    assert call.end == (LIMITED, OVER_LIMIT)
    assert len(user_texts(call)) == 2
    # The caller is notified of the reason.
    [(start_ms, _)] = call.bot_spans_ms(gap_ms=500)
    assert start_ms > 6_000


@pytest.mark.parametrize("yields", ["policy", "engine"])
def test_an_engine_that_does_not_yield_is_made_to_listen_where_the_policy_says_so(
    tmp_path: Path, yields: str
) -> None:
    host = ScriptedOmniHost(says(range(5, 80)))
    caller = [silence(2_000), voice(SHOUT_MS), silence(4_000)]
    call = simulate(caller, tmp_path, omni=[host], duplex={"yields": yields})
    spans = call.bot_spans_ms(gap_ms=300)
    if yields == "engine":
        assert len(spans) == 1
        return
    assert spans[0][1] - 2_000 <= 900
    assert bot_turns(call)[0]["truncated"]


def test_when_an_engine_fails_the_caller_is_told_and_the_next_one_goes_on(tmp_path: Path) -> None:
    broken = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN, fails_at=10))
    second = ScriptedOmniHost(says(range(60, 70)))
    call = simulate([silence(9_000)], tmp_path, omni=[broken, second])
    apology, answer = call.bot_spans_ms(gap_ms=200)
    assert apology[0] < 1_500 and answer[0] > apology[1]


def test_when_no_engine_goes_on_the_call_ends_with_an_apology(tmp_path: Path) -> None:
    broken = ScriptedOmniHost(OmniScript(fails_at=0))
    call = simulate([silence(60_000)], tmp_path, omni=[broken], limit_s=100)
    assert len(call.bot_spans_ms()) >= 1
    assert len(call.stereo) / 16_000 < 30


def test_the_two_tier_engine_that_fails_is_apologised_for_and_answers_again(tmp_path: Path) -> None:
    class Once(EnergyVad):
        """Detector that fails once."""

        failed = 0

        def open_stream(self) -> Any:
            if type(self).failed == 1:
                type(self).failed = 2
                raise EngineError("no", engine="ears")
            return super().open_stream()

    vad = Once()
    Once.failed = 1
    host = TwoTierHost(vad=vad, turn=None, executor=InlineExecutor())
    call = simulate([silence(5_000), voice(1_000), silence(5_000)], tmp_path, omni=[host], speculation=OFF)
    assert Once.failed == 2
    assert [turn["text"] for turn in bot_turns(call)] == ["The answer is yes. That is all."]
    assert len(call.bot_spans_ms(gap_ms=200)) >= 2


def test_a_stop_that_the_recogniser_does_not_write_is_spotted(tmp_path: Path) -> None:
    caller = [*QUESTION, voice(HUM_MS), silence(5_000)]
    call = two_tier(
        caller,
        tmp_path,
        scripts=[ANSWER, ("All right.",)],
        speculation=OFF,
        word_ms=500,
        words=("what",),
        commands=("stop", "stop"),
        commands_floor=1.0,
    )
    cut, answer = bot_turns(call)
    assert cut["truncated"] and answer["text"] == "All right."
    assert user_texts(call)[1] == "stop stop"
    (_, end_ms), *_ = call.bot_spans_ms(gap_ms=200)
    assert end_ms - (3_000 + HUM_MS) <= 500


def test_of_an_interrupted_answer_it_is_known_what_was_not_heard(tmp_path: Path) -> None:
    caller = [*QUESTION, voice(SHOUT_MS), silence(4_000)]
    call = two_tier(caller, tmp_path, scripts=[ANSWER, ("Sure.",)], speculation=OFF)
    cut, _ = bot_turns(call)
    assert f"{cut['text']} {cut['unheard']}".split() == LONG.split()


def test_a_call_that_ends_in_good_order_has_its_answer_said_to_the_end(tmp_path: Path) -> None:
    async def ends(running: RunningCall) -> None:
        await asyncio.sleep(3.0)
        await running.call.live.input.queue(EndFrame())

    call = two_tier(
        [*QUESTION, silence(20_000)], tmp_path, scripts=[ANSWER], speculation=OFF, concurrently=ends
    )
    [turn] = bot_turns(call)
    assert (turn["text"], turn["truncated"]) == (LONG, False)


# Engines of both kinds in sequence.


def tier(**policy: Any) -> TwoTierHost:
    settings = TwoTierTuning.model_validate({"policy": {"speculation": OFF, **policy}})
    return TwoTierHost(settings, vad=EnergyVad(), turn=ScriptedTurn([0.95]), executor=InlineExecutor())


def test_after_an_engine_of_its_own_words_the_two_tier_engine_answers(tmp_path: Path) -> None:
    broken = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN, fails_at=10))
    caller = [silence(5_000), voice(1_000), silence(5_000)]
    call = simulate(caller, tmp_path, omni=[broken, tier()], speculation=OFF)
    assert user_texts(call) == ["what is it what is"]
    assert [turn["text"] for turn in bot_turns(call)] == ["The answer is yes. That is all."]
    assert len(call.model.asked) == 1


def test_after_the_two_tier_engine_one_of_its_own_words_speaks(tmp_path: Path) -> None:
    class Deaf(EnergyVad):
        """Detector that cannot be opened."""

        def open_stream(self) -> Any:
            raise EngineError("no", engine="ears")

    host = TwoTierHost(vad=Deaf(), turn=None, executor=InlineExecutor())
    second = ScriptedOmniHost(says(range(60, 80)))
    caller = [silence(500), voice(1_000), silence(9_000)]
    call = simulate(caller, tmp_path, omni=[host, second], speculation=OFF)
    assert user_texts(call) == ["what is it what is"]
    [turn] = bot_turns(call)
    assert turn["text"].split()[0] == "w60" and call.model.asked == []


def test_what_is_written_alongside_an_engine_of_its_own_words_is_answered_by_the_model(
    tmp_path: Path,
) -> None:
    host = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN))
    call = simulate([silence(9_000)], tmp_path, omni=[host], speculation=OFF, concurrently=_types)
    assert user_texts(call) == ["and on sunday"]
    assert [turn["text"] for turn in bot_turns(call)] == ["The answer is yes. That is all."]


@pytest.mark.parametrize(("says_stop", "ends"), [(True, True), (False, False)])
def test_a_protected_greeting_alongside_an_engine_is_ended_by_a_stop_word_alone(
    tmp_path: Path, says_stop: bool, ends: bool
) -> None:
    host = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN))
    call = simulate(
        [silence(2_000), voice(1_500), silence(6_000)],
        tmp_path,
        omni=[host],
        greeting=LONG,
        talks_over=True,
        bot={"greeting_interruptible": False},
        speculation=OFF,
        words=("stop", "please") if says_stop else ("what", "is"),
    )
    [greeting, *_] = bot_turns(call)
    assert greeting["truncated"] is ends
    if not ends:
        assert greeting["text"] == LONG


def test_a_stop_that_is_spotted_ends_a_greeting_alongside_an_engine(tmp_path: Path) -> None:
    host = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN))
    call = simulate(
        [silence(2_000), voice(HUM_MS), silence(6_000)],
        tmp_path,
        omni=[host],
        greeting=LONG,
        talks_over=True,
        bot={"greeting_interruptible": False},
        speculation=OFF,
        words=("what",),
        commands=("stop", "stop"),
        commands_floor=1.0,
    )
    [greeting, *_] = bot_turns(call)
    assert greeting["truncated"]


@pytest.mark.parametrize("fails_at", [2, 20])
def test_an_engine_that_fails_leaves_the_greeting_alone(tmp_path: Path, fails_at: int) -> None:
    broken = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN, fails_at=fails_at))
    call = simulate(
        [silence(12_000)],
        tmp_path,
        omni=[broken, tier()],
        greeting=LONG,
        bot={"greeting_interruptible": False},
        speculation=OFF,
    )
    [greeting, *_] = bot_turns(call)
    assert (greeting["text"], greeting["truncated"]) == (LONG, False)


def test_an_engine_listens_while_the_voice_greets(tmp_path: Path) -> None:
    host = ScriptedOmniHost(says(range(0, 60)))
    call = simulate([silence(9_000)], tmp_path, omni=[host], greeting=LONG, duplex={"yields": "engine"})
    _, units = read_ticks(tmp_path / "ticks" / f"{call.call.call_id}.ticks.jsonl")
    # The voice takes 6 s for it.
    forced = [tick for tick in units if tick["forced"]]
    assert len(forced) * 80 == pytest.approx(6_000, abs=400)
