"""The start strategy around the barge-in machine, on virtual time; whole calls are in ``tests/sim``."""

import asyncio

import pytest
from pipecat.frames.frames import (
    LLMRunFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import (
    ReplyCut,
    ReplyDucked,
    ReplyRestored,
    ReplyResumed,
    ReplyWritten,
    TierChanged,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.media import WordTime
from parley.core.tiers import Tier
from parley.core.timeline import HeardMark, HeardReply, HeardSource
from parley.models.stt import Transcript
from parley.turn_taking.barge_in.table import BargeInState
from tests import virtual_time
from tests.unit.processors.turns.strategy_floor import Floor, no_command, play


def test_a_voice_while_no_one_else_speaks_begins_a_turn_at_once():
    async def scenario(floor: Floor) -> None:
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        assert floor.turns == 1

    assert play(scenario).decisions == []


def test_words_without_a_voice_begin_a_turn_while_no_one_speaks():
    async def scenario(floor: Floor) -> None:
        await floor.words("hello there")
        assert floor.turns == 1

    play(scenario)


def test_the_bots_own_voice_is_restored_after_the_first_look():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await floor.voice(3_000)
        await floor.words("what the bot says")

    floor = play(scenario, is_own=lambda: True)
    assert (floor.turns, floor.of(ReplyCut)) == (0, [])
    [restore] = floor.of(ReplyRestored)
    # The looks covered 320 ms of it.
    assert restore.at_ms - 1_000_000 in range(318, 325)


def test_a_voice_of_which_nothing_is_known_cuts_as_ever():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await floor.voice(1_500)

    assert len(play(scenario, is_own=lambda: None).of(ReplyCut)) == 1


def test_a_reply_that_its_echo_cut_goes_on_and_the_turn_ends_with_the_echo():
    looks = iter([None, None, True, True, True, True])

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        speaking = asyncio.create_task(floor.voice(1_500))
        await asyncio.sleep(0.85)
        assert floor.turns == 1
        floor.lose("one", heard="what", unheard="the bot says")
        await asyncio.sleep(0.3)
        assert [frame.text for frame in floor.pushed] == ["the bot says"]
        assert floor.stops == 0
        await speaking
        assert floor.stops == 1
        await floor.words("the bot says")
        await asyncio.sleep(2)

    floor = play(scenario, is_own=lambda: next(looks))
    assert (floor.turns, floor.stops) == (1, 1)
    assert floor.resets >= 1


@pytest.mark.parametrize("is_known", [False, True])
def test_a_reply_that_was_cut_is_not_resumed_once_a_human_has_the_session(is_known: bool):
    looks: list[bool | None] = [None, None]

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        speaking = asyncio.create_task(floor.voice(1_500))
        await asyncio.sleep(0.85)
        # The human may come before the heard part of the reply is known, or after.
        if is_known:
            floor.lose("one", heard="what", unheard="the bot says")
        floor.events.publish(TierChanged(floor.events.now_ms(), Tier.HUMAN, 1))
        if not is_known:
            floor.lose("one", heard="what", unheard="the bot says")
        await speaking
        await asyncio.sleep(2)
        assert floor.pushed == []

    floor = play(scenario, is_own=lambda: looks.pop() if looks else True)
    assert len(floor.of(ReplyCut)) == 1


def test_words_of_a_human_that_were_cut_for_nothing_are_resumed():
    looks: list[bool | None] = [None, None]

    async def scenario(floor: Floor) -> None:
        floor.events.publish(TierChanged(floor.events.now_ms(), Tier.HUMAN, 1))
        floor.reply("one")
        speaking = asyncio.create_task(floor.voice(1_500))
        await asyncio.sleep(0.85)
        floor.lose("one", heard="I am", unheard="here now")
        await speaking
        await asyncio.sleep(2)
        assert [frame.text for frame in floor.pushed] == ["here now"]

    play(scenario, is_own=lambda: looks.pop() if looks else True)


def test_a_reply_over_an_open_turn_is_cut_without_beginning_another_one():
    async def scenario(floor: Floor) -> None:
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        floor.reply("greeting")
        await asyncio.sleep(1)

    floor = play(scenario)
    assert (floor.turns, len(floor.of(ReplyCut)), floor.interruptions) == (1, 1, 2)


def test_the_next_reply_is_at_full_volume_whatever_the_interruption_left():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await floor.voice(1_500)
        floor.lose("one", heard="a", unheard="b")
        assert floor.gains_db[-1] == -12.0
        await floor.words("what about it")
        floor.reply("two")
        assert floor.gains_db[-1] == 0.0

    play(scenario)


def test_what_passed_the_time_is_not_said_again_where_an_answer_is():
    async def scenario(floor: Floor) -> None:
        floor.reply("filler")
        floor.announce("answer")
        await floor.voice(1_000)
        floor.lose("filler", heard="One", unheard="moment.", in_context=False)
        floor.lose("answer", heard="", unheard="It is five.")
        await asyncio.sleep(3)

    floor = play(scenario)
    assert [(frame.text, frame.append_to_context) for frame in floor.pushed] == [("It is five.", True)]


def test_an_answer_that_the_model_was_still_writing_is_asked_for_again():
    async def scenario(floor: Floor) -> None:
        floor.open("one")
        floor.reply("one")
        await floor.voice(1_000)
        floor.lose("one", heard="It", unheard="is")
        await asyncio.sleep(3)

    [asked] = play(scenario).pushed
    assert isinstance(asked, LLMRunFrame)


def test_one_that_it_had_written_is_said_on():
    async def scenario(floor: Floor) -> None:
        floor.open("one")
        floor.events.publish(ReplyWritten(floor.events.now_ms(), "one"))
        floor.reply("one")
        await floor.voice(1_000)
        floor.lose("one", heard="It", unheard="is five.")
        await asyncio.sleep(3)

    [spoken] = play(scenario).pushed
    assert isinstance(spoken, TTSSpeakFrame) and spoken.text == "is five."


def test_books_that_never_come_do_not_leave_the_machine_waiting():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await floor.voice(1_000)
        await asyncio.sleep(5)
        assert len(floor.of(ReplyResumed)) == 1
        assert floor.machine.state is BargeInState.LISTENING

    assert play(scenario).pushed == []


def test_books_that_come_late_are_waited_for():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await floor.voice(1_000)
        while not floor.of(ReplyResumed):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        floor.lose("one", heard="It", unheard="is five.")
        await asyncio.sleep(0.01)
        assert [frame.text for frame in floor.pushed] == ["is five."]

    play(scenario)


def test_an_answer_that_is_owed_is_guarded_after_a_filler():
    async def scenario(floor: Floor) -> None:
        floor.events.publish(WaitBegan(floor.events.now_ms(), Wait.ANSWER))
        floor.reply("filler")
        mark = HeardMark("filler", 500, 1, HeardSource.PLAYOUT_CLOCK)
        floor.finish(HeardReply("filler", "One moment.", "", False, mark, False, 0, 500_000))
        assert floor.machine.state is not BargeInState.LISTENING
        await floor.voice(160)
        assert floor.turns == 0
        floor.events.publish(WaitEnded(floor.events.now_ms(), Wait.ANSWER))
        await asyncio.sleep(1)
        assert floor.machine.state is BargeInState.LISTENING

    play(scenario)


def test_late_words_of_the_turn_before_are_a_turn_even_when_hardly_understood():
    async def scenario(floor: Floor) -> None:
        await floor.voice(1_000)
        # No words were recognised in time.
        await asyncio.sleep(2)
        assert (floor.turns, floor.stops) == (1, 1)
        floor.reply("filler")
        heard = Transcript("a mortgage", (WordTime("a", 0, 90, 0.2), WordTime("mortgage", 90, 800, 0.3)))
        frame = TranscriptionFrame("a mortgage", "", "", result=heard, finalized=True)
        await floor.give(frame)
        assert floor.turns == 2

    play(scenario)


def test_the_endpointer_forgets_a_voice_that_was_not_meant():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        # Too short for words, and loud: it ends with the voice.
        await floor.voice(90)
        await asyncio.sleep(1)
        assert floor.policy.next_deadline_ms() is None

    assert len(play(scenario).of(ReplyRestored)) == 1


def test_a_hum_that_voice_activity_hears_late_is_not_taken_for_a_long_voice():
    heard = [0]

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await asyncio.sleep(0.128)
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        # The process is busy: 300 ms of the backchannel and the silence after it are judged in 700 ms.
        for _ in range(7):
            await asyncio.sleep(0.1)
            heard[0] += 43
        assert floor.of(ReplyCut) == []
        await floor.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
        await asyncio.sleep(2)

    assert play(scenario, heard_ms=lambda: heard[0]).of(ReplyCut) == []


def test_a_hum_within_which_the_process_is_stopped_is_not_taken_for_a_long_voice():
    heard = [0]

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await asyncio.sleep(0.128)
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.stand_still(2.5)
        # The audio of that time is judged in 200 ms: 300 ms of the backchannel, and the silence after it.
        await asyncio.sleep(0.1)
        heard[0] += 460
        await floor.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
        await asyncio.sleep(0.1)
        heard[0] += 2_240
        await asyncio.sleep(2)

    assert play(scenario, heard_ms=lambda: heard[0]).of(ReplyCut) == []


def test_audio_that_does_not_come_at_all_is_not_waited_for_for_long():
    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await asyncio.sleep(0.128)
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        await asyncio.sleep(5)

    [cut] = play(scenario, heard_ms=lambda: 0).of(ReplyCut)
    # 796 ms, and the longest wait for the audio.
    assert 1_296 <= cut.at_ms - 1_000_000 <= 1_330


@pytest.mark.parametrize("steps", range(6))
def test_a_volume_that_comes_back_late_undoes_no_newer_duck(steps: int):
    late_ms = 200
    stop_words = no_command(late_ms)

    async def scenario(floor: Floor) -> None:
        floor.reply("r1")
        stop_words.hear(bytes(320))
        await floor.voice(300)
        await floor.words("about fees", 0.5)
        assert floor.machine.holds_words
        await asyncio.sleep(late_ms / 1000)
        # The spotter has just reported that it was nothing; some steps of the loop later the next voice
        # begins.
        for _ in range(steps):
            await asyncio.sleep(0)
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        await asyncio.sleep(0.05)
        assert floor.machine.state is BargeInState.ARMED
        assert floor.gains_db[-1] < 0
        kinds = [type(decision) for decision in floor.decisions]
        assert kinds in ([ReplyDucked], [ReplyDucked, ReplyRestored, ReplyDucked])

    play(scenario, stop_words=stop_words)


@pytest.mark.parametrize(("level_db", "cuts"), [(-24.0, 1), (-36.0, 1), (-44.0, 0)])
def test_a_voice_from_far_away_does_not_stop_the_bot(level_db: float, cuts: int) -> None:
    levels_db = [-24.0]

    async def scenario(floor: Floor) -> None:
        # A turn of the caller, from which their usual level is measured.
        await floor.voice(1_500)
        await floor.words("what is the fee")
        await asyncio.sleep(5)
        assert floor.stops == 1
        levels_db[0] = level_db
        floor.reply("a")
        await asyncio.sleep(1)
        await floor.voice(1_500)
        await floor.words("and now the weather in the north")
        await asyncio.sleep(1)

    floor = play(scenario, level_db=lambda: levels_db[0])
    assert len(floor.of(ReplyCut)) == cuts
    assert len(floor.of(ReplyDucked)) == 1 and (cuts or len(floor.of(ReplyRestored)) == 1)


def test_who_says_stop_is_obeyed_from_far_away() -> None:
    levels_db = [-24.0]

    async def scenario(floor: Floor) -> None:
        await floor.voice(1_500)
        await floor.words("what is the fee")
        await asyncio.sleep(5)
        levels_db[0] = -44.0
        floor.reply("a")
        await asyncio.sleep(1)
        await floor.voice(400)
        await floor.words("stop")
        await asyncio.sleep(1)

    assert len(play(scenario, level_db=lambda: levels_db[0]).of(ReplyCut)) == 1


def test_a_voice_that_met_a_reply_teaches_nothing_of_the_caller() -> None:
    levels_db = [-24.0]

    async def scenario(floor: Floor) -> None:
        await floor.voice(1_500)
        await floor.words("what is the fee")
        await asyncio.sleep(5)
        # A distant voice begins in silence, and the bot speaks during it, twelve times.
        levels_db[0] = -50.0
        for place in range(12):
            await asyncio.sleep(0.128)
            await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
            floor.reply(f"a{place}")
            await asyncio.sleep(2)
            await floor.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
            floor.lose(f"a{place}", heard="yes", unheard="")
            await asyncio.sleep(3)
        before = len(floor.of(ReplyCut))
        levels_db[0] = -44.0
        floor.reply("b")
        await asyncio.sleep(1)
        await floor.voice(1_500)
        await asyncio.sleep(1)
        # As quiet as during the first turn.
        assert len(floor.of(ReplyCut)) == before

    play(scenario, level_db=lambda: levels_db[0])
