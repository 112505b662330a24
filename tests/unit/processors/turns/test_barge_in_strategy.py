"""The start strategy around the barge-in machine, on virtual time; whole calls are in ``tests/sim``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pipecat.clocks.system_clock import SystemClock
from pipecat.frames.frames import (
    Frame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.user_stop.base_user_turn_stop_strategy import UserTurnStoppedParams
from pipecat.utils.asyncio.task_manager import TaskManager

from parley.core.call_events import (
    CallEvent,
    ReplyAnnounced,
    ReplyCut,
    ReplyDucked,
    ReplyFinished,
    ReplyOpened,
    ReplyRestored,
    ReplyResumed,
    ReplyStarted,
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
from parley.processors.turns.barge_in import BargeInStartStrategy
from parley.processors.turns.endpoint import EndpointStopStrategy
from parley.processors.turns.stop_words import StopWords
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import BargeInState
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.policies import endpoint_policy
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.late_engine import LateEngine
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings


class Floor:
    """Both strategies as a user turn controller drives them, and the output of the first."""

    def __init__(
        self,
        *,
        is_own: Callable[[], bool | None] | None,
        heard_ms: Callable[[], int] | None,
        stop_words: StopWords | None,
        level_db: Callable[[], float | None] | None = None,
        **settings: Any,
    ) -> None:
        self.decisions: list[CallEvent] = []
        self.gains_db: list[float] = []
        self.pushed: list[Frame] = []
        self.turns = self.stops = self.interruptions = self.resets = 0
        # Words in the aggregator, and those of each turn that is over.
        self.said, self.answered = list[str](), list[str]()
        self.in_turn = False
        self.machine = BargeIn(BargeInTuning(**settings))
        self.events = CallEvents()
        self.policy = endpoint_policy(EndpointTuning(kind="adaptive"))
        self.endpoint = EndpointStopStrategy(
            self.policy, completeness=None, executor=InlineExecutor(), events=self.events
        )
        self.strategy = BargeInStartStrategy(
            self.machine,
            self.events,
            endpoint=self.endpoint,
            set_gain_db=self.gains_db.append,
            heard_ms=heard_ms,
            level_db=level_db,
            is_own=is_own,
            stop_words=stop_words,
            interrupt=self._interrupt,
        )
        for kind in (ReplyDucked, ReplyRestored, ReplyCut, ReplyResumed):
            self.events.subscribe(kind, self.decisions.append)
        self.strategy.add_event_handler("on_user_turn_started", self._started)
        self.strategy.add_event_handler("on_push_frame", self._push)
        self.strategy.add_event_handler("on_reset_aggregation", self._reset)
        self.endpoint.add_event_handler("on_user_turn_stopped", self._stopped)

    async def voice(self, duration_ms: int) -> None:
        """Send a voice of that length, as voice activity reports it."""
        await asyncio.sleep(0.128)
        await self.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        await asyncio.sleep((duration_ms - 128 + 160) / 1000)
        await self.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))

    async def words(self, text: str, confidence: float | None = None) -> None:
        result = Transcript(text, confidence=confidence) if confidence is not None else None
        frame = TranscriptionFrame(text=text, user_id="", timestamp="", result=result, finalized=True)
        await self.give(frame)

    async def give(self, frame: Frame) -> None:
        if isinstance(frame, TranscriptionFrame):
            self.said.append(frame.text)
        await self.strategy.process_frame(frame)
        await self.endpoint.process_frame(frame)

    def reply(self, reply_id: str) -> None:
        self.announce(reply_id)
        self.events.publish(ReplyStarted(self.events.now_ms(), reply_id))

    def announce(self, reply_id: str) -> None:
        self.events.publish(ReplyAnnounced(self.events.now_ms(), reply_id, False))

    def open(self, reply_id: str) -> None:
        self.events.publish(ReplyOpened(self.events.now_ms(), reply_id))

    def finish(self, reply: HeardReply) -> None:
        self.events.publish(ReplyFinished(self.events.now_ms(), reply))

    def lose(self, reply_id: str, *, heard: str, unheard: str, in_context: bool = True) -> None:
        """Report a cut reply, as the playout clock does after the interruption has passed."""
        mark = HeardMark(reply_id, 500, len(heard.split()) - 1, HeardSource.PLAYOUT_CLOCK)
        self.finish(HeardReply(reply_id, heard, unheard, True, mark, in_context, 0, 500_000))

    def of(self, kind: type) -> list[Any]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]

    async def _interrupt(self) -> None:
        self.interruptions += 1

    async def _started(self, *_args: object) -> None:
        if self.in_turn:
            return
        self.in_turn = True
        self.turns += 1
        await self.strategy.handle_user_turn_started()
        await self.endpoint.handle_user_turn_started()
        self.interruptions += 1

    async def _stopped(self, _strategy: object, _params: UserTurnStoppedParams) -> None:
        self.in_turn = False
        self.stops += 1
        self.answered.append(" ".join(self.said))
        self.said.clear()
        await self.strategy.handle_user_turn_stopped()
        await self.endpoint.handle_user_turn_stopped()

    async def _push(self, _strategy: object, frame: Frame, *_direction: object) -> None:
        self.pushed.append(frame)

    async def _reset(self, *_args: object) -> None:
        self.resets += 1
        self.said.clear()


def play(
    scenario: Callable[[Floor], Awaitable[None]],
    *,
    is_own: Callable[[], bool | None] | None = None,
    heard_ms: Callable[[], int] | None = None,
    stop_words: StopWords | None = None,
    level_db: Callable[[], float | None] | None = None,
    **settings: Any,
) -> Floor:
    async def run() -> Floor:
        if stop_words is not None:
            await stop_words.open()
        floor = Floor(is_own=is_own, heard_ms=heard_ms, stop_words=stop_words, level_db=level_db, **settings)
        tasks = TaskManager()
        setup = FrameProcessorSetup(
            clock=SystemClock(), task_manager=tasks, pipeline_worker=None, audio_in_sample_rate=16_000
        )  # type: ignore[arg-type]
        await floor.endpoint.setup(setup)
        await floor.strategy.setup(setup)
        await scenario(floor)
        await floor.strategy.cleanup()
        await floor.endpoint.cleanup()
        assert not tasks.current_tasks()
        return floor

    return virtual_time.run(run())


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


def no_command(late_ms: int) -> StopWords:
    """Return a spotter that gets silence: it finds no command, and does not know how a voice sounds."""

    def accept(result: object) -> Transcript:
        assert isinstance(result, Transcript)
        return result

    return StopWords(LateEngine(ScriptedStt(ScriptedSttSettings()), accept, late_ms))


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


def unsure_words_and(
    then: Callable[[Floor], Awaitable[None]], *, is_own: Callable[[], bool | None] | None = None
) -> Floor:
    """Play words over a reply that are too unsure to cut it, and what comes 0.3 s after their voice."""
    stop_words = no_command(50)

    async def scenario(floor: Floor) -> None:
        floor.reply("r1")
        stop_words.hear(bytes(320))
        await floor.voice(300)
        await floor.words("about fees", 0.5)
        await asyncio.sleep(0.14)
        assert floor.of(ReplyCut) == [] and len(floor.of(ReplyRestored)) == 1
        stop_words.hear(bytes(320))
        await then(floor)
        floor.lose("r1", heard="a", unheard="b")
        await asyncio.sleep(5)
        assert floor.said == [] and floor.policy.next_deadline_ms() is None

    return play(scenario, stop_words=stop_words, is_own=is_own)


@pytest.mark.parametrize("length_ms", [500, 1_500], ids=["cut by words", "cut by length"])
def test_words_too_unsure_to_cut_are_in_the_turn_that_the_next_voice_begins(length_ms: int) -> None:
    async def goes_on(floor: Floor) -> None:
        await floor.voice(length_ms)
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(1)

    assert unsure_words_and(goes_on).answered == ["about fees tell me the price"]


@pytest.mark.parametrize("text", ["", "mhm"], ids=["cough", "listener"])
def test_words_too_unsure_to_cut_are_dropped_where_no_voice_takes_the_floor_after_them(text: str) -> None:
    async def makes_a_sound(floor: Floor) -> None:
        await floor.voice(200)
        if text:
            await floor.words(text, 0.95)
        await asyncio.sleep(3)
        assert floor.said == []
        await floor.voice(1_500)
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(1)

    assert unsure_words_and(makes_a_sound).answered == ["tell me the price"]


def test_words_too_unsure_to_cut_are_dropped_at_the_latest_a_second_after_their_voice() -> None:
    async def falls_silent(floor: Floor) -> None:
        assert floor.said == ["about fees"]
        await asyncio.sleep(0.75)
        assert floor.said == ["about fees"]
        await asyncio.sleep(0.2)
        assert floor.said == []

    floor = unsure_words_and(falls_silent)
    assert floor.turns == 0


def test_words_that_turn_out_to_be_the_bots_own_are_in_no_turn() -> None:
    looks: list[bool | None] = []

    async def echoes(floor: Floor) -> None:
        looks.append(True)
        await floor.voice(500)
        looks.clear()
        await asyncio.sleep(0.5)
        assert floor.said == []

    assert unsure_words_and(echoes, is_own=lambda: looks[0] if looks else None).answered == []


def test_words_too_unsure_to_cut_are_in_the_turn_that_begins_when_the_reply_is_over() -> None:
    async def goes_on_in_silence(floor: Floor) -> None:
        floor.lose("r1", heard="a", unheard="")
        await floor.voice(900)
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(1)

    floor = unsure_words_and(goes_on_in_silence)
    assert floor.answered == ["about fees tell me the price"] and floor.of(ReplyCut) == []
