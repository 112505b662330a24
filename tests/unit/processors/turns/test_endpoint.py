"""The stop strategy inside a user aggregator's turn, on virtual time."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest
from pipecat.clocks.system_clock import SystemClock
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.utils.asyncio.task_manager import TaskManager

from parley.core.call_events import (
    BotTurnEnded,
    GuessWithdrawn,
    TurnContinued,
    TurnEndDecided,
    TurnEndRequested,
    TurnGuessed,
    VoicePaused,
    VoiceResumed,
)
from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16
from parley.processors.turns.endpoint import NOT_MEANT, EndpointStopStrategy
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.endpointing.endpointer import EndpointKind, EndpointPolicy, EndpointTuning, Grounds
from parley.turn_taking.endpointing.evidence_voice import VoiceEnd
from parley.turn_taking.endpointing.policies import PredictivePolicy, Price, PricedPolicy, endpoint_policy
from parley.turn_taking.speculation import Guesser
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.turn import ScriptedTurn
from tests.fakes.turn_strategy import hold_turn
from tests.syllables import syllables


class Turn:
    """A strategy with its clock and its decisions."""

    def __init__(
        self,
        probabilities: Sequence[float | EngineError],
        settings: EndpointTuning | None = None,
        policy: EndpointPolicy | None = None,
    ) -> None:
        self.model = ScriptedTurn(probabilities)
        self.endpoints: list[TurnEndDecided] = []
        self.events = CallEvents()
        self.events.subscribe(TurnEndDecided, self.endpoints.append)
        self.stopped = 0
        self.strategy = EndpointStopStrategy(
            policy or endpoint_policy(settings or EndpointTuning(kind="adaptive")),
            completeness=self.model,
            executor=InlineExecutor(),
            events=self.events,
        )

        @self.strategy.event_handler("on_user_turn_stopped")
        async def on_stopped(*_args: object) -> None:
            self.stopped += 1
            await self.strategy.handle_user_turn_stopped()

    async def request_end(self, *, waits_for_words: bool = False) -> None:
        self.events.publish(TurnEndRequested(self.events.now_ms(), waits_for_words=waits_for_words))
        # The strategy ends it in a task.
        await asyncio.sleep(0.001)

    async def give(self, frame: Frame) -> None:
        await self.strategy.process_frame(frame)

    async def speak(self, duration_ms: int) -> None:
        await self.give(VADUserStartedSpeakingFrame(start_secs=0.2))
        await self.audio(duration_ms)

    async def audio(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 20):
            self.strategy.hear(bytes(640))
            await asyncio.sleep(0.02)

    async def late_audio(self, duration_ms: int) -> None:
        """Send audio at once, as after a stop of the process."""
        for _ in range(duration_ms // 20):
            self.strategy.hear(bytes(640))
            await asyncio.sleep(0)

    async def say(self, sound: np.ndarray) -> None:
        """Send a voice, float32, (samples,), 16 kHz, in pieces of 20 ms."""
        await self.give(VADUserStartedSpeakingFrame(start_secs=0.2))
        pcm = float_to_pcm16(sound)
        for at in range(0, len(pcm), 640):
            self.strategy.hear(pcm[at : at + 640])
            await asyncio.sleep(0.02)

    async def fall_silent(self, words: str | None) -> None:
        await self.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
        if words is not None:
            await self.give(TranscriptionFrame(text=words, user_id="", timestamp="", finalized=True))


def play(
    probabilities: Sequence[float | EngineError],
    scenario: Callable[[Turn], Awaitable[None]],
    settings: EndpointTuning | None = None,
    policy: EndpointPolicy | None = None,
) -> Turn:
    async def run() -> Turn:
        turn = Turn(probabilities, settings, policy)
        await hold_turn(turn.strategy, lambda: scenario(turn))
        return turn

    return virtual_time.run(run())


def test_a_complete_turn_ends_after_the_shortest_silence():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [190]
    assert turn.stopped == 1


def test_voice_after_a_pause_keeps_the_turn_open():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("i would like")
        await asyncio.sleep(0.3)
        await turn.speak(1_000)
        await turn.fall_silent("to send money")
        await asyncio.sleep(1)

    turn = play([0.2, 0.99], scenario)
    assert turn.stopped == 1


def test_an_early_yes_needs_no_second_look():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        turn.events.publish(VoicePaused(turn.events.now_ms()))
        await turn.audio(100)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert len(turn.model.heard_samples) == 1
    assert turn.stopped == 1


def test_an_early_no_is_asked_again_with_the_silence_in_its_ears():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        turn.events.publish(VoicePaused(turn.events.now_ms()))
        await turn.audio(100)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(1)

    turn = play([0.2, 0.99], scenario)
    assert np.diff(turn.model.heard_samples) == [1_600]
    assert [endpoint.completeness for endpoint in turn.endpoints] == [0.99]


def test_a_slow_early_no_is_asked_again_about_what_was_heard_at_the_end_of_the_voice(
    monkeypatch: pytest.MonkeyPatch,
):
    async def slow_thread(executor: object, work: Callable[[], object]) -> object:
        await asyncio.sleep(0.1)
        return work()

    async def scenario(turn: Turn) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", slow_thread)
        await turn.speak(1_000)
        turn.events.publish(VoicePaused(turn.events.now_ms()))
        await turn.audio(40)
        await turn.fall_silent("what are your hours")
        await turn.audio(1_000)

    turn = play([0.2, 0.99], scenario)
    # 40 ms later than the first time, however long that took.
    assert np.diff(turn.model.heard_samples) == [640]
    assert [endpoint.completeness for endpoint in turn.endpoints] == [0.99]


def test_an_answer_about_an_earlier_pause_is_not_used():
    async def scenario(turn: Turn) -> None:
        await turn.speak(500)
        turn.events.publish(VoicePaused(turn.events.now_ms()))
        await turn.audio(500)
        turn.events.publish(VoicePaused(turn.events.now_ms()))
        await turn.audio(100)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(2)

    turn = play([0.99, 0.1, 0.1], scenario)
    assert turn.endpoints[0].completeness == 0.1


def test_a_failing_model_costs_its_hint_and_not_the_turn():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(2)

    turn = play([EngineError("broken", engine="turn")], scenario)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [640]


def test_a_turn_without_words_ends_empty():
    async def scenario(turn: Turn) -> None:
        await turn.speak(300)
        await turn.fall_silent(None)
        await asyncio.sleep(3)

    turn = play([0.99], scenario)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [1_500]


def test_the_model_hears_the_last_seconds_and_a_little_before_the_voice():
    async def scenario(turn: Turn) -> None:
        await turn.audio(3_000)
        await turn.speak(20_000)
        await turn.fall_silent("a long story")
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert turn.model.heard_samples == [8 * 16_000]

    async def short(turn: Turn) -> None:
        await turn.audio(3_000)
        await turn.speak(1_000)
        await turn.fall_silent("a short one")
        await asyncio.sleep(1)

    assert play([0.99], short).model.heard_samples == [16_000 * 3 // 2]


def test_words_that_come_after_the_end_of_the_turn_are_answered_at_once():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your")
        await asyncio.sleep(2)
        # The user aggregator begins a turn for them before the strategy sees them.
        await turn.strategy.handle_user_turn_started()
        await turn.give(TranscriptionFrame(text="opening hours", user_id="", timestamp="", finalized=True))
        await asyncio.sleep(0.01)

    assert len(play([0.9], scenario).endpoints) == 2


async def one_turn(turn: Turn) -> None:
    await turn.speak(1_000)
    await turn.fall_silent("what are your hours")
    await turn.audio(2_000)


def test_the_strategy_drives_a_timer():
    settings = EndpointTuning(kind="timer", timer_ms=500)
    assert [endpoint.silence_ms for endpoint in play([0.99], one_turn, settings).endpoints] == [500]


class Patient(PricedPolicy):
    """Policy that waits long, by the score alone, and has the model called again at these silences."""

    def __init__(self, *looks_ms: int) -> None:
        super().__init__(None, Price(60_000, 3_000), looks_ms=looks_ms)

    def _grounds(self, completeness: float | None, filler_log_odds: float | None) -> Grounds:
        score = 0.0 if completeness is None else math.log(completeness / (1 - completeness))
        return Grounds(score, self._caller.end_log_odds)


def test_a_policy_that_wants_more_looks_has_the_model_asked_again():
    turn = play([0.05, 0.05, 0.999], one_turn, policy=Patient(400, 800))
    assert len(turn.model.heard_samples) == 3
    # The looks contain the silence up to them, 160, 400 and 800 ms after the voice, in pieces of 20 ms.
    assert np.diff(turn.model.heard_samples).tolist() == pytest.approx([240 * 16, 400 * 16], abs=320)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [800]


def test_a_slow_estimate_is_of_the_look_that_asked_for_it(monkeypatch: pytest.MonkeyPatch):
    looks: list[tuple[str, int]] = []

    class Recording(Patient):
        """Policy that records the times of its evaluation, and the silence at which each estimate counts."""

        def on_look(self, at_ms: int) -> None:
            super().on_look(at_ms)
            looks.append(("look", self._looked_ms))

        def on_completeness(self, probability: float, *, filler_log_odds: float | None = None) -> None:
            super().on_completeness(probability, filler_log_odds=filler_log_odds)
            looks.append(("estimate", self._looked_ms))

    async def slow_thread(executor: object, work: Callable[[], object]) -> object:
        # The estimate that is requested at 160 ms of silence is not finished at 400.
        await asyncio.sleep(0.3)
        return work()

    async def scenario(turn: Turn) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", slow_thread)
        await one_turn(turn)

    play([0.05], scenario, policy=Recording(400))
    assert looks == [("estimate", 160), ("look", 460), ("estimate", 460)]


def test_a_turn_that_goes_on_is_not_looked_at_again():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("i would like")
        await turn.audio(200)
        await turn.speak(1_000)
        await turn.fall_silent("to send money")
        await turn.audio(1_000)

    turn = play([0.05, 0.9999], scenario, policy=Patient(500))
    assert len(turn.model.heard_samples) == 2
    assert turn.stopped == 1


@pytest.mark.parametrize(("said", "silence_ms"), [("It is nine.", 1_500), ("What did you do?", 190)])
def test_what_the_bot_asked_for_reaches_the_policy(said: str, silence_ms: int):
    async def scenario(turn: Turn) -> None:
        turn.events.publish(BotTurnEnded(turn.events.now_ms(), said, False))
        await turn.speak(1_000)
        await turn.fall_silent("we went down to the market")
        await turn.audio(3_000)

    settings = EndpointTuning(kind="adaptive", told_silence_ms=1_500)
    assert [endpoint.silence_ms for endpoint in play([0.99], scenario, settings).endpoints] == [silence_ms]


def test_pauses_and_words_of_an_open_turn_are_guessed_about():
    guesses: list[str | None] = []
    so_far: list[str] = []

    async def run() -> None:
        tasks, events = TaskManager(), CallEvents()
        events.subscribe(TurnGuessed, lambda event: guesses.append(event.text))
        events.subscribe(GuessWithdrawn, lambda _event: guesses.append(None))
        events.subscribe(TurnContinued, lambda event: so_far.append(event.text))
        strategy = EndpointStopStrategy(
            endpoint_policy(EndpointTuning(kind="adaptive")),
            completeness=ScriptedTurn([0.1]),
            executor=InlineExecutor(),
            guesser=Guesser(),
            events=events,
        )
        await strategy.setup(
            FrameProcessorSetup(
                clock=SystemClock(), task_manager=tasks, pipeline_worker=None, audio_in_sample_rate=16_000
            )  # type: ignore[arg-type]
        )

        async def partial(words: str) -> None:
            await strategy.process_frame(InterimTranscriptionFrame(words, "", ""))

        # A backchannel outside of a turn starts no decision.
        await strategy.process_frame(VADUserStartedSpeakingFrame(start_secs=0.2))
        await partial("hm")
        events.publish(VoicePaused(events.now_ms()))
        assert guesses == []
        await strategy.forget()
        await strategy.handle_user_turn_started()
        await strategy.process_frame(VADUserStartedSpeakingFrame(start_secs=0.2))
        await partial("what")
        events.publish(VoicePaused(events.now_ms()))
        assert guesses == ["what"]
        events.publish(VoiceResumed(events.now_ms()))
        await partial("what is")
        await strategy.process_frame(VADUserStoppedSpeakingFrame(stop_secs=0.2))
        assert guesses == ["what", "what is"]
        await strategy.process_frame(VADUserStartedSpeakingFrame(start_secs=0.2))
        assert guesses == ["what", "what is", None]
        await partial("what is it")
        await strategy.process_frame(VADUserStoppedSpeakingFrame(stop_secs=0.2))
        await strategy.process_frame(TranscriptionFrame("what is it", "", "", finalized=True))
        assert guesses == ["what", "what is", None, "what is it"]
        await strategy.handle_user_turn_stopped()
        assert guesses[-1] == "what is it"
        await partial("hm")
        assert so_far == ["what", "what is", "what is it"]
        await strategy.cleanup()

    virtual_time.run(run())


def test_a_turn_that_begins_late_has_the_words_from_before_and_ends_properly():
    async def scenario(turn: Turn) -> None:
        await turn.strategy.handle_user_turn_stopped()
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(0.1)
        assert turn.endpoints == []
        # Barge-in has found that the interruption was meant.
        await turn.strategy.handle_user_turn_started()
        await turn.strategy.take_up()
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert [endpoint.rule for endpoint in turn.endpoints] == [EndpointKind.COMPLETE.value]
    assert turn.stopped == 1


def test_nothing_is_decided_between_turns():
    async def scenario(turn: Turn) -> None:
        await turn.strategy.handle_user_turn_stopped()
        await turn.speak(400)
        await turn.fall_silent("mhm")
        await asyncio.sleep(3)

    turn = play([0.99], scenario)
    assert (turn.endpoints, turn.stopped) == ([], 0)


def test_what_was_not_meant_is_not_in_the_next_turn():
    async def scenario(turn: Turn) -> None:
        await turn.strategy.handle_user_turn_stopped()
        await turn.speak(400)
        await turn.fall_silent("mhm")
        await turn.strategy.forget()
        await asyncio.sleep(1)
        await turn.speak(400)
        await turn.strategy.handle_user_turn_started()
        # No words are recognised this time: it ends as empty, after the usual time.
        await turn.fall_silent(None)
        await asyncio.sleep(1.3)
        assert turn.endpoints == []
        await asyncio.sleep(1)

    turn = play([0.99, 0.99], scenario)
    assert [endpoint.rule for endpoint in turn.endpoints] == [EndpointKind.EMPTY.value]


def test_words_that_were_not_meant_end_no_turn():
    async def scenario(turn: Turn) -> None:
        await turn.speak(400)
        await turn.fall_silent(None)
        frame = TranscriptionFrame(text="mhm", user_id="", timestamp="", finalized=True)
        NOT_MEANT.put(frame, True)
        await turn.give(frame)
        await asyncio.sleep(1)
        assert turn.endpoints == []

    play([0.99], scenario)


def test_an_abandoned_turn_ends_without_a_decision_as_soon_as_the_voice_does():
    async def scenario(turn: Turn) -> None:
        await turn.speak(400)
        await turn.strategy.abandon()
        assert turn.stopped == 0
        await turn.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
        assert turn.stopped == 1
        await turn.strategy.handle_user_turn_started()
        await turn.speak(400)
        await turn.fall_silent("mhm")
        await turn.strategy.abandon()
        assert turn.stopped == 2
        await asyncio.sleep(2)

    turn = play([0.1, 0.1], scenario)
    assert (turn.endpoints, turn.stopped) == ([], 2)


def test_a_turn_that_lasts_too_long_can_be_ended_in_the_middle_of_a_voice():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.request_end()
        # The turn has ended already, and no decision about a silence was made.
        await turn.request_end()

    turn = play([0.99], scenario)
    assert (turn.stopped, turn.endpoints) == (1, [])


class CountedEnds(PredictivePolicy):
    """Policy that counts the measured ends of voices."""

    measured = 0

    def on_voice_end(self, end: VoiceEnd) -> None:
        self.measured += 1
        super().on_voice_end(end)


def test_the_end_of_the_voice_is_measured_once_in_a_pause():
    async def scenario(turn: Turn) -> None:
        for _ in range(2):
            await turn.say(syllables([120] * 10))
            await turn.fall_silent("i would like")
            await turn.audio(600)

    policy = CountedEnds(EndpointTuning(kind="predictive", patience=1.0))
    turn = play([0.02], scenario, policy=policy)
    # Two looks at each of two pauses, and one measurement.
    assert len(turn.model.heard_samples) == 4
    assert policy.measured == 2


def stop_process(for_s: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_time.VirtualLoop)
    loop.stand_still(for_s)


# The decision is due 640 ms after the voice. Audio of the pause before the stop, and the time for which the
# loop brings other things first after it.
@pytest.mark.parametrize(("before_ms", "first_s"), [(0, 0.0), (100, 0.0), (100, 0.04), (500, 0.04)])
def test_a_stop_of_the_process_within_a_pause_ends_no_turn(before_ms: int, first_s: float):
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("i would like")
        await turn.audio(before_ms)
        stop_process(2.5)
        await asyncio.sleep(first_s)
        # The caller went on after a short pause.
        await turn.late_audio(300)
        await turn.give(VADUserStartedSpeakingFrame(start_secs=0.2))
        await turn.late_audio(2_200 - before_ms)
        assert turn.stopped == 0
        await turn.speak(500)
        await turn.fall_silent("to send money")
        await turn.audio(1_000)

    turn = play([0.2, 0.99], scenario)
    assert turn.stopped == 1


def test_a_pause_that_lasted_through_a_stop_of_the_process_ends_the_turn_with_its_audio():
    ended_s: list[float] = []

    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await turn.audio(100)
        stop_process(2.5)
        resumed_s = asyncio.get_running_loop().time()
        await turn.late_audio(2_500)
        while not turn.stopped:
            await asyncio.sleep(0.01)
        ended_s.append(asyncio.get_running_loop().time() - resumed_s)

    play([0.99], scenario)
    assert ended_s[0] <= 0.11


def test_a_turn_ends_after_a_stop_of_the_process_that_no_audio_follows():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await turn.audio(100)
        stop_process(2.5)
        await asyncio.sleep(0.15)
        assert turn.stopped == 1

    play([0.99], scenario)


def test_a_turn_ends_although_audio_of_its_pause_was_lost():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await turn.audio(20)
        # Nothing comes for a while, and then what is spoken.
        await asyncio.sleep(0.16)
        stop_process(0.3)
        await turn.audio(200)
        assert turn.stopped == 1

    play([0.99], scenario)


def test_the_last_words_of_a_turn_that_the_caller_has_ended_are_awaited_through_a_stop_of_the_process():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.request_end(waits_for_words=True)
        await asyncio.sleep(0.3)
        stop_process(2.0)
        # The recogniser was stopped too.
        await asyncio.sleep(0.5)
        assert turn.stopped == 0
        await turn.fall_silent("to send money")
        assert turn.stopped == 1

    play([0.2], scenario)
